"""How far gradients reach, as it is measured: exact zeros beyond the cut, exact powers, and only pairs that count."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seqtrain.analysis.gradient_decay import decay_of, mean_norms, spectral_radii
from seqtrain.analysis.gradient_reach import Measured, measure_examples, measure_stream
from seqtrain.analysis.gradients import Options, decay_behind, flat_numbers, record_of, subject_of
from seqtrain.analysis.recording import INPUT, prepared
from seqtrain.cli.main import main as run_command
from seqtrain.config import check
from seqtrain.data.batching.examples import ExampleBatch
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import IGNORED, Stream, StreamBatch
from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel, directions, read, read_in_segments
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.models.recurrent import RNN
from seqtrain.tasks.base import Task
from seqtrain.training.data import make_data
from seqtrain.training.model_and_task import make_pair
from seqtrain.training.splits import Data
from tests.support.model_cases import START, VOCABULARY, Case, cases, next_token
from tests.support.untrained_runs import TRANSLATION, make_run

K2 = 6
SHIPPED = [case for case in cases(Capability.STATEFUL | Capability.UNCONDITIONAL) if not case.options]
CUTS: list[dict[str, Any]] = [{"k1": K2}, {"k1": 2}, {"k1": K2, "reset": "document"}]


def measured(
    model: SequenceModel, task: Any = None, *, documents: list[int] | None = None, samples: int = 40, **cut: Any
) -> Measured:
    """What is measured of a random stream of three lanes, or of documents of these lengths."""
    edges = np.cumsum([0, *(documents or [150])])
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, edges[-1])
    tbptt = TBPTT(**{"k1": K2, "k2": K2, "carry": True, "reset": "never"} | cut)
    plan = StreamPlan(documents=edges, lanes=3, tbptt=tbptt, seed=0, shuffle=False)
    stream = Stream(tokens, edges, START)
    task = task or next_token(model, tied=False)
    return measure_stream(model, task, stream, plan, farthest=2 * K2, samples=samples)


@pytest.mark.parametrize("case", SHIPPED, ids=str)
def test_no_gradient_at_all_reaches_k2_and_some_reaches_the_distance_before(case: Case) -> None:
    model = case.make()
    for cut in CUTS:
        every, _, share = mean_norms(measured(model, documents=[50, 50, 50] if "reset" in cut else None, **cut))
        assert np.isfinite(every).all(), f"{cut}: each distance was measured"
        assert (every[:, K2:] == 0.0).all(), cut
        assert (every[0, :K2] > 0).all(), cut
        assert (share[K2:] == 0).all(), cut
        assert share[0] == 1, cut


def test_with_k1_below_k2_the_warm_up_carries_the_gradient_over_the_chunks_before() -> None:
    model = Case("rnn", ()).make()
    narrow, wide = (mean_norms(measured(model, k1=2, k2=k2))[2] for k2 in (2, K2))
    assert (narrow[2:] == 0).all()
    assert (wide[: K2 - 1] == 1).all(), "each loss reaches at least k2 - k1 + 1 inputs"


class Linear(SequenceModel):
    """h_t = W h_(t-1) + x_t."""

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.UNCONDITIONAL

    def __init__(self, matrix: torch.Tensor) -> None:
        super().__init__()
        self.dim = len(matrix)
        self.embed = TokenEmbedding(vocab_size=VOCABULARY, dim=self.dim)
        self.matrix = nn.Parameter(matrix)

    def initial(self, batch: int) -> dict[str, torch.Tensor]:
        return {"hidden": self.matrix.new_zeros(batch, self.dim)}

    def forward(self, tokens: Any, state: Any = None, lengths: Any = None) -> Any:
        hidden = (self.initial(len(tokens)) if state is None else state)["hidden"]
        outputs = []
        for x in self.embed(tokens).unbind(1):
            hidden = hidden @ self.matrix.T + x
            outputs.append(hidden)
        return torch.stack(outputs, 1), {"hidden": hidden}


class Sum(nn.Module):
    """The sum over `direction` of the hidden states that have a target, as a task."""

    differentiated = ("loss",)

    def __init__(self, direction: torch.Tensor) -> None:
        super().__init__()
        self.direction = nn.Parameter(direction)

    def evaluate(self, model: SequenceModel, batch: Any, state: Any) -> Any:
        if isinstance(batch, StreamBatch):
            hidden, after = read(model, batch.tokens, state, batch.starts)
        else:
            hidden, after = model(batch.tokens, state, batch.lengths)
        return {"loss": ((hidden @ self.direction)[batch.targets != IGNORED].sum(), 1)}, after


def test_a_linear_recurrence_gives_the_powers_of_its_matrix_and_the_rate_of_its_radius() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(4, 4, generator=generator, dtype=torch.float64) * 0.4
    direction = torch.randn(4, generator=generator, dtype=torch.float64)
    _, norms, _ = mean_norms(measured(Linear(matrix), Sum(direction)))
    powers = []
    for distance in range(K2):
        powers.append(torch.linalg.matrix_power(matrix.T, distance) @ direction)
    np.testing.assert_allclose(norms[0, :K2], torch.stack(powers).norm(dim=1).numpy(), rtol=1e-12)
    same = 0.7 * torch.eye(4, dtype=torch.float64)
    decay = decay_of(measured(Linear(same), Sum(direction)))
    assert decay.rate == pytest.approx(0.7)
    assert decay.r2 == pytest.approx(1)
    assert decay.half_life == pytest.approx(np.log(0.5) / np.log(0.7))  # of a geometric decay, whatever it begins at
    assert decay.faded is None, "0.7 ** 5 is above a thousandth: nothing is said beyond what was measured"
    growing = decay_of(measured(Linear(1.2 * torch.eye(4, dtype=torch.float64)), Sum(direction)))
    assert (growing.rate, growing.half_life) == (pytest.approx(1.2), None)


def test_a_gradient_whose_square_is_too_small_for_a_number_is_not_taken_for_none() -> None:
    tiny = 1e-40 * torch.eye(4, dtype=torch.float64)  # after five steps 1e-200, whose square is 0
    direction = torch.ones(4, dtype=torch.float64)
    _, norms, _ = mean_norms(measured(Linear(tiny), Sum(direction)))
    expected = 2.0 * 1e-40 ** np.arange(6.0)
    np.testing.assert_allclose(norms[0, :6], expected, rtol=1e-12)


def test_pairs_across_a_document_reset_are_not_counted_and_do_not_pull_the_mean_down() -> None:
    """Documents of three tokens: beyond distance 2 no pair is there, rather than one whose gradient is 0."""
    direction = torch.ones(4, dtype=torch.float64)
    model = Linear(0.5 * torch.eye(4, dtype=torch.float64))
    found = measured(model, Sum(direction), documents=[3] * 60, reset="document")
    every, _, share = mean_norms(found)
    np.testing.assert_allclose(every[0, :3], 2 * 0.5 ** np.arange(3), rtol=1e-12)
    assert np.isnan(every[0, 3:]).all()
    assert (share[:3] == 1).all()


def examples_of(targets: torch.Tensor, lengths: torch.Tensor) -> ExampleBatch:
    """Two examples of eight tokens at most."""
    return ExampleBatch(
        tokens=torch.zeros(2, 8, dtype=torch.long),
        lengths=lengths,
        targets=targets,
        index=torch.arange(2),
        count=int(lengths.sum()),
        totals={"loss": 2},
    )


def test_padding_of_examples_is_not_counted() -> None:
    model = Linear(0.5 * torch.eye(4, dtype=torch.float64))
    targets = torch.full((2, 8), IGNORED)
    targets[0, 7] = targets[1, 2] = 1
    batch = examples_of(targets, torch.tensor([8, 3]))
    task: Any = Sum(torch.ones(4, dtype=torch.float64))
    found = measure_examples(model, task, batch, k2=8, farthest=7, samples=2, both_ways=True)
    pairs = np.stack(found.pairs).sum(0)
    by_distance = dict(zip(found.distances.tolist(), pairs.tolist(), strict=True))
    assert [by_distance[at] for at in range(8)] == [4, 4, 4, 2, 2, 2, 2, 2]  # two samples of each example
    assert all(by_distance[at] == 0 for at in range(-7, 0)), "behind the losses there is padding only"


def test_layers_of_a_fused_recurrence_are_seen_and_the_model_computes_what_it_did() -> None:
    torch.manual_seed(0)
    embed = TokenEmbedding(vocab_size=VOCABULARY, dim=8)
    model = RNN(embed=embed, dim=8, num_layers=3, dropout=0.5, bidirectional=False, activation="tanh")
    tokens = torch.randint(0, VOCABULARY, (2, 9))
    expected, state = model.double().eval()(tokens)
    hidden, after = prepared(model)(tokens)
    torch.testing.assert_close(hidden, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(after["hidden"], state["hidden"], rtol=1e-12, atol=1e-12)
    layers = measured(model).layers
    assert layers[0] == INPUT
    assert len(layers) == 3
    assert list(spectral_radii(model)) == [f"layer.weight_hh_l{number}" for number in range(3)]


def test_the_model_that_was_measured_is_left_as_it_was() -> None:
    model = Case("lstm", ()).make().float().train()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    measured(model)
    assert model.training
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert all(weight.grad is None for weight in model.parameters())


# -- whole tasks, each beside autograd by hand ----------------------------------------------------------------------

TINY = ("model.dim=8", "model.dropout=0", "data.batch_size=4")
INDUCTION = ("data=induction", "data.size=200", "tokenizer=byte")


def made(*overrides: str) -> tuple[Any, Data, SequenceModel, Task]:
    """What `seqtrain gradients` measures of overrides: the subject, its data, and the pair in float64."""
    config = check.compose([*overrides, *TINY]).config
    data = make_data(config, ("train", "validation"), lambda line: None)
    model, task = make_pair(config, data.preprocessor, data.label_counts)
    return subject_of(data, task, model, Options(None, 1, False)), data, prepared(model), task


def in_double(values: torch.Tensor) -> torch.Tensor:
    """Values in float64; tokens stay whole numbers."""
    return values.double() if values.is_floating_point() else values


def norms_by_hand(model: SequenceModel, loss_of: Any) -> torch.Tensor:
    """The norm (T,) of the gradient of a loss of one example with respect to each vector of the front end."""
    seen = []
    hooks = [
        model.embed.register_forward_pre_hook(lambda module, args: in_double(args[0])),
        model.embed.register_forward_hook(lambda module, args, out: seen.append(out)),
    ]
    loss = loss_of()
    for hook in hooks:
        hook.remove()
    (gradient,) = torch.autograd.grad(loss, seen)
    return gradient[0].norm(dim=-1)


@pytest.mark.parametrize(
    ("overrides", "unit"),
    [
        (("task=sentiment", "model=gru", "data.size=40", "task.dropout=0"), "token"),
        (("task=regress", "model=gru", "data.size=40"), "token"),
        (
            ("task=forecast", "model=gru", "data.size=2", "data.length=300", "task.horizon=4", "data.max_length=16"),
            "time step",
        ),
    ],
    ids=["sentiment", "regress", "forecast"],
)
def test_of_an_answer_at_the_end_distances_count_back_from_the_last_real_token(
    overrides: tuple[str, ...], unit: str
) -> None:
    subject, data, model, task = made(*overrides)
    one = data.sample("validation", 1)
    found = subject.measure(model, task, 1)
    training = task.double().train()
    by_hand = norms_by_hand(model, lambda: training.evaluate(model, one, None)[0]["loss"][0])
    length = int(one.lengths[0]) * len(by_hand) // one.tokens.shape[1]  # several time steps may be read as one
    expected = by_hand[:length].flip(0)[: subject.farthest + 1]
    np.testing.assert_allclose(found.norms[0][0][: len(expected)], expected.numpy(), rtol=1e-9)
    assert found.pairs[0].sum() == len(expected)
    assert found.distances[0] == 0  # a causal model: nothing stands behind the answer
    assert found.origin.startswith("the last")
    assert found.unit == unit


def check_by_hand(found: Measured, by_hand: torch.Tensor, place: int, length: int) -> None:
    """Compare all norms with those by hand; positions beside the text, or behind what a model sees, do not count."""
    for distance, norm, count in zip(found.distances.tolist(), found.norms[0][0], found.pairs[0], strict=True):
        assert count == (0 <= place - distance < length)
        if count:
            assert norm == pytest.approx(by_hand[place - distance].item(), rel=1e-9)


@pytest.mark.parametrize(
    "overrides",
    [
        ("task=masked_lm", "model=bert", "model.num_layers=1", "model.num_heads=2", *INDUCTION),
        ("task=tag", "model=gru", "data.size=40", "task.dropout=0"),
        ("task=tag", "model=bert", "data.size=40", "task.dropout=0"),
    ],
    ids=lambda overrides: " ".join(overrides[:2]),
)
def test_of_a_hidden_or_tagged_token_distances_count_from_it_and_padding_is_none_of_them(
    overrides: tuple[str, ...],
) -> None:
    subject, data, model, task = made(*overrides)
    one = data.sample("validation", 1)
    found = subject.measure(model, task, 1)
    targets = (one.targets[0] != IGNORED).nonzero().flatten()
    place = int(targets[len(targets) // 2])
    logits: Any = task.double().logits

    def loss() -> torch.Tensor:
        hidden = model.encode(one.tokens, one.lengths)
        return nn.functional.cross_entropy(logits(model, hidden[0, place]), one.targets[0, place])

    check_by_hand(found, norms_by_hand(model, loss), place, int(one.lengths[0]))
    is_causal = Capability.CAUSAL in model.capabilities
    assert found.pairs[0][found.distances < 0].any() != is_causal, "a causal model has nothing behind the token"


BOTH_WAYS = ("task=bidirectional_lm", *INDUCTION, "data.max_length=16")


def test_a_language_model_of_both_directions_never_sees_its_target_and_fades_from_its_neighbours_on() -> None:
    subject, data, model, task = made(*BOTH_WAYS)
    one = data.sample("validation", 1)
    found = subject.measure(model, task, 1)
    place = 1 + (int(one.lengths[0]) - 2) // 2  # the text stands between two special tokens
    logits = task.double().logits

    def loss() -> torch.Tensor:
        forwards, backwards = directions(model, one.tokens, one.lengths)
        target = one.targets[0, place]
        before = nn.functional.cross_entropy(logits(model, forwards[0, place - 1]), target)
        return (before + nn.functional.cross_entropy(logits(model, backwards[0, place + 1]), target)) / 2

    by_hand = norms_by_hand(model, loss)
    norms = dict(zip(found.distances.tolist(), found.norms[0][0], strict=True))
    check_by_hand(found, by_hand, place, int(one.lengths[0]))
    assert found.origin.startswith("the place of the target")
    assert norms[0] == 0
    for decay in (decay_of(found), decay_behind(found)):
        assert decay is not None
        assert decay.start == 1
        assert decay.half_life is not None, "half of what? not of the 0 at the target"
        assert decay.rate is not None
    after = decay_behind(found)
    assert after is not None
    means = dict(zip(found.distances.tolist(), mean_norms(found)[0][0], strict=True))
    assert after.at_start == pytest.approx(means[-1])
    assert means[-1] != pytest.approx(means[1])


def test_layers_that_read_backwards_are_left_out_rather_than_drawn_in_the_wrong_place() -> None:
    subject, _, model, task = made(*BOTH_WAYS, "model.num_layers=2")
    found = subject.measure(model, task, 1)
    assert found.layers == [INPUT, "forwards 2"]
    assert found.left_out == ["backwards 2"]
    forwards = found.norms[0][1]
    assert not forwards[found.distances <= 0].any(), "no path from the forward stack's later positions"


def ended(targets: torch.Tensor, lengths: torch.Tensor, task: Any, k2: int) -> Measured:
    """What is measured of examples with an answer at the end."""
    batch = examples_of(targets, lengths)
    model = Linear(0.5 * torch.eye(4, dtype=torch.float64))
    return measure_examples(model, task, batch, k2=k2, farthest=7, samples=1, both_ways=True)


class AtEnd(Sum):
    """The sum of the last hidden state of each example with an answer."""

    def evaluate(self, model: SequenceModel, batch: Any, state: Any) -> Any:
        found = torch.zeros((), dtype=torch.float64)
        for lanes, hidden, counts in read_in_segments(model, batch.tokens, batch.lengths, 3):
            last = hidden[torch.arange(len(lanes)), (counts - 1).clamp(min=0)] @ self.direction
            if len(lanes) == len(batch.tokens):
                found = torch.where(batch.targets[lanes] == IGNORED, 0.0, last).sum()
        return {"loss": (found, 2)}, {}


def test_what_an_example_has_before_its_cut_is_measured_as_0_and_what_it_has_not_is_not_measured() -> None:
    found = ended(torch.tensor([1, 1]), torch.tensor([8, 5]), AtEnd(torch.ones(4, dtype=torch.float64)), 3)
    every, _, share = mean_norms(found)
    np.testing.assert_allclose(every[0], [2, 1, 0.5, 0, 0, 0, 0, 0], rtol=1e-12)
    assert np.stack(found.pairs).sum(0).tolist() == [2, 2, 2, 2, 2, 1, 1, 1]
    assert share.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_an_example_without_an_answer_has_no_loss_and_does_not_pull_the_mean_down() -> None:
    task = AtEnd(torch.ones(4, dtype=torch.float64))
    found = ended(torch.tensor([1, IGNORED]), torch.tensor([8, 8]), task, 3)
    assert found.losses == 1
    assert mean_norms(found)[0][0, 0] == pytest.approx(2)
    with pytest.raises(UserError, match="none of the measured examples has a target"):
        ended(torch.tensor([IGNORED, IGNORED]), torch.tensor([8, 8]), task, 3)


def test_what_was_not_measured_beyond_k2_is_no_number_and_not_0() -> None:
    direction = torch.ones(4, dtype=torch.float64)
    model = Linear(0.5 * torch.eye(4, dtype=torch.float64))
    found = measured(model, Sum(direction), documents=[3] * 60, reset="document")
    records = {"untrained": record_of(found, decay_of(found), model)}
    assert "untrained_largest_beyond_k2" not in flat_numbers(records, K2)
    records = {"untrained": record_of(measured(model), decay_of(found), model)}
    assert flat_numbers(records, K2)["untrained_largest_beyond_k2"] == 0


def test_a_task_without_one_distance_is_refused_before_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(*args: Any) -> None:
        raise AssertionError("data was read")

    for module in ("training.data", "analysis.gradients"):
        monkeypatch.setattr(f"seqtrain.{module}.make_data", read)
    run = make_run(tmp_path / "run", *TRANSLATION)
    capsys.readouterr()
    assert run_command(["gradients", str(run)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: task=")
    assert "writes another" in line


def test_a_task_of_others_that_reads_several_texts_is_refused() -> None:
    rows = SimpleNamespace(columns={"text": None, "other": None})
    data: Any = SimpleNamespace(rows={"validation": rows})
    task: Any = SimpleNamespace(name=lambda: "mine")
    with pytest.raises(UserError, match="task=mine: it reads several texts"):
        subject_of(data, task, Case("gru", ()).make(), Options(None, 1, False))


@pytest.mark.parametrize(
    ("direction", "origin"), [("forward", "the newest input before"), ("backward", "which is backward")]
)
def test_of_a_stream_it_is_said_where_distances_begin(direction: str, origin: str) -> None:
    subject, _, model, task = made(*INDUCTION, "model=gru", f"task.direction={direction}")
    found = subject.measure(model, task, 1)
    assert origin in found.origin
    assert found.unit == "token"


def test_layers_behind_a_norm_are_taken_for_what_they_are() -> None:
    subject, _, model, task = made(*INDUCTION, "model=min_gru")
    found = subject.measure(model, task, 1)
    assert found.left_out == []
    assert "gates 2" in found.layers


@pytest.mark.long
def test_a_table_beside_a_cut_says_how_many_pairs_have_a_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("model=rnn", "model.dim=4", *INDUCTION, "tbptt.k2=8")
    assert run_command(["gradients", *words, "--samples", "8", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "with a path\n       0" in out
    assert "pairs without a path, separated by the cut, count as 0 in the table" in out
    assert run_command(["gradients", *words, "--samples", "2", "--whole", "--out", str(tmp_path)]) == 0
    assert "with a path" not in capsys.readouterr().out
