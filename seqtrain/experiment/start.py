"""Start of a run: its checks, its directory, and the processes that train it. A dry run estimates its cost instead.

The config says how many processes train. They are started and watched here.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from seqtrain.config.groups import option_name
from seqtrain.config.trust import trusted, trusting
from seqtrain.distributed import launch, ranks
from seqtrain.distributed.ranks import say
from seqtrain.errors import RunFailed, UserError, merged
from seqtrain.files.atomic import listed, plain_json
from seqtrain.runs.directory import Run, default_name, remove
from seqtrain.training.callbacks.signals import Interrupted, Signals

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.config.check import Composed
    from seqtrain.experiment.story import Attempt
    from seqtrain.tasks.base import Say
    from seqtrain.training.cost import Cost
    from seqtrain.training.splits import Data


@dataclass(frozen=True)
class Request:
    """Requests of the user in addition to the config."""

    overrides: list[str] = field(default_factory=list)
    config_dirs: tuple[Path, ...] = ()
    command: tuple[str, ...] = ()


def check_all(config: DictConfig, request: Request, *, begins: bool = True) -> None:
    """Raise UserError for all faults known before the data is read. Cheap checks come first.

    Args:
        config: The config. If data or task decide its tokenizer, that is set here.
        request: The user's overrides and folders.
        begins: False if the run resumes from a checkpoint, so that it no longer needs `init_from`.
    """
    from seqtrain.config import check, preflight

    preflight.check_machine_and_data(config, begins=begins)
    # From here on targets are imported, and torch with them; the fast checks are done.
    faults = check.signature_faults(config)
    if faults:
        raise merged(faults)

    from seqtrain.training import compatibility, effects
    from seqtrain.training.model_and_task import check_optimizer

    compatibility.leave_out_tokenizer(config, request.overrides)
    compatibility.check_pair(config)
    effects.check(config, request.overrides)
    compatibility.settle_tokenizer(config, request.overrides)
    compatibility.check_stopping(config)
    compatibility.check_average(config)
    check_optimizer(config)


def prepare(config: DictConfig, request: Request) -> list[str]:
    """Prepare a config for its first training; return messages on the values that were set in it.

    Raises:
        UserError: For all faults known before the data is read.
    """
    from seqtrain.config import preflight
    from seqtrain.training import budget

    lines: list[str] = []
    budget.check_free(config, request.overrides)
    if preflight.has_origins(config):
        from seqtrain.training.origins import take_model

        lines = take_model(config, request.overrides)
    budget.prepare(config)
    check_all(config, request)
    return lines


def read_data(config: DictConfig, note: Say) -> Data:
    """Read the data of a prepared config, and set its options that depend on data."""
    from seqtrain.training import budget
    from seqtrain.training.data import make_data, resolve_length

    data = make_data(config, ("train", "validation"), note)
    budget.solve(config, data, note)
    for line in resolve_length(config, data):
        note(line)
    return data


def start(composed: Composed, request: Request) -> Run:
    """Run a composed config as a new run, from its first step to its end. Each process of the group calls this.

    Args:
        composed: The config. Values that are `auto`, or solved for by a budget, are set in it.
        request: What was typed.

    Returns:
        The run, trained to its end.

    Raises:
        UserError: For a user's error; nothing is left on the disk if the run has not begun.
        RunFailed: If the training itself failed.
        Interrupted: At a signal; the run can be resumed.
    """
    config, choices = composed.config, composed.choices
    with ranks.process_group() as here:
        taken = ranks.run_on_all(lambda: prepare(config, request))
        from seqtrain.config import check
        from seqtrain.experiment.story import Attempt
        from seqtrain.experiment.written_config import secret_notes
        from seqtrain.training import effects
        from seqtrain.training.trainer import resolve_auto

        resolve_auto(config, say)  # first, so that the run's config contains the resolved values
        # Only the first process creates the directory; an error in that ends all of them.
        run = ranks.run_on_all(lambda: _create_run(config, choices) if here.first else None)
        path = ranks.broadcast(None if run is None else run.path)
        run = run or Run(cast(Path, path), writes=False)
        say(f"run {run.path}")
        notes = (*check.repeated(request.overrides), *effects.notes(config, request.overrides), *secret_notes(config))
        for line in (*composed.notes, *taken, *notes):
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
    """Return True if a run was refused before its first step and its directory contains nothing useful."""
    if not run.writes or run.lost():  # another process removes it, or the user has moved it
        return False
    return run.summary.status in (None, "refused") and not listed(run.checkpoints)


def _create_run(config: DictConfig, choices: dict[str, str]) -> Run:
    from seqtrain.experiment.written_config import config_text

    text = config_text(config)
    if config.run_dir is not None:
        return Run.create(config.run_dir, config=text)
    # The model of `init_from` replaces the choice.
    model = choices["model"] if config.init_from is None else option_name(config.model._target_)
    return Run.create(Path("outputs") / default_name(choices["task"], model), config=text, taken="number")


def run_attempt(run: Run, config: DictConfig, attempt: Attempt) -> None:
    """Train to the end, and record in summary.json how it ended.

    Train in this process, which may be one of a group, or start `config.trainer.devices` processes.
    """
    from seqtrain.experiment.story import Experiment

    if ranks.rank_info().world == 1 and config.trainer.devices > 1:
        _in_group(run, config, attempt)
    else:
        Experiment(run, config, attempt).train()


def _in_group(run: Run, config: DictConfig, attempt: Attempt) -> None:
    """Start the processes, and raise the error that one of them would raise alone."""
    from seqtrain.experiment.endings import conclude_group
    from seqtrain.experiment.written_config import resolved
    from seqtrain.training.trainer import on_gpu

    run.claim()  # not in a worker: the lock must be held as long as any worker may write
    given = (run.path, resolved(config), attempt, trusted())
    conclude_group(run, launch.start(config.trainer.devices, worker, *given, gpu=on_gpu(config)))


def worker(
    tell: Callable[[str], None], path: Path, config: dict[str, Any], attempt: Attempt, trust: Sequence[str]
) -> int:
    """Train as one process of a group; report errors with `tell` and return the exit code.

    Args:
        tell: Called with each line of an error.
        path: The run's directory.
        config: The run's config in plain values.
        attempt: The attempt to train.
        trust: Packages that configs may name.
    """
    from omegaconf import OmegaConf

    from seqtrain.experiment.endings import exit_code_of
    from seqtrain.experiment.story import Experiment

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
        time.sleep(2)  # this process only noticed the loss of another one, whose own error must be reported first
        return 1
    except RunFailed as error:
        tell(str(error))
        return 1
    except Exception as error:  # a bug in seqtrain
        traceback.print_exc()
        tell(f"process {ranks.rank_info().rank}: {type(error).__name__}: {error}")
        return 1
    return 0


TRIAL_STEPS = 4  # largest number of trial steps; their median is used, because the first one is slow
MAX_FLOPS = 1.2e12  # of all trial steps: a few seconds on a CPU


def dry_run(composed: Composed, request: Request) -> Cost:
    """Check a training, read its data, try its first steps, and return its cost. Creates no run directory."""
    config = composed.config
    for line in composed.notes:
        say(line)
    for line in prepare(config, request):
        say(line)
    from seqtrain.training.session import cost_of
    from seqtrain.training.trainer import resolve_auto

    resolve_auto(config, say)
    data = read_data(config, say)
    cost = cost_of(config, data)
    if cost.steps is None:  # a time limit decides
        return cost
    steps = min(TRIAL_STEPS, int(MAX_FLOPS / (cost.flops_per_token * cost.tokens_per_step)))
    if config.trainer.devices != 1 or not steps:
        say("seconds are unknown: they are estimated only for small steps on one device")
        return cost
    return replace(cost, tokens_per_second=_speed(config, data, steps))


def _speed(config: DictConfig, data: Data, steps: int) -> float:
    """Return the speed of the first steps of a training, in tokens per second."""
    from seqtrain.experiment import report
    from seqtrain.experiment.learning_rate import few_steps

    with Signals() as signals, few_steps(config, data, steps, signals) as session:
        session.fit(None)
        return report.speed(session.recorder.run, 0.0)


def print_cost(cost: Cost, as_json: bool) -> None:
    """Print the cost of a training."""
    if as_json:
        print(plain_json(cost.record()))
    else:
        print("\n".join(cost.lines()))
