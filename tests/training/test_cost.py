"""Laws of the cost before the run: operations, parameters, tokens and memory are counted, not guessed."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import StreamBatch
from seqtrain.errors import Unavailable, UserError
from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.training import cost
from seqtrain.training.model_and_task import make_model
from seqtrain.training.transfer import freeze
from tests.support.model_cases import VOCABULARY, Case, cases, next_token, some_tokens

BATCH = 3
GPTS = [case for case in cases() if case.name == "gpt" and not case.is_mixture]


def counted(model: SequenceModel, length: int, carried: bool, *, backward: bool, tied: bool = True) -> float:
    """Operations per token that torch counts: attention as full products of all queries with all keys."""
    task, tokens = next_token(model, tied=tied).train(), some_tokens(BATCH, length)
    size = BATCH * length
    batch = StreamBatch(tokens=tokens, targets=tokens % 7, reset_lanes=None, lanes=slice(0, 3), count=size, total=size)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        parts, _ = task.evaluate(model, batch, model.initial(BATCH) if carried else None)
        if backward:
            parts["loss"][0].backward()
    return counter.get_total_flops() / size


def test_a_decoders_operations_are_those_that_torch_counts() -> None:
    for case in GPTS:
        for length, carried in ((3, False), (4, False), (4, True), (9, True), (1, True), (9, False)):
            model = case.make()
            forward = model.flops_per_token(length, carried) + next_token(model).head_flops()
            assert forward == counted(model, length, carried, backward=False), (case, length, carried)


def test_training_costs_three_times_the_forward_pass() -> None:
    for tied, carried in product((True, False), (True, False)):
        model = Case("gpt", ()).make()
        expected = cost.training_flops(model, next_token(model, tied=tied), cost.ReadPattern(4, carried))
        assert expected == counted(model, 4, carried, backward=True, tied=tied), (tied, carried)


def test_a_head_is_paid_for_each_target_and_backward_for_each_token_that_gradients_reach() -> None:
    model = Case("lstm", ()).make()
    task = next_token(model, tied=False)
    core, head = 2 * 2 * 4 * 8 * (8 + 8), 2 * 8 * VOCABULARY
    for targets, reached in ((1.0, 1.0), (0.15, 1.0), (0.5, 0.25), (0.0, 0.0)):
        found = cost.training_flops(model, task, cost.ReadPattern(4, True, (), targets, reached))
        assert found == pytest.approx((1 + 2 * reached) * core + 3 * targets * head)


# A Transformer block: queries, keys, values, output; into four times the width and back.
BLOCK = 2 * (4 * 8 * 8 + 2 * 8 * 32)
LOOK = 2 * 2 * 8  # a query with one key, and its share of one value


def test_a_model_that_says_its_operations_says_what_torch_counts() -> None:
    for case in (case for case in cases() if not case.is_mixture):
        model = case.make()
        if type(model).flops_per_token is SequenceModel.flops_per_token:
            continue
        for length in (1, 7):
            counted = SequenceModel.flops_per_token(model, length, False)
            assert model.flops_per_token(length, False) == pytest.approx(counted, rel=1e-12), (case, length)


class Torchs(SequenceModel):
    """A model as a user would write it, of torch's own parts; `kind` says which."""

    capabilities = Capability.CAUSAL | Capability.UNCONDITIONAL

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embed, self.dim, self.kind = torch.nn.Embedding(VOCABULARY, 8), 8, kind
        self.lstm = torch.nn.LSTM(8, 8, num_layers=2, batch_first=True)
        self.block = torch.nn.TransformerEncoderLayer(8, 2, 32, batch_first=True)
        self.score = torch.nn.Parameter(torch.ones(8))

    def initial(self, batch: int) -> State:
        return {}

    def forward(self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None) -> Any:
        x = self.embed(tokens)
        if self.kind == "lstm":
            return self.lstm(x)[0], {}
        if self.kind == "block":
            return self.block(x), {}
        scores = x @ self.score
        return x * (scores.max().item() if self.kind == "values" else scores.softmax(-1).unsqueeze(-1)), {}


def test_of_a_users_model_torch_counts_what_its_parts_cost() -> None:
    for kind, expected in (("lstm", 2 * 2 * 4 * 8 * (8 + 8)), ("block", BLOCK + LOOK * 5), ("scores", 2 * 8)):
        for training in (True, False):
            assert Torchs(kind).train(training).flops_per_token(5, False) == expected, kind


def test_a_model_whose_work_depends_on_values_is_asked_to_say_its_operations() -> None:
    with pytest.raises(UserError, match=r"^model=Torchs cannot run on the meta device .* a method flops_per_token$"):
        Torchs("values").flops_per_token(5, False)


def test_a_model_whose_work_depends_on_values_has_a_cost_once_it_says_its_operations() -> None:
    class Said(Torchs):
        def flops_per_token(self, length: int, carried: bool) -> float:
            return 10.0

    found = estimated(Said("values").double())
    assert found.flops_per_token == 3 * (10 + 2 * 8 * VOCABULARY)
    assert found.memory_bytes == 16 * found.parameters["total"]  # activations cannot be counted there


def estimate(case: Case, *, tied: bool, accumulate: int = 1, carry: bool = True, lanes: int = 4) -> cost.Cost:
    return estimated(case.make(), tied=tied, accumulate=accumulate, carry=carry, lanes=lanes)


def estimated(
    model: SequenceModel, *, tied: bool = False, accumulate: int = 1, carry: bool = True, lanes: int = 4
) -> cost.Cost:
    tbptt = TBPTT(k1=8, k2=8, carry=carry, reset="never")
    plan = StreamPlan(documents=np.array([0, 90, 150]), lanes=lanes, tbptt=tbptt, seed=0, shuffle=False)
    task = next_token(model, tied=tied)
    return cost.estimate(model, task, plan, cost.ReadPattern(8, carry), accumulate=accumulate, steps=12)


def test_parameters_by_part_add_up_and_the_state_is_what_a_lane_carries() -> None:
    for case in (case for case in cases() if not case.options):
        for tied in (True, False):
            model = case.make()
            found = estimated(model, tied=tied)
            parameters = found.parameters
            everything = (*model.parameters(), *next_token(model, tied=tied).parameters())
            assert parameters["total"] == sum(weight.numel() for weight in everything), case
            assert parameters["embed"] + parameters["core"] + parameters["head"] == parameters["total"], case
            assert parameters["embed"] == (VOCABULARY + 3) * 8, case
            assert parameters["head"] == (0 if tied else VOCABULARY * 8 + VOCABULARY), case
        model = case.make()
        carries = Capability.STATEFUL | Capability.UNCONDITIONAL in model.capabilities
        state = model(some_tokens(3, 5), model.initial(3))[1] if carries else {}
        expected = sum(tensor.numel() for tensor in state.values()) / 3 if carries else None
        assert found.state == expected, case


@pytest.mark.parametrize("name", ["encoder_decoder", "rnn_encoder_decoder"])
def test_both_front_ends_of_separate_vocabularies_are_embeddings_and_a_frozen_weight_is_counted(name: str) -> None:
    config = Case(name, ()).config()
    model = make_model(config, VOCABULARY, target_vocab_size=20)
    shared = make_model(config, VOCABULARY)
    plan = StreamPlan(
        documents=np.array([0, 150]),
        lanes=4,
        tbptt=TBPTT(k1=8, k2=8, carry=True, reset="never"),
        seed=0,
        shuffle=False,
    )
    freeze(model, ["embed"])
    options: dict[str, Any] = {"accumulate": 1, "steps": 1}
    reading = cost.ReadPattern(8, True)
    found, one = (
        cost.estimate(each, next_token(each), plan, reading, **options).parameters for each in (model, shared)
    )
    assert found == {**one, "embed": (VOCABULARY + 3 + 20 + 3) * 8, "total": one["total"] + (20 + 3) * 8}


def test_tokens_steps_and_epochs_are_those_of_the_plan() -> None:
    found = estimate(Case("lstm", ()), tied=True)
    # 150 tokens on lanes of 37 and 38: steps of 32, 32, 32, 32 and 22 targets
    assert (found.tokens_per_step, found.tokens_per_epoch, found.steps, found.epochs) == (32, 150, 12, 12 / 5)
    assert found.tokens == 2 * 150 + 2 * 32
    assert found.flops == found.flops_per_token * found.tokens
    assert found.padding == pytest.approx(1 - 150 / (4 * 32 + 4 * 6))


def test_memory_follows_the_lanes_of_a_micro_batch() -> None:
    for case in (*GPTS[:1], Case("lstm", ()), Case("min_gru", ())):
        one, two, four = (estimate(case, tied=True, lanes=4, accumulate=n).memory_bytes for n in (4, 2, 1))
        # Of each number a weight, a gradient and two moments, of four bytes each.
        constant = 16 * estimate(case, tied=True).parameters["total"]
        assert one > constant, case
        assert (four - constant) / (one - constant) == pytest.approx(4, rel=0.25), case
        assert one < two < four, case


def test_a_number_that_trains_takes_memory_by_where_and_how_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 4000, "SC_PHYS_PAGES": 1000}[name])
    for on_gpu, strategy, precision, size in (
        *((False, "auto", "32-true", 16), (False, "ddp", "bf16-mixed", 16), (False, "auto", "64-true", 32)),
        *((False, "fsdp", "32-true", 4), (False, "fsdp", "64-true", 8), (True, "auto", "32-true", 4)),
    ):
        monkeypatch.setattr(cost, "on_gpu", lambda config, on_gpu=on_gpu: on_gpu)
        config = OmegaConf.create({"trainer": {"strategy": strategy, "precision": precision}})
        most = 4_000_000 // size
        cost.check_memory(config, "it", most)
        cost.check_memory(config, "it", most - 1, state=size)
        for parameters, state in ((most + 1, 0), (most, 1)):
            with pytest.raises(Unavailable, match="use a smaller model"):
                cost.check_memory(config, "it", parameters, state)


def test_weights_are_no_activations_wherever_they_are() -> None:
    model = Case("gpt", ()).make()
    one, other = (
        cost.activations(model, next_token(model, tied=tied), 2, cost.ReadPattern(8, True)) for tied in (True, False)
    )
    assert one == other  # a head of its own keeps what the embedding as head keeps, but for weights


def test_the_estimate_leaves_model_and_task_as_they_were() -> None:
    model = Case("gpt", ()).make()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    cost.activations(model, next_token(model), 2, cost.ReadPattern(8, True))
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


class Attends(torch.nn.Module):
    """What a recurrence with attention to all of its own steps would keep: a number for each pair of them."""

    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.transpose(1, 2)).softmax(-1) @ x


def test_what_a_recurrence_keeps_of_a_long_chunk_is_told_from_few_of_its_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, lengths = cost._kept, list[int]()

    def noted(*args: Any) -> int:
        lengths.append(args[-1].length)
        return kept(*args)

    monkeypatch.setattr(cost, "_kept", noted)
    for name, carry in product(("rnn", "gru", "lstm"), (True, False)):
        model, reading = Case(name, (("num_layers", 2), ("dropout", 0.1))).make(), cost.ReadPattern(40, carry)
        task = next_token(model)
        whole = kept(model.to("meta"), task.to("meta"), 2, reading)
        assert cost.activations(model, task, 2, reading) == whole, (name, carry)
    assert max(lengths) < 40


def test_a_recurrence_that_keeps_more_of_later_tokens_is_counted_whole() -> None:
    model, reading = Case("lstm", ()).make(), cost.ReadPattern(40, True)
    model.embed = torch.nn.Sequential(model.embed, Attends())
    task = next_token(model, tied=False)
    assert cost.activations(model, task, 2, reading) == cost._kept(model.to("meta"), task.to("meta"), 2, reading)
