"""`seqtrain train`: composes and checks the config, reads the data, trains, and leaves a run directory."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from seqtrain.cli.arguments import Parser, finish, say
from seqtrain.distributed import ranks
from seqtrain.errors import UserError, merged
from seqtrain.files.atomic import listed
from seqtrain.runs.directory import Run, default_name

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.training.cost import Cost

SWEEP_FLAGS = ("--multirun", "-m")
HYDRA_FLAGS = ("--cfg", "-c", "--info", "-i", "--hydra-help", "--shell-completion", "-sc")
"""Ways of Hydra's to look at a configuration: they train nothing."""


@dataclass(frozen=True)
class Request:
    """What was asked for, beside the config itself."""

    overrides: list[str] = field(default_factory=list)
    trust: tuple[str, ...] = ()
    config_dirs: tuple[Path, ...] = ()
    command: tuple[str, ...] = ()


def main(argv: list[str]) -> int:
    """The command."""
    parser = Parser(
        "train",
        "Train a model. OVERRIDE chooses a group (model=gpt) or sets a value (model.dim=256).\n"
        "-m takes several values of anything, a grid: -m model=gru,lstm seed=1,2,3; or it searches: -m sweep=optuna.\n"
        "Hydra's flags work too: --cfg job shows the config, --info the search path.",
        "seqtrain train model=gpt model.dim=256 trainer.max_steps=500",
    )
    for_hydra = any(word.partition("=")[0] in HYDRA_FLAGS for word in argv)
    if not for_hydra:  # it sorts flags and overrides itself
        parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
        parser.add_argument(*SWEEP_FLAGS, action="store_true", help="train every combination of the values given")
    parser.add_argument("--dry-run", action="store_true", help="compose, check, read the data, print the cost, stop")
    parser.add_argument(
        "--config-dir", action="append", default=[], type=Path, help="a folder with configs of your own"
    )
    known, rest = parser.parse_known_args(argv) if for_hydra else parser.parse_known_intermixed_args(argv)
    request = Request(
        overrides=[*(rest if for_hydra else known.overrides), *(["dry_run=true"] if known.dry_run else [])],
        trust=tuple(known.trust),
        config_dirs=tuple(known.config_dir),
        command=("seqtrain", "train", *argv),
    )
    if for_hydra:
        return _look(request)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if known.multirun:
        from seqtrain.cli import sweep

        return sweep.start(request, as_json=known.json)
    return _one(request, known.json)


def _one(request: Request, as_json: bool) -> int:
    from seqtrain.config import check

    composed = check.compose(request.overrides, request.config_dirs, request.trust)
    if composed.config.dry_run:
        print_cost(dry_run(composed.config, request), as_json)
        return 0
    return finish(lambda: start(composed.config, composed.choices, request), as_json)


def print_cost(cost: Cost, as_json: bool) -> None:
    """Prints what a training will cost."""
    print(json.dumps(cost.record()) if as_json else "\n".join(cost.lines()))


def preflight(config: DictConfig, request: Request) -> None:
    """All that can be wrong before the data is read."""
    from seqtrain.config import check
    from seqtrain.config import preflight as cheap

    cheap.check(config, request.trust)
    faults = check.signature_faults(config, request.trust)
    if faults:
        raise merged(faults)
    from seqtrain.training import compatibility, effects
    from seqtrain.training.model_and_task import check_optimizer

    compatibility.check_pair(config, request.trust)
    effects.check(config, request.overrides, request.trust)
    compatibility.check_tokenizer(config, request.overrides, request.trust)
    compatibility.check_stopping(config, request.trust)
    check_optimizer(config, request.trust)


def _prepare(config: DictConfig, request: Request) -> None:
    """Makes a config ready to be trained for the first time; UserError for all that can be wrong before that."""
    from seqtrain.training import budget

    budget.check_free(config, request.overrides)
    budget.prepare(config)
    preflight(config, request)


def dry_run(config: DictConfig, request: Request) -> Cost:
    """Composes, checks, builds and reads; gives the cost and leaves no run directory."""
    _prepare(config, request)
    from seqtrain.training import budget
    from seqtrain.training.data import make_data
    from seqtrain.training.session import cost_of

    data = make_data(config, ("train", "validation"), request.trust, say)
    budget.solve(config, data, request.trust, say)
    return cost_of(config, data, request.trust)


def start(config: DictConfig, choices: dict[str, str], request: Request) -> Run:
    """A new run of a checked config, from its first step to its end; called by each of the processes that meet."""
    with ranks.process_group() as here:
        ranks.run_on_all(lambda: _prepare(config, request))
        from seqtrain.cli import attempt as attempts
        from seqtrain.config import check
        from seqtrain.experiment import Attempt
        from seqtrain.training import effects
        from seqtrain.training.trainer import resolve_auto

        resolve_auto(config, say)  # first: what it finds stands in the run's config from the beginning
        run = ranks.run_on_all(lambda: _made(config, choices) if here.first else None)
        path = ranks.broadcast(None if run is None else run.path)
        run = run or Run(cast(Path, path), writes=False)
        say(f"run {run.path}")
        for line in (*check.repeated(request.overrides), *effects.notes(config, request.overrides, request.trust)):
            say(line)
        try:
            attempts.run_attempt(run, config, Attempt(request.trust, request.command))
        except UserError:
            if (
                run.writes
                and not run.lost()
                and run.summary.get("status", "refused") == "refused"
                and not listed(run.checkpoints)
            ):
                attempts.discard(run)  # before it began: nothing to keep
            raise
    return run


def _made(config: DictConfig, choices: dict[str, str]) -> Run:
    from seqtrain.cli.written_config import config_text

    text = config_text(config)
    if config.run_dir is not None:
        return Run.create(config.run_dir, config=text)
    return Run.create(Path("outputs") / default_name(choices["task"], choices["model"]), config=text, taken="number")


def _look(request: Request) -> int:
    """Leaves it to Hydra's own command line, whose flags stand among the overrides, to show a configuration."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors reach us and are told in one way
    directories = [word for path in request.config_dirs for word in ("--config-dir", str(path))]
    former, sys.argv = sys.argv, ["seqtrain train", *directories, *request.overrides]
    usage = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage):  # argparse tells many lines
            hydra.main(config_path="pkg://seqtrain.conf", config_name="train", execution_whitelist=["hydra.*"])(
                _nothing
            )()
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UserError(str(error)) from error
    except SystemExit as leaving:
        if not leaving.code:
            raise
        raise UserError(
            f"seqtrain train: {usage.getvalue().rpartition('error: ')[2].strip()}; see `seqtrain train --help`"
        ) from None
    finally:
        sys.argv = former
    return 0


def _nothing(config: DictConfig) -> None:
    """What a flag leaves to be run."""
