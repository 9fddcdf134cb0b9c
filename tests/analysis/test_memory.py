"""Laws of `seqtrain memory`: a model that looks back exactly so far is found to look back exactly so far."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seqtrain.analysis import memory as memory_of_run
from seqtrain.analysis.context import (
    Contexts,
    effective_context,
    effective_length,
    gain_of_context,
    losses_by_context,
    powers_up_to,
    read_lanes,
    targets,
)
from seqtrain.analysis.memory import Memory, measure
from seqtrain.cli import main
from seqtrain.data.batching.plan import TBPTT
from seqtrain.data.batching.stream import Stream
from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.output import Output
from tests.support.model_cases import VOCABULARY, Case, cases, next_token
from tests.support.untrained_runs import NEXT_TOKEN, SENTIMENT, make_run

VOCAB_SIZE = 11
LAG = 8  # the token to come is the one that stands so many before it


class Lookback(SequenceModel):
    """Says for sure that the token of LAG steps before comes again, and nothing where it has not read so far."""

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL
    dim = VOCAB_SIZE

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB_SIZE, 1)

    def initial(self, batch: int) -> dict[str, torch.Tensor]:
        return {"read": torch.zeros(batch, LAG - 1, dtype=torch.long)}  # tokens + 1; 0: nothing

    def forward(self, tokens: Any, state: Any = None, lengths: Any = None) -> Any:
        state = self.initial(len(tokens)) if state is None else state
        read = torch.cat([state["read"], tokens + 1], 1)
        before = read[:, : tokens.shape[1]]  # of the token to come, LAG steps before it
        hidden = nn.functional.one_hot(before, VOCAB_SIZE + 1)[..., 1:] * 50.0
        return hidden.double(), {"read": read[:, tokens.shape[1] :]}


class AsItIs(NextToken):
    """Hidden states are the logits."""

    def __init__(self) -> None:
        super().__init__(tied=True, dim=VOCAB_SIZE, vocab_size=VOCAB_SIZE)

    def output(self, model: Any, hidden: torch.Tensor) -> Output:
        return Output(hidden, torch.eye(VOCAB_SIZE, dtype=hidden.dtype), None, VOCAB_SIZE)


def periodic(length: int = 4000) -> Stream:
    """A text of which each token is the one that stands LAG before it."""
    period = np.array([3, 1, 4, 1, 5, 9, 2, 6])
    return Stream(np.tile(period, length // LAG), np.array([0, length]), int(period[-1]))


def drawn(length: int) -> Stream:
    """A text without any order, of the tokens that small models know."""
    return Stream(np.random.default_rng(0).integers(VOCABULARY, size=length), np.array([0, length]), VOCABULARY)


def cut(k2: int, *, carry: bool = True, reset: Any = "never") -> TBPTT:
    return TBPTT(k2=k2, k1=k2, carry=carry, reset=reset)


def measured(stream: Stream, k2: int, model: Any = None, *, carry: bool = True, context: int = 32) -> Memory:
    model = Lookback() if model is None else model
    return measure(model, AsItIs(), stream, cut(k2, carry=carry), context=context, num_targets=400, tolerance=0.01)


def test_a_model_that_looks_back_eight_tokens_has_an_effective_context_of_eight() -> None:
    memory = measured(periodic(), k2=64)
    assert memory.contexts.means[:3] == pytest.approx([np.log(VOCAB_SIZE)] * 3)  # with 1, 2, 4 tokens: a guess
    assert memory.contexts.means[3:] == pytest.approx([0, 0, 0], abs=1e-9)
    assert memory.effective == pytest.approx((LAG, LAG, LAG), rel=0.01)
    assert not memory.is_falling
    assert "k2=64 is long enough" in memory.verdict()[1]
    # What gradients never reached was never learned, so nobody can tell.
    assert "train with a longer one and compare" in measured(periodic(), k2=8).verdict()[1]


def test_a_chunk_shorter_than_what_the_model_looks_back_is_said_to_be_too_short() -> None:
    memory = measured(periodic(), k2=4)
    assert "k2=4 is shorter than the context that the model uses" in memory.verdict()[1]
    # Begun from nothing a chunk of four never sees the token of eight steps before; carried, each but the first ones.
    lanes = memory.lanes
    assert lanes is not None
    assert memory.gain_of_state is not None
    counted = (lanes.since_reset > lanes.in_chunk) & np.isfinite(lanes.carried)
    known = (lanes.since_reset[counted] >= LAG).mean()
    assert memory.gain_of_state.value == pytest.approx(known * np.log(VOCAB_SIZE))
    assert "carried state lowers the loss by" in memory.verdict()[2]


def test_a_context_that_still_helps_at_its_end_is_called_a_lower_bound_and_nothing_is_said_of_longer_ones() -> None:
    memory = measured(periodic(), k2=64, context=8)
    assert memory.is_falling
    assert memory.record()["is_lower_bound"]
    words = memory.verdict()[0]
    assert words.startswith("effective context: at least 8 tokens (95 % interval 8 to 8 or more), a lower bound")
    assert "the loss still falls at 8, the longest that was measured; try a longer --context" in words
    assert "longer ones" not in words
    assert not measured(periodic(), k2=64).record()["is_lower_bound"]


def test_a_lower_bound_may_show_that_k2_is_too_short_and_never_that_it_is_long_enough() -> None:
    for k2 in (8, 16, 64):
        words = measured(periodic(), k2=k2, context=8).verdict()[1]
        assert words.startswith(f"unknown whether k2={k2} is long enough")
        assert "farther than the 8 tokens that were measured" in words
    assert "k2=4 is shorter than the context that the model uses" in measured(periodic(), k2=4, context=8).verdict()[1]


def test_no_longer_context_is_advised_than_the_model_can_read() -> None:
    model = Lookback()
    model.max_length = 12
    words = measured(periodic(), k2=64, model=model, context=8).verdict()
    assert "the model reads at most model.max_length=12" in words[0]
    assert not any("--context" in line for line in words)


def noisy(means: Sequence[float], *, k2: int) -> Memory:
    """Such losses with contexts of 1, 2, 4, ... tokens; each token has luck of its own with each of them."""
    luck = np.random.default_rng(0).normal(size=(len(means), 400))
    luck -= luck.mean(1, keepdims=True)
    contexts = Contexts(powers_up_to(2 ** (len(means) - 1)), np.array(means)[:, None] + luck)
    helpful = contexts.up_to(contexts.best_length(0.01))
    return Memory(
        tbptt=cut(k2),
        tolerance=0.01,
        contexts=contexts,
        lanes=None,
        without_state="",
        gain_of_context=gain_of_context(helpful),
        gain_of_state=None,
        effective=effective_context(helpful, 0.01),
        max_length=None,
    )


def test_where_only_luck_hides_whether_the_loss_still_falls_no_upper_end_is_told_and_k2_is_not_judged() -> None:
    # By the means the loss has settled at 4 tokens; with other tokens it might still fall at 16.
    memory = noisy([3.0, 2.5, 2.0, 2.0, 2.0], k2=64)
    assert not memory.is_falling
    assert memory.effective.high > 8
    assert "or more); longer ones, up to 16, change the loss" in memory.verdict()[0]
    assert memory.verdict()[1].startswith("unknown whether k2=64 is long enough")


def test_the_picture_draws_a_lower_bound_open_to_the_right_and_a_settled_context_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(memory_of_run, "save", lambda figure, path: figures.append(figure))
    for context in (8, 32):
        memory_of_run.draw(measured(periodic(), k2=64, model=Forgetful(), context=context), tmp_path, "nats")
    (bound,), (settled,) = figures[0].axes, figures[1].axes
    assert "effective context: at least 8 tokens" in legend(bound)
    assert "effective context: 8 tokens" in legend(settled)
    # The band for the interval reaches the edge, or ends where the interval does.
    assert right_end(bound) == pytest.approx(bound.get_xlim()[1])
    assert right_end(settled) == pytest.approx(LAG, rel=0.01)


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def right_end(axes: Any) -> float:
    """Where the band for the interval ends."""
    (band,) = axes.patches
    return float(band.get_extents().transformed(axes.transData.inverted()).x1)


def test_it_is_said_which_of_the_two_readings_a_run_was_not_trained_for() -> None:
    for carry in (True, False):
        said = measured(periodic(), k2=4, carry=carry).verdict()[2]
        assert ("a run trained without it may do better" in said) == carry
        assert ("trained without carried state" in said) != carry


class Forgetful(Lookback):
    """Keeps nothing from one chunk to the next."""

    capabilities = Capability.CAUSAL | Capability.UNCONDITIONAL


def test_of_a_model_without_state_the_context_is_measured_and_the_state_is_said_not_to_be(tmp_path: Path) -> None:
    memory, stateful = measured(periodic(), k2=64, model=Forgetful()), measured(periodic(), k2=64)
    assert memory.effective == stateful.effective
    assert memory.verdict()[:2] == stateful.verdict()[:2]
    assert memory.verdict()[2].startswith("carried state: not measured, because model=Forgetful carries no state")
    assert "gain_of_state" not in memory.record()["numbers"]
    assert memory_of_run.draw(memory, tmp_path, "nats") == ("context.png",)


def test_a_table_of_positions_shorter_than_two_chunks_leaves_the_context_to_be_measured() -> None:
    model = Lookback()
    model.max_length = 100
    memory = measured(periodic(), k2=64, model=model)
    assert memory.effective.value == pytest.approx(LAG, rel=0.01)
    assert "at most model.max_length=100 tokens, less than two chunks of k2=64" in memory.verdict()[2]


class Confused(Lookback):
    """Knows nothing any more once it has read more than sixteen tokens at once."""

    def forward(self, tokens: Any, state: Any = None, lengths: Any = None) -> Any:
        hidden, state = super().forward(tokens, state, lengths)
        if tokens.shape[1] > 2 * LAG:
            hidden = -hidden
        return hidden, state


def test_contexts_that_do_harm_are_not_taken_for_no_use_of_context() -> None:
    # Measured against the longest context, whose loss is the highest, nothing would seem to help.
    memory = measured(periodic(), k2=LAG, model=Confused(), carry=False)
    assert memory.best_length == 2 * LAG
    assert memory.effective.value == pytest.approx(LAG, rel=0.01)
    assert not memory.is_falling
    assert f"Beyond {2 * LAG} tokens context does harm: at 32" in memory.verdict()[0]


def test_of_contexts_that_do_harm_it_is_said_up_to_where_they_were_measured_and_not_what_longer_ones_change() -> None:
    # What is best and the effective one are the same length: there is no longer one whose change could be told.
    memory = noisy([4.5, 3.5, 3.0, 4.0, 4.0], k2=64)
    assert memory.best_length == 4
    words = memory.verdict()[0]
    assert "of 1 to 16 that were measured" in words
    assert "longer ones" not in words
    assert "Beyond 4 tokens context does harm: at 16 the loss is 1.000 nats higher" in words
    # One token is not held against itself.
    words = noisy([2.0, 3.0, 3.0], k2=64).verdict()[0]
    assert words.startswith("no use of context is shown: Beyond 1 token context does harm: at 4 the loss is 1.000")


def test_an_untrained_model_is_said_to_use_no_context() -> None:
    model = Case("lstm", ()).make()
    stream = drawn(4000)
    memory = measure(model, next_token(model), stream, cut(16), context=64, num_targets=400, tolerance=0.01)
    assert memory.verdict()[0].startswith("no use of context is shown")
    assert len(memory.verdict()) == 1
    model.capabilities = Capability.CAUSAL | Capability.UNCONDITIONAL
    memory = measure(model, next_token(model), stream, cut(16), context=64, num_targets=400, tolerance=0.01)
    assert memory.verdict()[1].startswith("carried state: not measured")


def test_carried_losses_are_those_of_the_text_read_at_once_and_fresh_ones_those_of_its_chunks() -> None:
    stream = drawn(500)
    text = stream.tokens
    inputs = torch.tensor([VOCABULARY, *text[:39]])[None]
    for case in cases(Capability.CAUSAL | Capability.STATEFUL | Capability.UNCONDITIONAL):
        model = case.make()
        if case.options or (model.max_length or 40) < 40:
            continue
        task = next_token(model)
        lanes = read_lanes(model, task, stream, cut(8), lanes=10, tokens=40)
        assert lanes.carried.shape == (10, 40)
        with torch.no_grad():
            whole = task.token_losses(model, model(inputs)[0], torch.from_numpy(text[:40])[None])
            third = task.token_losses(model, model(inputs[:, 16:24])[0], torch.from_numpy(text[16:24])[None])
        assert lanes.carried[0] == pytest.approx(whole[0].numpy(), abs=1e-9), case.name
        assert lanes.fresh[0, 16:24] == pytest.approx(third[0].numpy(), abs=1e-9), case.name
        assert lanes.fresh[:, :8] == pytest.approx(lanes.carried[:, :8], abs=1e-12)  # nothing was read before


def test_each_context_is_exactly_so_long_and_of_the_same_tokens() -> None:
    model = Case("lstm", ()).make()
    task, stream = next_token(model), drawn(300)
    text = stream.tokens
    positions = targets(stream.documents, 16, 7, within=False)
    contexts = losses_by_context(model, task, stream, positions, [1, 4, 16])
    for row, length in enumerate(contexts.lengths):
        for column, position in enumerate(positions):
            before = torch.from_numpy(text[position - length : position])[None]
            with torch.no_grad():
                loss = task.token_losses(model, model(before)[0][:, -1:], torch.tensor([[text[position]]]))
            assert contexts.losses[row, column] == pytest.approx(loss.item(), abs=1e-12)


def test_targets_are_spread_over_the_text_and_where_documents_begin_anew_stay_inside_them() -> None:
    documents = np.array([0, 5, 30, 32, 60])
    assert targets(documents, 10, 1000, within=False).tolist() == list(range(10, 60))
    assert targets(documents, 10, 1000, within=True).tolist() == [*range(15, 30), *range(42, 60)]
    some = targets(documents, 10, 5, within=False)
    assert some.tolist() == [10, 20, 30, 40, 50]


def test_tokens_since_the_state_began_are_counted_from_each_document_where_it_begins_anew() -> None:
    stream = Stream(np.arange(96) % VOCAB_SIZE, np.array([0, 12, 96]), 0)
    model, task = Lookback(), AsItIs()
    lanes = read_lanes(model, task, stream, cut(4, reset="document"), lanes=8, tokens=12)
    assert lanes.since_reset.max() <= 12
    assert (lanes.since_reset[:, 0] == 1).all()  # every lane begins from nothing
    never = read_lanes(model, task, stream, cut(4), lanes=8, tokens=12)
    assert never.since_reset.tolist() == [list(range(1, 13))] * 8


def test_the_effective_length_is_the_last_one_at_which_the_loss_is_still_too_high() -> None:
    lengths = powers_up_to(16)
    assert lengths == [1, 2, 4, 8, 16]
    # At 2 the loss happens to be low, and at 4 high again: 2 is not enough.
    assert 4 < effective_length(lengths, np.array([3.0, 1.0, 2.0, 1.0, 1.0]), 0.1) < 8
    assert effective_length(lengths, np.full(5, 2.0), 0.1) == 1
    halfway = effective_length(lengths, np.array([2.0, 2.0, 2.0, 1.0, 1.0]), 0.5)
    assert halfway == pytest.approx(4 * 2**0.5)  # on a line over the logarithm


def test_few_noisy_tokens_give_a_wide_interval_and_many_a_narrow_one() -> None:
    rng = np.random.default_rng(0)
    means = np.array([3.0, 2.5, 2.2, 2.05, 2.0])[:, None]

    def width(count: int) -> float:
        losses = means + rng.normal(size=(5, count)) * 0.5
        found = effective_context(Contexts([1, 2, 4, 8, 16], losses), 0.1)
        assert found.low <= found.value <= found.high
        return found.high / found.low

    assert width(5000) < width(50) / 1.5


# -- the command -------------------------------------------------------------------------------------------------


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command; gives exit code, standard output and standard error."""

    def run(*args: object) -> tuple[int, str, str]:
        rc = main.main(["memory", *map(str, args)])
        return rc, *capsys.readouterr()

    return run


@pytest.mark.long
def test_the_command_writes_what_it_prints(tmp_path: Path, call: Any) -> None:
    (tmp_path / "text.txt").write_text("the animal was tired and slow\n" * 400)
    data = ("data=text", f"data.path={tmp_path / 'text.txt'}", "data.split_by=position", "data.validation_fraction=0.4")
    run, out = make_run(tmp_path / "run", *NEXT_TOKEN, *data, "tbptt.k2=8"), tmp_path / "out"
    rc, printed, _ = call(run, "--out", out, "--targets", 200, "--json")
    assert rc == 0
    written = json.loads((out / "memory.json").read_text())
    assert json.loads(printed) == written
    assert [row["context"] for row in written["by_context"]] == powers_up_to(128)
    assert written["targets"] == 200
    assert set(written["numbers"]) >= {"effective_context", "gain_of_state", "gain_of_context"}
    for name in ("context.png", "since_reset.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    rc, _, errors = call(run, "--out", out, "--context", 65536)
    assert rc == 2
    assert "only 0 tokens have 65536 others before them" in errors


def test_the_command_refuses_a_run_that_reads_no_stream(tmp_path: Path, call: Any) -> None:
    rc, _, errors = call(make_run(tmp_path / "run", *SENTIMENT))
    assert rc == 2
    assert "has no loss for each token" in errors


def test_a_model_that_sees_later_tokens_and_a_text_too_short_for_lanes_are_refused() -> None:
    model = Lookback()
    model.capabilities = Capability.BIDIRECTIONAL | Capability.UNCONDITIONAL
    with pytest.raises(UserError, match="sees later tokens"):
        measured(periodic(), k2=64, model=model)
    with pytest.raises(UserError, match="too few for 8 lanes"):
        read_lanes(Lookback(), AsItIs(), periodic(400), cut(64), lanes=8, tokens=64)
