"""Laws of the adding problem: one answer a series, which only the marked numbers tell, whichever way it is read."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import EvalLoader
from seqtrain.data.preprocess import Preprocessor
from seqtrain.data.sources.adding import Adding
from seqtrain.data.sources.base import SPLITS
from seqtrain.models.base import SequenceModel
from seqtrain.models.layers.front_ends import ValueProjection
from seqtrain.tasks.base import Facts
from seqtrain.tasks.forecast import Forecast
from seqtrain.training.learner import Learner
from tests.support.model_cases import Case, outputs
from tests.support.refused import refusal
from tests.support.series import prepared

LENGTH, LANES = 12, 2


SMALL: dict[str, Any] = {"size": 40, "validation_size": 6, "test_size": 6, "length": LENGTH}


FACTS = Facts(bytes_per_token=1.0, words_per_token=None)


def pair(
    preprocessor: Preprocessor, *, carry: bool, model: str = "lstm", **options: Any
) -> tuple[SequenceModel, Forecast]:
    made = Case(model, (("dropout", 0.0),)).make().double().train()
    torch.manual_seed(1)
    given = {"horizon": 1, "relative": False, "max_length": LENGTH, **options}
    task = Forecast(distribution="point", patch=1, dim=made.dim, carry=carry, preprocessor=preprocessor, **given)
    made.embed = ValueProjection(num_features=task.num_features, dim=made.dim).double()
    return made, task.double()


def series_of(source: Adding, split: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """The values and the known columns of each series of a split."""
    part = source.split(split)
    found = []
    for begin, end in zip(part.begin, part.end, strict=True):
        if begin < end:
            found.append((part.series.values[begin:end, 0], part.series.known[begin:end]))
    return found


def test_the_answer_is_the_sum_of_two_numbers_of_which_each_half_marks_one() -> None:
    for length in (2, 13):
        first_marks, second_marks = set(), set()
        for values, known in series_of(Adding(**SMALL | {"size": 400, "length": length}), "train"):
            numbers, marks = known[1:, 0], known[1:, 1]
            assert len(numbers) == length
            assert not known[0].any()
            (first, second) = np.flatnonzero(marks)
            first_marks.add(int(first))
            second_marks.add(int(second))
            assert ((numbers >= 0) & (numbers < 1)).all()
            assert values[-1] == numbers[first] + numbers[second]
            assert np.isnan(values[:-1]).all()
        # Each place of each half comes up, and none of the other half.
        assert first_marks == set(range(length // 2))
        assert second_marks == set(range(length // 2, length))


@pytest.mark.long
def test_always_to_say_the_mean_has_an_error_of_a_sixth() -> None:
    source = Adding(size=5000, validation_size=5000, test_size=1, length=10)
    preprocessor, rows = prepared(source)
    _, task = pair(preprocessor, carry=False, max_length=10)
    found = task.baselines(rows["train"], rows["validation"], preprocessor, lambda line: None)
    # By its own name alone: the last value and a straight line would be the mean, too.
    assert found.keys() == {"mean"}
    assert found["mean"]["mse_original"] == pytest.approx(1 / 6, rel=0.05)
    assert found["mean"]["mse"] == pytest.approx(1.0, rel=0.05)


def test_splits_share_no_series_a_seed_draws_the_same_and_sizes_change_no_series() -> None:
    def known(**options: Any) -> dict[str, np.ndarray]:
        source = Adding(**{**SMALL, **options})
        return {split: np.stack([each for _, each in series_of(source, split)]) for split in SPLITS}

    here, larger, other = known(), known(size=50), known(seed=1)
    seen: set[bytes] = set()
    for split in SPLITS:
        assert len(here[split]) == SMALL["size" if split == "train" else f"{split}_size"]
        held = {each.tobytes() for each in here[split]}
        assert len(held) == len(here[split])
        assert not seen & held
        seen |= held
        assert np.array_equal(known()[split], here[split])
        assert np.array_equal(larger[split][: len(here[split])], here[split])
        assert not (other[split][:, 1:, 0] == here[split][:, 1:, 0]).any()


@pytest.mark.parametrize("split", SPLITS)
def test_windows_and_the_stream_ask_each_series_once_and_hold_what_an_adder_needs(split: Any) -> None:
    source = Adding(**SMALL)
    preprocessor, rows = prepared(source)
    scaling = preprocessor.series
    assert scaling is not None
    mean, std = np.array(scaling.mean), np.array(scaling.std)
    answers = np.sort([values[-1] for values, _ in series_of(source, split)])
    _, task = pair(preprocessor, carry=True)
    examples = task.examples(rows[split], preprocessor, max_length=LENGTH, seed=0)
    assert examples.remark is None  # series of other splits are not said to be too short
    index = np.arange(len(examples.lengths))
    windows = examples.collate(index, 0, examples.totals(index, 0))
    stream = task.series_stream(rows[split], preprocessor, context=LENGTH)
    # No empty one for a series of another split: evaluation gives all a lane where they are of one length.
    assert np.diff(stream.documents).tolist() == [LENGTH + 1] * len(answers)
    cut = TBPTT(k1=LENGTH + 1, k2=LENGTH + 1, carry=True, reset="document")
    plan = StreamPlan(documents=stream.documents, lanes=len(answers), tbptt=cut, seed=0, shuffle=False)
    (streamed,) = EvalLoader(stream, plan, batch_size=None)
    for batch in (windows, streamed):
        # A hand-made adder: unscaled, the marked numbers of all that is read.
        read = batch.tokens.numpy()[:, -LENGTH:]
        numbers, marks = (read[..., 1:] * std[1:] + mean[1:]).transpose(2, 0, 1)
        summed = (numbers * marks.round()).sum(1)
        asked = batch.targets.numpy()[..., 0, 0]
        assert (~np.isnan(asked)).sum(1).tolist() == [1] * len(answers)
        targets = asked[:, -1] * std[0] + mean[0]
        np.testing.assert_allclose(summed, targets, atol=1e-9)
        np.testing.assert_allclose(np.sort(targets), answers, atol=1e-9)
        # Of the answers themselves nothing is read.
        assert (read[..., 0] == 0).all()


def test_the_difference_to_a_last_value_that_is_not_there_is_the_value() -> None:
    preprocessor, rows = prepared(Adding(**SMALL))
    found = []
    for relative in (True, False):
        model, task = pair(preprocessor, carry=False, relative=relative)
        examples = task.examples(rows["test"], preprocessor, max_length=LENGTH, seed=0)
        index = np.arange(6)
        found.append(task.params(model, examples.collate(index, 0, examples.totals(index, 0)), None)[0])
    assert torch.equal(*found)


@pytest.mark.long
@pytest.mark.parametrize(("k1", "k2"), [(1, 1), (1, 7), (1, LENGTH + 1), (4, 8)])
def test_the_gradient_of_an_answer_reaches_a_marked_number_only_where_k2_is_above_its_lag(k1: int, k2: int) -> None:
    source = Adding(**SMALL | {"size": 30})
    preprocessor, rows = prepared(source)
    # Series begin within chunks of 4: minGRU reads such a chunk at once, where an LSTM reads it by rows.
    model, task = pair(preprocessor, carry=True, model="lstm" if k1 == 1 else "min_gru")
    stream = task.series_stream(rows["train"], preprocessor, context=0)
    cut = TBPTT(k1=k1, k2=k2, carry=True, reset="document")
    plan = StreamPlan(documents=stream.documents, lanes=LANES, tbptt=cut, seed=0, shuffle=False)
    learner = Learner(model=model, task=task, carry=True, lanes=LANES, facts={"train": FACTS}, seed=0).double()
    trainer = SimpleNamespace(accumulate_grad_batches=1, world_size=1)  # the learner refers to it weakly
    learner.trainer = trainer  # type: ignore[assignment]
    embedded = outputs(model.embed)
    lags: dict[bool, set[int]] = {True: set(), False: set()}
    batches = iter(TrainLoader(stream, plan, accumulate=1))
    for step in range(plan.steps):
        older = len(embedded)
        batch = next(batches)
        loss = learner.training_step(batch, step)
        gradients = torch.autograd.grad(loss, embedded, allow_unused=True)
        assert set(gradients[:older]) <= {None}  # exactly 0: no earlier reading is reached
        newest = plan.chunk(0, step)
        for lane in range(LANES):
            if batch.targets[lane].isnan().all():
                continue
            last = int(stream.rows(newest.begin[[lane]] + newest.count[[lane]] - 1)[0])
            reached = np.zeros(len(source.series.values), dtype=bool)
            for part, gradient in zip((*newest.warmup_chunks, newest), gradients[older:], strict=True):
                assert gradient is not None
                columns = np.flatnonzero((gradient[lane] != 0).any(-1).numpy())
                reached[stream.rows(part.begin[lane] + columns)] = True
            for mark in np.flatnonzero(source.series.known[last - LENGTH + 1 : last + 1, 1]):
                lag = LENGTH - 1 - int(mark)
                lags[bool(reached[last - lag])].add(lag)
    every = set(range(LENGTH))
    assert lags[True] | lags[False] == every
    if k1 == 1:
        assert lags[False] == set(range(k2, LENGTH))
        assert lags[True] == set(range(min(k2, LENGTH)))
    else:
        # An answer somewhere in the newest k1: what lies k2 back is out of reach, and what lies near is not.
        assert set(range(k2, LENGTH)) <= lags[False]
        assert 0 in lags[True]


FAULTS: list[tuple[dict[str, int], str]] = [
    ({"horizon": 24}, "task.horizon=24: each series has one answer, its last value; use task.horizon=1"),
    ({"max_length": 5}, "data.max_length=5: each series has 12 steps before its answer; use data.max_length=12"),
    ({"max_length": 13}, "data.max_length=13: each series has 12 steps before its answer; use data.max_length=12"),
]


def test_windows_that_would_miss_the_marks_are_refused_with_the_right_one() -> None:
    preprocessor, rows = prepared(Adding(**SMALL))
    for options, says in FAULTS:
        _, task = pair(preprocessor, carry=False, **options)
        for read in (partial(task.examples, max_length=LENGTH, seed=0), partial(task.series_stream, context=0)):
            assert refusal(read, rows["train"], preprocessor) == says


def test_a_length_without_two_halves_and_a_split_of_no_series_are_one_line() -> None:
    assert refusal(Adding, length=1).startswith("data.length=1: each half ")
    source = Adding(**SMALL | {"test_size": 0})
    assert not source.has("test")
    assert "data.test_size=0: there is no test split; set it above 0" in refusal(source.split, "test")
