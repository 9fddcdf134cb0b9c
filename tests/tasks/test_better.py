"""Laws of better and worse: all that choose among runs, validations or weights know the way of each metric."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, Literal

import pytest

from seqtrain.compare import records
from seqtrain.compare.entries import read
from seqtrain.compare.groups import groups
from seqtrain.compare.variants import variants
from seqtrain.compare.verdict import conclusions
from seqtrain.errors import UserError
from seqtrain.runs import measures
from seqtrain.runs.summary import Summary
from seqtrain.sweeps.study import Objective
from seqtrain.tasks.base import Metric
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.regress import Regress
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.tasks.tag import Tag
from seqtrain.tasks.translation import Translation
from tests.support import fake_runs

WAYS: dict[str, Literal["min", "max"]] = {
    **{"loss": "min", "next_sentence_loss": "min", "bits_per_byte": "min"},
    **{"perplexity": "min", "word_perplexity": "min", "pseudo_perplexity": "min"},
    **{"accuracy": "max", "next_sentence_accuracy": "max", "macro_f1": "max"},
    **{"mse": "min", "mae": "min", "spearman": "max"},
    **{"sequence_accuracy": "max", "span_f1": "max"},
    **{"bleu": "max", "chrf": "max", "exact_match": "max"},
}
TASKS = (NextToken, MaskedLM, Sentiment, Regress, Tag, Translation)


def test_loggers_and_searches_know_the_way_of_each_metric() -> None:
    for task in TASKS:
        for metric in task.metrics:
            name, way = metric.name, WAYS[metric.name]
            assert measures.better(Summary.from_plain(task.said()), name) == way, name
            modes = [Objective.read(f"{which}/{name}", task.metrics).mode for which in ("best", "validation")]
            assert modes == [way, way], name
    assert WAYS.keys() == {metric.name for task in TASKS for metric in task.metrics}


def test_each_task_is_judged_the_way_of_its_metric() -> None:
    assert [task.monitor for task in TASKS] == ["loss", "loss", "accuracy", "mse", "accuracy", "bleu"]


def test_what_only_trains_a_task_is_among_its_options_and_what_it_measures_is_not() -> None:
    measured = {"mask_prob", "mask_share", "whole_word", "beam", "length_penalty", "max_ratio"}
    for task in TASKS:
        assert set(task.trained_by) < set(inspect.signature(task).parameters), task
        assert not measured & set(task.trained_by), task


def two(folder: Path, metric: str, **summary: Any) -> None:
    """Two variants of two seeds: `gpt` has the smaller values, `lstm` the larger ones, and each was lower in
    between."""
    for number, (model, value) in enumerate((("lstm", 30.0), ("gpt", 20.0), ("lstm", 31.0), ("gpt", 21.0))):
        values = (value + 5, value - 5)
        options = {"metric": metric, "config": fake_runs.TRANSLATION, "values": values, **summary}
        fake_runs.run(folder / f"{number}", value, model=model, seed=number // 2, **options)


@pytest.mark.parametrize(("metric", "way"), [("loss", "min"), ("accuracy", "max")])
def test_a_comparison_puts_the_better_first_and_says_so(metric: str, way: str, tmp_path: Path) -> None:
    two(tmp_path, metric)
    better, other = ("gpt", "lstm") if way == "min" else ("lstm", "gpt")
    (group,) = groups(read([tmp_path]), metric=metric)
    assert group.mode == way
    assert [variant.name for variant in variants(group)] == [better, other]
    best = variants(group, checkpoint="best")
    assert best[0].mean == (15.5 if way == "min" else 35.5)
    found = conclusions(read([tmp_path]), metric=metric)
    rows = [row["final"] for row in records.rows(found)]
    assert rows == sorted(rows, reverse=way == "max")
    assert found[0].sentences[0].startswith(f"{better} beats {other} by 10.0")
    # Of a run that has not finished, the best is its best record.
    path = fake_runs.run(tmp_path / "going", 3.0, values=(2.0, 4.0), metric=metric, config=fake_runs.TRANSLATION)
    summary = json.loads((path / "summary.json").read_text())
    kept = {name: summary[name] for name in ("task", "measures", "compared_by")}
    (path / "summary.json").write_text(json.dumps({"status": "interrupted", **kept}))
    (entry,) = read([path])
    assert entry.metric(metric, checkpoint="best") == (2.0 if way == "min" else 4.0)
    assert entry.metric(metric) == 3.0


def test_a_metric_whose_direction_is_no_direction_is_refused() -> None:
    with pytest.raises(UserError, match=r"^metric rmse: better='smaller': expected min or max$"):
        Metric("rmse", "smaller", "y")  # type: ignore[arg-type]
