"""`seqtrain train`: composes and checks the config, reads the data, trains, and leaves a run directory."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from seqtrain.commands.arguments import Parser, finish, say
from seqtrain.faults import Fault

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.cost import Cost
    from seqtrain.runs import Run

HYDRA_FLAGS = ("--cfg", "-c", "--info", "-i", "--multirun", "-m", "--hydra-help", "--shell-completion", "-sc")


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
        "Hydra's flags work too: --cfg job shows the config, --info the search path, -m starts a grid.",
        "seqtrain train model=gpt model.dim=256 trainer.max_steps=500",
    )
    for_hydra = any(word.partition("=")[0] in HYDRA_FLAGS for word in argv)
    if not for_hydra:  # it sorts flags and overrides itself
        parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
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
        return _with_hydra(request, known.json)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return _one(request, known.json)


def _one(request: Request, as_json: bool) -> int:
    from seqtrain import check

    composed = check.compose(request.overrides, request.config_dirs, request.trust)
    if composed.config.dry_run:
        _print_cost(dry_run(composed.config, request), as_json)
        return 0
    return finish(lambda: start(composed.config, composed.choices, request), as_json)


def _print_cost(cost: Cost, as_json: bool) -> None:
    print(json.dumps(cost.record()) if as_json else "\n".join(cost.lines()))


def preflight(config: DictConfig, request: Request) -> None:
    """All that can be wrong before the data is read."""
    from seqtrain import check
    from seqtrain import preflight as cheap

    cheap.check(config, request.trust)
    faults = check.signature_faults(config, request.trust)
    if faults:
        raise Fault(*faults)
    from seqtrain import build, pairs

    pairs.check_pair(config, request.trust)
    pairs.check_used(config, request.overrides, request.trust)
    pairs.check_tokenizer(config, request.overrides)
    build.check_optimizer(config, request.trust)


def dry_run(config: DictConfig, request: Request) -> Cost:
    """Composes, checks, builds and reads; gives the cost and leaves no run directory."""
    preflight(config, request)
    from seqtrain import build

    data = build.make_data(config, ("train", "validation"), request.trust, say)
    return build.cost(config, data, request.trust)


def start(config: DictConfig, choices: dict[str, str], request: Request) -> Run:
    """A new run of a checked config, from its first step to its end."""
    preflight(config, request)
    from seqtrain import build
    from seqtrain.commands import session
    from seqtrain.runs import Run, default_name

    if config.run_dir is None:
        run = Run.create(Path("outputs") / default_name(choices["task"], choices["model"]), taken="number")
    else:
        run = Run.create(config.run_dir)
    say(f"run {run.path}")
    build.settle_precision(config, say)
    run.write_config(session.config_text(config))
    try:
        session.sit(run, config, request.trust, command=request.command)
    except Fault:
        if run.summary.get("status") == "refused" and not any(run.checkpoints.iterdir()):
            session.discard(run)  # before it began: nothing to keep
        raise
    return run


def _with_hydra(request: Request, as_json: bool) -> int:
    """Leaves composing to Hydra's own command line, whose flags stand among the overrides: inspection and multirun."""
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from seqtrain import check

    codes = [0]

    def job(config: DictConfig) -> None:
        about = HydraConfig.get()
        choices = {str(group): str(option) for group, option in about.runtime.choices.items()}
        if str(about.mode) == "RunMode.MULTIRUN" and config.run_dir is None:
            config.run_dir = str(Path(about.sweep.dir) / about.sweep.subdir)
        overrides = OmegaConf.to_container(about.overrides.task)
        say(f"job {about.job.num}: {' '.join(overrides)}")  # type: ignore[arg-type]

        try:
            check.check_config(config, choices, overrides, request.config_dirs, request.trust)  # type: ignore[arg-type]
            if config.dry_run:
                _print_cost(dry_run(config, request), as_json)
            else:
                codes.append(finish(lambda: start(config, choices, request), as_json))
        except Fault as fault:
            codes.append(2)
            for line in fault.lines:
                print(f"error: {line}", file=sys.stderr)

    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors reach us and are told in one way
    directories = [word for path in request.config_dirs for word in ("--config-dir", str(path))]
    former, sys.argv = sys.argv, ["seqtrain train", *directories, *request.overrides]
    try:
        hydra.main(config_path="pkg://seqtrain.conf", config_name="train")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise Fault(str(error)) from error
    finally:
        sys.argv = former
    return max(codes)
