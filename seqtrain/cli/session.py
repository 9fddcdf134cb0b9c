"""One sitting of a run: data, training, records, and how it ended."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from seqtrain.cli import report
from seqtrain.cli.arguments import say
from seqtrain.cli.failures import going_on, say_interrupted, verdict
from seqtrain.cli.run_data import read_data
from seqtrain.cli.written_config import config_text, plain_config
from seqtrain.distributed import launch, ranks
from seqtrain.errors import RunFailed, Unavailable, UserError
from seqtrain.runs import provenance
from seqtrain.runs.checkpoint import probe, step_of
from seqtrain.runs.directory import Run, remove
from seqtrain.runs.identity import digest, identity
from seqtrain.training import budget
from seqtrain.training.callbacks.pruning import AFTER_PRUNING
from seqtrain.training.callbacks.signals import Interrupted, Signals
from seqtrain.training.model_and_task import task_class
from seqtrain.training.session import Session, begin_from, cost_of, make_session
from seqtrain.training.trainer import on_gpu, surroundings

UNAVAILABLE = 75  # EX_TEMPFAIL of sysexits.h
KINDS: dict[int, type[UserError]] = {2: UserError, UNAVAILABLE: Unavailable}
"""The faults that a process of a group tells the one that started it by its exit code."""


@dataclass(frozen=True)
class Attempt:
    """What one sitting is told beside the run and its config.

    `goes_on`: the run has begun before. Its directory says so again, and takes a changed config, when all that this
    sitting needs is there; what is refused before that leaves the run as it was.
    """

    trust: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    checkpoint: Path | None = None  # to go on from; None: from the start
    goes_on: bool = False


def run_attempt(run: Run, config: DictConfig, attempt: Attempt) -> None:
    """Trains to the end; whatever happens, summary.json says how it ended.

    In this process, which may be one of several that meet, or in as many as `config.trainer.devices` asks for.
    """
    if ranks.rank_info().world == 1 and config.trainer.devices > 1:
        _in_group(run, config, attempt)
    else:
        train(run, config, attempt)


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
            train(run, OmegaConf.create(config), attempt)
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


def train(run: Run, config: DictConfig, attempt: Attempt) -> None:
    """Trains in this process, alone or together with those that it has met."""
    from rich.console import Console

    trust, checkpoint, goes_on = attempt.trust, attempt.checkpoint, attempt.goes_on
    summary = run.summary | {
        "status": "running",
        "command": provenance.mask_command(list(attempt.command)),
        "trust": list(trust),
    }
    summary.pop("reason", None)  # of an earlier sitting
    if goes_on and run.summary.get("status") == "pruned":
        summary[AFTER_PRUNING] = True
    summary = ranks.broadcast(summary)  # the first one writes it soon, and the others may look later
    alone = ranks.rank_info().world == 1 and "SLURM_JOB_ID" not in os.environ  # SLURM sends each signal twice
    session: Session | None = None
    begun = not goes_on  # whether the run's directory tells of this sitting
    with Signals(alone=alone) as signals:
        try:
            summary |= provenance.environment() | {"world_size": ranks.rank_info().world}
            summary |= task_class(config, trust).said()
            if run.writes:
                run.probe()
                probe(run.checkpoints)
            if config.budget is None:
                summary["identity"] = digest(run.config)
            if begun:
                run.write_summary(summary)
            data = read_data(run, config, trust, summary, checkpoint)
            if checkpoint is None and config.budget is not None:
                budget.solve(config, data, trust, say)
                ranks.run_on_all(lambda: run.write_config(config_text(config)))
                summary["identity"] = digest(run.config)  # of what was solved for
            screen = Console(stderr=True, quiet=not run.writes)
            session = make_session(
                config,
                data,
                run,
                signals,
                trust,
                screen,
                logged=plain_config(config),
                after_pruning=AFTER_PRUNING in summary,
            )
            cost = cost_of(config, data, trust)
            summary |= report.begun(session, cost) | _budget(config, cost.parameters, flops=cost.flops)
            if session.deadline:
                seconds = config.trainer.max_seconds
                say(f"training ends by the clock, after {seconds:g} s: no two such runs are the same")
            if checkpoint is None and config.init_from is not None:
                summary["parent"] = begin_from(config, session, trust, say, known=summary.get("parent"))
            session.learner.writer = identity(run.config, summary)
            session.learner.where = surroundings(config, session.trainer, summary["cpu"])
            if checkpoint is not None:
                session.hold(checkpoint)
            begun = True
            run.write_summary(summary)  # first: what is finished is not gone on with
            if goes_on:
                run.write_config(config_text(config))
                run.resumed(0 if checkpoint is None else step_of(checkpoint))
            session.fit(checkpoint)
            if run.writes:
                summary |= report.result(run, session, cost)
                summary |= _budget(config, cost.parameters, flops=summary["flops"], seconds=summary["seconds"])
            run.write_summary(summary | session.ended)
            session.end_loggers(run)
            ranks.all_gather(None)  # whoever started them may end those that are left when the first one leaves
        except Interrupted as interrupted:
            if not begun or run.summary.get("status") not in ("finished", "pruned"):  # else all is written already
                _conclude(run, session, summary | {"status": "interrupted"}, begun)
                say_interrupted(run, interrupted.number)
            raise
        except UserError as fault:
            # A run that goes on may find again what is wanting; one that has not begun is removed either way.
            unlucky = isinstance(fault, Unavailable) and next(run.records(), None) is not None
            status = "failed" if unlucky else "refused"
            _conclude(run, session, summary | {"status": status, "reason": str(fault)}, begun)
            raise
        except Exception as error:
            reason, told = verdict(run, error)
            if told is None and checkpoint is not None and session is not None and not session.learner.began:
                told = UserError(f"checkpoint {checkpoint}: this run cannot go on from it: {reason}")
            _conclude(run, session, summary | {"status": "failed", "reason": reason}, begun)
            if told is None:  # a bug of ours
                raise
            raise told from error
        finally:
            run.close()


def _budget(config: DictConfig, parameters: dict[str, int], **reached: float | None) -> dict[str, Any]:
    """The entry of the summary about the budget, where there is one."""
    return {"budget": budget.met(config, reached | {"params": parameters["total"]})} if config.budget else {}


def _conclude(run: Run, session: Session | None, summary: dict[str, Any], begun: bool) -> None:
    """Writes how the sitting ended, unless that is just what cannot be written any more, and tells the sinks.

    Where it ended before it had begun, the run stands as it stood.
    """
    if not begun:
        return
    with contextlib.suppress(OSError):
        run.write_summary(summary)
    if session is not None:
        session.end_loggers(run)


def discard(run: Run) -> None:
    """Removes the directory of a run that was refused before its first step."""
    run.close()
    remove(run.path)
