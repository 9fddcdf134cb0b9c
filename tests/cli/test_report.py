"""Laws of what is said at the end of a training: what ended it, how fast it was, and how good beside the baselines."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seqtrain.data.batching.plan import TBPTT
from seqtrain.experiment import report
from seqtrain.runs.directory import Run
from seqtrain.runs.summary import Summary
from seqtrain.tasks.base import Task
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.training.splits import StreamData


def test_a_training_was_ended_by_its_clock_or_its_steps_or_else_early() -> None:
    for met, steps, said in (
        *((None, 100, "steps"), (None, 60, "early_stopping"), (False, 100, "steps")),
        *((False, 60, "early_stopping"), (True, 60, "seconds"), (True, 100, "seconds")),
    ):
        deadline = None if met is None else SimpleNamespace(met=met)
        session: Any = SimpleNamespace(deadline=deadline, trainer=SimpleNamespace(global_step=steps), max_steps=100)
        assert report.ended_by(session) == said, (met, steps)


STOPS: list[tuple[dict[str, Any] | None, tuple[float, ...], str]] = [
    ({"patience": 2}, (3.0, 2.5, 2.6, 2.5), "no better than 2.5000 in the last 2 validations"),
    ({"patience": 1, "mode": "max"}, (0.5, 0.75, 0.7), "no better than 0.7500 in the last validation"),
    (
        {"patience": 2, "min_delta": 0.5},
        (3.0, 2.8, 2.6),
        "no better than 3.0000 by more than 0.5 in the last 2 validations",
    ),
    ({"patience": 3}, (3.0, 2.5, 2.6), ""),  # a threshold, or a callback of another kind
    (None, (3.0, 3.0, 3.0, 3.0), ""),
]


def test_an_early_stop_says_what_it_went_by(tmp_path: Path) -> None:
    for number, (node, values, said) in enumerate(STOPS):
        stopped = Run.create(tmp_path / str(number))
        node = node and {"monitor": "validation/loss", "mode": "min"} | node
        stopped.write_config({"callbacks": {"early_stopping": node}})
        for value in values:
            stopped.append({"train/loss": 1.0})
            stopped.append({"validation/loss": value})
        assert report._stopping_words(stopped) == (said and f": validation/loss {said}")
        stopped.close()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run that was validated twice and paused once."""
    run = Run.create(tmp_path / "run")
    for step, speed in enumerate((90.0, 100.0, 1.0), 1):
        run.append({"step": step, "train/loss": 9.0, "tokens_per_second": speed})
        if step < 3:
            run.append({"step": step, "validation/loss": 4.0 / step, "validation/bleu": 20.0 * step})
    run.close()
    return run


def test_the_context_of_a_stream_is_the_lanes_it_was_read_on_and_the_cuts_that_count() -> None:
    plans = {"train": SimpleNamespace(lanes=32), "validation": SimpleNamespace(lanes=3)}
    asked = SimpleNamespace(lanes=32, eval_lanes=64)  # more than a short text has
    for carry, reset, cuts in (
        (True, "never", {}),
        (True, "document", {"k1": 8, "k2": 8, "reset": "document"}),
        (False, "never", {"k1": 2, "k2": 8, "reset": "never"}),
    ):
        tbptt = TBPTT(k2=8, k1=2, carry=carry, reset=reset)  # type: ignore[arg-type]
        data: Any = SimpleNamespace(plan=plans.__getitem__, tbptt=tbptt, batching=asked)
        assert StreamData.context(data) == {"eval_lanes": 3, "carry": carry, **cuts}


def test_a_pause_does_not_slow_a_run(run: Run, tmp_path: Path) -> None:
    assert report.speed(run, 7.0) == 90.0
    assert report.speed(Run(tmp_path / "nothing recorded"), 7.0) == 7.0


def test_the_newest_figures_of_a_split_are_its_last_ones(run: Run) -> None:
    assert report.newest(run, "validation") == {"loss": 2.0, "bleu": 40.0}
    assert report.newest(run, "test") == {}


BIGRAM = {"bigram": {"knows": "pairs", "name": "the bigram"}, "uniform": {"knows": "nothing", "name": None}}


def compared(task: type[Task]) -> Summary:
    """The part of a summary that a verdict is made of."""
    return Summary.from_plain(task.said() | {"baseline_words": BIGRAM})


VERDICTS: list[tuple[type[Task], dict[str, float], float, str]] = [
    (MaskedLM, {"loss": 2.0}, 2.5, "0.500 nats a hidden token better than"),
    (MaskedLM, {"loss": 2.0}, 1.5, "0.500 nats a hidden token worse than"),
    (Sentiment, {"accuracy": 0.5}, 0.75, "0.250 accuracy worse than"),
    (Sentiment, {"accuracy": 0.5}, 0.25, "0.250 accuracy better than"),
    (NextToken, {"bits_per_byte": 1.0, "accuracy": 0.5}, 1.5, "0.500 bits per byte better than"),
    (NextToken, {"bits_per_byte": 1.0, "loss": 9.0}, 1.0004, "no better than"),
]


def test_better_is_more_where_more_is_better_and_less_elsewhere() -> None:
    for task, metrics, baseline, said in VERDICTS:
        known = {"bigram": {next(iter(metrics)): baseline}, "uniform": {next(iter(metrics)): 99.0}}
        assert report.verdict(compared(task), metrics, known) == [f"That is {said} the bigram."]


def test_where_no_baseline_has_the_figure_nothing_is_said() -> None:
    assert report.verdict(compared(MaskedLM), {"loss": 2.0}, {"bigram": {"accuracy": 0.5}}) == []
    assert report.verdict(compared(MaskedLM), {"loss": math.nan}, {"bigram": {"loss": 0.5}}) == []
