"""`seqtrain train`: compose and check the config, read the data, train, and leave a run directory."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seqtrain import conf  # pyright: ignore[reportAttributeAccessIssue]  # conf/ is mapped in by pyproject.toml
from seqtrain.cli.arguments import Parser, finish
from seqtrain.config.groups import ENTRIES, GLOBAL, GROUPS
from seqtrain.errors import UserError
from seqtrain.experiment.start import Request, dry_run, print_cost, start

if TYPE_CHECKING:
    from omegaconf import DictConfig


SWEEP_FLAGS = ("--multirun", "-m")

# Hydra's flags that only show a config: they train nothing.
HYDRA_FLAGS = ("--cfg", "-c", "--info", "-i", "--hydra-help", "--shell-completion", "-sc")
HELP_WIDTH = 120  # characters of a --help line on a choice


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "train",
        "Train a model. OVERRIDE chooses a group (model=gpt) or sets a value (model.dim=256).\n"
        "-m runs a grid of several values, such as -m model=gru,lstm seed=1,2,3, or a search: -m sweep=optuna.\n"
        "Hydra's flags work too: --cfg job shows the config, --info the search path.",
        "seqtrain train model=gpt model.dim=256 trainer.max_steps=500",
    )
    for_hydra = any(word.partition("=")[0] in HYDRA_FLAGS for word in argv)
    if not for_hydra:  # Hydra separates flags and overrides itself
        parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
        parser.add_argument(*SWEEP_FLAGS, action="store_true", help="train every combination of the values given")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="compose and check the config, read the data, print the estimated cost and time, and stop",
    )
    parser.add_config_dir()
    if "--help" in argv or "-h" in argv:
        choices = "\n".join(_choices())
        parser.epilog = f"groups, with the choices that come with seqtrain:\n{choices}\n\n{parser.epilog}"
    if for_hydra:
        known, rest = parser.parse_known_args(argv)
        overrides = list(rest)
    else:
        known, rest = parser.parse_known_intermixed_args(argv)
        overrides = list(known.overrides)
    if known.dry_run:
        overrides.append("dry_run=true")
    request = Request(overrides=overrides, config_dirs=tuple(known.config_dir), command=("seqtrain", "train", *argv))
    if for_hydra:
        return _look(request)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if known.multirun or any("data.folds" in word for word in overrides):
        from seqtrain.cli import sweep
        from seqtrain.sweeps.attempts import asks_for_all_folds

        if known.multirun or asks_for_all_folds(overrides):
            return sweep.start(request, as_json=known.json)
    return _one(request, known.json)


def _choices() -> Iterator[str]:
    """Yield every group with its choices, each with the beginning of the comment in its file."""
    for group in (*GROUPS, "mixer", "trainer", "adapter", *ENTRIES, *GLOBAL, "sweep"):
        yield "  model.mixers=" if group == "mixer" else f"  {group}="
        for path in sorted(Path(conf.__path__[0], group).glob("*.yaml")):
            lines = path.read_text("utf-8").removeprefix("# @package _global_\n").splitlines()
            comment = itertools.takewhile(lambda line: line.startswith("# "), lines)
            words = textwrap.shorten(" ".join(line[2:] for line in comment), HELP_WIDTH - 25, placeholder=" ...")
            yield f"    {path.stem:20} {words}"


def _one(request: Request, as_json: bool) -> int:
    from seqtrain.config import check

    composed = check.compose(request.overrides, request.config_dirs)
    if composed.config.dry_run:
        print_cost(dry_run(composed, request), as_json)
        return 0
    return finish(start(composed, request), as_json)


def _look(request: Request) -> int:
    """Show a config by Hydra's own command line, whose flags are among the overrides."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that we catch errors and report them in our format
    directories = [word for path in request.config_dirs for word in ("--config-dir", str(path))]
    usage = io.StringIO()
    show = hydra.main(config_path="pkg://seqtrain.conf", config_name="train", execution_whitelist=["hydra.*"])
    # Hydra reads sys.argv.
    former, sys.argv = sys.argv, ["seqtrain train", *directories, *request.overrides]
    try:
        with contextlib.redirect_stderr(usage):  # argparse prints many lines
            show(_nothing)()
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UserError(str(error)) from error
    except SystemExit as leaving:
        if not leaving.code:  # --hydra-help has been answered
            raise
        # Hydra's argparse has refused an argument: the last line names it.
        raise UserError(
            f"seqtrain train: {usage.getvalue().rpartition('error: ')[2].strip()}; see `seqtrain train --help`"
        ) from None
    finally:
        sys.argv = former
    return 0


def _nothing(config: DictConfig) -> None:
    """Do nothing: Hydra's flags only show the config."""
