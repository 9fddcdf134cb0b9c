"""The only file that turns config into objects."""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from seqtrain import conf  # pyright: ignore[reportAttributeAccessIssue]  # conf/ is mapped in by pyproject.toml
from seqtrain.checkpoint import BEST, load, newest_valid, step_of
from seqtrain.cost import Cost, estimate
from seqtrain.data.corpus import Corpus, prepare
from seqtrain.data.plan import TBPTT, StreamPlan, most_lanes
from seqtrain.data.source import Source, Split
from seqtrain.data.stream import EvalLoader, Stream, TrainLoader
from seqtrain.data.tokenizer import Tokenizer
from seqtrain.faults import Fault
from seqtrain.interface import Capability, SequenceModel
from seqtrain.layers.front_ends import TokenEmbedding
from seqtrain.options import Batching, TrainerOptions
from seqtrain.runs import Run
from seqtrain.targets import resolve, whitelist
from seqtrain.task import Facts, Task

if TYPE_CHECKING:
    from pytorch_lightning import Trainer
    from rich.console import Console

    from seqtrain.callbacks.checkpoints import Checkpoints
    from seqtrain.callbacks.record import Recorder
    from seqtrain.callbacks.signals import Signals
    from seqtrain.learner import Learner

TOKENIZER = "tokenizer.json"  # in a run directory
Say = Callable[[str], None]
WANTED = {
    Capability.CAUSAL: "that no token sees a later one",
    Capability.BIDIRECTIONAL: "that every token sees every other",
    Capability.STATEFUL: "a state that goes on from chunk to chunk",
    Capability.CONDITIONAL: "a source to begin from",
    Capability.UNCONDITIONAL: "that it may start from nothing",
}


def plain(node: DictConfig) -> dict[str, Any]:
    """A config node as plain values, interpolations resolved."""
    return cast(dict[str, Any], OmegaConf.to_container(node, resolve=True))


def make(node: DictConfig, trust: Sequence[str], **given: Any) -> Any:
    """The object that a config node describes, with what it takes of `given`: what is known only at run time."""
    options: dict[str, Any] = {**plain(node), "_convert_": "all"}
    options.pop("_recommend_", None)
    partial = options.pop("_partial_", False)
    target = resolve(options["_target_"], trust)
    wanted = {name: value for name, value in given.items() if name in inspect.signature(target).parameters}
    deferred = instantiate({**options, "_partial_": True}, _execution_whitelist_=whitelist(trust))
    try:
        return deferred if partial else deferred(**wanted)
    except ValueError as error:
        raise Fault(f"{node._get_full_key(None) or target.__name__}: {error}") from None


def make_source(config: DictConfig, trust: Sequence[str]) -> Source:
    """The source of `config.data`, without what it says of lanes."""
    options = {key: value for key, value in plain(config.data).items() if key not in Batching.__annotations__}
    return make(OmegaConf.create(options), trust)


def make_batching(config: DictConfig) -> Batching:
    """How the stream of `config.data` is laid out."""
    return Batching(**{key: config.data[key] for key in Batching.__annotations__})


def make_model(config: DictConfig, vocabulary: int, trust: Sequence[str]) -> SequenceModel:
    """The model with its front end; weights are drawn from `config.seed`."""
    for key in ("dim", "num_layers", "num_heads"):  # the names that every model shares
        if config.model.get(key, 1) < 1:
            raise Fault(f"model.{key}={config.model[key]}: expected a whole number above 0")
    torch.manual_seed(config.seed)
    embed = TokenEmbedding(vocabulary=vocabulary, dim=config.model.dim)
    return make(config.model, trust, embed=embed)


def make_task(config: DictConfig, model: SequenceModel, vocabulary: int, trust: Sequence[str]) -> Task:
    """The task with its head for this model."""
    return make(config.task, trust, dim=model.dim, vocabulary=vocabulary)


def check_pair(config: DictConfig, trust: Sequence[str]) -> None:
    """Fault unless model, task and the cut of time fit; asks a model on the meta device, so nothing is computed."""
    with torch.device("meta"):
        model = make_model(config, 2, trust)
        task = make_task(config, model, 2, trust)
    reason = misfit(model, task, make(config.tbptt, trust))
    if reason is not None:
        raise Fault(f"{reason}; models that do, as shipped: {', '.join(_fitting(config, task, trust)) or 'none'}")


def check_optimizer(config: DictConfig, trust: Sequence[str]) -> None:
    """Fault for values that optimizer or schedule refuse only once they have weights: tries them on a single one."""
    waiting = [{"params": [torch.nn.Parameter(torch.zeros(1, 1))], "role": "hidden"}]
    for group in ("optimizer", "schedule"):
        made = make(config[group], trust)
        try:
            waiting = made(waiting) if isinstance(made, functools.partial) else made
        except ValueError as error:
            raise Fault(f"{group}: {error}") from None


def misfit(model: SequenceModel, task: Task, tbptt: TBPTT) -> str | None:
    """Why these three do not go together, or None."""
    name = type(model).__name__
    missing = [words for flag, words in WANTED.items() if flag in task.requires & ~model.capabilities]
    if missing:
        return f"task={type(task).__name__}: needs {' and '.join(missing)}, which model {name} does not promise"
    if not tbptt.carry:
        if model.max_length is not None and tbptt.k2 > model.max_length:
            return f"tbptt.k2={tbptt.k2}: longer than the {model.max_length} positions of model.max_length"
        return None
    if Capability.STATEFUL not in model.capabilities:
        return f"tbptt.carry=true: needs a state that goes on from chunk to chunk, which model {name} does not have"
    if model.max_length is not None:
        return (
            f"tbptt.carry=true: a stream has no end, but model.positions=learned ends at {model.max_length}; "
            "use tbptt=windows or model.positions=rotary"
        )
    return None


def _fitting(config: DictConfig, task: Task, trust: Sequence[str]) -> list[str]:
    """The shipped models that fit the task and the cut of time, as they are configured by default."""
    names = []
    for path in sorted(Path(conf.__path__[0], "model").glob("*.yaml")):
        other = cast(DictConfig, OmegaConf.merge(config, {"model": None}))
        other.model = OmegaConf.load(path)
        if "_target_" not in other.model:
            continue
        with torch.device("meta"), contextlib.suppress(Fault):
            if misfit(make_model(other, 2, trust), task, make(config.tbptt, trust)) is None:
                names.append(path.stem)
    return names


@dataclass
class Data:
    """Tokeniser and tokenised splits, how they are laid out, and the source they came from."""

    source: Source
    tokenizer: Tokenizer
    corpora: dict[Split, Corpus]
    batching: Batching
    tbptt: TBPTT
    seed: int

    def plan(self, split: Split) -> StreamPlan:
        """The plan of a split: training's own lanes, or those of evaluation."""
        train, documents = split == "train", self.corpora[split].documents
        eval_lanes = min(self.batching.eval_lanes, most_lanes(documents, self.tbptt))
        return StreamPlan(
            documents=documents,
            lanes=self.batching.lanes if train else eval_lanes,
            tbptt=self.tbptt,
            seed=self.seed,
            shuffle=train,
        )

    def stream(self, split: Split) -> Stream:
        """Cuts batches from a split."""
        corpus = self.corpora[split]
        return Stream(corpus.tokens, corpus.documents, self.tokenizer.start)

    def facts(self) -> dict[str, Facts]:
        """What turns losses per token into losses per byte and word, of each split."""
        return {
            split: Facts(
                bytes_per_token=corpus.bytes_per_token,
                words_per_token=corpus.num_words / len(corpus.tokens) if self.tokenizer.kind == "word" else None,
            )
            for split, corpus in self.corpora.items()
        }

    def eval_loader(self, split: Split, batch_size: int | None = None) -> EvalLoader:
        """Every token of a split once."""
        return EvalLoader(self.stream(split), self.plan(split), batch_size=batch_size or self.batching.eval_batch_size)


def make_data(
    config: DictConfig, splits: Sequence[Split], trust: Sequence[str], say: Say, tokenizer: Tokenizer | None = None
) -> Data:
    """Reads, tokenises (or takes from the cache) and lays out the splits."""
    source = make_source(config, trust)
    tokenizer, corpora = prepare(source, make(config.tokenizer, trust), splits, tokenizer=tokenizer, say=say)
    return Data(source, tokenizer, corpora, make_batching(config), make(config.tbptt, trust), config.seed)


@dataclass
class Session:
    """Everything that one sitting of a run trains with."""

    data: Data
    plan: StreamPlan
    learner: Learner
    trainer: Trainer
    recorder: Recorder
    checkpoints: Checkpoints
    max_steps: int

    def fit(self, checkpoint: Path | None) -> None:
        """Trains from the start, or from a checkpoint to the end."""
        first = 0 if checkpoint is None else step_of(checkpoint)
        loader = TrainLoader(
            self.data.stream("train"), self.plan, accumulate=self.trainer.accumulate_grad_batches, first_step=first
        )
        validation = self.data.eval_loader("validation")
        self.trainer.fit(self.learner, loader, validation, ckpt_path=checkpoint, weights_only=True)
        if self.recorder.validated != self.trainer.global_step:
            self.trainer.validate(self.learner, validation, verbose=False)


def trainer_options(config: DictConfig) -> TrainerOptions:
    """The options of `config.trainer`."""
    return TrainerOptions(**plain(config.trainer))


def settle_precision(config: DictConfig, say: Say) -> None:
    """Turns precision=auto into what this machine does fast, so that a resumed run keeps it."""
    if config.trainer.precision != "auto":
        return
    on_gpu = config.trainer.accelerator != "cpu" and torch.cuda.is_available()
    fast = torch.cuda.is_bf16_supported(including_emulation=False) if on_gpu else torch.cpu._is_amx_tile_supported()
    config.trainer.precision = "bf16-mixed" if fast else "32-true"
    say(f"precision {config.trainer.precision}: the {'GPU' if on_gpu else 'CPU'} has {'' if fast else 'no '}bf16 units")


def max_steps(options: TrainerOptions, plan: StreamPlan) -> int:
    """Optimiser steps of the whole training: the smaller of max_steps and max_epochs."""
    limits = [options.max_steps, options.max_epochs and options.max_epochs * plan.steps]
    return min(limit for limit in limits if limit is not None)


def make_session(
    config: DictConfig, data: Data, run: Run, signals: Signals, trust: Sequence[str], console: Console
) -> Session:
    """Model, task, learner, callbacks and trainer of a run."""
    from seqtrain.callbacks.checkpoints import Checkpoints, Plateau
    from seqtrain.callbacks.progress import ProgressBar
    from seqtrain.callbacks.record import Recorder
    from seqtrain.learner import Learner

    options = trainer_options(config)
    plan = data.plan("train")
    steps = max_steps(options, plan)
    model = make_model(config, data.tokenizer.vocabulary, trust)
    learner = Learner(
        model=model,
        task=make_task(config, model, data.tokenizer.vocabulary, trust),
        carry=data.tbptt.carry,
        lanes=plan.lanes,
        facts=data.facts(),
        seed=config.seed,
        optimizer=make(config.optimizer, trust),
        schedule=make(config.schedule, trust),
        max_steps=steps,
        run=run,
    )
    recorder = Recorder(run=run, every=options.log_every, steps_per_epoch=plan.steps)
    checkpoints = Checkpoints(run=run, every=options.checkpoint_every, signals=signals)
    extra = [make(node, trust, run=run, tokenizer=data.tokenizer) for node in config.callbacks.values() if node]
    callbacks = [
        recorder,
        Plateau(),
        *extra,
        ProgressBar(recorder=recorder, steps_per_epoch=plan.steps, console=console),
        checkpoints,  # last, so that what it saves holds the others' newest state
    ]
    loggers = [make(node, trust, directory=run.path, config=run.config) for node in config.logger.values()]
    trainer = make_trainer(options, steps, callbacks, loggers, run.path)
    return Session(data, plan, learner, trainer, recorder, checkpoints, steps)


def cost(config: DictConfig, data: Data, trust: Sequence[str]) -> Cost:
    """What the whole training costs."""
    options, plan = trainer_options(config), data.plan("train")
    with torch.device("meta"):  # only shapes count: the weights that train are made once, by the session
        model = make_model(config, data.tokenizer.vocabulary, trust)
        task = make_task(config, model, data.tokenizer.vocabulary, trust)
    steps = max_steps(options, plan)
    return estimate(
        model, task, plan, length=data.tbptt.k1, carry=data.tbptt.carry, accumulate=options.accumulate, steps=steps
    )


def make_trainer(
    options: TrainerOptions, steps: int, callbacks: list[Any], loggers: list[Any], directory: Path
) -> Trainer:
    """Lightning's Trainer with all that we do ourselves turned off."""
    from pytorch_lightning import Trainer

    from seqtrain.callbacks.checkpoint_io import AtomicCheckpointIO

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    quiet_lightning()
    return Trainer(
        accelerator=options.accelerator,
        devices=options.devices,
        num_nodes=options.num_nodes,
        precision=cast(Any, options.precision),  # settle_precision has made `auto` one of Lightning's
        max_steps=steps,
        max_epochs=-1,
        accumulate_grad_batches=options.accumulate,
        gradient_clip_val=options.clip,
        val_check_interval=options.validate_every * options.accumulate,
        check_val_every_n_epoch=None,
        callbacks=callbacks,
        logger=loggers or False,
        plugins=[AtomicCheckpointIO()],
        default_root_dir=directory,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=2**40,  # our recorder logs
    )


def quiet_lightning() -> None:
    """Silences advice that does not apply: our loaders shard, resume and size themselves."""
    import logging

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    for message in (
        ".*isinstance.treespec, LeafSpec.*",
        ".*dataloader is not resumable.*",
        ".*does not have many workers.*",
        ".*GPU available but not used.*",
    ):
        warnings.filterwarnings("ignore", message)


def load_weights(state_dict: dict[str, torch.Tensor], model: SequenceModel, task: Task) -> None:
    """Puts a checkpoint's weights into model and task."""
    for name, module in (("model", model), ("task", task)):
        prefix = f"{name}."
        module.load_state_dict(
            {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
        )


@dataclass
class Opened:
    """A run opened for use: weights in, evaluation mode, nothing of Lightning."""

    run: Run
    config: DictConfig
    tokenizer: Tokenizer
    model: SequenceModel
    task: Task
    step: int


def open_run(path: Path | str, trust: Sequence[str] = (), checkpoint: str = "best") -> Opened:
    """Opens a run directory with its `best` or its `last` checkpoint; nothing in it can execute."""
    run = Run.open(path)
    config = run_config(run)
    folder = run.path / "checkpoints"
    file = folder / BEST if checkpoint == "best" else newest_valid(folder, lambda line: None)
    if file is None or not file.exists():
        file = newest_valid(folder, lambda line: None)
    if file is None:
        raise Fault(f"run {run.path} has no checkpoint yet: `seqtrain resume {run.path}` trains it")
    tokenizer = Tokenizer.load(run.path / TOKENIZER)
    model = make_model(config, tokenizer.vocabulary, trust)
    task = make_task(config, model, tokenizer.vocabulary, trust)
    saved = load(file)
    load_weights(saved["state_dict"], model, task)
    return Opened(run, config, tokenizer, model.eval(), task.eval(), saved["global_step"])


def run_config(run: Run) -> DictConfig:
    """The config of a run, as its directory holds it."""
    return cast(DictConfig, OmegaConf.create(run.config))
