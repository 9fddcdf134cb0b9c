"""`make lecture`: runs the commands that docs/lecture.md shows, copies their pictures and writes their numbers.

The page is its own program. What stands in its blocks of commands is run, section by section, in a new folder. A link
to `lecture/demo/order/order.png` takes that picture from `outputs/demo/order/order.png` of the folder. A number stands
between marks that name its file, its place in it and its format:

    <!-- value: demo/order/order.json numbers.bert_change .2f -->0.31<!-- end -->

Below each block stand the seconds of its commands, and the last table has those of each command:

    <!-- seconds -->4 s<!-- end -->

Sections run side by side, but one with the comment `<!-- alone -->`, which holds times, runs when nothing else does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).parent.parent
PAGE = REPOSITORY / "docs" / "lecture.md"
KEPT = REPOSITORY / "docs" / "lecture"  # pictures, and the numbers of the page with the commands' seconds
NUMBERS = KEPT / "numbers.json"
WORKERS = 2  # sections at a time

BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]*\]\(lecture/([^)]+)\)")
VALUE = re.compile(r"<!-- value: (\S+) (\S+) (\S+) -->(.*?)<!-- end -->", re.DOTALL)
TIMED = re.compile(r"^(\| \d+ \|[^|]*\| `([^`]+)` \| )\d* ?\|", re.MULTILINE)  # a row: number, claim, command, seconds
SPENT = re.compile(r"(^```bash\n((?:(?!```).*\n)*)```\n\n<!-- seconds -->).*?<!-- end -->", re.MULTILINE)
ALONE = "<!-- alone -->"


class Value(NamedTuple):
    """A number, or words, that the page quotes."""

    file: str  # below outputs/
    place: str  # its keys, with dots between them
    spec: str  # as Python's format takes it

    @property
    def key(self) -> str:
        """Its name among the numbers that are kept."""
        return f"{self.file} {self.place}"

    def text(self, value: Any) -> str:
        """As it stands on the page."""
        return format(value, self.spec)


@dataclass(frozen=True)
class Section:
    """A part of the page with commands: those that build on one another stand in one section."""

    title: str
    commands: tuple[str, ...]
    alone: bool


def sections(text: str) -> list[Section]:
    """The sections of the page that have commands."""
    found = []
    for part in re.split(r"^## ", text, flags=re.MULTILINE):
        commands = tuple(line for block in BLOCK.findall(part) for line in commands_of(block))
        if commands:
            found.append(Section(part.partition("\n")[0], commands, ALONE in part))
    return found


def commands_of(block: str) -> list[str]:
    """The commands of a block, each on one line."""
    return [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def values(text: str) -> Iterator[tuple[Value, str]]:
    """What the page quotes, each with the words that stand there now."""
    for file, place, spec, shown in VALUE.findall(text):
        yield Value(file, place, spec), shown


def looked_up(value: Value, folder: Path) -> Any:
    """The value in the file that a command wrote; KeyError where it is not there."""
    text = (folder / value.file).read_text("utf-8")
    found = list(map(json.loads, text.splitlines())) if value.file.endswith(".jsonl") else json.loads(text)
    for key in value.place.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key]
    return found


def filled(text: str, numbers: dict[str, Any]) -> str:
    """The page with its values as they are."""

    def fill(match: re.Match[str]) -> str:
        value = Value(*match.groups()[:3])
        return f"<!-- value: {value.file} {value.place} {value.spec} -->{value.text(numbers[value.key])}<!-- end -->"

    return VALUE.sub(fill, text)


def timed(text: str, seconds: dict[str, float]) -> str:
    """The page with the seconds of each block, and of each command of its last table that a section runs."""

    def spent(match: re.Match[str]) -> str:
        return f"{match[1]}{sum(map(seconds.__getitem__, commands_of(match[2]))):.0f} s<!-- end -->"

    def fill(match: re.Match[str]) -> str:
        took = seconds.get(match[2])
        return f"{match[1]}{'' if took is None else f'{took:.0f}'} |"

    return TIMED.sub(fill, SPENT.sub(spent, text))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Runs the commands of docs/lecture.md and fills in what they say.")
    parser.add_argument("--folder", type=Path, help="goes on in the folder of an earlier call")
    text = PAGE.read_text("utf-8")
    titles = [section.title for section in sections(text)]
    parser.add_argument(
        "--section",
        action="append",
        choices=titles,
        metavar="TITLE",
        help="runs this section alone, and keeps what the page says of all others",
    )
    options = parser.parse_args()
    folder = options.folder
    if folder is None:
        folder = REPOSITORY / "outputs" / f"lecture_{datetime.now():%Y-%m-%d_%H-%M-%S}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "examples").exists():  # commands of the page name the scripts as from the repository's root
        (folder / "examples").symlink_to(REPOSITORY / "examples")
    known = json.loads(NUMBERS.read_text("utf-8"))
    asked = [section for section in sections(text) if section.title in (options.section or titles)]
    seconds = Runner(folder).run(asked)
    if seconds is None:
        print(f"go on: {sys.executable} -m benchmarks.lecture --folder {folder}")
        return 1
    outputs = folder / "outputs"
    numbers = {}
    for value, _ in values(text):
        kept = options.section and not (outputs / value.file).exists()
        numbers[value.key] = known["numbers"][value.key] if kept else looked_up(value, outputs)
    shown = [command for section in sections(text) for command in section.commands]
    seconds = {command: (known["seconds"] | seconds)[command] for command in shown}
    _copy_pictures(text, outputs)
    NUMBERS.write_text(json.dumps({"numbers": numbers, "seconds": seconds}, indent=1) + "\n", "utf-8")
    PAGE.write_text(timed(filled(text, numbers), seconds), "utf-8")
    print(f"{PAGE}: {len(numbers)} values, {sum(seconds.values()):.0f} s of commands")
    return 0


def _copy_pictures(text: str, outputs: Path) -> None:
    """Takes over the pictures that were drawn; those that the page no longer shows are removed."""
    shown = PICTURE.findall(text)
    for old in KEPT.rglob("*.png"):
        if str(old.relative_to(KEPT)) not in shown:
            old.unlink()
    for name in shown:
        if (outputs / name).exists():  # else of a section that was not asked for
            (KEPT / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(outputs / name, KEPT / name)


class Runner:
    """Runs commands in a folder, and remembers there which are done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done = folder / "done.json"
        self.seconds: dict[str, float] = {}  # of each command that is done
        if self.done.exists():
            self.seconds = json.loads(self.done.read_text("utf-8"))

    def run(self, wanted: Sequence[Section]) -> dict[str, float] | None:
        """Runs all sections; gives the seconds of each command, or None where one failed."""
        succeeded = []
        for section in wanted:
            if section.alone:
                succeeded.append(self._run_section(section))
        beside = [section for section in wanted if not section.alone]
        with ThreadPoolExecutor(WORKERS) as pool:
            succeeded += pool.map(self._run_section, beside)
        if not all(succeeded):
            return None
        shown = [command for section in wanted for command in section.commands]
        return {command: self.seconds[command] for command in shown}

    def _run_section(self, section: Section) -> bool:
        """Runs the commands of a section that are not done yet, up to the first that fails."""
        # One core for each of the sections that run at a time; one that runs alone may use all.
        threads = {} if section.alone else {"OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **threads, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        for command in section.commands:
            if command in self.seconds:
                continue
            start = time.monotonic()
            ended = subprocess.run(
                shlex.split(command), cwd=self.folder, env=environment, capture_output=True, text=True, check=False
            )
            took = time.monotonic() - start
            print(f"{took:6.1f} s  {command}", flush=True)
            if ended.returncode:
                print(f"exit code {ended.returncode}:\n{ended.stderr[-2000:]}", flush=True)
                return False
            self.seconds[command] = round(took, 1)
            self.done.write_text(json.dumps(self.seconds, indent=1), "utf-8")
        return True


if __name__ == "__main__":
    sys.exit(main())
