"""What the commands of analysis give: a record, lines for a person, and files."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqtrain.cli.arguments import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import write_text

OF_RUNS = ("run_dir", "dry_run", "run", "logger", "callbacks")  # what a training leaves, and who hears of it


class Measured(NamedTuple):
    """What such a command has found; all of it stands in files already."""

    record: dict[str, Any]
    lines: list[str]
    files: list[Path]
    as_json: bool

    def tell(self) -> int:
        """Prints it, and says where the files are; gives the exit code."""
        print(json.dumps(self.record) if self.as_json else "\n".join(self.lines))
        for path in self.files:
            say(f"written: {path}")
        return 0


def refuse_idle(overrides: Sequence[str], reason: str, idle: Collection[str] = OF_RUNS) -> None:
    """UserError where one of the overrides is of a group, or a key, that has no part in what is measured."""
    from seqtrain.config.check import key_of

    for word in overrides:
        if key_of(word).partition(".")[0] in idle:
            raise UserError(f"{word}: changes nothing here: {reason}; leave it out")


def written(
    folder: Path, name: str, record: dict[str, Any], lines: list[str], pictures: list[str], options: Namespace
) -> Measured:
    """What was found, with the record written as NAME.json beside the pictures that stand in the folder."""
    text = json.dumps(record, indent=1)
    write_text(folder / f"{name}.json", f"{text}\n")
    files = [folder / file for file in (f"{name}.json", *pictures)]
    # As it was written: lists for tuples, so that Python's caller has what a reader of the file has.
    return Measured(json.loads(text), lines, files, options.json)
