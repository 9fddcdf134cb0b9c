"""Laws of truncated back-propagation through whole sequences: gradients reach the last k2 tokens of each, no more."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from seqtrain import load
from seqtrain.config import check
from seqtrain.data.batching.examples import ExampleBatch
from seqtrain.data.batching.plan import TBPTT
from seqtrain.experiment.start import Request, dry_run
from seqtrain.models.base import Capability, Segment, SequenceModel, State, detach
from seqtrain.tasks.sentiment import Pool, Sentiment, pool_segments
from seqtrain.training.compatibility import incompatibility
from seqtrain.training.cost import ReadPattern, training_flops
from tests.conftest import Seqtrain
from tests.support.examples import files, options
from tests.support.model_cases import Case, assert_near, cases, outputs, some_tokens
from tests.support.quick import some_long

POOLS: tuple[Pool, ...] = ("last", "mean", "max")
LENGTHS = [13, 3, 5, 10, 11, 1, 20]  # shorter than k2, as long, multiples of it and not
TARGETS = [0, 2, 1, 1, 0, 2, 1]
K2 = 5
STATES = Capability.STATEFUL | Capability.UNCONDITIONAL
SHIPPED = [case for case in cases(STATES) if not case.options]
STATEFUL = pytest.mark.parametrize("case", SHIPPED, ids=str)
VARIED = [case for case in cases(STATES) if not case.is_mixture]


def task(how: Pool, bptt_length: int, dim: int = 8) -> Sentiment:
    torch.manual_seed(0)
    labels = ("bad", "good", "so so")
    given = Sentiment(
        pool=how, dropout=0.0, class_weights="none", dim=dim, bptt_length=bptt_length, labels=labels, label_counts=()
    )
    return given.double()


def batch(tokens: Tensor, lengths: list[int], targets: list[int]) -> ExampleBatch:
    return ExampleBatch(
        tokens=tokens,
        lengths=torch.tensor(lengths),
        targets=torch.tensor(targets),
        index=torch.arange(len(lengths)),
        count=sum(lengths),
        totals={"loss": len(lengths)},
    )


def whole_batch() -> ExampleBatch:
    return batch(some_tokens(len(LENGTHS), max(LENGTHS), specials=3), LENGTHS, TARGETS)


def gradients(model: SequenceModel, given: Sentiment, *batches: ExampleBatch) -> list[Tensor]:
    """Of the loss of some batches together, with respect to all weights of model and task."""
    weights = [*model.parameters(), *given.parameters()]
    losses = [given.train().evaluate(model, each, None)[0]["loss"][0] for each in batches]
    return list(torch.autograd.grad(torch.stack(losses).sum(), weights))


def by_hand(model: SequenceModel, found: ExampleBatch, bptt_length: int) -> Iterator[tuple[int, Tensor]]:
    """Hidden states (n, D) of each lane, read alone a token at a time and cut from what is beyond its last
    `bptt_length`."""
    for lane, length in enumerate(found.lengths.tolist()):
        state: State = model.initial(1)
        seen: list[Tensor] = []
        for now in range(length):
            if now == length - bptt_length:
                state, seen = detach(state), [hidden.detach() for hidden in seen]
            hidden, state = model(found.tokens[lane : lane + 1, now : now + 1], state)
            seen.append(hidden[0, 0])
        yield lane, torch.stack(seen)


def loss_by_hand(model: SequenceModel, given: Sentiment, found: ExampleBatch, bptt_length: int) -> Tensor:
    """The sum of all lanes' surprisals."""
    pooled = {"last": lambda seen: seen[-1], "mean": lambda seen: seen.mean(0), "max": lambda seen: seen.amax(0)}
    scores = [given.head(pooled[given.pool](seen)) for _, seen in by_hand(model, found, bptt_length)]
    return F.cross_entropy(torch.stack(scores), found.targets, reduction="sum")


# -- what the gradient reaches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", some_long(VARIED, SHIPPED), ids=str)
def test_gradients_equal_a_hand_written_reference_that_detaches(case: Case) -> None:
    model, found = case.make(dropout=0.0).train(), whole_batch()
    for how, bptt_length in product(POOLS, (1, K2, max(LENGTHS))):
        given = task(how, bptt_length)
        expected = torch.autograd.grad(
            loss_by_hand(model, given, found, bptt_length), [*model.parameters(), *given.parameters()]
        )
        assert_near(gradients(model, given, found), list(expected))


# -- what is read ------------------------------------------------------------------------------------------------


@STATEFUL
def test_cutting_changes_no_value_in_training_and_evaluation(case: Case) -> None:
    model, found = case.make(dropout=0.0), whole_batch()
    for how, mode in product(POOLS, (True, False)):
        expected = task(how, 10**9).train(mode).evaluate(model.train(mode), found, None)[0]
        for bptt_length in (1, 3, 10, 19):
            assert_near(task(how, bptt_length).train(mode).evaluate(model, found, None)[0], expected)


@STATEFUL
def test_order_padding_and_batching_change_no_gradient(case: Case) -> None:
    model, found = case.make(dropout=0.0).train(), whole_batch()

    def part(lanes: list[int], wider: int) -> ExampleBatch:
        tokens = torch.cat([found.tokens, some_tokens(len(LENGTHS), wider, seed=3)], 1)[lanes]
        return batch(tokens, [LENGTHS[lane] for lane in lanes], [TARGETS[lane] for lane in lanes])

    for how in POOLS:
        given = task(how, K2)
        expected = gradients(model, given, found)
        assert_near(gradients(model, given, part([6, 2, 0, 5, 3, 1, 4], 4)), expected)
        assert_near(gradients(model, given, part([5, 1], 0), part([6, 3, 0], 1), part([4, 2], 9)), expected)


def test_no_reading_is_longer_than_k2_and_none_reads_a_lane_that_has_ended() -> None:
    model = Case("lstm", ()).make()
    read = outputs(model.embed)
    task("mean", K2).pooled(model, some_tokens(3, 100), torch.tensor([6, 100, 35]))
    assert {hidden.shape[1] for hidden in read} <= set(range(1, K2 + 1))
    assert sum(hidden.shape[0] * hidden.shape[1] for hidden in read) == 6 + 100 + 35


def test_dropout_acts_on_what_is_before_as_on_the_rest() -> None:
    case, found = Case("lstm", (("dropout", 0.5),)), whole_batch()
    read = {}
    for mode in (True, False):
        model = case.make().train(mode)
        read[mode] = outputs(model)
        task("mean", K2).train(mode).evaluate(model, found, None)
    assert len(read[True]) > 2
    assert not any(torch.equal(one, two) for one, two in zip(read[True], read[False], strict=True))


def test_a_mean_of_more_positions_than_bf16_can_count_is_right() -> None:
    one = torch.ones(1, 1, 1, dtype=torch.bfloat16)
    pieces = [Segment(torch.tensor([0]), one, torch.tensor([1]))] * 1000
    assert pool_segments(pieces, torch.tensor([1000]), "mean").item() == 1


# -- memory ------------------------------------------------------------------------------------------------------


def kept(model: SequenceModel, given: Sentiment, found: ExampleBatch) -> int:
    """Bytes that a training step holds for the backward pass, weights apart; each storage counts once."""
    weights = {weight.untyped_storage().data_ptr() for weight in (*model.parameters(), *given.parameters())}
    held: dict[int, Tensor] = {}  # the tensors stay, so that no address is used twice

    def keep(tensor: Tensor) -> Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        given.train().evaluate(model, found, None)
    return sum(tensor.untyped_storage().nbytes() for place, tensor in held.items() if place not in weights)


@pytest.mark.long
@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "min_gru", "cnn", "mlp", "gpt"])
def test_100_000_tokens_keep_as_many_bytes_for_backward_as_1_000(name: str) -> None:
    model = Case(name, ()).make(dim=4, num_layers=1).train()
    sizes, longest = {}, 100_000 if name == "lstm" else 5_000
    for length in (100, 1_000, longest):
        found = batch(some_tokens(2, length), [length, length - 30], [0, 1])
        pools = ("mean",) if length > 1_000 else POOLS
        sizes[length] = {how: kept(model, task(how, 64, dim=4), found) for how in pools}
    assert sizes[longest]["mean"] == sizes[1_000]["mean"] > 0
    assert sizes[1_000] == sizes[100]


def test_the_cost_counts_a_backward_pass_of_the_tokens_that_are_reached_alone() -> None:
    model, given = Case("gpt", ()).make(), task("last", 4).train()
    found = batch(some_tokens(2, 12), [12, 12], [0, 1])
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        given.evaluate(model, found, None)[0]["loss"][0].backward()
    expected = training_flops(model, given, ReadPattern(4, True, (), 1 / 12, 1 / 3))
    assert counter.get_total_flops() / found.count == pytest.approx(expected, rel=1e-12)


# -- the command -------------------------------------------------------------------------------------------------

CUT = ("tbptt.k2=4", "task.pool=mean", "trainer.max_steps=4", "trainer.validate_every=2")


@pytest.mark.long
def test_a_run_says_what_is_cut_and_answers_as_one_that_is_read_whole(
    seqtrain: Seqtrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files(tmp_path))
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    answer = seqtrain("train", *options("sentiment"), "tokenizer=char", *CUT, "run_dir=run", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    costs = [
        dry_run(check.compose([*options("sentiment"), "tokenizer=char", *given]), Request()).flops_per_token
        for given in (CUT, CUT[1:])
    ]
    assert costs[1] / 3 < costs[0] < costs[1]
    (said,) = [line for line in answer.err.splitlines() if "tbptt.k2=4" in line]
    assert said.startswith(
        "train: 48 of 48 examples are longer than tbptt.k2=4 tokens: gradients reach only the last 4"
    )
    assert said.endswith("task.pool=mean treats earlier positions as constants")
    answers = []
    for bptt_length in (4, 16):
        trained = load(tmp_path / "run")
        assert isinstance(trained.task, Sentiment)
        assert trained.task.bptt_length == 4
        trained.task.bptt_length = bptt_length
        trained.model.double()
        trained.task.double()
        answers.append(trained.classify(["line", "a line far longer than k2 tokens"]))
    cut, whole = ([found["probabilities"] for found in each] for each in answers)
    assert cut == [pytest.approx(found, abs=1e-9) for found in whole]


def test_every_model_is_asked_for_a_state_only_where_examples_are_longer_than_k2() -> None:
    for case in cases(Capability.UNCONDITIONAL):
        model = case.make()
        for k2, trains in ((20, True), (19, Capability.STATEFUL in model.capabilities)):
            tbptt = TBPTT(k1=k2, k2=k2, carry=False, reset="never")
            assert (incompatibility(model, task("max", k2), tbptt, 20) is None) == trains, (case, k2)
