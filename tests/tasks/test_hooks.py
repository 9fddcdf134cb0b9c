"""Laws of a task of others that is wrong: one line says what, before anything is trained, whichever part it is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import pytest

from seqtrain.errors import NonFinite
from seqtrain.runs.directory import Run
from seqtrain.tasks import hooks
from tests.conftest import Answer, Seqtrain
from tests.support import outside_tasks

REGRESS = Path("my_tasks", "regress.py")
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
        "`monitor` names spaerman, and `metrics` has loss, spearman",
    ),
    "a monitor that is not measured": (
        "    trained_by = ",
        '    monitor = "rank"\n    metrics = (*metrics, Metric("rank", "max", "rank"))\n    trained_by = ',
        "in evaluation: `measure` gives loss, spearman, and no rank",
    ),
    "a metric that is not named": (
        '        if "pairs" in totals:\n',
        '        metrics["rank"] = 1.0\n        if "pairs" in totals:\n',
        "in training: `measure` gives rank, and `metrics` has loss, spearman",
    ),
    "a part that is not there": (
        "    predictors = ",
        '    differentiated = ("loss", "prior")\n    predictors = ',
        "`differentiated` names prior, and in training `evaluate` gives loss",
    ),
    "a part that another number counts": (
        '            return {"loss": (errors.sum(), len(errors))}, {}',
        '            return {"loss": (errors.sum(), 2 * len(errors))}, {}',
        "`loss` has 8 targets by `evaluate`, and 4 by the batch's totals",
    ),
    "a baseline that is not named": (
        'return {"mean": {"loss"',
        'return {"median": {"loss"',
        "`baselines` gives median, and `known_baselines` has mean",
    ),
    "a sample for some examples alone": (
        'return [Sample(f"{found:.3g}, and it is {true:.3g}") for found, true in pairs]',
        'return [Sample(f"{found:.3g}, and it is {true:.3g}") for found, true in pairs][:1]',
        "`samples` gives 1 texts of 4 examples",
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
    assert errors == [f"error: task=Regress: {told}; mend it, `seqtrain contract task=...` checks all it owes"]
    assert "Traceback" not in answer.err
    assert not (tmp_path / "run").exists(), "it was refused"


RAISES = {
    "samples": ("pairs = zip(self.logits(model, last).tolist(), ", "pairs = zip(model.nothing, "),
    "baselines": ('return {"mean": {"loss"', 'return {"mean": split.nothing, "": {"loss"'),
    "measure": ('metrics = {"loss": ', 'metrics = {"loss": totals["nothing"][0] + '),
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


def test_a_hook_is_not_asked_about_samples_that_are_not_shown(seqtrain: Seqtrain, tmp_path: Path) -> None:
    answer = train(seqtrain, wrong(tmp_path, *RAISES["samples"]), "callbacks=none")
    assert answer.rc == 0, answer.err


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_an_answer_that_holds_no_number_is_no_answer(number: float) -> None:
    fine = {"text": "nan", "label": "yes", "probabilities": {"yes": 1.0}}
    hooks.check_answers(cast(Any, None), ["nan"], [fine])
    with pytest.raises(NonFinite, match="an answer holds nan or inf"):
        hooks.check_answers(cast(Any, None), ["nan"], [{**fine, "probabilities": {"yes": number}}])


PREDICTORS = {
    "no answers": (
        "        return answers\n\n    def words",
        "        return []\n\n    def words",
        "gave 0 answers to 1 texts",
    ),
    "no dict": ("answers.append(answer)", "answers.append(number)", "gave float as an answer, not a dict"),
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
