"""Everything that one attempt of a run needs for training, and the cost of the whole training."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import torch
from omegaconf import DictConfig

from seqtrain.config.instantiate import make
from seqtrain.config.options import TrainerOptions, origin_words
from seqtrain.data.batching.example_plan import ExamplePlan
from seqtrain.data.batching.loader import ENDLESS, TrainLoader
from seqtrain.data.batching.plan import StreamPlan
from seqtrain.distributed import ranks
from seqtrain.errors import UserError
from seqtrain.files.atomic import exists
from seqtrain.models.base import name_of
from seqtrain.runs.checkpoint import load, step_of
from seqtrain.runs.directory import Run
from seqtrain.runs.export import PARENT
from seqtrain.runs.identity import SHOWING, shown
from seqtrain.sweeps.folder import is_searched
from seqtrain.tasks.base import Say
from seqtrain.tasks.least_squares import BeginsFitted, linear_order_of
from seqtrain.training.adapters import adapt
from seqtrain.training.checkpoint_check import check
from seqtrain.training.compiled import as_written, compile_blocks, recompute_blocks
from seqtrain.training.cost import Cost, count, estimate
from seqtrain.training.model_and_task import make_pair, on_meta
from seqtrain.training.optim.schedules import warmup_steps
from seqtrain.training.origins import Origin
from seqtrain.training.splits import Data
from seqtrain.training.trainer import make_trainer, trainer_options
from seqtrain.training.transfer import copy_matching, freeze

if TYPE_CHECKING:
    from pytorch_lightning import Callback, Trainer
    from rich.console import Console

    from seqtrain.training.callbacks.checkpoints import Checkpoints
    from seqtrain.training.callbacks.pruning import Pruning
    from seqtrain.training.callbacks.record import Deadline, Recorder
    from seqtrain.training.callbacks.signals import Signals
    from seqtrain.training.learner import Learner
    from seqtrain.training.loggers.base import RunLogger


@dataclass
class Session:
    """Everything that one attempt of a run needs for training."""

    data: Data
    plan: StreamPlan | ExamplePlan
    learner: Learner
    trainer: Trainer
    recorder: Recorder
    checkpoints: Checkpoints
    max_steps: int | None  # None: trainer.max_seconds decides
    deadline: Deadline | None
    pruning: Pruning | None

    def fit(self, checkpoint: Path | None) -> None:
        """Train to the end, from the start or from a checkpoint that `check_checkpoint` has accepted."""
        here = ranks.rank_info()
        first_step = 0 if checkpoint is None else step_of(checkpoint)
        loader = TrainLoader(
            self.data.batcher("train"),
            self.plan,
            accumulate=self.trainer.accumulate_grad_batches,
            first_step=first_step,
            world=here.world,
            rank=here.rank,
            workers=self.data.batching.workers,
        )
        validation = self.data.eval_loader("validation")
        with as_written() if self.learner.compiled else nullcontext():
            self.trainer.fit(self.learner, loader, validation, ckpt_path=checkpoint, weights_only=True)
            # The last step may not be a multiple of trainer.validate_every.
            if self.recorder.validated != self.trainer.global_step:
                self.trainer.validate(self.learner, validation, verbose=False)

    def check_checkpoint(self, path: Path) -> None:
        """Raise UserError if this training could not have written the checkpoint; log what has changed around it since.

        Every process calls this before the run's directory records that the run continues.
        """
        ranks.run_on_all(lambda: self._check_checkpoint(path))

    def _check_checkpoint(self, path: Path) -> None:
        if not ranks.rank_info().first:
            return
        saved = load(path)
        check(saved, path, self.learner, self.trainer, max_steps=self.max_steps or ENDLESS)
        before, changed = saved["seqtrain"]["where"], []
        for name, now in self.learner.surroundings.items():
            # Limits of the trainer may change; `resume` has already logged them.
            if not name.startswith("trainer.") and before.get(name, now) != now:
                changed.append(f"{name} {shown(before[name])} -> {shown(now)}")
        if changed:
            self.data.say(f"since {path} was written: {', '.join(changed)}; the result may differ in its last bits")

    @property
    def ended(self) -> dict[str, str]:
        """Summary entries of a training that has ended: its status, and the reason if it was pruned."""
        if self.pruning is None or not self.pruning.reason:
            return {"status": "finished"}
        return {"status": "pruned", "reason": self.pruning.reason}

    def end_loggers(self, run: Run) -> None:
        """Pass the run's final metrics, as in summary.json, to the loggers."""
        for run_logger in self.trainer.loggers:
            cast("RunLogger", run_logger).end(run.summary)


def make_session(
    config: DictConfig,
    data: Data,
    run: Run,
    signals: Signals,
    console: Console,
    *,
    logged_config: dict[str, Any],
    after_pruning: bool = False,
) -> Session:
    """Return learner, callbacks, loggers and trainer of a run.

    Args:
        config: Config of the run.
        data: Data that `make_data` has laid out.
        run: Run directory; only one process writes it.
        signals: Signals that stop the training.
        console: Console that shows progress.
        logged_config: The config for loggers, its secrets masked.
        after_pruning: True if the run continues although its search has pruned it.
    """
    from seqtrain.training.callbacks.checkpoints import Checkpoints, Plateau
    from seqtrain.training.callbacks.progress import ProgressBar
    from seqtrain.training.callbacks.record import Deadline, Recorder

    options, plan = trainer_options(config), data.plan("train")
    steps = max_steps(options, plan)
    learner = make_learner(config, data)
    recorder = Recorder(run=run, every=options.log_every, plan=plan)
    deadline = None if options.max_seconds is None else Deadline(recorder=recorder, seconds=options.max_seconds)
    pruning = None
    if is_searched(run.path):
        from seqtrain.training.callbacks.pruning import Pruning

        warmup = warmup_steps(make(config.schedule), steps or ENDLESS)
        pruning = Pruning(run=run, warmup=warmup, after_pruning=after_pruning)
    checkpoints = Checkpoints(
        run=run,
        every=options.checkpoint_every,
        keep_last=options.keep_last,
        keep_best=options.keep_best,
        signals=signals,
        pruning=pruning,
    )
    callbacks = [
        recorder,  # before callbacks that read its clock or its last record
        deadline,
        Plateau(),
        *_guards(options),
        *_configured_callbacks(config, data, run),
        ProgressBar(recorder=recorder, steps_per_epoch=plan.steps, console=console),
        pruning,
        checkpoints,  # last, so that it saves the newest state and decisions of the others
    ]
    if options.profile == "steps" and run.writes:
        from seqtrain.training.callbacks.step_profile import StepProfile

        callbacks.append(StepProfile(run=run))  # after all callbacks whose time it measures; it has no state
    loggers = make_loggers(config.logger, run, logged_config) if run.writes else []  # otherwise points would repeat
    trainer = make_trainer(options, steps or ENDLESS, list(filter(None, callbacks)), loggers, run.path)
    return Session(data, plan, learner, trainer, recorder, checkpoints, steps, deadline, pruning)


@runtime_checkable
class Simpler(Protocol):
    """A model that equals a simpler model on some data."""

    def simpler(self) -> str | None:
        """Return the line that names the simpler model; None if the model is not reduced."""
        ...


def make_learner(config: DictConfig, data: Data) -> Learner:
    """Return the learner: model, task, optimizer and schedule of the run.

    Args:
        config: Config of the run.
        data: Data that `make_data` has laid out.
    """
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
        layer_decay=config.layer_decay,
        on_nonfinite=options.on_nonfinite,
        compiled=options.compile == "blocks",
        recompute=data.tbptt.recompute,
        eval_precision=options.eval_precision,
    )
    if learner.compiled:
        data.say(f"compile: {compile_blocks(model)} Transformer blocks, at the first step; this takes a while")
    if options.recompute == "blocks":
        data.say(f"recompute: {recompute_blocks(model)} blocks store only their input")
    if isinstance(model, Simpler) and (reason := model.simpler()):
        data.say(reason)
    if options.precision == "64-true":
        learner.double()  # Lightning would convert only after loading a checkpoint, which would round it to float32
    if config.freeze:
        data.say(f"freeze: {freeze(model, config.freeze):,} of {count(model):,} weights of the model are frozen")
    return learner


def _guards(options: TrainerOptions) -> list[Callback]:
    """Return the callbacks that detect faults of a training and of its surroundings."""
    from seqtrain.training.callbacks.guards import Crowded, Memory, SameRanks, Skips

    guards: list[Callback] = [Memory(), Crowded()]
    if options.on_nonfinite == "skip":
        guards.append(Skips())
    if ranks.rank_info().world > 1 and options.strategy != "fsdp":  # shards differ between processes
        guards.append(SameRanks(every=options.check_ranks_every))
    return guards


def _configured_callbacks(config: DictConfig, data: Data, run: Run) -> list[Callback]:
    """Return the callbacks of the config."""
    callbacks = []
    for node in filter(None, config.callbacks.values()):
        # Some only show the data of one process; others, such as early stopping, may act and must run in every process.
        if run.writes or not node._target_.startswith(SHOWING):
            callbacks.append(make(node, run=run, data=data, tokenizer=data.tokenizer))
    return callbacks


def make_loggers(nodes: DictConfig, run: Run, logged_config: dict[str, Any]) -> list[RunLogger]:
    """Return the loggers of these nodes of a config, for one process of the run.

    Args:
        nodes: The config's `logger`.
        run: Run directory.
        logged_config: Config of the run, its secrets masked.
    """
    from seqtrain.training.loggers.base import guarded

    found = filter(None, nodes.values())
    return [guarded(make(node, directory=run.path, config=logged_config), run.path) for node in found]


def paced(schedule: Any, plan: StreamPlan | ExamplePlan) -> Any:
    """Return the schedule. With tbptt.jitter, scale it by each chunk's length in units of k2 (Merity et al. 2017)."""
    if isinstance(plan, ExamplePlan) or plan.tbptt.jitter == "none":
        return schedule
    return lambda step, steps: schedule(step, steps) * plan.pace(step)


def max_steps(options: TrainerOptions, plan: StreamPlan | ExamplePlan) -> int | None:
    """Return the steps of the training: the smaller of max_steps and max_epochs. None: the time limit decides."""
    limits = []
    if isinstance(options.max_steps, int):  # `auto` only if a budget needs it before the data is read
        limits.append(options.max_steps)
    if options.max_epochs is not None:
        limits.append(options.max_epochs * plan.steps)
    return min(limits, default=None)


def cost_of(config: DictConfig, data: Data) -> Cost:
    """Return the cost of the whole training."""
    options, plan = trainer_options(config), data.plan("train")
    # Not the instances that train: a budget needs the cost before they exist, and the width in `make_data` may differ
    # from the budget's choice. Counting copies models on the meta device, which takes no memory.
    with on_meta():
        model, task = make_pair(config, data.preprocessor, data.label_counts)
    steps = max_steps(options, plan)
    return estimate(model, task, plan, data.reading(), accumulate=options.accumulate, steps=steps)


def set_first_weights(config: DictConfig, session: Session, say: Say) -> None:
    """Set weights that are computed from train in closed form, in a session that has not trained yet.

    Raises:
        UserError: init_from provides other weights, or there is no closed form.
    """
    model, task = session.learner.model, session.learner.task
    if linear_order_of(model) is not None and config.init_from is not None:
        raise UserError(
            f"model.fit=least_squares: init_from={origin_words(config.init_from)} provides the weights; leave one "
            "of them out"
        )
    if isinstance(task, BeginsFitted):
        task.first_weights(model, session.data.rows["train"], session.data.preprocessor, say)


def load_initial_weights(config: DictConfig, session: Session, say: Say, *, parent_hash: str | None) -> dict[str, Any]:
    """Load the weights of `config.init_from`, one run or two, into a session that has not trained yet; adapt them.

    Args:
        config: Config that names the run that provides the weights.
        session: Session whose model and task receive the matching weights.
        say: Called with a line for what was loaded.
        parent_hash: Hash of the weights that an earlier attempt of the same run loaded, if there was one.

    Returns:
        Entries of the summary: `parent`, the hash of all loaded weights, and `lineage`, the hashes of each run and of
        all runs that these derive from.

    Raises:
        UserError: The hash is not `parent_hash`, or nothing fits.
    """
    run, adapted = session.recorder.run, config.get("adapter") is not None
    kept = run.path / PARENT
    try:
        origin = Origin.open(str(kept) if adapted and exists(kept) else config.init_from)
    except UserError as fault:
        if not adapted or parent_hash is None:
            raise
        raise UserError(f"{fault}; restore {kept}, which contains the weights that the adapters change") from None
    if parent_hash not in (None, origin.hash):
        raise UserError(
            f"init_from={origin.words}: its weights or tokenizers have changed since the run began; "
            "restore that run, or start a new one"
        )
    learner, preprocessor = session.learner, session.data.preprocessor
    origin.check_inputs(preprocessor.series, say)
    weights, same = origin.weights(learner.model), origin.has_head_of(learner.task, preprocessor, say)
    try:
        with torch.no_grad():
            new_rows = copy_matching(learner.model, learner.task, weights, same_task=same, say=say, whose=origin.each)
    except UserError:
        theirs, ours = name_of(origin.runs[0].model), name_of(learner.model)
        if theirs == ours:
            raise
        raise UserError(
            f"init_from={origin.words}: that run is of model={theirs}, whose weights do not fit model={ours}; set "
            f"model={theirs}, or use a run of model={ours}"
        ) from None
    if adapted:
        say(adapt(learner.model, config, new_rows))
        # Adapted weights are stored with the run, because its parent may be trained further.
        if run.writes and not exists(kept):
            origin.runs[0].write_export(kept)
    return {"parent": origin.hash, "lineage": origin.lineage}
