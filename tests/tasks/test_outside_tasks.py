"""Laws of a task from outside: one file and one YAML, and it trains, predicts, is shown and compared like ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqtrain.runs import measures
from seqtrain.runs.directory import Run
from tests.conftest import Seqtrain
from tests.support import outside_tasks

TASKS = ("tag", "regress")
TEXT = "the big dog sees a cat"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, seqtrain: Seqtrain) -> Path:
    folder = outside_tasks.files(tmp_path_factory.mktemp("outside"))
    for task in TASKS:
        for seed in (1, 2):
            words = (*outside_tasks.options(task), f"seed={seed}", f"run_dir={task}/{seed}")
            answer = seqtrain("train", *words, cwd=folder, env={"PYTHONPATH": str(folder)})
            assert answer.rc == 0, answer.err
    return folder


def ask(seqtrain: Seqtrain, folder: Path, *words: str) -> str:
    answer = seqtrain(*words, "--trust", "my_tasks", cwd=folder, env={"PYTHONPATH": str(folder)})
    assert answer.rc == 0, answer.err
    return answer.out


@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "baseline", "unit"), [("tag", "majority", "words right"), ("regress", "mean", "mean squared error")]
)
def test_it_learns_more_than_its_baseline_and_is_evaluated_in_its_own_units(
    task: str, baseline: str, unit: str, folder: Path, seqtrain: Seqtrain
) -> None:
    summary = Run(folder / task / "1").summary
    known, found = summary.baselines["validation"][baseline], summary.metrics["validation"]
    (name,) = known
    sign = 1 if measures.better(summary, name) == "max" else -1
    assert sign * found[name] > sign * known[name], (found, known)
    assert f"{found[name]:.4f} {unit}" in ask(seqtrain, folder, "evaluate", f"{task}/1", "--checkpoint", "last")


def test_it_predicts_for_a_person_and_for_a_machine(folder: Path, seqtrain: Seqtrain) -> None:
    assert "words of each kind" in ask(seqtrain, folder, "evaluate", "tag/1")
    said = ask(seqtrain, folder, "predict", "tag/1", TEXT)
    answer: dict[str, Any] = json.loads(ask(seqtrain, folder, "predict", "tag/1", TEXT, "--json"))
    words = " ".join(f"{word}/{label}" for word, label in zip(TEXT.split(), answer["labels"], strict=True))
    assert said == f"{words}\n"
    assert answer == {"text": TEXT, "labels": answer["labels"]}
    number = json.loads(ask(seqtrain, folder, "predict", "regress/1", TEXT, "--json"))["number"]
    assert ask(seqtrain, folder, "predict", "regress/1", TEXT) == f"{number:.4g}: {TEXT}\n"


def test_its_own_options_of_predict_are_reached_from_the_command_line_each_of_its_kind(
    folder: Path, seqtrain: Seqtrain
) -> None:
    asked = ("predict", "regress/1", TEXT, "--json")
    plain = json.loads(ask(seqtrain, folder, *asked))
    words = ("--option", "factor=2", "--option", "unit=m=", "--option", "times=2")
    assert json.loads(ask(seqtrain, folder, *asked, *words)) == {
        "text": TEXT,
        "number": 2 * plain["number"],
        "unit": "m=m=",
    }


REFUSED = [
    (
        ("--option", "facter=2"),
        "--option facter=2: task=Regress does not take it; it takes --option factor, --option unit, "
        "--option times; did you mean factor?",
    ),
    (("--option", "times=2.5"), "--option times=2.5: expected a whole number, like its default 1"),
    (("--option", "factor=true"), "--option factor=True: expected a number, like its default 1.0"),
    (("--option", "factor=NaN"), "--option factor=nan: expected a number, like its default 1.0"),
    (("--option", "unit"), "--option unit: expected NAME=VALUE"),
    (
        ("--option", "unit=m", "--option", "unit=s"),
        "--option unit=s: is given twice; leave one of them out",
    ),
    (("--length", "3"), "--length: task=Regress adds no tokens; it takes --option factor"),
]


def test_an_option_that_it_does_not_take_so_is_one_line(folder: Path, seqtrain: Seqtrain) -> None:
    for words, told in REFUSED:
        asked = ("predict", "regress/1", TEXT, *words, "--trust", "my_tasks")
        answer = seqtrain(*asked, cwd=folder, env={"PYTHONPATH": str(folder)})
        (line,) = answer.err.splitlines()
        assert (answer.rc, answer.out) == (2, "")
        assert line.startswith(f"error: {told}")


def test_its_samples_are_shown_and_its_runs_compared_in_its_unit(folder: Path, seqtrain: Seqtrain) -> None:
    for task, unit in (("tag", "words right"), ("regress", "mean squared error")):
        samples = sorted((folder / task / "1" / "samples").glob("*.txt"))
        assert [path.name for path in samples] == ["step-00000020.txt", "step-00000040.txt"]
        assert len(samples[-1].read_text().splitlines()) > 2
        answer = seqtrain("compare", task, cwd=folder)
        assert answer.rc == 0, answer.err
        assert f"{task}, {unit} of validation, 2 runs" in answer.out
        assert f"mean {unit}" in answer.out


@pytest.mark.long
def test_it_resumes_to_the_bit(seqtrain: Seqtrain, tmp_path: Path) -> None:
    steps = ("trainer.max_steps=12", "trainer.validate_every=6")
    words = ("verify-resume", *outside_tasks.options("tag"), *steps, "--kills", "1")
    answer = seqtrain(*words, cwd=outside_tasks.files(tmp_path), env={"PYTHONPATH": str(tmp_path)})
    assert answer.rc == 0, answer.err


def test_what_is_told_to_go_on_with_trusts_what_the_run_trusts(folder: Path, seqtrain: Seqtrain) -> None:
    words = (*outside_tasks.options("tag"), "trainer.max_steps=2", "run_dir=short")
    answer = seqtrain("train", *words, cwd=folder, env={"PYTHONPATH": str(folder)})
    assert "next: seqtrain predict short --trust my_tasks TEXT" in answer.out + answer.err
