"""Laws of TBPTT(k1, k2): chunks, windows and windows that overlap, held to loops written here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import EvalLoader, Stream
from seqtrain.models.base import Capability, SequenceModel, State, detach, read_warmup
from seqtrain.tasks.output import Output
from seqtrain.tasks.predictors import Loaded
from seqtrain.training.cost import ReadPattern, activations, training_flops
from seqtrain.training.learner import Learner
from tests.support.model_cases import START, VOCABULARY, Case, assert_near, next_token, outputs, shipped_first
from tests.support.streams import LANES, Setting

TIME = 11  # of a lane: its last chunk is short for k1 = 2
DOCUMENTS = (3, 1, 11, 6, 5, 1, 4)  # shorter and longer than a window; 12 or 10 tokens and not lanes of one length
STATEFUL = pytest.mark.parametrize("case", shipped_first(Capability.STATEFUL | Capability.UNCONDITIONAL), ids=str)
CUTS = [(k1, k2, carry) for k1, k2 in [(2, 6), (1, 3), (1, 1), (5, 5), (TIME, TIME)] for carry in (True, False)]
CUTS += [(2, 4, True)]  # of an even share of the window: the state that is carried lies at the begin of a chunk


def inputs_and_targets(setting: Setting) -> tuple[Tensor, Tensor]:
    """What is read and what it should foretell, token by token of the whole stream."""
    targets = torch.from_numpy(setting.tokens)
    inputs = torch.cat([torch.tensor([START]), targets[:-1]])
    inputs[torch.from_numpy(setting.documents[:-1])] = START
    return inputs, targets


def surprise(setting: Setting, hidden: Tensor, targets: Tensor) -> Tensor:
    """The sum of what each target costs after these hidden states (B, D)."""
    scores = setting.learner.task.logits(setting.model, hidden)  # type: ignore[operator]
    return -scores.log_softmax(-1).gather(1, targets.unsqueeze(1)).sum()


def truncated(setting: Setting, epochs: int) -> Iterator[list[Tensor]]:
    """Gradients of each update's mean loss, a token at a time.

    A window begins k2 tokens before the end of its k1 targets, or where the lane does, from the state that an earlier
    window left there, cut from its past; without carry from nothing.
    """
    inputs, targets = (part.view(LANES, -1) for part in inputs_and_targets(setting))
    k1, k2, time = setting.tbptt.k1, setting.tbptt.k2, targets.shape[1]
    for _ in range(epochs):
        left: dict[int, State] = {0: setting.model.initial(LANES)}
        for begin in range(0, time, k1):
            first, end = max(begin + k1 - k2, 0), min(begin + k1, time)
            state = left[first] if setting.tbptt.carry else setting.model.initial(LANES)
            advance, loss = {first: state}, torch.zeros(())
            for now in range(first, end):
                hidden, state = setting.model(inputs[:, now : now + 1], state)
                advance[now + 1] = detach(state)
                if now >= begin:
                    loss = loss + surprise(setting, hidden[:, 0], targets[:, now])
            yield list(torch.autograd.grad(loss / (LANES * (end - begin)), list(setting.learner.parameters())))
            left = advance


@STATEFUL
def test_gradients_equal_a_hand_written_truncated_reference(case: Case) -> None:
    for k1, k2, carry in CUTS:
        setting = Setting(case, k2, k1=k1, carry=carry, time=TIME)
        count = 0
        for reference in truncated(setting, epochs=2):
            found = setting.step()
            assert_near(found, reference)
            with torch.no_grad():  # a state that is carried was made by the weights of its time
                for weight, gradient in zip(setting.learner.parameters(), found, strict=True):
                    weight -= 0.1 * gradient
            count += 1
        assert count == 2 * setting.plan.steps == 2 * -(-TIME // k1), (k1, k2, carry)


def stretch(setting: Setting, token: int) -> int:
    """Where the lane of a token begins, or its document if that is later and documents start from nothing."""
    begins = setting.plan.chunk(0, 0).begin.tolist()
    if setting.tbptt.reset == "document":
        begins += setting.documents[:-1].tolist()
    return max(begin for begin in begins if begin <= token)


@pytest.mark.long
@STATEFUL
@pytest.mark.parametrize("accumulate", [1, 3])
def test_windows_of_documents_read_each_as_if_alone(case: Case, accumulate: int) -> None:
    setting = Setting(case, 8, k1=2, lengths=DOCUMENTS, reset="document", accumulate=accumulate)
    inputs, targets = inputs_and_targets(setting)
    for step in range(2 * setting.plan.steps):
        newest = setting.plan.chunk(*divmod(step, setting.plan.steps))
        loss = torch.zeros(())
        for begin, count in zip(newest.begin, newest.count, strict=True):
            if not count:
                continue
            within = [edge for edge in setting.documents.tolist() if begin < edge < begin + count]
            for own, end in pairwise([int(begin), *within, int(begin + count)]):
                start = stretch(setting, own)
                first = max(begin - 6, start)
                with torch.no_grad():
                    state = setting.model.initial(1)
                    if first > start:
                        state = setting.model(inputs[None, start:first], state)[1]
                hidden, _ = setting.model(inputs[None, first:end], state)
                loss = loss + surprise(setting, hidden[0, own - end :], targets[own:end])
        expected = torch.autograd.grad(loss / int(newest.count.sum()), list(setting.learner.parameters()))
        assert_near(setting.step(), list(expected))


@STATEFUL
@pytest.mark.parametrize("carry", [True, False])
def test_an_update_reaches_exactly_the_last_k2_tokens_and_none_beyond_a_start(case: Case, carry: bool) -> None:
    for k1 in (2, 6):
        setting = Setting(case, 6, k1=k1, time=TIME, carry=carry)
        embedded = outputs(setting.model.embed)
        for step in range(setting.plan.steps + 4):
            older = len(embedded)
            loss = setting.learner.training_step(next(setting.batches), step)
            gradients = torch.autograd.grad(loss, embedded, allow_unused=True)
            assert set(gradients[:older]) <= {None}  # exactly 0: no earlier reading is reached
            newest = setting.plan.chunk(*divmod(step, setting.plan.steps))
            for lane in range(LANES):
                reached: list[int] = []
                for part, gradient in zip((*newest.warmup_chunks, newest), gradients[older:], strict=True):
                    assert gradient is not None
                    columns = torch.nonzero((gradient[lane] != 0).any(-1)).flatten().tolist()
                    assert all(column < part.count[lane] for column in columns)  # padding is not reached
                    reached += [int(part.begin[lane]) + column for column in columns]
                begin, end = int(newest.begin[lane]), int(newest.begin[lane] + newest.count[lane])
                first = max(begin - (6 - k1), stretch(setting, begin))
                assert reached == (list(range(first, end)) if begin < end else [])


@STATEFUL
def test_what_is_carried_is_the_state_of_reading_straight_to_where_the_next_window_begins(case: Case) -> None:
    for k1, k2 in ((2, 6), (1, 3), (2, 4), (5, 5)):
        setting = Setting(case, k2, k1=k1, time=TIME)
        inputs = inputs_and_targets(setting)[0].view(LANES, -1)
        for step in range(setting.plan.steps - 1):
            setting.step()
            begin = max((step + 2) * k1 - k2, 0)
            state = setting.model.initial(LANES)
            expected = setting.model(inputs[:, :begin], state)[1] if begin else state
            found = setting.learner.carried.take(slice(0, LANES))
            assert found is not None, (k1, k2)
            assert_near(found, detach(expected))


@STATEFUL
def test_gradients_are_the_same_however_the_lanes_are_cut(case: Case) -> None:
    options: dict[str, Any]
    for options in ({"k1": 2}, {"k1": 2, "carry": False}, {"k1": 2, "lengths": DOCUMENTS}, {}):
        whole, *parts = (Setting(case, 6, time=TIME, accumulate=n, **options) for n in (1, 2, 3))
        for _ in range(whole.plan.steps + 2):
            expected = whole.step()
            for part in parts:
                assert_near(part.step(), expected)


def test_a_window_is_contiguous_up_to_its_targets_and_no_longer_than_k2() -> None:
    for k1, k2, carry in ((2, 6, True), (3, 3, True), (1, 5, True), (2, 6, False), (4, 4, False), (1, 5, False)):
        tbptt = TBPTT(k1=k1, k2=k2, carry=carry, reset="never")
        plan = StreamPlan(documents=np.array([0, 101]), lanes=3, tbptt=tbptt, seed=1, shuffle=True)
        for step in range(plan.steps):
            newest = plan.chunk(1, step)
            parts = (*newest.warmup_chunks, newest)
            assert bool(newest.warmup_chunks) == (k1 < k2 and not (parts[0].begin == newest.begin).all())
            for before, after in pairwise(parts):
                live = after.count > 0
                assert (before.begin + before.count == after.begin)[live].all()
                assert not after.reset_lanes[live].any()
            live = newest.count > 0
            reach = (newest.begin - parts[0].begin)[live]
            edges = np.array([0, 33, 67])[live]
            assert (reach == np.minimum(k2 - k1, newest.begin[live] - edges)).all()
            assert not carry or step > 0 or parts[0].reset_lanes.all()
            assert carry or parts[0].reset_lanes.all()


def test_windows_visit_every_token_once_as_a_target_in_a_shuffled_order() -> None:
    tbptt = TBPTT(k1=2, k2=6, carry=False, reset="never")
    plan = StreamPlan(documents=np.array([0, 101]), lanes=3, tbptt=tbptt, seed=1, shuffle=True)
    chunks = [plan.chunk(2, step) for step in range(plan.steps)]
    spans = [range(begin, begin + count) for one in chunks for begin, count in zip(*one[:2], strict=True)]
    assert sorted(token for span in spans for token in span) == list(range(101))
    assert [int(one.begin[0]) for one in chunks] != sorted(int(one.begin[0]) for one in chunks)


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_evaluation_depends_on_no_k1_where_state_is_carried(name: str) -> None:
    for reset in ("never", "document"):
        setting = Setting(Case(name, ()), 6, lengths=DOCUMENTS, reset=reset)
        stream = Stream(setting.tokens, setting.documents, START)
        losses = []
        for k1 in (6, 3, 2, 1):
            tbptt = replace(setting.tbptt, k1=k1).evaluation
            plan = StreamPlan(documents=setting.documents, lanes=LANES, tbptt=tbptt, seed=0, shuffle=False)
            setting.learner.on_validation_epoch_start()
            setting.learner.eval()
            for number, batch in enumerate(EvalLoader(stream, plan, batch_size=None)):
                assert batch.warmup_chunks == ()
                setting.learner.validation_step(batch, number)
            losses.append(setting.learner.eval_sums.read()["loss"])
        assert losses == [losses[0]] * 4, reset
        assert losses[0][1] == len(setting.tokens)


@STATEFUL
def test_evaluation_in_windows_reads_each_target_after_what_its_window_holds(case: Case) -> None:
    setting = Setting(case, 6, k1=2, carry=False, time=TIME)
    inputs, targets = (part.view(LANES, -1) for part in inputs_and_targets(setting))
    evaluation = setting.tbptt.evaluation
    assert (evaluation.k1, evaluation.k2) == (2, 6)
    expected = torch.zeros(())
    for begin in range(0, TIME, 2):
        first, end = max(begin - 4, 0), min(begin + 2, TIME)
        hidden, _ = setting.model(inputs[:, first:end])
        scores = setting.learner.task.logits(setting.model, hidden[:, begin - first :])  # type: ignore[operator]
        expected = expected + F.cross_entropy(scores.flatten(0, 1), targets[:, begin:end].flatten(), reduction="sum")
    plan = StreamPlan(documents=setting.documents, lanes=LANES, tbptt=evaluation, seed=0, shuffle=False)
    setting.learner.eval()
    for number, batch in enumerate(EvalLoader(Stream(setting.tokens, setting.documents, START), plan, batch_size=2)):
        setting.learner.validation_step(batch, number)
    assert setting.learner.eval_sums.read()["loss"] == (pytest.approx(expected.item(), abs=1e-9), LANES * TIME)


@pytest.mark.parametrize("name", ["lstm", "gpt"])
@pytest.mark.parametrize("carry", [True, False])
def test_the_cost_counts_what_is_read_again(name: str, carry: bool) -> None:
    tbptt = TBPTT(k1=2, k2=8, carry=carry, reset="never")
    assert tbptt.warmup_chunks == ((2, 4) if carry else (6,))
    model = Case(name, ()).make()
    task = next_token(model).train()
    setting = Setting(Case(name, ()), 8, k1=2, carry=carry, time=TIME)
    batch = [next(setting.batches) for _ in range(4)][-1]
    assert tuple(past.tokens.shape[1] for past in batch.warmup_chunks) == tbptt.warmup_chunks
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        before = read_warmup(model, batch.warmup_chunks, model.initial(LANES) if carry else None)[-1]
        task.evaluate(model, batch, before)
    found = training_flops(model, task, ReadPattern(2, carry, tbptt.warmup_chunks))
    if name == "gpt":  # of a recurrent layer torch counts other products
        assert found == 3 * counter.get_total_flops() / batch.count
    assert found > 2 * training_flops(model, task, ReadPattern(2, carry))
    alone, longer = (
        activations(model, task, LANES, ReadPattern(2, carry, warmup_chunks))
        for warmup_chunks in ((), tbptt.warmup_chunks)
    )
    assert longer > 2 * alone


def test_a_text_is_scored_in_the_windows_that_evaluation_reads() -> None:
    setting = Setting(Case("gpt", ()), 6, k1=2, carry=False, time=TIME)
    preprocessor: Any = SimpleNamespace(tokenizer=SimpleNamespace(start=START))
    tbptt = TBPTT(k1=2, k2=6, carry=False, reset="never")
    loaded = Loaded(setting.model, preprocessor, 64, tbptt)
    score = setting.learner.task.predictors["score"](setting.learner.task, loaded)
    inputs, targets = inputs_and_targets(setting)
    expected = []
    for now in range(TIME):
        first = max(now // 2 * 2 - 4, 0)
        hidden = setting.model(inputs[None, first : now + 1])[0][:, -1]
        expected.append(surprise(setting, hidden, targets[now : now + 1]).item())
    assert score.surprisals(setting.tokens[:TIME]) == pytest.approx(expected, abs=1e-9)  # type: ignore[attr-defined]


def losses_by_token(model: SequenceModel, stream: Stream, plan: StreamPlan) -> Tensor:
    """The loss of each token of the stream, by its place, carried and reset as the learner does it."""
    losses = torch.zeros(plan.num_tokens).double()
    task, seen = next_token(model), list[Tensor]()
    output = task.output

    def keep(model: SequenceModel, hidden: Tensor) -> Output:
        seen.append(hidden)
        return output(model, hidden)

    task.output = keep  # the hidden states in place: a model may read the documents of a lane one by one
    learner = Learner(model=model, task=task, carry=True, lanes=plan.lanes, facts={}, seed=0)
    learner.eval()
    for step, batch in zip(range(plan.steps), TrainLoader(stream, plan, accumulate=1), strict=False):
        chunk = plan.chunk(0, step)
        learner.validation_step(batch, step)
        scores = next_token(model).logits(model, seen[-1]).detach()
        for lane, (begin, count) in enumerate(zip(chunk.begin, chunk.count, strict=True)):
            losses[begin : begin + count] = F.cross_entropy(
                scores[lane, :count], batch.targets[lane, :count], reduction="none"
            )
    return losses


def torn_by_lanes(plan: StreamPlan, documents: np.ndarray) -> set[int]:
    """Begins of the documents that a lane's edge cuts in two: the second half starts from nothing."""
    first = {int(begin) for begin in plan.chunk(0, 0).begin}
    return {int(documents[np.searchsorted(documents, begin, side="right") - 1]) for begin in first - set(documents)}


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_documents_that_start_from_nothing_are_read_as_if_alone(name: str) -> None:
    lengths = [3, 1, 14, 9, 5, 1]
    documents = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, documents[-1])
    model = Case(name, ()).make()
    tbptt = TBPTT(k1=4, k2=4, carry=True, reset="document")
    for lanes in (1, 2, 3):
        plan = StreamPlan(documents=documents, lanes=lanes, tbptt=tbptt, seed=0, shuffle=False)
        losses = losses_by_token(model, Stream(tokens, documents, START), plan)
        for begin, end in pairwise(documents.tolist()):
            if begin in torn_by_lanes(plan, documents):
                continue
            alone = torch.from_numpy(tokens[begin:end])
            hidden = model(torch.cat([torch.tensor([START]), alone[:-1]])[None])[0][0]
            expected = F.cross_entropy(next_token(model).logits(model, hidden), alone, reduction="none")
            assert_near(losses[begin:end], expected)
