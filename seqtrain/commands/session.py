"""One sitting of a run: data, training, records, and how it ended."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain import budget, build, group, processes, provenance, report
from seqtrain.callbacks.guards import is_out_of_memory, out_of_memory_words
from seqtrain.callbacks.signals import Interrupted, Signals
from seqtrain.checkpoint import probe
from seqtrain.commands.arguments import say
from seqtrain.data.rows import TOKENIZER, Vocabularies
from seqtrain.faults import Failed, Fault, NonFinite, OutOfMemory
from seqtrain.runs import Run, remove

if TYPE_CHECKING:
    from omegaconf import DictConfig


def sit(
    run: Run, config: DictConfig, trust: Sequence[str], *, command: Sequence[str], checkpoint: Path | None = None
) -> None:
    """Trains from `checkpoint`, or from the start, to the end; whatever happens, summary.json says how it ended.

    In this process, which may be one of several that meet, or in as many as `config.trainer.devices` asks for.
    """
    if processes.place().world == 1 and config.trainer.devices > 1:
        _in_group(run, config, trust, command, checkpoint)
    else:
        train(run, config, trust, command=command, checkpoint=checkpoint)


def _in_group(
    run: Run, config: DictConfig, trust: Sequence[str], command: Sequence[str], checkpoint: Path | None
) -> None:
    """Starts the processes from the run's own directory, and raises what one of them would have raised alone."""
    run.claim()
    outcome = group.start(
        config.trainer.devices,
        member,
        *(run.path, tuple(trust), tuple(command), checkpoint),
        gpu=build.on_gpu(config),
    )
    reason = "; ".join(outcome.lines) or "a process ended without a word"
    if outcome.code > 128 and run.summary.get("status") != "interrupted":  # the one that writes it could not any more
        run.write_summary(run.summary | {"status": "interrupted"})
        _say_interrupted(run, outcome.code - 128)
    elif outcome.code == 1:
        run.write_summary(run.summary | {"status": "failed", "reason": reason})
    run.close()
    if outcome.code > 128:
        raise Interrupted(outcome.code - 128)
    if outcome.code == 2:
        raise Fault(*outcome.lines)
    if outcome.code:
        again = "" if "new run" in reason else f"; {_going_on(run)}"
        raise Failed(f"{reason}{again}")


def member(
    tell: Callable[[str], None], path: Path, trust: tuple[str, ...], command: tuple[str, ...], checkpoint: Path | None
) -> int:
    """One process of a group, from the run's directory alone; tells what went wrong, gives its exit code."""
    try:
        with processes.joined() as here:
            run = Run(path, writes=here.first, claimed=True)
            train(run, build.run_config(run), trust, command=command, checkpoint=checkpoint)
    except Interrupted as interrupted:
        return 128 + interrupted.number
    except Fault as fault:
        for line in fault.lines:
            tell(line)
        return 2
    except processes.PeerLost:
        processes.pause_for_the_first()
        return 1
    except Failed as error:
        tell(str(error))
        return 1
    except Exception as error:  # a bug of ours
        traceback.print_exc()
        tell(f"process {processes.place().rank}: {type(error).__name__}: {error}")
        return 1
    return 0


def train(
    run: Run, config: DictConfig, trust: Sequence[str], *, command: Sequence[str], checkpoint: Path | None = None
) -> None:
    """Trains in this process, alone or together with those that it has met."""
    from rich.console import Console

    summary = run.summary | {
        "status": "running",
        "command": provenance.mask_command(list(command)),
        "trust": list(trust),
    }
    summary.pop("reason", None)  # of an earlier sitting
    alone = processes.place().world == 1 and "SLURM_JOB_ID" not in os.environ  # SLURM sends each signal twice
    session: build.Session | None = None
    with Signals(alone=alone) as signals:
        try:
            summary |= provenance.environment() | {"world_size": processes.place().world}
            run.write_summary(summary)
            data = _data(run, config, trust, summary)
            if checkpoint is None and config.budget is not None:
                budget.solve(config, data, trust, say)
                processes.together(lambda: run.write_config(config_text(config)))
            if run.writes:
                probe(run.checkpoints)
            session = build.make_session(config, data, run, signals, trust, Console(stderr=True, quiet=not run.writes))
            cost = build.cost(config, data, trust)
            summary |= report.begun(session, cost) | _budget(config, cost.parameters, flops=cost.flops)
            if session.deadline:
                seconds = config.trainer.max_seconds
                say(f"training ends by the clock, after {seconds:g} s: no two such runs are the same")
            run.write_summary(summary)
            if checkpoint is None and config.init_from is not None:
                build.begin_from(config, session, trust, say)
            session.fit(checkpoint)
            if run.writes:
                summary |= report.result(run, session, cost, say)
                summary |= _budget(config, cost.parameters, flops=summary["flops"], seconds=summary["seconds"])
            run.write_summary(summary | session.ended)
            session.end_sinks(run)
            processes.gathered(None)  # whoever started them may end those that are left when the first one leaves
        except Interrupted as interrupted:
            if run.summary.get("status") not in ("finished", "pruned"):  # else all is written already
                _conclude(run, session, summary | {"status": "interrupted"})
                _say_interrupted(run, interrupted.number)
            raise
        except Fault as fault:
            _conclude(run, session, summary | {"status": "refused", "reason": str(fault)})
            raise
        except Exception as error:
            reason, told = _verdict(run, error)
            if told is None and checkpoint is not None and session is not None and not session.learner.began:
                told = Fault(f"checkpoint {checkpoint}: this run cannot go on from it: {reason}")
            _conclude(run, session, summary | {"status": "failed", "reason": reason})
            if told is None:  # a bug of ours
                raise
            raise told from error
        finally:
            run.close()


def _budget(config: DictConfig, parameters: dict[str, int], **reached: float | None) -> dict[str, Any]:
    """The entry of the summary about the budget, where there is one."""
    return {"budget": budget.met(config, reached | {"params": parameters["total"]})} if config.budget else {}


def _conclude(run: Run, session: build.Session | None, summary: dict[str, Any]) -> None:
    """Writes how the sitting ended, unless that is just what cannot be written any more, and tells the sinks."""
    with contextlib.suppress(OSError):
        run.write_summary(summary)
    if session is not None:
        session.end_sinks(run)


def _verdict(run: Run, error: Exception) -> tuple[str, Exception | None]:
    """The reason for the summary, and what to raise in one line; None for what nobody foresaw."""
    if isinstance(error, NonFinite):
        return str(error), NonFinite(
            f"{error}; {_last_good(run)}; try a smaller optimizer.lr or trainer.clip in a new run"
        )
    if is_out_of_memory(error):
        reason = out_of_memory_words(error)
        return reason, OutOfMemory(f"{reason}; {_last_good(run)}")
    if processes.is_loss(error):
        reason = "another process of the run has gone"
        return reason, processes.PeerLost(reason)
    if isinstance(error, Failed):
        return str(error), error
    if "DataLoader worker" in str(error):  # torch's own words
        reason = "a data worker died, killed by hand or for want of memory"
        return reason, Failed(f"{reason}: `seqtrain resume {run.path} data.workers=0` does without; {_last_good(run)}")
    remedy = _remedy(run, error) if isinstance(error, OSError) else None
    again = f"then `seqtrain resume {run.path}`"
    reason = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return reason, None if remedy is None else Fault(f"run {run.path}: {remedy}, {again}")


@contextlib.contextmanager
def writing(run: Run, then: str) -> Iterator[None]:
    """Turns what keeps the run's files from being written into a Fault that says what to do, and what `then`."""
    try:
        yield
    except OSError as error:
        remedy = _remedy(run, error)
        if remedy is None:
            raise
        raise Fault(f"run {run.path}: {remedy}, then {then}") from error


def _remedy(run: Run, error: OSError) -> str | None:
    """What keeps the run's files from being written, and what to do; None where it is about something else."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; make room"
    if error.errno == errno.EFBIG:
        return "no file may become so large here; raise the limit (ulimit -f)"
    if error.filename is not None and run.path.absolute() in Path(str(error.filename)).absolute().parents:
        return f"{error.filename} cannot be written ({error.strerror}); mend that"
    return None


def _say_interrupted(run: Run, number: int) -> None:
    say(f"interrupted by {signal.Signals(number).name}: {_going_on(run)}")


def _going_on(run: Run) -> str:
    saved = any(run.checkpoints.glob("step-*.ckpt"))
    where = "goes on from the last checkpoint" if saved else "begins again: no checkpoint was saved yet"
    return f"`seqtrain resume {run.path}` {where}"


def config_text(config: DictConfig) -> str:
    """The config as YAML: interpolations resolved, except those that read the environment, and secrets masked."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(provenance.mask_secrets(_resolved(config))))


def _resolved(node: Any) -> Any:
    from omegaconf import DictConfig, ListConfig, OmegaConf

    def value(parent: Any, key: Any) -> Any:
        if OmegaConf.is_interpolation(parent, key):
            raw = parent._get_node(key)._value()
            if "oc.env" in str(raw):
                return raw
        return _resolved(parent[key])

    if isinstance(node, DictConfig):
        return {key: value(node, key) for key in node}
    if isinstance(node, ListConfig):
        return [value(node, index) for index in range(len(node))]
    return node


def discard(run: Run) -> None:
    """Removes the directory of a run that was refused before its first step."""
    run.close()
    remove(run.path)


def _data(run: Run, config: DictConfig, trust: Sequence[str], summary: dict[str, Any]) -> build.Data:
    """The data, with the run's own vocabularies if it has them; Fault if the text is not what the run began with."""
    known = Vocabularies.load(run.path) if (run.path / TOKENIZER).exists() else None
    data = build.make_data(config, ("train", "validation"), trust, say, known)
    hashes = {split: rows.hash for split, rows in data.rows.items()} | data.vocabularies.hashes
    for name, value in summary.get("hashes", {}).items():
        if name in hashes and hashes[name] != value:
            raise Fault(f"data: the {name} text is not the one that run {run.path} began with; start a new run")
    if known is None:
        data.vocabularies.save(run.path)
    summary |= {"hashes": hashes, "data": data.source.describe()}
    return data


def _last_good(run: Run) -> str:
    saved = sorted(path.name for path in run.checkpoints.glob("step-*.ckpt"))
    return f"the last good checkpoint is {saved[-1]}" if saved else "no checkpoint was saved yet"
