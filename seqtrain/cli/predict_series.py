"""`seqtrain predict` of runs that forecast: a file of series in, a table of what comes after them out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from seqtrain.cli.answer_options import as_typed, given
from seqtrain.cli.arguments import say
from seqtrain.errors import UserError

if TYPE_CHECKING:
    from seqtrain.inference.opened import Opened


def main(
    opened: Opened, options: argparse.Namespace, output: Callable[[Path | None], AbstractContextManager[TextIO]]
) -> int:
    """Answers the file of `--input`.

    Args:
        opened: A run whose task reads series.
        options: Those of the command.
        output: Opens where the answer goes.
    """
    from seqtrain.inference.forecasts import continue_file, write_csv  # imports torch

    _check(opened, options)
    continued = continue_file(opened, options.input)
    with output(options.output) as file:
        if options.json:
            for series in continued:
                for row in series.rows():
                    print(json.dumps(row, ensure_ascii=False), file=file)
        else:
            write_csv(continued, file)
    if options.plot is not None:
        from seqtrain.inference.forecast_plot import draw_fan

        # One picture, of the first: a page of hundreds would show nothing.
        first = continued[0]
        title = " ".join(filter(None, (first.name, first.columns[0])))
        try:
            left_out = draw_fan(first.fan(), options.plot, title=title)
        except ValueError as error:
            raise UserError(f"--plot {error}") from None
        except OSError as error:
            raise UserError(f"--plot {options.plot}: {error.strerror}") from None
        others = len(continued) * len(first.columns) - 1
        more = [f"{others:,} other columns or series"] if others else []
        if left_out:
            more.append(left_out)
        line = f"{options.plot}: {title or 'the series'}"
        if more:
            line += f" (not shown: {', '.join(more)})"
        say(line)
    return 0


def _check(opened: Opened, options: argparse.Namespace) -> None:
    name = opened.task.name()
    if options.texts or options.input is None:
        raise UserError(f"predict: task={name} continues series and no texts; give --input FILE.csv")
    # Its first bytes are looked at, then its header, then its content: a pipe is gone after the first.
    if str(options.input) == "-":
        raise UserError("--input -: series are read from a file, more than once; give its name")
    useless = [*map(as_typed, given(options)), *(["--score"] if options.score else []), *options.option]
    if useless:
        raise UserError(f"{', '.join(useless)}: task={name} does not take it; leave it out")
