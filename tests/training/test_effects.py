"""Laws of values that can do nothing: refused or said where they were typed, and never where they are defaults."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict

from seqtrain.config import check
from seqtrain.config.trust import trusting
from seqtrain.data.batching.example_plan import ExamplePlan
from seqtrain.data.sources.hub import Hub
from seqtrain.data.sources.parallel import Parallel
from seqtrain.data.sources.text import Text
from seqtrain.errors import UserError
from seqtrain.training import compatibility, effects
from seqtrain.training.data import make_data
from tests.support import tiny

PLATEAU = ("schedule=plateau", "trainer.validate_every=10", "trainer.max_steps=30")
STOPPING = ("callbacks=early_stopping", "trainer.validate_every=10", "trainer.max_steps=30")


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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["data.column=body"], "data.column: a txt file has no columns; leave it out"),
        (["data.batch_tokens=64"], "data.batch_tokens: task=next_token reads a stream, not examples"),
        (["data.validation_path=x.txt", "data.validation_fraction=0.3"], "data.validation_fraction: validation is not"),
        (
            ["callbacks=default", "callbacks.samples.temperature=0", "callbacks.samples.top_k=3"],
            "callbacks.samples.top_k: with callbacks.samples.temperature=0 nothing is drawn",
        ),
        (["schedule=plateau", "schedule.min_lr=1"], "schedule.min_lr: the learning rate begins at 0.006"),
        (["freeze=[all]"], "freeze=[all]: leaves nothing to train"),
    ],
    ids=str,
)
def test_a_word_that_the_run_has_no_use_for_is_one_line(words: list[str], told: str, folder: Path) -> None:
    (folder / "x.txt").write_text("other text\n" * 100)
    (line,) = faults(*words)
    assert line.startswith(told)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["callbacks=default", "callbacks.samples.top_k=3"],
        ["schedule=plateau", "schedule.min_lr=1e-5"],
        ["schedule=plateau", "optimizer=muon", "optimizer.lr_rest=0.5", "schedule.min_lr=0.1"],
        ["freeze=[all]", "task.tied=false"],
        ["freeze=[embed]"],
    ],
    ids=str,
)
def test_a_word_that_does_something_is_taken(words: list[str]) -> None:
    assert faults(*words) == []


def test_the_size_of_a_tokenizer_counts_as_memory_before_anything_is_made() -> None:
    (line,) = faults("tokenizer=bpe", "tokenizer.size=4194304", "model=rnn", "model.num_layers=1", "model.dim=4096")
    assert re.match(r"model.dim=4096, .* take \d+ GB, and this machine has \d+;", line)


def test_of_a_strangers_optimizer_nothing_is_judged() -> None:
    config = check.compose([*tiny.OPTIONS, "schedule=plateau", "schedule.min_lr=1"]).config
    config.optimizer = {"_target_": "mine.Optimizer", "lr": "fast"}
    effects.check(config, ["schedule.min_lr=1"])


def test_the_range_of_a_strangers_warm_up_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "schedule").mkdir()
    (tmp_path / "schedule" / "mine.yaml").write_text("_target_: mine.Schedule\nwarmup: 0.1\n")
    with trusting(["mine"]):
        check.compose([*tiny.OPTIONS, "schedule=mine", "schedule.warmup=0.2"], [tmp_path])


def local_hub(folder: Path, **options: Any) -> Hub:
    rows = Dataset.from_dict({"text": ["a", "b"], "other": ["c", "d"]})
    DatasetDict({"train": rows, "validation": rows}).save_to_disk(folder / "saved")
    return Hub(path=str(folder / "saved"), **options)


def test_a_source_knows_which_of_its_options_are_idle(folder: Path) -> None:
    (folder / "x.jsonl").write_text('{"text": "a"}\n')
    sides: Any = {"source_path": "corpus.txt", "target_path": "corpus.txt"}
    columns: Any = {"source_column": "text", "target_column": "other"}
    all_given: Any = {"validation_path": "x.jsonl", "test_path": "x.jsonl"}
    cases: list[tuple[effects.KnowsIdle, set[str]]] = [
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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["trainer.log_every=6"], "trainer.log_every=6: the training ends at trainer.max_steps=5, so only validations"),
        (["trainer.validate_every=6"], "trainer.validate_every=6: the training ends at trainer.max_steps=5, so only"),
        (
            ["schedule.warmup=5"],
            "schedule.warmup=5: the training ends at trainer.max_steps=5, so optimizer.lr is never",
        ),
        (
            [*PLATEAU, "schedule.patience=2"],
            "schedule.patience=2: the training ends at trainer.max_steps=30, after 3 validations",
        ),
        (
            [*STOPPING, "callbacks.early_stopping.patience=3"],
            "callbacks.early_stopping.patience=3: the training ends at trainer.max_steps=30, after 3 validations",
        ),
    ],
    ids=str,
)
def test_what_comes_after_the_end_is_said_once(words: list[str], told: str) -> None:
    (line,) = notes("trainer.max_steps=5", *words)
    assert line.startswith(told)


@pytest.mark.parametrize(
    "words",
    [
        ["trainer.max_steps=5"],
        ["trainer.max_steps=5", "trainer.log_every=5", "trainer.validate_every=5", "schedule.warmup=4"],
        ["trainer.max_steps=null", "trainer.max_epochs=1", "trainer.log_every=100000", "schedule.warmup=100000"],
        [*PLATEAU, "schedule.patience=1"],
        [*STOPPING, "callbacks.early_stopping.patience=2"],
        [*STOPPING, "trainer.validate_every=30"],
    ],
    ids=str,
)
def test_nothing_is_said_of_defaults_and_of_what_is_reached(words: list[str]) -> None:
    assert notes(*words) == []


def test_a_length_penalty_of_a_greedy_translation_is_said() -> None:
    def said(*words: str) -> list[str]:
        overrides = ["task=translation", *words]
        return effects.notes(check.compose(overrides).config, overrides)

    (line,) = said("task.length_penalty=3")
    assert line.startswith("task.length_penalty=3: with task.beam=1 no length is judged")
    assert said("task.length_penalty=3", "task.beam=4") == said("task.beam=1") == []


@pytest.mark.parametrize("tbptt", ["carry", "whole"])
def test_lanes_of_evaluation_are_refused_of_series_however_they_are_read(tbptt: str) -> None:
    words = ["task=forecast", f"tbptt={tbptt}", "data.eval_lanes=4"]
    with pytest.raises(UserError) as caught:
        effects.check(check.compose(words).config, words)
    (line,) = caught.value.lines
    assert line.startswith("data.eval_lanes: task=forecast ")
    effects.check(check.compose(words[:2]).config, words[:2])


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
    assert "windows of at most 30; the seed deals them out to windows in blocks of 4" in line


# -- once ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("data.path=~/x", 'data.path=~/x: no shell expands this ~; write data.path="$HOME/x"'),
        ("data.path='~/x'", 'data.path=~/x: no shell expands this ~; write data.path="$HOME/x"'),
        ("data.path=a (1).txt", "data.path=a (1).txt: not of the form key=value: "),
    ],
)
def test_a_value_that_is_refused_is_not_missing_too(word: str, told: str) -> None:
    with pytest.raises(UserError) as refused:
        check.compose(["data=text", word])
    (line,) = refused.value.lines
    assert line.startswith(told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("task=sentiment", "data=copy"), "task=sentiment: reads one name as label, and data=copy has a name for each"),
        (("task=sentiment", "data=conll", "data.path=none"), "tasks that read this data: tag; data for this task"),
        (("task=regress", "data=word_order"), "tasks that read this data: sentiment; data for this task"),
        (("task=tag", "data=sums"), "tasks that read this data: regress; data for this task"),
    ],
)
def test_labels_of_another_kind_than_the_task_reads_are_refused_before_data_is_read(
    words: tuple[str, ...], told: str
) -> None:
    with pytest.raises(UserError) as caught:
        compatibility.check_pair(check.compose(words).config)
    (line,) = caught.value.lines
    assert told in line
    assert len(line) <= 300
