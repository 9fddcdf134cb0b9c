"""One sitting of a run: data, training, records, and how it ended."""

from __future__ import annotations

import contextlib
import errno
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain import build, provenance, report
from seqtrain.callbacks.signals import Interrupted, Signals
from seqtrain.checkpoint import probe
from seqtrain.commands.arguments import say
from seqtrain.data.rows import TOKENIZER, Vocabularies
from seqtrain.faults import Fault, NonFinite
from seqtrain.runs import Run

if TYPE_CHECKING:
    from omegaconf import DictConfig


def sit(
    run: Run, config: DictConfig, trust: Sequence[str], *, command: Sequence[str], checkpoint: Path | None = None
) -> None:
    """Trains from `checkpoint`, or from the start, to the end; whatever happens, summary.json says how it ended."""
    from rich.console import Console

    summary = run.summary | {
        "status": "running",
        "command": provenance.mask_command(list(command)),
        "trust": list(trust),
    }
    summary.pop("reason", None)  # of an earlier sitting
    with Signals() as signals:
        try:
            summary |= provenance.environment()
            run.write_summary(summary)
            data = _data(run, config, trust, summary)
            probe(run.checkpoints)
            session = build.make_session(config, data, run, signals, trust, Console(stderr=True))
            cost = build.cost(config, data, trust)
            summary |= {"parameters": cost.parameters, "padding": cost.padding, "max_steps": session.max_steps}
            run.write_summary(summary)
            if checkpoint is None and config.init_from is not None:
                build.begin_from(config, session, trust, say)
            session.fit(checkpoint)
            summary |= report.result(run, session, cost, say)
            run.write_summary(summary | {"status": "finished"})
        except Interrupted as interrupted:
            run.write_summary(summary | {"status": "interrupted"})
            name = signal.Signals(interrupted.number).name
            say(f"interrupted by {name}: `seqtrain resume {run.path}` goes on from the last checkpoint")
            raise
        except NonFinite as error:
            run.write_summary(summary | {"status": "failed", "reason": str(error)})
            raise NonFinite(f"{error}; {_last_good(run)}; try a smaller optimizer.lr or trainer.clip") from None
        except Fault as fault:
            run.write_summary(summary | {"status": "refused", "reason": str(fault)})
            raise
        except OSError as error:
            with contextlib.suppress(OSError):
                run.write_summary(summary | {"status": "failed", "reason": str(error)})
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Fault(f"run {run.path}: the disk is full; make room, then `seqtrain resume {run.path}`") from None
            raise
        except Exception as error:
            run.write_summary(summary | {"status": "failed", "reason": f"{type(error).__name__}: {error}"})
            raise
        finally:
            run.close()


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
    """Removes the directory of a run that was refused before its first step, and outputs/ if it held nothing else."""
    run.close()
    shutil.rmtree(run.path)
    if run.path.parent == Path("outputs"):
        with contextlib.suppress(OSError):
            run.path.parent.rmdir()


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
