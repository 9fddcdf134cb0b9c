"""Everything that one attempt of a run trains with, and what the whole training costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from omegaconf import DictConfig

from seqtrain.config.instantiate import make
from seqtrain.config.options import TrainerOptions
from seqtrain.data.batching.loader import ENDLESS, TrainLoader
from seqtrain.data.batching.plan import ExamplePlan, StreamPlan
from seqtrain.distributed import ranks
from seqtrain.errors import UserError
from seqtrain.inference.opened import open_run
from seqtrain.runs.checkpoint import load, step_of
from seqtrain.runs.directory import Run
from seqtrain.runs.identity import shown
from seqtrain.tasks.base import Say
from seqtrain.training.checkpoint_check import check
from seqtrain.training.cost import Cost, count, estimate
from seqtrain.training.data import Data
from seqtrain.training.model_and_task import make_pair
from seqtrain.training.trainer import make_trainer, trainer_options
from seqtrain.training.transfer import adopt, freeze

if TYPE_CHECKING:
    from pytorch_lightning import Callback, Trainer
    from rich.console import Console

    from seqtrain.training.callbacks.checkpoints import Checkpoints
    from seqtrain.training.callbacks.deadline import Deadline
    from seqtrain.training.callbacks.pruning import Pruning
    from seqtrain.training.callbacks.record import Recorder
    from seqtrain.training.callbacks.signals import Signals
    from seqtrain.training.learner import Learner
    from seqtrain.training.loggers.base import RunLogger

MAX_STEPS_PER_SECOND = 100_000  # beyond any machine


@dataclass
class Session:
    """Everything that one attempt of a run trains with."""

    data: Data
    plan: StreamPlan | ExamplePlan
    learner: Learner
    trainer: Trainer
    recorder: Recorder
    checkpoints: Checkpoints
    max_steps: int | None  # None: the clock decides
    deadline: Deadline | None
    pruning: Pruning | None

    def fit(self, checkpoint: Path | None) -> None:
        """Trains from the start, or from a checkpoint that `check_checkpoint` has taken, to the end."""
        here = ranks.rank_info()
        loader = TrainLoader(
            self.data.batcher("train"),
            self.plan,
            accumulate=self.trainer.accumulate_grad_batches,
            first_step=0 if checkpoint is None else step_of(checkpoint),
            share=(here.world, here.rank),
            workers=self.data.batching.workers,
        )
        validation = self.data.eval_loader("validation")
        self.trainer.fit(self.learner, loader, validation, ckpt_path=checkpoint, weights_only=True)
        if self.recorder.validated != self.trainer.global_step:
            self.trainer.validate(self.learner, validation, verbose=False)

    def check_checkpoint(self, path: Path) -> None:
        """UserError where this training could not have written the checkpoint; says what has changed around it since.

        Every process calls it, before the run's directory says that the run goes on.
        """
        first = ranks.rank_info().first
        ranks.run_on_all(lambda: self._check_checkpoint(path) if first else None)

    def _check_checkpoint(self, path: Path) -> None:
        saved, step = load(path), step_of(path)
        most_read = self.data.most_read(step)
        check(saved, path, self.learner, self.trainer, max_steps=self._most_steps, max_read=most_read)
        before, now = saved["seqtrain"]["where"], self.learner.surroundings
        changed = [
            f"{name} {shown(before[name])} -> {shown(now[name])}"
            for name in now
            if not name.startswith("trainer.") and before.get(name, now[name]) != now[name]
        ]
        if changed:
            self.data.say(
                f"since {path} was written: {', '.join(changed)}; the same bits are promised for the same only"
            )

    @property
    def _most_steps(self) -> int:
        """More than the training can have, where the clock decides: without it a forged step would be counted up to."""
        limits = [ENDLESS if self.max_steps is None else self.max_steps]
        if self.deadline is not None:
            limits.append(int(self.deadline.seconds * MAX_STEPS_PER_SECOND))
        return min(limits)

    @property
    def ended(self) -> dict[str, str]:
        """What the summary says of a training that has ended: its status, and the reason if it was pruned."""
        if self.pruning is None or not self.pruning.reason:
            return {"status": "finished"}
        return {"status": "pruned", "reason": self.pruning.reason}

    def end_loggers(self, run: Run) -> None:
        """Hands the loggers what the run has come to, as summary.json has it."""
        for run_logger in self.trainer.loggers:
            cast("RunLogger", run_logger).end(run.summary)


def make_session(
    config: DictConfig,
    data: Data,
    run: Run,
    signals: Signals,
    console: Console,
    *,
    logged: dict[str, Any] | None = None,
    after_pruning: bool = False,
) -> Session:
    """Learner, callbacks, loggers and trainer of a run.

    `logged`: the config that loggers show, else the run's; `after_pruning`: it is trained on although it was pruned.
    """
    from seqtrain.training.callbacks.checkpoints import Checkpoints, Plateau
    from seqtrain.training.callbacks.deadline import Deadline
    from seqtrain.training.callbacks.progress import ProgressBar
    from seqtrain.training.callbacks.pruning import Pruning, is_searched
    from seqtrain.training.callbacks.record import Recorder

    options, plan = trainer_options(config), data.plan("train")
    steps = max_steps(options, plan)
    learner = make_learner(config, data, run)
    recorder = Recorder(run=run, every=options.log_every, plan=plan)
    deadline = None if options.max_seconds is None else Deadline(recorder=recorder, seconds=options.max_seconds)
    pruning = Pruning(run=run, goes_on=after_pruning) if is_searched(run.path) else None
    checkpoints = Checkpoints(
        run=run,
        every=options.checkpoint_every,
        keep_last=options.keep_last,
        keep_best=options.keep_best,
        signals=signals,
        pruning=pruning,
    )
    callbacks = [
        recorder,
        *([deadline] if deadline else []),
        Plateau(),
        *_guards(options),
        *_chosen_callbacks(config, data, run),
        ProgressBar(recorder=recorder, steps_per_epoch=plan.steps, console=console),
        *([pruning] if pruning else []),
        checkpoints,  # behind the others, so that what it saves holds their newest state, and what was decided
    ]
    loggers = _loggers(config, run, run.config if logged is None else logged)
    trainer = make_trainer(options, steps or ENDLESS, callbacks, loggers, run.path)
    return Session(data, plan, learner, trainer, recorder, checkpoints, steps, deadline, pruning)


def make_learner(config: DictConfig, data: Data, run: Run) -> Learner:
    """Model and task, joined by what trains them."""
    from seqtrain.training.learner import Learner

    options, plan = trainer_options(config), data.plan("train")
    model, task = make_pair(config, data.preprocessor, data.label_counts)
    learner = Learner(
        model=model,
        task=task,
        carry=data.tbptt.carry,
        lanes=plan.lanes,
        facts=data.facts(),
        seed=config.seed,
        optimizer=make(config.optimizer),
        schedule=paced(make(config.schedule), plan),
        max_steps=max_steps(options, plan) or ENDLESS,
        run=run,
        layer_decay=config.layer_decay,
        on_nonfinite=options.on_nonfinite,
    )
    if options.precision == "64-true":
        learner.double()  # Lightning would do so after it has loaded a checkpoint, and round that to float32
    if config.freeze:
        data.say(f"freeze: {freeze(model, config.freeze):,} of {count(model):,} numbers of the model stay as they are")
    return learner


def _guards(options: TrainerOptions) -> list[Callback]:
    """What says in words that a training goes wrong."""
    from seqtrain.training.callbacks.guards import Memory, Skips
    from seqtrain.training.callbacks.same_ranks import SameRanks

    guards: list[Callback] = [Memory()]
    if options.on_nonfinite == "skip":
        guards.append(Skips())
    if ranks.rank_info().world > 1 and options.strategy != "fsdp":  # of shards no two are alike
        guards.append(SameRanks(every=options.check_ranks_every))
    return guards


def _chosen_callbacks(config: DictConfig, data: Data, run: Run) -> list[Callback]:
    """The callbacks of the config; ours only show what one process knows, so the others have none of them."""
    return [
        make(node, run=run, data=data, tokenizer=data.tokenizer)
        for node in config.callbacks.values()
        if node and (run.writes or not node._target_.startswith("seqtrain."))
    ]


def _loggers(config: DictConfig, run: Run, shown: dict[str, Any]) -> list[RunLogger]:
    """The loggers of the config, in the process that writes the run."""
    from seqtrain.training.loggers.base import guarded

    chosen = [node for node in config.logger.values() if node] if run.writes else []
    return [guarded(make(node, directory=run.path, config=shown), run.path) for node in chosen]


def paced(schedule: Any, plan: StreamPlan | ExamplePlan) -> Any:
    """The schedule; with tbptt.jitter times the length of each step's chunk in units of k2 (Merity et al. 2017)."""
    if isinstance(plan, ExamplePlan) or plan.tbptt.jitter == "none":
        return schedule
    return lambda step, steps: schedule(step, steps) * plan.pace(step)


def max_steps(options: TrainerOptions, plan: StreamPlan | ExamplePlan) -> int | None:
    """Optimiser steps of the whole training: the smaller of max_steps and max_epochs; None: the clock decides."""
    limits = [options.max_steps, options.max_epochs and options.max_epochs * plan.steps]
    return min((limit for limit in limits if limit is not None), default=None)


def cost_of(config: DictConfig, data: Data) -> Cost:
    """What the whole training costs."""
    options, plan = trainer_options(config), data.plan("train")
    with torch.device("meta"):  # only shapes count: the weights that train are made once, by the session
        model, task = make_pair(config, data.preprocessor, data.label_counts)
    steps = max_steps(options, plan)
    return estimate(model, task, plan, data.reading(), accumulate=options.accumulate, steps=steps)


def begin_from(config: DictConfig, session: Session, say: Say, *, known: str | None) -> str:
    """Puts the weights of the run `config.init_from` into a session that has not begun; gives the hash of that run.

    UserError where the hash is not `known`, that of an earlier beginning of the same run.
    """
    origin = open_run(config.init_from)
    found = origin.hash
    if known not in (None, found):
        raise UserError(
            f"init_from={config.init_from}: its weights or tokenizers are not those that the run began with; "
            "put that run back, or start a new one"
        )
    weights = {f"model.{name}": value for name, value in origin.model.state_dict().items()}
    weights |= {f"task.{name}": value for name, value in origin.task.state_dict().items()}
    learner = session.learner
    same = type(origin.task) is type(learner.task)
    with torch.no_grad():
        adopt(learner.model, learner.task, weights, same_task=same, say=say)
    return found
