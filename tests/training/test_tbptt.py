"""Laws of truncated back-propagation through time: plan, stream, state and model, held to loops written here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import IGNORED, Stream, StreamBatch
from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.tasks.output import Output
from seqtrain.training.learner import Learner
from tests.support.model_cases import START, VOCABULARY, Case, assert_near, cases, mixtures_long, next_token, outputs
from tests.support.streams import LANES, TIME, Setting

STATEFUL = pytest.mark.parametrize(
    "case", mixtures_long(cases(Capability.STATEFUL | Capability.UNCONDITIONAL)), ids=str
)


def truncated(setting: Setting, k: int | None) -> Iterator[list[Tensor]]:
    """Gradients of each chunk's mean loss: a token at a time, the state cut from its past before every k-th token."""
    model, task = setting.model, setting.learner.task
    weights = list(setting.learner.parameters())
    targets = torch.from_numpy(setting.tokens).view(LANES, -1)
    inputs = torch.cat([torch.tensor([START]), targets.flatten()[:-1]]).view(LANES, -1)
    time = targets.shape[1]
    state: State = model.initial(LANES)
    for begin in range(0, time, k or time):
        state = {name: value.detach().clone() for name, value in state.items()}
        loss, end = torch.zeros(()), min(begin + (k or time), time)
        for now in range(begin, end):
            hidden, state = model(inputs[:, now : now + 1], state)
            probs = task.logits(model, hidden[:, 0]).log_softmax(-1)  # type: ignore[operator]
            loss = loss - probs.gather(1, targets[:, now : now + 1]).sum()
        yield list(torch.autograd.grad(loss / (LANES * (end - begin)), weights))


@STATEFUL
def test_one_chunk_of_the_whole_gives_the_gradients_of_full_backpropagation(case: Case) -> None:
    setting = Setting(case, TIME)
    (reference,) = truncated(setting, None)
    assert_near(setting.step(), reference)


@STATEFUL
@pytest.mark.parametrize("k", [1, 5])
def test_chunk_gradients_equal_a_hand_written_truncated_reference(case: Case, k: int) -> None:
    setting = Setting(case, k)
    references = list(truncated(setting, k))
    assert len(references) == -(-TIME // k)
    for reference in references:
        assert_near(setting.step(), reference)


@STATEFUL
def test_truncation_makes_a_difference(case: Case) -> None:
    setting = Setting(case, 5)
    (whole,) = truncated(setting, None)
    parts = [setting.step() for _ in range(4)]
    counts = [5, 5, 5, 2]
    mean = [sum(part[i] * n for part, n in zip(parts, counts, strict=True)) / TIME for i in range(len(whole))]
    assert max(float((one - two).abs().max()) for one, two in zip(mean, whole, strict=True)) > 1e-4


@STATEFUL
@pytest.mark.parametrize("accumulate", [2, 3])
def test_gradients_are_the_same_however_the_lanes_are_cut(case: Case, accumulate: int) -> None:
    whole, parts = Setting(case, 5), Setting(case, 5, accumulate=accumulate)
    for _ in range(6):  # into the second epoch, over a short chunk
        assert_near(parts.step(), whole.step())


def masked(batch: StreamBatch, offset: int) -> StreamBatch:
    """The same chunk with targets at one offset only."""
    targets = torch.full_like(batch.targets, IGNORED)
    targets[:, offset] = batch.targets[:, offset]
    return StreamBatch(
        tokens=batch.tokens, targets=targets, reset_lanes=batch.reset_lanes, lanes=batch.lanes, count=LANES, total=LANES
    )


@STATEFUL
@pytest.mark.parametrize("carry", [True, False])
def test_the_loss_at_offset_p_of_a_chunk_reaches_exactly_its_p_plus_1_newest_tokens(case: Case, carry: bool) -> None:
    k = 5
    for offset in range(k):
        setting = Setting(case, k, carry=carry)
        embedded = outputs(setting.model.embed)
        for number in range(2):
            setting.learner.training_step(next(setting.batches), number)
        loss = setting.learner.training_step(masked(next(setting.batches), offset), 2)
        *older, newest = torch.autograd.grad(loss, embedded, allow_unused=True)
        assert older == [None, None]  # exactly 0 beyond the chunk
        assert newest is not None
        assert (newest[:, : offset + 1] != 0).any(-1).all()
        assert not newest[:, offset + 1 :].any()


@STATEFUL
def test_what_is_carried_reaches_the_next_chunk_and_windows_start_from_nothing(case: Case) -> None:
    for carry in (True, False):
        one, two = Setting(case, 5, carry=carry), Setting(case, 5, carry=carry)
        first, second = next(one.batches), next(one.batches)
        other = next(two.batches)
        other.tokens = (other.tokens + 1) % (VOCABULARY + 1)
        one.learner.training_step(first, 0)
        two.learner.training_step(other, 0)
        same = torch.equal(one.learner.training_step(second, 1), two.learner.training_step(second, 1))
        assert same != carry


@STATEFUL
def test_a_lane_that_starts_forgets_and_the_others_do_not(case: Case) -> None:
    after = {}
    for name, starts in (("kept", None), ("one", torch.tensor([False, True, False])), ("all", torch.ones(3).bool())):
        setting = Setting(case, 5)
        hidden = outputs(setting.model)
        setting.learner.training_step(next(setting.batches), 0)
        batch = next(setting.batches)
        batch.reset_lanes = starts
        setting.learner.training_step(batch, 1)
        after[name] = hidden[1]
    assert torch.equal(after["one"][[0, 2]], after["kept"][[0, 2]])
    assert torch.equal(after["one"][1], after["all"][1])
    assert not torch.equal(after["one"][1], after["kept"][1])


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_documents_that_start_from_nothing_are_read_as_if_alone(name: str) -> None:
    lengths = [3, 1, 14, 9, 5, 1]
    documents = np.concatenate([[0], np.cumsum(lengths)])
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, documents[-1])
    model = Case(name, ()).make()
    tbptt = TBPTT(k1=4, k2=4, carry=True, reset="document")
    for lanes in (1, 2, 3):
        plan = StreamPlan(documents=documents, lanes=lanes, tbptt=tbptt, seed=0, shuffle=False)
        losses = _losses(model, Stream(tokens, documents, START), plan)
        for begin, end in pairwise(documents.tolist()):
            if begin in _torn(plan, documents):
                continue
            alone = torch.from_numpy(tokens[begin:end])
            hidden = model(torch.cat([torch.tensor([START]), alone[:-1]])[None])[0][0]
            expected = F.cross_entropy(next_token(model).logits(model, hidden), alone, reduction="none")
            assert_near(losses[begin:end], expected)


def _losses(model: SequenceModel, stream: Stream, plan: StreamPlan) -> Tensor:
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


def _torn(plan: StreamPlan, documents: np.ndarray) -> set[int]:
    """Begins of the documents that a lane's edge cuts in two: the second half starts from nothing."""
    first = {int(begin) for begin in plan.chunk(0, 0).begin}
    return {int(documents[np.searchsorted(documents, begin, side="right") - 1]) for begin in first - set(documents)}
