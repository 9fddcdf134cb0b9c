"""Laws of the contract of tasks: shipped ones keep it; of others one line says what is wrong before a step is taken."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

import pytest

from seqtrain.cli import main
from seqtrain.errors import NonFinite
from seqtrain.runs.directory import Run
from seqtrain.tasks import hooks
from seqtrain.tasks.base import ExampleTask, SeriesTask, TaskData, TaskLoss, TaskReport
from seqtrain.tasks.contract import LAWS, OF_EXAMPLES
from seqtrain.training.shipped import shipped_tasks
from tests.conftest import Answer, Seqtrain
from tests.support import outside_tasks
from tests.support.examples import DATA, files

REGRESS = Path("my_tasks", "regress.py")
OUTSIDE = ("contract", "task=my_regress", "data.path=numbers.tsv", "--config-dir", "configs", "--trust", "my_tasks")
STEPS = ("trainer.max_steps=4", "trainer.validate_every=2", "run_dir=run")


def wrong(folder: Path, old: str, new: str) -> Path:
    """The outside task with one thing written otherwise."""
    outside_tasks.files(folder)
    module = folder / REGRESS
    text = module.read_text()
    assert old in text
    module.write_text(text.replace(old, new))
    return folder


def train(seqtrain: Seqtrain, folder: Path, *words: str) -> Answer:
    return seqtrain(
        "train", *outside_tasks.options("regress"), *STEPS, *words, cwd=folder, env={"PYTHONPATH": str(folder)}
    )


WRONG = {
    "a monitor that is not named": (
        "    predictors = ",
        '    monitor = "spaerman"\n    predictors = ',
        "`monitor` names spaerman, but `metrics` has loss, spearman",
    ),
    "a monitor that is not measured": (
        "    trained_by = ",
        '    monitor = "rank"\n    metrics = (*metrics, Metric("rank", "max", "rank"))\n    trained_by = ',
        "in evaluation: `measure` gives loss, spearman, but no rank",
    ),
    "a metric that is not named": (
        '        if "pairs" in totals:\n',
        '        metrics["rank"] = 1.0\n        if "pairs" in totals:\n',
        "in training: `measure` gives rank, but `metrics` has loss, spearman",
    ),
    "a part that is not there": (
        "    predictors = ",
        '    differentiated = ("loss", "prior")\n    predictors = ',
        "`differentiated` names prior, but in training `evaluate` gives loss",
    ),
    "a part that another number counts": (
        '            return {"loss": (errors.sum(), len(errors))}, {}',
        '            return {"loss": (errors.sum(), 2 * len(errors))}, {}',
        "`loss` has 8 targets by `evaluate`, but 4 by the batch's totals",
    ),
    "a baseline that is not named": (
        'return {"mean": {"loss"',
        'return {"median": {"loss"',
        "`baselines` gives median, but `known_baselines` has mean",
    ),
    "a sample for some examples alone": (
        'return [Sample(f"{found:.3g}, and it is {true:.3g}") for found, true in pairs]',
        'return [Sample(f"{found:.3g}, and it is {true:.3g}") for found, true in pairs][:1]',
        "`samples` gives a list of length 1 instead of 4",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", WRONG)
def test_what_a_task_promises_wrongly_is_one_line_before_the_first_step(
    fault: str, seqtrain: Seqtrain, tmp_path: Path
) -> None:
    old, new, told = WRONG[fault]
    answer = train(seqtrain, wrong(tmp_path, old, new))
    errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    assert answer.rc == 2, answer.err
    assert errors == [f"error: task=Regress: {told}; correct it: `seqtrain contract task=...` checks all laws"]
    assert "Traceback" not in answer.err
    assert not (tmp_path / "run").exists(), "it was refused"


RAISES = {
    "samples": ("pairs = zip(self.logits(model, last).tolist(), ", "pairs = zip(model.nothing, "),
    "evaluate": ("        errors = (", "        errors = model.nothing + ("),
}


@pytest.mark.long
@pytest.mark.parametrize("hook", RAISES)
def test_an_error_in_a_hook_is_one_line_that_names_it_and_the_run_keeps_the_traceback(
    hook: str, seqtrain: Seqtrain, tmp_path: Path
) -> None:
    answer = train(seqtrain, wrong(tmp_path, *RAISES[hook]))
    (line,) = (line for line in answer.err.splitlines() if line.startswith("error: "))
    assert answer.rc == 1
    assert line.startswith(f"error: task=Regress: its `{hook}` failed: ")
    assert "(regress.py, line " in line
    assert "the traceback is in run/traceback.txt; no checkpoint was saved yet" in line
    assert "Traceback" not in answer.err
    kept = (tmp_path / "run" / "traceback.txt").read_text()
    assert kept.startswith("Traceback")
    assert f"in {hook}\n" in kept
    summary = Run(tmp_path / "run").summary
    assert summary.status == "failed"
    assert f"its `{hook}` failed" in str(summary.reason)
    assert summary.steps is None, "nothing was trained"


def test_an_error_in_a_hook_breaks_the_law_that_meets_it_and_no_training_that_does_not(
    seqtrain: Seqtrain, tmp_path: Path
) -> None:
    answer = train(seqtrain, wrong(tmp_path, *RAISES["samples"]), "callbacks=none")  # no samples are shown
    assert answer.rc == 0, answer.err
    rc, lines, _ = laws(seqtrain, tmp_path)
    place = lines.index("does not hold  It shows a text for each example.")
    assert rc == 1
    assert "raises AttributeError: " in lines[place + 1]
    assert "(regress.py, line " in lines[place + 1]


def test_an_answer_that_holds_no_number_is_no_answer() -> None:
    fine = {"text": "nan", "label": "yes", "probabilities": {"yes": 1.0}}
    hooks.check_answers(cast(Any, None), ["nan"], [fine])
    for number in (math.nan, math.inf):
        with pytest.raises(NonFinite, match="an answer contains nan or inf"):
            hooks.check_answers(cast(Any, None), ["nan"], [{**fine, "probabilities": {"yes": number}}])


PREDICTORS = {
    "no answers": (
        "        return answers\n\n    def words",
        "        return []\n\n    def words",
        "returned a list of length 0 instead of 1",
    ),
    "no dict": ("answers.append(answer)", "answers.append(number)", "returned float as an answer, not a dict"),
    "an error": ("asked = {**self.takes", "asked = {**self.nothing", "its `predict` failed: AttributeError: "),
}


@pytest.mark.long
def test_a_predictor_that_is_wrong_is_one_line(seqtrain: Seqtrain, tmp_path: Path) -> None:
    outside_tasks.files(tmp_path)
    right = (tmp_path / REGRESS).read_text()
    assert train(seqtrain, tmp_path).rc == 0
    for old, new, told in PREDICTORS.values():
        assert old in right
        (tmp_path / REGRESS).write_text(right.replace(old, new))
        words = ("predict", "run", "the dog", "--trust", "my_tasks")
        answer = seqtrain(*words, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
        (line,) = answer.err.splitlines()
        assert (answer.rc in (1, 2), answer.out) == (True, "")
        assert line.startswith("error: task=Regress")
        assert told in line


# -- the contract ------------------------------------------------------------------------------------------------


def test_a_part_of_a_task_has_at_most_eight_members_to_know() -> None:
    for part in (TaskData, TaskLoss, TaskReport, ExampleTask, SeriesTask):
        members = {name for name in vars(part) if not name.startswith("_")}
        assert 0 < len(members | set(vars(part).get("__annotations__", {}))) <= 8, part


@pytest.mark.long
@pytest.mark.parametrize("task", shipped_tasks())
def test_a_shipped_task_keeps_what_every_task_owes(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(files(tmp_path))
    tokenizer = {"tag": "tokenizer=word", "forecast": "tokenizer=none"}.get(task, "tokenizer=byte")
    assert main.main(["contract", f"task={task}", *DATA[task], tokenizer, "data.max_length=64", "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["law"] for record in records] == [law.name for law in LAWS]
    not_asked = {record["law"] for record in records if record["status"] == "not promised"}
    assert not_asked == ({law.name for law in OF_EXAMPLES} if task == "next_token" else set())


def laws(seqtrain: Seqtrain, folder: Path) -> tuple[int, list[str], str]:
    answer = seqtrain(*OUTSIDE, cwd=folder, env={"PYTHONPATH": str(folder)})
    return answer.rc, answer.out.splitlines(), answer.err


def test_a_task_of_others_keeps_it_too_and_nothing_is_written(seqtrain: Seqtrain, tmp_path: Path) -> None:
    before = set(outside_tasks.files(tmp_path).iterdir())
    rc, lines, err = laws(seqtrain, tmp_path)
    assert rc == 0, (lines, err)
    assert lines[0].startswith("task=my_regress on data=labelled with model=")
    assert lines[-1] == f"holds: {len(LAWS)}, does not hold: 0, not promised: 0"
    assert set(tmp_path.iterdir()) == before
