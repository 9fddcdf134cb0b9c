"""Laws of CONTRIBUTING.md: whoever writes its files and runs its commands in an empty folder gets what it says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Seqtrain

PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", PAGE, re.MULTILINE))
BEGIN = PAGE.partition("\n## ")[0]
BLOCK = re.compile(r"^ *```(python|yaml|bash)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SLOW = ("verify-resume",)  # commands that train twice and are killed now and then

KINDS = ("model", "mixer", "source", "task", "logger")
PLAYBOOKS = MODEL, MIXER, SOURCE, TASK, LOGGER = [f"A {what} in five steps" for what in KINDS]


class Reader:
    """Somebody who does what a page says, in a folder of their own."""

    def __init__(self, seqtrain: Seqtrain, folder: Path) -> None:
        self.seqtrain = seqtrain
        self.folder = folder
        self.environment: dict[str, str | None] = {}
        self.said: dict[str, str] = {}  # by command, all that it printed

    def follow(self, text: str, *, slow: bool = False) -> None:
        """Writes each file, runs each command; AssertionError for one that fails. `slow`: those in SLOW alone run."""
        for kind, indented in BLOCK.findall(text):
            block = textwrap.dedent(indented)
            if kind == "bash":
                for line in block.splitlines():
                    if slow == any(word in line for word in SLOW) or not line.startswith("seqtrain "):
                        self._run(line)
            else:
                self._write(block)

    def _write(self, block: str) -> None:
        """A file whose name stands in the first line."""
        name = re.match(r"# (\S+)\n", block)
        assert name, f"no file name above: {block[:80]}"
        (self.folder / name[1]).write_text(block)

    def _run(self, line: str) -> None:
        words = shlex.split(line, comments=True)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.environment[name] = value.replace("$PWD", str(self.folder))
        elif words[0] == "seqtrain":
            answer = self.seqtrain(*words[1:], cwd=self.folder, env=self.environment)
            assert answer.rc == 0, f"{line}\n{answer.out}{answer.err}"
            self.said[line] = answer.out + answer.err
        else:
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            answer = subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True)
            assert answer.returncode == 0, f"{line}\n{answer.stderr}"
            self.said[line] = answer.stdout


@pytest.fixture(scope="module")
def reader(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader who has begun as the page says."""
    reader = Reader(seqtrain, tmp_path_factory.mktemp("playbooks"))
    reader.follow(BEGIN)
    return reader


def test_there_is_a_playbook_of_five_steps_for_each_joint() -> None:
    steps = ["".join(re.findall(r"^(\d)\. ", SECTIONS[title], re.MULTILINE)) for title in PLAYBOOKS]
    assert steps == ["12345"] * len(PLAYBOOKS)


@pytest.mark.long
@pytest.mark.parametrize("title", PLAYBOOKS)
def test_a_playbook_works_as_it_is_written(title: str, reader: Reader) -> None:
    if title == TASK:
        reader.follow(files_alone(SOURCE))  # whose data it reads
    reader.follow(SECTIONS[title])


@pytest.mark.long
def test_a_logger_that_fails_is_left_out_and_the_training_goes_on_as_the_page_says(reader: Reader) -> None:
    (line,) = [line.strip() for line in PAGE.splitlines() if "logger.points.file=" in line]
    if line not in reader.said:  # this test runs alone
        reader.follow(files_alone(LOGGER) + f"```bash\n{line}\n```\n")
    assert "Points failed and is disabled from here on" in reader.said[line]
    assert "finished after 20 steps" in reader.said[line]


@pytest.mark.long
def test_a_task_of_a_playbook_resumes_to_the_bit(reader: Reader) -> None:
    reader.follow(files_alone(SOURCE) + SECTIONS[TASK], slow=True)


def files_alone(title: str) -> str:
    """A playbook without its commands."""
    return re.sub(r"^ *```bash\n.*?^ *```$", "", SECTIONS[title], flags=re.MULTILINE | re.DOTALL)
