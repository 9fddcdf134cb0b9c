"""A run from its request to its end: what it is refused for, its directory, and who trains it.

One process trains it, or as many as the config asks for, which are started and watched here.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from seqtrain.cli.arguments import say
from seqtrain.config.trust import trusted, trusting
from seqtrain.distributed import launch, ranks
from seqtrain.errors import RunFailed, Unavailable, UserError, merged
from seqtrain.files.atomic import listed
from seqtrain.runs.directory import Run, default_name, remove
from seqtrain.training.callbacks.signals import Interrupted

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.experiment import Attempt
    from seqtrain.training.cost import Cost

UNAVAILABLE = 75  # EX_TEMPFAIL of sysexits.h
KINDS: dict[int, type[UserError]] = {2: UserError, UNAVAILABLE: Unavailable}
"""The faults that a process of a group tells the one that started it by its exit code."""


@dataclass(frozen=True)
class Request:
    """What was asked for, beside the config itself."""

    overrides: list[str] = field(default_factory=list)
    config_dirs: tuple[Path, ...] = ()
    command: tuple[str, ...] = ()


def print_cost(cost: Cost, as_json: bool) -> None:
    """Prints what a training will cost."""
    print(json.dumps(cost.record()) if as_json else "\n".join(cost.lines()))


def preflight(config: DictConfig, request: Request) -> None:
    """All that can be wrong before the data is read."""
    from seqtrain.config import check
    from seqtrain.config import preflight as cheap

    cheap.check(config)
    faults = check.signature_faults(config)
    if faults:
        raise merged(faults)
    from seqtrain.training import compatibility, effects
    from seqtrain.training.model_and_task import check_optimizer

    compatibility.check_pair(config)
    effects.check(config, request.overrides)
    compatibility.check_tokenizer(config, request.overrides)
    compatibility.check_stopping(config)
    check_optimizer(config)


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

    data = make_data(config, ("train", "validation"), say)
    budget.solve(config, data, say)
    return cost_of(config, data)


def start(config: DictConfig, choices: dict[str, str], request: Request) -> Run:
    """A new run of a composed config, from its first step to its end; called by each of the processes that meet."""
    with ranks.process_group() as here:
        ranks.run_on_all(lambda: _prepare(config, request))
        from seqtrain.config import check
        from seqtrain.experiment import Attempt
        from seqtrain.training import effects
        from seqtrain.training.trainer import resolve_auto

        resolve_auto(config, say)  # first: what it finds stands in the run's config from the beginning
        run = ranks.run_on_all(lambda: _made(config, choices) if here.first else None)
        path = ranks.broadcast(None if run is None else run.path)
        run = run or Run(cast(Path, path), writes=False)
        say(f"run {run.path}")
        for line in (*check.repeated(request.overrides), *effects.notes(config, request.overrides)):
            say(line)
        try:
            run_attempt(run, config, Attempt(request.command))
        except UserError:
            if (
                run.writes
                and not run.lost()
                and run.summary.status in (None, "refused")
                and not listed(run.checkpoints)
            ):
                discard(run)  # before it began: nothing to keep
            raise
    return run


def _made(config: DictConfig, choices: dict[str, str]) -> Run:
    from seqtrain.cli.written_config import config_text

    text = config_text(config)
    if config.run_dir is not None:
        return Run.create(config.run_dir, config=text)
    return Run.create(Path("outputs") / default_name(choices["task"], choices["model"]), config=text, taken="number")


def run_attempt(run: Run, config: DictConfig, attempt: Attempt) -> None:
    """Trains to the end; whatever happens, summary.json says how it ended.

    In this process, which may be one of several that meet, or in as many as `config.trainer.devices` asks for.
    """
    from seqtrain.experiment import Experiment

    if ranks.rank_info().world == 1 and config.trainer.devices > 1:
        _in_group(run, config, attempt)
    else:
        Experiment(run, config, attempt).train()


def _in_group(run: Run, config: DictConfig, attempt: Attempt) -> None:
    """Starts the processes, and raises what one of them would have raised alone."""
    from seqtrain.cli.endings import going_on, say_interrupted
    from seqtrain.cli.written_config import plain_config
    from seqtrain.training.trainer import on_gpu

    run.claim()
    outcome = launch.start(
        config.trainer.devices,
        worker,
        *(run.path, plain_config(config), attempt, trusted()),
        gpu=on_gpu(config),
    )
    reason = "; ".join(outcome.lines) or "a process ended without a word"
    if outcome.code > 128 and run.summary.status == "running":  # the one that writes it could not any more
        run.update_summary(status="interrupted")
        say_interrupted(run, outcome.code - 128)
    elif outcome.code == 1:
        run.update_summary(status="failed", reason=reason)
    run.close()
    if outcome.code > 128:
        raise Interrupted(outcome.code - 128)
    if outcome.code in KINDS:
        raise KINDS[outcome.code](*outcome.lines)
    if outcome.code:
        again = "" if "new run" in reason else f"; {going_on(run)}"
        raise RunFailed(f"{reason}{again}")


def worker(
    tell: Callable[[str], None], path: Path, config: dict[str, Any], attempt: Attempt, trust: Sequence[str]
) -> int:
    """One process of a group, with the run's config in plain values; tells what went wrong, gives its exit code."""
    from omegaconf import OmegaConf

    from seqtrain.experiment import Experiment

    try:
        with trusting(trust), ranks.process_group() as here:
            run = Run(path, writes=here.first, claimed=True)
            Experiment(run, OmegaConf.create(config), attempt).train()
    except Interrupted as interrupted:
        return 128 + interrupted.number
    except UserError as fault:
        for line in fault.lines:
            tell(line)
        return UNAVAILABLE if isinstance(fault, Unavailable) else 2
    except ranks.PeerLost:
        ranks.pause_for_the_first()
        return 1
    except RunFailed as error:
        tell(str(error))
        return 1
    except Exception as error:  # a bug of ours
        traceback.print_exc()
        tell(f"process {ranks.rank_info().rank}: {type(error).__name__}: {error}")
        return 1
    return 0


def discard(run: Run) -> None:
    """Removes the directory of a run that was refused before its first step."""
    run.close()
    remove(run.path)
