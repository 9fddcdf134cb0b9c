"""The only file that turns config into objects."""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seqtrain import export, processes
from seqtrain.check import check_config
from seqtrain.checkpoint import BEST, load, newest_valid, step_of
from seqtrain.cost import Cost, count, estimate
from seqtrain.data.corpus import Corpus
from seqtrain.data.examples import ExampleLoader, Examples
from seqtrain.data.loader import ENDLESS, TrainLoader
from seqtrain.data.plan import TBPTT, ExamplePlan, StreamPlan, most_lanes
from seqtrain.data.rows import Rows, Vocabularies, prepare_rows
from seqtrain.data.source import Source, Split
from seqtrain.data.stream import EvalLoader, Stream
from seqtrain.data.tokenizer import Tokenizer
from seqtrain.faults import Fault
from seqtrain.interface import SequenceModel
from seqtrain.layers.front_ends import TokenEmbedding
from seqtrain.options import Batching, TrainerOptions
from seqtrain.runs import Run
from seqtrain.safety import check_references
from seqtrain.targets import resolve, targets, whitelist
from seqtrain.task import ExampleTask, Facts, Task
from seqtrain.transfer import adopt, freeze

if TYPE_CHECKING:
    from pytorch_lightning import Trainer
    from rich.console import Console

    from seqtrain.callbacks.base_sink import Sink
    from seqtrain.callbacks.checkpoints import Checkpoints
    from seqtrain.callbacks.deadline import Deadline
    from seqtrain.callbacks.pruning import Pruning
    from seqtrain.callbacks.record import Recorder
    from seqtrain.callbacks.signals import Signals
    from seqtrain.learner import Learner

Say = Callable[[str], None]


def plain(node: DictConfig) -> dict[str, Any]:
    """A config node as plain values, interpolations resolved."""
    return cast(dict[str, Any], OmegaConf.to_container(node, resolve=True))


def make(node: DictConfig, trust: Sequence[str], **given: Any) -> Any:
    """The object that a config node describes, with what it takes of `given`: what is known only at run time."""
    options: dict[str, Any] = {**plain(node), "_convert_": "all"}
    options.pop("_recommend_", None)
    partial = options.pop("_partial_", False)
    path = node._get_full_key(None)
    for below, inner in targets(options, path):
        resolve(inner["_target_"], trust, path=below)  # Hydra's own rule is about names only
    target = resolve(options["_target_"], trust)
    free = inspect.signature(target).parameters.keys() - options.keys()  # an option keeps what the config says
    wanted = {name: value for name, value in given.items() if name in free}
    deferred = instantiate({**options, "_partial_": True}, _execution_whitelist_=whitelist(trust))
    try:
        return deferred if partial else deferred(**wanted)
    except ValueError as error:
        where = path or target.__name__
        names_option = str(error).partition("=")[0] in options
        raise Fault(f"{where}{'.' if names_option else ': '}{error}") from None


def make_source(config: DictConfig, trust: Sequence[str]) -> Source:
    """The source of `config.data`, without what it says of lanes."""
    options = {key: value for key, value in plain(config.data).items() if key not in Batching.__annotations__}
    return make(OmegaConf.create({"data": options}).data, trust)


def make_batching(config: DictConfig) -> Batching:
    """How the stream of `config.data` is laid out."""
    return Batching(**{key: config.data[key] for key in Batching.__annotations__})


LARGEST = 1 << 20  # width, layers or heads of a model; beyond it torch itself counts wrong


def make_model(
    config: DictConfig,
    vocabulary: int,
    trust: Sequence[str],
    *,
    specials: int = 3,
    target_vocabulary: int | None = None,
) -> SequenceModel:
    """The model with its front end, or two where there is a `target_vocabulary`; drawn from `config.seed`."""
    for key in ("dim", "num_layers", "num_heads"):  # the names that every model shares
        if config.model.get(key, 1) < 1:
            raise Fault(f"model.{key}={config.model[key]}: expected a whole number above 0")
        if config.model.get(key, 1) > LARGEST:
            raise Fault(f"model.{key}={config.model[key]}: expected at most {LARGEST:,}")
    torch.manual_seed(config.seed)
    embed = target_embed = TokenEmbedding(vocabulary=vocabulary, dim=config.model.dim, specials=specials)
    if target_vocabulary is not None:
        target_embed = TokenEmbedding(vocabulary=target_vocabulary, dim=config.model.dim, specials=specials)
    return make(config.model, trust, embed=embed, target_embed=target_embed)


def make_task(
    config: DictConfig,
    model: SequenceModel,
    vocabulary: int,
    trust: Sequence[str],
    *,
    vocabularies: Vocabularies | None = None,
    label_counts: tuple[int, ...] = (),
) -> Task:
    """The task with its head for this model; without vocabularies, one of two labels that can only be asked what fits.

    `label_counts`: how often train has each label, where that is known.
    """
    labels = ("0", "1") if vocabularies is None else vocabularies.labels
    return make(
        config.task,
        trust,
        dim=model.dim,
        reach=config.tbptt.k2,
        vocabulary=vocabulary,
        target_vocabulary=vocabulary if vocabularies is None else vocabularies.target_tokenizer.vocabulary,
        vocabularies=vocabularies,
        labels=labels,
        label_counts=label_counts,
    )


def make_pair(
    config: DictConfig, vocabularies: Vocabularies, trust: Sequence[str], label_counts: tuple[int, ...] = ()
) -> tuple[SequenceModel, Task]:
    """Model and task for these vocabularies, in the precision that a checkpoint keeps."""
    size = vocabularies.tokenizer.vocabulary
    model = make_model(
        config,
        size,
        trust,
        specials=task_class(config, trust).specials,
        target_vocabulary=None if vocabularies.shared else vocabularies.target_tokenizer.vocabulary,
    )
    task = make_task(config, model, size, trust, vocabularies=vocabularies, label_counts=label_counts)
    if config.trainer.precision == "64-true":  # Lightning would make them so only after it has loaded a checkpoint
        return model.double(), task.double()
    return model, task


def task_class(config: DictConfig, trust: Sequence[str]) -> type[Task]:
    """The class of the task."""
    return resolve(config.task._target_, trust)


def check_optimizer(config: DictConfig, trust: Sequence[str]) -> None:
    """Fault for values that optimizer or schedule refuse only once they have weights: tries them on a single one."""
    waiting = [{"params": [torch.nn.Parameter(torch.zeros(1, 1))], "role": "hidden"}]
    for group in ("optimizer", "schedule"):
        made = make(config[group], trust)
        try:
            waiting = made(waiting) if isinstance(made, functools.partial) else made
        except ValueError as error:
            raise Fault(f"{group}: {error}") from None


def check_model(config: DictConfig, model: SequenceModel) -> None:
    """Fault for parts to freeze that the model lacks, and for weights that are more than this machine's memory."""
    freeze(model, config.freeze)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if (needed := 4 * count(model)) > memory:
        raise Fault(
            f"model.dim={model.dim}: the weights take {needed / 1e9:,.0f} GB, and this machine has "
            f"{memory / 1e9:,.0f}; use a smaller model"
        )


@dataclass
class Data:
    """Vocabularies and tokenised splits, how they are laid out, and the source they came from."""

    source: Source
    vocabularies: Vocabularies
    rows: dict[Split, Rows]
    batching: Batching
    tbptt: TBPTT
    seed: int
    reader: Task  # on the meta device: its options say what rows become
    say: Say

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of text, and of sources."""
        return self.vocabularies.tokenizer

    @property
    def corpora(self) -> dict[Split, Corpus]:
        """The text of each split, or its sources."""
        return {split: next(iter(rows.columns.values())) for split, rows in self.rows.items()}

    @functools.cached_property
    def _examples(self) -> dict[Split, Examples]:
        return {}

    def examples(self, split: Split) -> Examples:
        """The examples of a split, made once."""
        assert isinstance(self.reader, ExampleTask)
        if split not in self._examples:
            made = self.reader.examples(
                self.rows[split], self.vocabularies, max_length=self.batching.max_length, seed=self.seed
            )
            if made.cut:
                self.say(f"{split}: {made.cut:,} of {len(made.lengths):,} examples are cut to data.max_length tokens")
            most = self.batching.batch_tokens or made.lengths.sum()
            if alone := int((made.lengths.sum(1) > most).sum()):
                self.say(f"{split}: {alone:,} examples are longer than data.batch_tokens={most}: each is a step alone")
            if made.remark and split == "train":
                self.say(f"{split}: {made.remark}")
            self._examples[split] = made
        return self._examples[split]

    def plan(self, split: Split, batch_size: int | None = None) -> StreamPlan | ExamplePlan:
        """The plan of a split: of training, or of evaluation with so many examples at a time."""
        train = split == "train" and batch_size is None
        if isinstance(self.reader, ExampleTask):
            layout = self.batching
            return ExamplePlan(
                lengths=self.examples(split).lengths,
                batch_tokens=layout.batch_tokens,
                batch_size=layout.batch_size if train else batch_size or layout.eval_batch_size,
                seed=self.seed,
                shuffle=train,
            )
        documents = self.corpora[split].documents
        tbptt = self.tbptt if train else self.tbptt.evaluation
        eval_lanes = min(self.batching.eval_lanes, most_lanes(documents, tbptt))
        return StreamPlan(
            documents=documents,
            lanes=self.batching.lanes if train else eval_lanes,
            tbptt=tbptt,
            seed=self.seed,
            shuffle=train,
        )

    def cutter(self, split: Split) -> Stream | Examples:
        """Cuts batches from a split."""
        return self.examples(split) if isinstance(self.reader, ExampleTask) else self.stream(split)

    def stream(self, split: Split) -> Stream:
        """Cuts batches from the text of a split."""
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

    @property
    def label_counts(self) -> tuple[int, ...]:
        """How often train has each label; nothing where there are none."""
        labels = self.rows["train"].labels if "train" in self.rows else None
        return () if labels is None else tuple(int((labels == k).sum()) for k in range(len(self.vocabularies.labels)))

    def eval_loader(self, split: Split, batch_size: int | None = None) -> EvalLoader | ExampleLoader:
        """Every token, or example, of a split once; where there are several processes, this one's share."""
        here = processes.place()
        share = here.world, here.rank
        if isinstance(self.reader, ExampleTask):
            batch_size = batch_size or self.batching.eval_batch_size or len(self.rows[split])
            return ExampleLoader(self.examples(split), cast(ExamplePlan, self.plan(split, batch_size)), share=share)
        plan = cast(StreamPlan, self.plan(split))
        batch_size = batch_size or self.batching.eval_batch_size
        return EvalLoader(self.stream(split), plan, batch_size=batch_size, share=share)


MOST_UNKNOWN = 0.5  # share of tokens that a tokenizer from elsewhere may not know


def _check_known(init_from: str, rows: dict[Split, Rows], say: Say) -> None:
    """Says how much of the text the tokenizer of `init_from` does not know; Fault where that is most of it."""
    columns = [corpus for part in rows.values() for corpus in part.columns.values()]
    unknown = sum(corpus.num_unknown for corpus in columns) / sum(len(corpus.tokens) for corpus in columns)
    if unknown > MOST_UNKNOWN:
        raise Fault(
            f"init_from={init_from}: its tokenizer does not know {unknown:.0%} of this text; "
            "begin with a run on text like it, or one with tokenizer=bpe"
        )
    if unknown:
        say(f"{unknown:.1%} of the tokens are <unk> to the tokenizer of {init_from}")


def make_data(
    config: DictConfig,
    splits: Sequence[Split],
    trust: Sequence[str],
    say: Say,
    vocabularies: Vocabularies | None = None,
) -> Data:
    """Reads, tokenises (or takes from the cache) and lays out the splits."""
    source = make_source(config, trust)
    origin = None
    if vocabularies is None and config.init_from is not None:
        origin = Vocabularies.load(Run.open(config.init_from, export="take").path)
        say(f"tokenizer: that of {config.init_from}")
    vocabularies, rows = prepare_rows(
        source,
        make(config.tokenizer, trust),
        splits,
        task_class(config, trust).fields,
        shared=config.task.get("vocabulary", "shared") == "shared",
        vocabularies=vocabularies,
        origin=origin,
        say=say,
    )
    if origin is not None:
        _check_known(str(config.init_from), rows, say)
    with torch.device("meta"):
        reader = make_pair(config, vocabularies, trust)[1]
    return Data(source, vocabularies, rows, make_batching(config), make(config.tbptt, trust), config.seed, reader, say)


@dataclass
class Session:
    """Everything that one sitting of a run trains with."""

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
        """Trains from the start, or from a checkpoint to the end."""
        here = processes.place()
        loader = TrainLoader(
            self.data.cutter("train"),
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

    @property
    def ended(self) -> dict[str, str]:
        """What the summary says of a training that has ended: its status, and the reason if it was pruned."""
        if self.pruning is None or not self.pruning.reason:
            return {"status": "finished"}
        return {"status": "pruned", "reason": self.pruning.reason}

    def end_sinks(self, run: Run) -> None:
        """Hands the sinks what the run has come to, as summary.json has it."""
        for sink in self.trainer.loggers:
            cast("Sink", sink).end(run.summary)


def begin_from(config: DictConfig, session: Session, trust: Sequence[str], say: Say) -> None:
    """Puts the weights of the run `config.init_from` into a session that has not begun."""
    origin = open_run(config.init_from, trust)
    weights = {f"model.{name}": value for name, value in origin.model.state_dict().items()}
    weights |= {f"task.{name}": value for name, value in origin.task.state_dict().items()}
    learner = session.learner
    same = type(origin.task) is type(learner.task)
    with torch.no_grad():
        adopt(learner.model, learner.task, weights, same_task=same, say=say)


def trainer_options(config: DictConfig) -> TrainerOptions:
    """The options of `config.trainer`."""
    return TrainerOptions(**plain(config.trainer))


def on_gpu(config: DictConfig) -> bool:
    """Whether a run of this configuration uses GPUs here."""
    return config.trainer.accelerator != "cpu" and torch.cuda.is_available()


def settle(config: DictConfig, say: Say) -> None:
    """Turns precision=auto and devices=all into what this machine has, so that a resumed run keeps it."""
    gpu = on_gpu(config)
    if config.trainer.devices == "all":
        config.trainer.devices = torch.cuda.device_count() if gpu else 1
        say(f"devices {config.trainer.devices}: all GPUs of this machine")
    if config.trainer.precision == "auto":
        fast = torch.cuda.is_bf16_supported(including_emulation=False) if gpu else torch.cpu._is_amx_tile_supported()
        config.trainer.precision = "bf16-mixed" if fast else "32-true"
        say(
            f"precision {config.trainer.precision}: the {'GPU' if gpu else 'CPU'} has {'' if fast else 'no '}bf16 units"
        )


def max_steps(options: TrainerOptions, plan: StreamPlan | ExamplePlan) -> int | None:
    """Optimiser steps of the whole training: the smaller of max_steps and max_epochs; None: the clock decides."""
    limits = [options.max_steps, options.max_epochs and options.max_epochs * plan.steps]
    return min((limit for limit in limits if limit is not None), default=None)


def paced(schedule: Any, plan: StreamPlan | ExamplePlan) -> Any:
    """The schedule; with tbptt.jitter times the length of each step's chunk in units of k2 (Merity et al. 2017)."""
    if isinstance(plan, ExamplePlan) or plan.tbptt.jitter == "none":
        return schedule
    return lambda step, steps: schedule(step, steps) * plan.pace(step)


def make_session(
    config: DictConfig, data: Data, run: Run, signals: Signals, trust: Sequence[str], console: Console
) -> Session:
    """Model, task, learner, callbacks and trainer of a run."""
    from seqtrain.callbacks.base_sink import guarded
    from seqtrain.callbacks.checkpoints import Checkpoints, Plateau
    from seqtrain.callbacks.deadline import Deadline
    from seqtrain.callbacks.guards import Memory, Skips
    from seqtrain.callbacks.progress import ProgressBar
    from seqtrain.callbacks.pruning import Pruning, is_searched
    from seqtrain.callbacks.record import Recorder
    from seqtrain.callbacks.same_ranks import SameRanks
    from seqtrain.learner import Learner

    options = trainer_options(config)
    plan = data.plan("train")
    steps = max_steps(options, plan)
    model, task = make_pair(config, data.vocabularies, trust, data.label_counts)
    learner = Learner(
        model=model,
        task=task,
        carry=data.tbptt.carry,
        lanes=plan.lanes,
        facts=data.facts(),
        seed=config.seed,
        optimizer=make(config.optimizer, trust),
        schedule=paced(make(config.schedule, trust), plan),
        max_steps=steps or ENDLESS,
        run=run,
        layer_decay=config.layer_decay,
        on_nonfinite=options.on_nonfinite,
    )
    if options.precision == "64-true":
        learner.double()  # Lightning would do so after it has loaded a checkpoint, and round that to float32
    if config.freeze:
        data.say(f"freeze: {freeze(model, config.freeze):,} of {count(model):,} numbers of the model stay as they are")
    recorder = Recorder(run=run, every=options.log_every, plan=plan)
    deadline = None if options.max_seconds is None else Deadline(recorder=recorder, seconds=options.max_seconds)
    checkpoints = Checkpoints(
        run=run,
        every=options.checkpoint_every,
        keep_last=options.keep_last,
        keep_best=options.keep_best,
        signals=signals,
    )
    extra = [
        make(node, trust, run=run, data=data, tokenizer=data.tokenizer)
        for node in config.callbacks.values()
        if node and (run.writes or not node._target_.startswith("seqtrain."))  # ours only show what one process knows
    ]
    pruning = Pruning(run=run) if is_searched(run.path) else None
    several = processes.place().world > 1 and options.strategy != "fsdp"  # of shards no two are alike
    callbacks = [
        recorder,
        *([deadline] if deadline else []),
        Plateau(),
        Memory(),
        *([Skips()] if options.on_nonfinite == "skip" else []),
        *([SameRanks(every=options.check_ranks_every)] if several else []),
        *extra,
        ProgressBar(recorder=recorder, steps_per_epoch=plan.steps, console=console),
        checkpoints,  # behind the others, so that what it saves holds their newest state
        *([pruning] if pruning else []),  # behind even that: a pruned run that is resumed goes on
    ]
    chosen = config.logger.values() if run.writes else ()
    loggers = [guarded(make(node, trust, directory=run.path, config=run.config), run.path) for node in chosen]
    trainer = make_trainer(options, steps or ENDLESS, callbacks, loggers, run.path)
    return Session(data, plan, learner, trainer, recorder, checkpoints, steps, deadline, pruning)


def cost(config: DictConfig, data: Data, trust: Sequence[str]) -> Cost:
    """What the whole training costs."""
    options, plan = trainer_options(config), data.plan("train")
    with torch.device("meta"):  # only shapes count: the weights that train are made once, by the session
        model, task = make_pair(config, data.vocabularies, trust, data.label_counts)
    steps = max_steps(options, plan)
    if isinstance(plan, StreamPlan):
        length, history, share, reached = data.tbptt.k1, data.tbptt.history, 1.0, 1.0
    else:
        picked = plan.chunk(0, 0)
        lengths = data.examples("train").lengths
        most = data.tbptt.k2 if cast(ExampleTask, task).uncut is None else int(lengths.max())  # read at a time
        length, history = min(round(float(lengths.mean())), most), ()
        reached = float(lengths.clip(max=most).sum() / lengths.sum())
        share = data.examples("train").totals(picked.examples, 0)["loss"] / int(lengths[picked.examples].sum())
    return estimate(
        model,
        task,
        plan,
        length=length,
        history=history,
        targets_per_token=share,
        reached=reached,
        carry=data.tbptt.carry or reached < 1,
        accumulate=options.accumulate,
        steps=steps,
    )


def make_trainer(
    options: TrainerOptions, steps: int, callbacks: list[Any], loggers: list[Any], directory: Path
) -> Trainer:
    """Lightning's Trainer with all that we do ourselves turned off."""
    from pytorch_lightning import Trainer
    from pytorch_lightning.plugins.precision import DoublePrecision

    from seqtrain.callbacks.checkpoint_io import AtomicCheckpointIO
    from seqtrain.strategies import Joined, strategy

    double = options.strategy == "fsdp" and options.precision == "64-true"  # by its name Lightning refuses the pair
    here = processes.place()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    elif here.local_world > 1:
        torch.set_num_threads(max(torch.get_num_threads() // here.local_world, 1))
    quiet_lightning()
    return Trainer(
        accelerator=options.accelerator,
        devices=here.local_world,
        num_nodes=here.world // here.local_world,
        strategy=strategy(here, options.strategy),
        precision=None if double else cast(Any, options.precision),  # `settle` has made `auto` one of Lightning's
        max_steps=steps,
        max_epochs=-1,
        accumulate_grad_batches=options.accumulate,
        gradient_clip_val=options.clip,
        val_check_interval=options.validate_every * options.accumulate,
        check_val_every_n_epoch=None,
        callbacks=callbacks,
        logger=loggers or False,
        plugins=[AtomicCheckpointIO(), Joined(here), *([DoublePrecision()] if double else [])],
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
        ".*srun. command is available.*",
        ".*sync_dist=True.*",  # what we log is reduced already
        ".*broadcast_buffers. is deprecated.*",  # its successor came after torch 2.11
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
    vocabularies: Vocabularies
    model: SequenceModel
    task: Task
    step: int

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of text, and of sources."""
        return self.vocabularies.tokenizer


def open_run(path: Path | str, trust: Sequence[str] = (), checkpoint: str = "best") -> Opened:
    """Opens a run directory with its `best` or its `last` checkpoint; nothing in it can execute."""
    run = Run.open(path, export="take")
    config = checked_config(run, trust)
    vocabularies = Vocabularies.load(run.path)
    vocabularies.check(run.path, run.summary.get("hashes", {}))
    file, saved = _saved(run, checkpoint)
    weights = _fitting(saved, file, config, vocabularies, trust)
    model, task = make_pair(config, vocabularies, trust)
    load_weights(weights, model, task)
    return Opened(run, config, vocabularies, model.eval(), task.eval(), saved["global_step"])


def _saved(run: Run, checkpoint: str) -> tuple[Path, Any]:
    """The file with the weights of a run, or of what was exported of one, and what it holds."""
    if run.exported:
        return run.path / export.WEIGHTS, export.read(run.path)
    folder = run.path / "checkpoints"
    file = folder / BEST if checkpoint == "best" else newest_valid(folder, lambda line: None)
    if file is None or not file.exists():
        file = newest_valid(folder, lambda line: None)
    if file is None:
        raise Fault(f"run {run.path} has no checkpoint yet: `seqtrain resume {run.path}` trains it")
    return file, load(file)


def _fitting(
    saved: Any, file: Path, config: DictConfig, vocabularies: Vocabularies, trust: Sequence[str]
) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint; Fault where they are not those that its run's config describes.

    Asked on the meta device, so that a config of absurd sizes takes no more memory than its checkpoint has.
    """
    weights = saved.get("state_dict") if isinstance(saved, dict) else None
    if not isinstance(weights, dict) or not isinstance(saved.get("global_step"), int):
        raise Fault(f"checkpoint {file}: holds no weights of a step; it is not what a run saves")
    misfit = Fault(f"checkpoint {file}: its weights are not those of the model that {file.parent.parent} describes")
    if config.model.get("num_layers", 1) > len(weights):
        raise misfit
    with torch.device("meta"):
        pair = make_pair(config, vocabularies, trust)
    shapes = {
        f"{name}.{key}": value.shape
        for name, module in zip(("model", "task"), pair, strict=True)
        for key, value in module.state_dict().items()
    }
    if shapes != {key: getattr(value, "shape", None) for key, value in weights.items()}:
        raise misfit
    return weights


def run_config(run: Run) -> DictConfig:
    """The config of a run, as its directory holds it; Fault where it holds what no config can."""
    try:
        return cast(DictConfig, OmegaConf.create(run.config))
    except OmegaConfBaseException as error:
        raise Fault(f"{run.path}: its config cannot be read: {error}") from None


def checked_config(run: Run, trust: Sequence[str]) -> DictConfig:
    """The config of a run that a stranger may have made; Fault for whatever it may not name or ask for."""
    check_references(run.config, run.path, trust)
    config = run_config(run)
    try:
        check_config(config, {}, trust=trust)
    except Fault as fault:
        first, *others = fault.lines
        more = f" (the first of {len(others) + 1} faults)" if others else ""
        raise Fault(f"{run.path}: its config: {first}{more}") from None
    return config
