"""Common parts of the commands: one-line errors, common flags, and the output at the end of a run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from seqtrain.config.ranges import Range
from seqtrain.config.trust import trust_from_here
from seqtrain.distributed.ranks import rank_info
from seqtrain.errors import Answered, UserError
from seqtrain.files.atomic import plain_json

if TYPE_CHECKING:
    from seqtrain.analysis.measured import Measured
    from seqtrain.runs.directory import Run


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises UserError: one line, printed with all other errors."""

    def __init__(self, command: str, description: str, example: str) -> None:
        super().__init__(
            prog=f"seqtrain {command}",
            description=description,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the line breaks of descriptions and examples
            allow_abbrev=False,  # a new option must not change what an old script means
        )
        # Otherwise argparse reads the `-1,2` of `--flops -1,2` as an option. No option begins with a digit.
        self._negative_number_matcher = re.compile(r"-\.?\d")
        self.add_argument("--json", action="store_true", help="print results as JSON, one object per line")
        self.add_argument(
            "--trust", action="append", default=[], metavar="PACKAGE", help="let configs name targets of this package"
        )

    def add_config_dir(self) -> None:
        """Add --config-dir, for commands that compose a config."""
        self.add_argument("--config-dir", action="append", default=[], type=Path, help="a folder with your own configs")

    def add_out(self, default: str) -> None:
        """Add --out, for commands that write numbers and plots into a folder."""
        self.add_argument(
            "--out",
            type=Path,
            default=Path(default),
            metavar="FOLDER",
            help=f"folder for numbers and plots; replaces those of an earlier call (default: {default})",
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse the arguments, and trust the packages of --trust until the command ends."""
        known, rest = super().parse_known_args(args, namespace)  # all other parse methods call this one
        trust_from_here(known.trust)
        return known, rest

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise Answered(status)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog}: {message}; see `{self.prog} --help`")


def bounded(allowed: Range) -> Callable[[str], float]:
    """Return an argument type: a number in this range."""

    def parse(text: str) -> float:
        try:
            value = int(text) if allowed.whole else float(text)  # int() rejects 3.0 where a whole number is expected
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {allowed.words()}") from None
        if not allowed.holds(value):
            raise argparse.ArgumentTypeError(f"{text} is not {allowed.words()}")
        return value

    return parse


def several(allowed: Range) -> Callable[[str], tuple[float, ...]]:
    """Return an argument type: numbers in this range, joined by commas."""
    parse = bounded(allowed)
    return lambda text: tuple(parse(word) for word in text.split(","))


def measure(measured: Callable[..., Measured], subject: str, options: argparse.Namespace) -> int:
    """Call a measurement with the flags of its command; print the result, and return the exit code.

    Args:
        measured: Function of the measurement. Its keyword arguments have the names of the flags.
        subject: Name of the argument for the thing to measure.
        options: The command's arguments.
    """
    given = {name: value for name, value in vars(options).items() if name not in (subject, "out", "json", "trust")}
    if "config_dir" in given:
        given["config_dirs"] = given.pop("config_dir")
    return measured(vars(options)[subject], options.out, **given).tell(as_json=options.json)


def finish(run: Run, as_json: bool) -> int:
    """Print the result of a run, in words or as JSON; return the exit code."""
    if not rank_info().first:  # all processes come here, and only one prints
        return 0
    if as_json:
        print(plain_json(run.summary.to_plain()))
    else:
        from seqtrain.experiment import report

        print("\n".join(report.lines(run)))
    return 0
