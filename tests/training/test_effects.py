"""Laws of values that can do nothing: refused or said where they were typed, and never where they are defaults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict

from seqtrain.config import check
from seqtrain.data.batching.example_plan import ExamplePlan
from seqtrain.data.sources.hub import Hub
from seqtrain.data.sources.parallel import Parallel
from seqtrain.data.sources.text import Text
from seqtrain.errors import UserError
from seqtrain.training import compatibility, effects
from seqtrain.training.data import make_data
from tests.support import tiny


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tiny.corpus(tmp_path))
    return tmp_path


def faults(*words: str) -> list[str]:
    """The lines about words that this run has no use for."""
    overrides = [*tiny.OPTIONS, *words]
    config = check.compose(overrides).config
    try:
        effects.check(config, overrides)
        compatibility.check_pair(config)
    except UserError as fault:
        return list(fault.lines)
    return []


def notes(*words: str) -> list[str]:
    """The lines that are said of words that this run does not come to."""
    overrides = [*tiny.OPTIONS, *words]
    return effects.notes(check.compose(overrides).config, overrides)


# -- refused ---------------------------------------------------------------------------------------------------------


def test_the_size_of_a_tokenizer_counts_as_memory_before_anything_is_made() -> None:
    (line,) = faults("tokenizer=bpe", "tokenizer.size=4194304", "model=rnn", "model.num_layers=1", "model.dim=4096")
    assert re.match(r"model.dim=4096, .* take \d+ GB, but this machine has \d+;", line)


def local_hub(folder: Path, **options: Any) -> Hub:
    rows = Dataset.from_dict({"text": ["a", "b"], "other": ["c", "d"]})
    DatasetDict({"train": rows, "validation": rows}).save_to_disk(folder / "saved")
    return Hub(path=str(folder / "saved"), **options)


def test_a_source_knows_which_of_its_options_are_idle(folder: Path) -> None:
    (folder / "x.jsonl").write_text('{"text": "a"}\n')
    sides: Any = {"source_path": "corpus.txt", "target_path": "corpus.txt"}
    columns: Any = {"source_column": "text", "target_column": "other"}
    all_given: Any = {"validation_path": "x.jsonl", "test_path": "x.jsonl"}
    cases: list[tuple[effects.RefusesIdle, set[str]]] = [
        (Text(path="corpus.txt"), {"column"}),
        (Text(path="x.jsonl"), set()),
        (Text(path="corpus.txt", validation_path="x.jsonl"), {"validation_fraction"}),
        (Text(path="x.jsonl", **all_given), {"validation_fraction", "test_fraction", "split_by"}),
        (Parallel(path="x.jsonl"), set()),
        (Parallel(**sides), {"format", "source_column", "target_column"}),
        (
            local_hub(folder),
            {"name", "revision", "validation_fraction", "test_fraction", "split_by"},
        ),
        (
            local_hub(folder, validation_split=None, test_split=None, **columns),
            {"name", "revision", "column"},
        ),
    ]
    assert [set(source.idle()) for source, _ in cases] == [idle for _, idle in cases]


# -- said ------------------------------------------------------------------------------------------------------------


def test_a_warm_up_that_the_training_does_not_end_is_said_once() -> None:
    (line,) = notes("trainer.max_steps=5", "schedule.warmup=5")
    assert line.startswith("schedule.warmup=5: the training ends at trainer.max_steps=5, so optimizer.lr is never")
    assert notes("trainer.max_steps=5", "schedule.warmup=4") == notes("trainer.max_steps=5") == []


def test_a_length_penalty_of_a_greedy_translation_is_said() -> None:
    def said(*words: str) -> list[str]:
        overrides = ["task=translation", *words]
        return effects.notes(check.compose(overrides).config, overrides)

    (line,) = said("task.length_penalty=3")
    assert line.startswith("task.length_penalty=3: with task.beam=1 length is not scored")
    assert said("task.length_penalty=3", "task.beam=4") == said("task.beam=1") == []


def test_lanes_of_evaluation_that_find_no_text_are_said_once_for_each_split() -> None:
    config = check.compose([*tiny.OPTIONS, "data.eval_lanes=100000"]).config
    said: list[str] = []
    data = make_data(config, ("train", "validation"), said.append)
    lanes = data.plan("validation").lanes
    data.plan("validation")
    words = f"validation: read on {lanes} lanes; its text is too short for 100000"
    assert [line for line in said if "lanes" in line] == [words]


def test_more_examples_than_a_window_are_said_and_plans_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = ExamplePlan.__init__.__kwdefaults__
    assert defaults is not None
    for name, value in {"window": 30, "block": 4}.items():
        monkeypatch.setitem(defaults, name, value)
    config = check.compose(["task=sentiment", "data.size=200"]).config
    said: list[str] = []
    data = make_data(config, ("train", "validation"), said.append)
    for split in ("train", "validation"):
        assert data.plan(split) is data.plan(split)
    (line,) = [line for line in said if "windows" in line]
    assert line.startswith("train: ")
    assert "windows of at most 30; the seed assigns them to windows in blocks of 4" in line
