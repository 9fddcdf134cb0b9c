"""`seqtrain predict` for runs that forecast: read a file of series, write a table of their continuations."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from seqtrain.cli.answer_options import as_typed, given
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError, first_few

if TYPE_CHECKING:
    from seqtrain.inference.forecasts import Continued
    from seqtrain.inference.opened import Opened


def main(
    opened: Opened, options: argparse.Namespace, output: Callable[[Path | None], AbstractContextManager[TextIO]]
) -> int:
    """Forecast the series of the file `--input`; return the exit code.

    Args:
        opened: A run whose task reads series.
        options: Options of the command.
        output: Opens the destination of the answer.
    """
    from seqtrain.inference.forecasts import continue_file, write_csv  # imports torch

    _check(opened, options)
    continued = continue_file(opened, options.input, called=f"--input {options.input}", say=say)
    with output(options.output) as file:
        if options.json:
            for series in continued:
                for row in series.rows():
                    print(json.dumps(row, ensure_ascii=False), file=file)
        else:
            write_csv(continued, file)
    if options.plot is not None:
        _plot(continued, options.plot)
    return 0


def _plot(continued: list[Continued], path: Path) -> None:
    from seqtrain.inference.forecast_plot import MAX_FANS, draw_fans

    fans = []
    for series in continued:
        for channel in range(len(series.columns)):
            fans.append(series.fan(channel))
    try:
        left_out = draw_fans(fans, path)
    except ValueError as error:
        raise UserError(f"--plot {error}") from None
    except OSError as error:
        raise UserError(f"--plot {path}: {error.strerror}") from None
    line = f"{path}: {', '.join(fan.title for fan in fans[:MAX_FANS])}"
    if left_out:
        line += f" (not shown: {', '.join(left_out)})"
    say(line)


def _check(opened: Opened, options: argparse.Namespace) -> None:
    name = opened.task.name()
    if options.texts or options.input is None:
        raise UserError(f"predict: task={name} continues series and no texts; give --input FILE.csv")
    # Its first bytes are looked at, then its header, then its content: a pipe is gone after the first.
    if str(options.input) == "-":
        raise UserError("--input -: series are read from a file, more than once; give its name")
    useless = [*map(as_typed, given(options)), *(["--score"] if options.score else []), *options.option]
    if useless:
        raise UserError(f"{first_few(useless)}: task={name} does not take it; leave it out")
