"""`seqtrain train`: composes and checks the config, reads the data, trains, and leaves a run directory."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from seqtrain import processes
from seqtrain.commands.arguments import Parser, finish, say
from seqtrain.faults import Fault
from seqtrain.runs import Run, default_name

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.cost import Cost

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
    pairs.check_tokenizer(config, request.overrides, request.trust)
    pairs.check_stopping(config, request.trust)
    build.check_optimizer(config, request.trust)


def dry_run(config: DictConfig, request: Request) -> Cost:
    """Composes, checks, builds and reads; gives the cost and leaves no run directory."""
    preflight(config, request)
    from seqtrain import build

    data = build.make_data(config, ("train", "validation"), request.trust, say)
    return build.cost(config, data, request.trust)


def start(config: DictConfig, choices: dict[str, str], request: Request) -> Run:
    """A new run of a checked config, from its first step to its end; called by each of the processes that meet."""
    with processes.joined() as here:
        processes.together(lambda: preflight(config, request))
        from seqtrain import build, check
        from seqtrain.commands import session

        run = processes.together(lambda: _made(config, choices) if here.first else None)
        path = processes.told(None if run is None else run.path)
        run = run or Run(cast(Path, path), writes=False)
        say(f"run {run.path}")
        for line in check.repeated(request.overrides):
            say(line)
        build.settle(config, say)

        def begin() -> None:
            with session.writing(run, "start again"):
                run.write_config(session.config_text(config))

        try:
            processes.together(begin)
            session.sit(run, config, request.trust, command=request.command)
        except Fault:
            if run.writes and run.summary.get("status", "refused") == "refused" and not any(run.checkpoints.iterdir()):
                session.discard(run)  # before it began: nothing to keep
            raise
    return run


def _made(config: DictConfig, choices: dict[str, str]) -> Run:
    if config.run_dir is not None:
        return Run.create(config.run_dir)
    return Run.create(Path("outputs") / default_name(choices["task"], choices["model"]), taken="number")


def _refuse_environment(about: Any, request: Request) -> None:
    """Fault for environment variables that a file of configs sets: PATH and the like decide what programs run."""
    typed = any(word.lstrip("+").startswith("hydra.job.env_set") for word in request.overrides)
    if about.job.env_set and not typed:
        raise Fault(f"hydra.job.env_set={about.job.env_set}: set in a file; if you want it, add it to the command line")


def _with_hydra(request: Request, as_json: bool) -> int:
    """Leaves composing to Hydra's own command line, whose flags stand among the overrides: inspection and multirun."""
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from seqtrain import check, targets

    codes = [0]

    def job(config: DictConfig) -> None:
        about = HydraConfig.get()
        choices = {str(group): str(option) for group, option in about.runtime.choices.items()}
        if str(about.mode) == "RunMode.MULTIRUN" and config.run_dir is None:
            config.run_dir = str(Path(about.sweep.dir) / about.sweep.subdir)
        overrides = OmegaConf.to_container(about.overrides.task)
        say(f"job {about.job.num}: {' '.join(overrides)}")  # type: ignore[arg-type]

        try:
            _refuse_environment(about, request)
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
        whitelist = ["hydra.*", "hydra_plugins.*", *targets.whitelist(request.trust)]
        hydra.main(config_path="pkg://seqtrain.conf", config_name="train", execution_whitelist=whitelist)(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise Fault(str(error)) from error
    except ValueError as error:
        if "execution whitelist" in str(error):  # so Hydra tells that a log's handler may not run
            raise Fault(str(error)) from error
        raise
    finally:
        sys.argv = former
    return max(codes)
