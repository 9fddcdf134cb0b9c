"""Every command of `refusals.yaml` is refused: exit code 2 and one line that says what, where and the remedy."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from tests.conftest import Answer, Seqtrain
from tests.support import bad_inputs, tiny
from tests.support.bad_inputs import TASKS, contents
from tests.support.untrained_runs import make_run

REFUSALS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text())
STEPS = ("trainer.max_steps=2", "trainer.checkpoint_every=1")
WORDS = {
    **REFUSALS["words"],
    **{task: " ".join((*words, *STEPS)) for task, words in TASKS.items()},
    **{
        f"{task}_whole": " ".join(word for word in (*words, *STEPS) if "validation_fraction" not in word)
        for task, words in TASKS.items()
    },
    "long": "x" * 300,
    "streets": "street " * 600,
}
QUICK = [(group["about"], group["commands"][:: 1 if group.get("quick") else 8]) for group in REFUSALS["groups"]]
OTHERS = [
    (group["about"], [case for number, case in enumerate(group["commands"]) if number % 8])
    for group in REFUSALS["groups"]
    if not group.get("quick")
]


def words_of(command: str) -> list[str]:
    """Return the words of a command in which `$name` stands for others."""
    return shlex.split(Template(command).safe_substitute(WORDS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with sound data of every task, faulty files and the files of refusals.yaml."""
    folder = tiny.corpus(bad_inputs.files(tmp_path_factory.mktemp("refusals")))
    for name, content in REFUSALS["files"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "utf16.in").write_bytes("some words\n".encode("utf-16"))
    (folder / "binary.in").write_bytes(bytes(range(256)))
    return folder


def make_runs(seqtrain: Seqtrain, folder: Path, about: str, cases: list[dict[str, str]]) -> None:
    """Make the runs of a group that these commands name, if they are not there yet."""
    (group,) = [group for group in REFUSALS["groups"] if group["about"] == about]
    for name in group.get("needs", ()):
        kind, _, short = name.rpartition("/")
        if (folder / name).exists() or not any(name in case["run"] for case in cases):
            continue
        if kind == "untrained":
            make_run(folder / name, *REFUSALS["untrained"][short].split())
        else:
            answer = seqtrain("train", *words_of(REFUSALS["runs"][name]), f"run_dir={name}", cwd=folder)
            assert answer.rc == 0, answer.err


def fault(answer: Answer, says: str) -> str | None:
    """Return what is wrong with the answer to a command that should be refused, or None."""
    lines = answer.err.splitlines()
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error:")]
    if answer.rc != 2 or len(errors) != 1 or not lines[-1].startswith("error: "):
        return f"exit code {answer.rc}, {len(errors)} errors: {answer.err}"
    if answer.out or "Traceback" in answer.err:
        return answer.out + answer.err
    return None if re.fullmatch(".*".join(map(re.escape, says.split("..."))), errors[0]) else f"it says: {errors[0]}"


@pytest.mark.parametrize(
    ("about", "cases"),
    [
        *(pytest.param(*group, id=group[0]) for group in QUICK),
        *(pytest.param(*group, id=f"{group[0]}, the others", marks=pytest.mark.long) for group in OTHERS),
    ],
)
def test_it_is_one_line_that_says_the_remedy_and_changes_nothing(
    about: str, cases: list[dict[str, str]], folder: Path, seqtrain: Seqtrain
) -> None:
    make_runs(seqtrain, folder, about, cases)
    before, failures = contents(folder), []
    for case in cases:
        answer = seqtrain(*words_of(case["run"]), cwd=folder, env={"CUDA_VISIBLE_DEVICES": ""})
        found = fault(answer, case["says"])
        if found is None and contents(folder) != before:
            found = f"it changed {sorted(map(str, contents(folder).items() ^ before.items()))}"
        if found is not None:
            failures.append(f"seqtrain {case['run']}\n  expected: {case['says']}\n  {found}")
    assert not failures, "\n".join(failures)
