"""Every shipped task keeps the contract of tasks; a task of others is told law by law what it does not keep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqtrain.cli import main
from seqtrain.tasks.base import ExampleTask, SeriesTask, Task, TaskData, TaskLoss, TaskReport
from seqtrain.tasks.contract import LAWS, OF_EXAMPLES
from seqtrain.training.shipped import shipped_tasks
from tests.conftest import Seqtrain
from tests.support import outside_tasks
from tests.support.examples import DATA, files
from tests.tasks.test_hooks import RAISES, WRONG, wrong

OUTSIDE = ("contract", "task=my_regress", "data.path=numbers.tsv", "--config-dir", "configs", "--trust", "my_tasks")
SHOWN = "It shows a text for each example."


@pytest.mark.parametrize("part", [TaskData, TaskLoss, TaskReport, ExampleTask, SeriesTask])
def test_a_part_of_a_task_has_at_most_eight_members_to_know(part: type[Task]) -> None:
    members = {name for name in vars(part) if not name.startswith("_")}
    annotated = set(vars(part).get("__annotations__", {}))
    assert 0 < len(members | annotated) <= 8


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


def ask(seqtrain: Seqtrain, folder: Path, *words: str) -> tuple[int, list[str], str]:
    answer = seqtrain(*OUTSIDE, *words, cwd=folder, env={"PYTHONPATH": str(folder)})
    return answer.rc, answer.out.splitlines(), answer.err


def test_a_task_of_others_keeps_it_too_and_nothing_is_written(seqtrain: Seqtrain, tmp_path: Path) -> None:
    before = set(outside_tasks.files(tmp_path).iterdir())
    rc, lines, err = ask(seqtrain, tmp_path)
    assert rc == 0, (lines, err)
    assert lines[0].startswith("task=my_regress on data=labelled with model=")
    assert lines[-1] == f"holds: {len(LAWS)}, does not hold: 0, not promised: 0"
    assert set(tmp_path.iterdir()) == before


@pytest.mark.long
@pytest.mark.parametrize("fault", [fault for fault in WRONG if fault != "a metric that is not named"])
def test_a_law_that_it_does_not_keep_is_told_with_its_counterexample(
    fault: str, seqtrain: Seqtrain, tmp_path: Path
) -> None:
    old, new, told = WRONG[fault]
    rc, lines, _ = ask(seqtrain, wrong(tmp_path, old, new))
    assert rc == 1
    assert any(line.strip() == told for line in lines), lines


def test_an_error_in_a_hook_breaks_the_law_that_meets_it_and_names_its_line(seqtrain: Seqtrain, tmp_path: Path) -> None:
    rc, lines, _ = ask(seqtrain, wrong(tmp_path, *RAISES["samples"]))
    place = lines.index(f"does not hold  {SHOWN}")
    assert rc == 1
    assert "raises AttributeError: " in lines[place + 1]
    assert "(regress.py, line " in lines[place + 1]


def test_what_decides_nothing_is_refused_in_one_line(seqtrain: Seqtrain, tmp_path: Path) -> None:
    outside_tasks.files(tmp_path)
    rc, lines, err = ask(seqtrain, tmp_path, "trainer.max_steps=3")
    assert (rc, lines) == (2, [])
    assert err == (
        "error: trainer.max_steps=3: does nothing here, where nothing is trained; leave it out "
        "(what counts: task, model, data, tokenizer, tbptt)\n"
    )
