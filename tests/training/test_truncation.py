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

from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import EvalLoader, Stream
from seqtrain.models.base import Capability, State, detach, read_warmup
from seqtrain.tasks.predictors import Loaded
from seqtrain.training.cost import ReadPattern, activations, training_flops
from tests.support.model_cases import START, Case, assert_near, cases, next_token
from tests.support.quick import some_long
from tests.support.streams import LANES, Setting

TIME = 11  # of a lane: its last chunk is short for k1 = 2
DOCUMENTS = (3, 1, 11, 6, 5, 1, 4)  # shorter and longer than a window; 12 or 10 tokens and not lanes of one length
SHIPPED = [case for case in cases(Capability.STATEFUL | Capability.UNCONDITIONAL) if not case.options]
STATEFUL = pytest.mark.parametrize("case", SHIPPED, ids=str)
VARIED = [case for case in cases(Capability.STATEFUL | Capability.UNCONDITIONAL) if not case.is_mixture]
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


@pytest.mark.parametrize("case", some_long(VARIED, SHIPPED), ids=str)
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


@pytest.mark.parametrize("case", some_long(SHIPPED, [Case("lstm", ()), Case("gpt", ())]), ids=str)
@pytest.mark.parametrize(("k1", "k2", "accumulate"), [(2, 8, 1), (2, 8, 3), (4, 4, 1)])
def test_windows_of_documents_read_each_as_if_alone(case: Case, k1: int, k2: int, accumulate: int) -> None:
    setting = Setting(case, k2, k1=k1, lengths=DOCUMENTS, reset="document", accumulate=accumulate)
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
                first = max(begin - (k2 - k1), start)
                with torch.no_grad():
                    state = setting.model.initial(1)
                    if first > start:
                        state = setting.model(inputs[None, start:first], state)[1]
                hidden, _ = setting.model(inputs[None, first:end], state)
                loss = loss + surprise(setting, hidden[0, own - end :], targets[own:end])
        expected = torch.autograd.grad(loss / int(newest.count.sum()), list(setting.learner.parameters()))
        assert_near(setting.step(), list(expected))


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
