"""Who trains an attempt at a run: this process, or as many as the config asks for, which it starts and watches."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seqtrain.cli.endings import going_on, say_interrupted
from seqtrain.cli.written_config import plain_config
from seqtrain.distributed import launch, ranks
from seqtrain.errors import RunFailed, Unavailable, UserError
from seqtrain.experiment import Attempt, Experiment
from seqtrain.runs.directory import Run, remove
from seqtrain.training.callbacks.signals import Interrupted
from seqtrain.training.trainer import on_gpu

UNAVAILABLE = 75  # EX_TEMPFAIL of sysexits.h
KINDS: dict[int, type[UserError]] = {2: UserError, UNAVAILABLE: Unavailable}
"""The faults that a process of a group tells the one that started it by its exit code."""


def run_attempt(run: Run, config: DictConfig, attempt: Attempt) -> None:
    """Trains to the end; whatever happens, summary.json says how it ended.

    In this process, which may be one of several that meet, or in as many as `config.trainer.devices` asks for.
    """
    if ranks.rank_info().world == 1 and config.trainer.devices > 1:
        _in_group(run, config, attempt)
    else:
        Experiment(run, config, attempt).train()


def _in_group(run: Run, config: DictConfig, attempt: Attempt) -> None:
    """Starts the processes, and raises what one of them would have raised alone."""
    run.claim()
    outcome = launch.start(
        config.trainer.devices,
        worker,
        *(run.path, plain_config(config), attempt),
        gpu=on_gpu(config),
    )
    reason = "; ".join(outcome.lines) or "a process ended without a word"
    if outcome.code > 128 and run.summary.get("status") == "running":  # the one that writes it could not any more
        run.write_summary(run.summary | {"status": "interrupted"})
        say_interrupted(run, outcome.code - 128)
    elif outcome.code == 1:
        run.write_summary(run.summary | {"status": "failed", "reason": reason})
    run.close()
    if outcome.code > 128:
        raise Interrupted(outcome.code - 128)
    if outcome.code in KINDS:
        raise KINDS[outcome.code](*outcome.lines)
    if outcome.code:
        again = "" if "new run" in reason else f"; {going_on(run)}"
        raise RunFailed(f"{reason}{again}")


def worker(tell: Callable[[str], None], path: Path, config: dict[str, Any], attempt: Attempt) -> int:
    """One process of a group, with the run's config in plain values; tells what went wrong, gives its exit code."""
    try:
        with ranks.process_group() as here:
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
