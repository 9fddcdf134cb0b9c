"""A run from its request to its end: what it is refused for, its directory, and who trains it.

One process trains it, or as many as the config asks for, which are started and watched here.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from seqtrain.cli.arguments import say
from seqtrain.config.trust import trusted, trusting
from seqtrain.distributed import launch, ranks
from seqtrain.errors import RunFailed, UserError, merged
from seqtrain.files.atomic import listed
from seqtrain.runs.directory import Run, default_name, remove
from seqtrain.training.callbacks.signals import Interrupted

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.config.check import Composed
    from seqtrain.experiment import Attempt
    from seqtrain.tasks.base import Say
    from seqtrain.training.splits import Data


@dataclass(frozen=True)
class Request:
    """What was asked for, beside the config itself."""

    overrides: list[str] = field(default_factory=list)
    config_dirs: tuple[Path, ...] = ()
    command: tuple[str, ...] = ()


def check_all(config: DictConfig, request: Request) -> None:
    """Raises UserError for all that can be wrong before the data is read: what is cheap to find comes first."""
    from seqtrain.config import check, preflight

    preflight.check_machine_and_data(config)
    # From here on targets are imported, and torch with them: what could be told within a second has been told.
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


def prepare(config: DictConfig, request: Request) -> None:
    """Makes a config ready to be trained for the first time; UserError for all that can be wrong before that."""
    from seqtrain.training import budget

    budget.check_free(config, request.overrides)
    budget.prepare(config)
    check_all(config, request)


def read_data(config: DictConfig, note: Say) -> Data:
    """The data of a prepared config, in which all that depends on data is then set."""
    from seqtrain.training import budget
    from seqtrain.training.data import make_data
    from seqtrain.training.from_data import resolve_length

    data = make_data(config, ("train", "validation"), note)
    budget.solve(config, data, note)
    for line in resolve_length(config, data):
        note(line)
    return data


def start(composed: Composed, request: Request) -> Run:
    """A new run of a composed config, from its first step to its end; called by each of the processes that meet.

    Args:
        composed: what is `auto` in its config, or solved for by a budget, is set here.
        request: what was typed.

    Returns:
        The run, trained to its end.

    Raises:
        UserError: for what the user can mend; nothing is left on the disk where the run has not begun.
        RunFailed: where the training failed in itself.
        Interrupted: at a signal; the run can be resumed.
    """
    config, choices = composed.config, composed.choices
    with ranks.process_group() as here:
        ranks.run_on_all(lambda: prepare(config, request))
        from seqtrain.cli.written_config import secret_notes
        from seqtrain.config import check
        from seqtrain.experiment import Attempt
        from seqtrain.training import effects
        from seqtrain.training.trainer import resolve_auto

        resolve_auto(config, say)  # first: what it finds stands in the run's config from the beginning
        # Only the first process makes the directory; a fault in that ends all of them.
        run = ranks.run_on_all(lambda: _create_run(config, choices) if here.first else None)
        path = ranks.broadcast(None if run is None else run.path)
        run = run or Run(cast(Path, path), writes=False)
        say(f"run {run.path}")
        notes = (*check.repeated(request.overrides), *effects.notes(config, request.overrides), *secret_notes(config))
        for line in (*composed.notes, *notes):
            say(line)
        try:
            run_attempt(run, config, Attempt(request.command))
        except UserError:
            if _holds_nothing(run):
                run.close()
                remove(run.path)
            raise
    return run


def _holds_nothing(run: Run) -> bool:
    """Whether a run was refused before its first step, so that its directory is of no use to anybody."""
    if not run.writes or run.lost():  # another process's to remove, or somebody has moved it
        return False
    return run.summary.status in (None, "refused") and not listed(run.checkpoints)


def _create_run(config: DictConfig, choices: dict[str, str]) -> Run:
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
    from seqtrain.cli.endings import conclude_group
    from seqtrain.cli.written_config import resolved
    from seqtrain.training.trainer import on_gpu

    run.claim()  # here and not in a worker: the lock is held as long as any of them may write
    given = (run.path, resolved(config), attempt, trusted())
    conclude_group(run, launch.start(config.trainer.devices, worker, *given, gpu=on_gpu(config)))


def worker(
    tell: Callable[[str], None], path: Path, config: dict[str, Any], attempt: Attempt, trust: Sequence[str]
) -> int:
    """One process of a group, with the run's config in plain values; tells what went wrong, gives its exit code."""
    from omegaconf import OmegaConf

    from seqtrain.cli.endings import exit_code_of
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
        return exit_code_of(fault)
    except ranks.PeerLost:
        # It only saw that another one has gone: that one's own words are to come first.
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
