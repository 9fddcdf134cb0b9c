"""The source read, tokenised, and laid out in plans and loaders."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig, OmegaConf

from seqtrain.config.instantiate import make, plain
from seqtrain.config.options import Batching
from seqtrain.data.batching.examples import ExampleBatch, ExampleLoader, Examples
from seqtrain.data.batching.plan import TBPTT, ExamplePlan, StreamPlan, most_lanes
from seqtrain.data.batching.stream import EvalLoader, Stream
from seqtrain.data.corpus import Corpus
from seqtrain.data.preprocess import Preprocessor, Rows, prepare_rows
from seqtrain.data.sources.base import Source, Split
from seqtrain.data.tokenizers.recipes import Tokenizer
from seqtrain.distributed import ranks
from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import ExampleTask, Facts, Say, Task
from seqtrain.training.cost import Reading
from seqtrain.training.model_and_task import make_pair, task_class

MOST_UNKNOWN = 0.5  # share of tokens that a tokenizer from elsewhere may not know


@dataclass
class Data(ABC):
    """Vocabularies and tokenised splits, how they are laid out, and the source they came from."""

    source: Source
    preprocessor: Preprocessor
    rows: dict[Split, Rows]
    batching: Batching
    tbptt: TBPTT
    seed: int
    task: Task  # on the meta device: its options say what rows become
    say: Say

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of text, and of sources."""
        return self.preprocessor.tokenizer

    @property
    def corpora(self) -> dict[Split, Corpus]:
        """The text of each split, or its sources."""
        return {split: next(iter(rows.columns.values())) for split, rows in self.rows.items()}

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
        if labels is None or self.task.label_kind == "number":
            return ()
        counted = np.concatenate(labels) if isinstance(labels, list) else labels
        return tuple(np.bincount(counted, minlength=len(self.preprocessor.labels)).tolist())

    def baselines(self, split: Split) -> dict[str, dict[str, float]]:
        """What knows little or nothing of sequences, on the same split."""
        return self.task.baselines(self.rows["train"], self.rows[split], self.preprocessor, self.say)

    @abstractmethod
    def batcher(self, split: Split) -> Stream | Examples:
        """Cuts batches from a split."""

    def plan(self, split: Split) -> Any:
        """How a run reads a split: train by the plan of training, made once; any other by that of evaluation."""
        return self._train_plan if split == "train" else self.eval_plan(split)

    @functools.cached_property
    @abstractmethod
    def _train_plan(self) -> Any:
        """The plan of training."""

    @abstractmethod
    def eval_plan(self, split: Split, batch_size: int | None = None) -> Any:
        """How evaluation reads a split, train too; of examples, so many at a time."""

    @abstractmethod
    def eval_loader(self, split: Split, batch_size: int | None = None) -> EvalLoader | ExampleLoader:
        """Every token, or example, of a split once; where there are several processes, this one's share."""

    @abstractmethod
    def reading(self) -> Reading:
        """How training reads, for its cost."""

    @abstractmethod
    def most_read(self, step: int) -> int:
        """Tokens that one lane can have read since the beginning of its state, after so many steps."""

    @abstractmethod
    def context(self) -> dict[str, Any]:
        """What evaluation's numbers depend on, beside weights and text."""

    @abstractmethod
    def size(self, split: Split) -> dict[str, int | None]:
        """What is said of how evaluation read a split."""

    @abstractmethod
    def sample(self, split: Split, count: int) -> Any:
        """A batch of `count` examples, the same each time, spread over the split; None of a stream."""

    @abstractmethod
    def look_at(self, model: SequenceModel, split: Split, limit: int) -> tuple[list[int], list[int] | None]:
        """The first tokens of a split, at most `limit`, and the source that they are written from, if there is one."""


class StreamData(Data):
    """One long text, read on lanes side by side."""

    @functools.cached_property
    def _narrow(self) -> set[Split]:
        """Splits of which it was said that they are read on fewer lanes than data.eval_lanes."""
        return set()

    def batcher(self, split: Split) -> Stream:
        corpus = self.corpora[split]
        return Stream(corpus.tokens, corpus.documents, self.tokenizer.start)

    @functools.cached_property
    def _train_plan(self) -> StreamPlan:
        return self._plan("train", self.batching.lanes, self.tbptt, shuffle=True)

    def eval_plan(self, split: Split, batch_size: int | None = None) -> StreamPlan:
        tbptt = self.tbptt.evaluation
        lanes = min(self.batching.eval_lanes, most_lanes(self.corpora[split].documents, tbptt))
        if lanes < self.batching.eval_lanes and split not in self._narrow:
            self._narrow.add(split)
            self.say(f"{split}: read on {lanes} lanes; its text is too short for {self.batching.eval_lanes}")
        return self._plan(split, lanes, tbptt, shuffle=False)

    def _plan(self, split: Split, lanes: int, tbptt: TBPTT, *, shuffle: bool) -> StreamPlan:
        documents = self.corpora[split].documents
        return StreamPlan(documents=documents, lanes=lanes, tbptt=tbptt, seed=self.seed, shuffle=shuffle)

    def eval_loader(self, split: Split, batch_size: int | None = None) -> EvalLoader:
        here = ranks.rank_info()
        batch_size = batch_size or self.batching.eval_batch_size
        return EvalLoader(
            self.batcher(split), self.eval_plan(split), batch_size=batch_size, world=here.world, rank=here.rank
        )

    def reading(self) -> Reading:
        return Reading(length=self.tbptt.k1, warmup_chunks=self.tbptt.warmup_chunks, carry=self.tbptt.carry)

    def most_read(self, step: int) -> int:
        return self.plan("train").most_read(step)

    def context(self) -> dict[str, Any]:
        found = {"eval_lanes": self.plan("validation").lanes, "carry": self.tbptt.carry}
        if self.tbptt.carry and self.tbptt.reset == "never":
            return found  # a state goes on over all cuts
        return found | {name: getattr(self.tbptt.evaluation, name) for name in ("k1", "k2", "reset")}

    def size(self, split: Split) -> dict[str, int | None]:
        return {"eval_lanes": self.eval_plan(split).lanes, "examples": None}

    def sample(self, split: Split, count: int) -> None:
        return None

    def look_at(self, model: SequenceModel, split: Split, limit: int) -> tuple[list[int], list[int] | None]:
        return [self.tokenizer.start, *self.corpora[split].tokens[: limit - 1].tolist()], None


class ExampleData(Data):
    """Examples that are read each by itself, those of like length together."""

    task: ExampleTask

    @functools.cached_property
    def _examples(self) -> dict[Split, Examples]:
        return {}

    def batcher(self, split: Split) -> Examples:
        """The examples of a split, made once."""
        if split not in self._examples:
            made = self.task.examples(
                self.rows[split], self.preprocessor, max_length=self.batching.max_length, seed=self.seed
            )
            self._tell(split, made)
            self._examples[split] = made
        return self._examples[split]

    def _tell(self, split: Split, made: Examples) -> None:
        if made.cut:
            self.say(f"{split}: {made.cut:,} of {len(made.lengths):,} examples are cut to data.max_length tokens")
        most = self.batching.batch_tokens or made.lengths.sum()
        if alone := int((made.lengths.sum(1) > most).sum()):
            self.say(f"{split}: {alone:,} examples are longer than data.batch_tokens={most}: each is a step alone")
        if made.remark and split == "train":
            self.say(f"{split}: {made.remark}")

    @functools.cached_property
    def _train_plan(self) -> ExamplePlan:
        return self._plan("train", self.batching.batch_size, shuffle=True)

    def eval_plan(self, split: Split, batch_size: int | None = None) -> ExamplePlan:
        return self._plan(split, batch_size or self.batching.eval_batch_size, shuffle=False)

    def _plan(self, split: Split, batch_size: int | None, *, shuffle: bool) -> ExamplePlan:
        return ExamplePlan(
            lengths=self.batcher(split).lengths,
            batch_tokens=self.batching.batch_tokens,
            batch_size=batch_size,
            seed=self.seed,
            shuffle=shuffle,
        )

    def eval_loader(self, split: Split, batch_size: int | None = None) -> ExampleLoader:
        here = ranks.rank_info()
        batch_size = batch_size or self.batching.eval_batch_size or len(self.rows[split])
        return ExampleLoader(self.batcher(split), self.eval_plan(split, batch_size), world=here.world, rank=here.rank)

    def reading(self) -> Reading:
        examples, first = self.batcher("train"), self.plan("train").chunk(0, 0)
        lengths = examples.lengths
        most = self.tbptt.k2 if self.task.needs_whole is None else int(lengths.max())  # read at a time
        reached = float(lengths.clip(max=most).sum() / lengths.sum())
        return Reading(
            length=min(round(float(lengths.mean())), most),
            carry=self.tbptt.carry or reached < 1,
            targets_per_token=examples.totals(first.examples, 0)["loss"] / int(lengths[first.examples].sum()),
            reached=reached,
        )

    def most_read(self, step: int) -> int:
        return 0

    def context(self) -> dict[str, Any]:
        return {"max_length": self.batching.max_length}

    def size(self, split: Split) -> dict[str, int | None]:
        return {"eval_lanes": None, "examples": len(self.batcher(split).lengths)}

    def sample(self, split: Split, count: int) -> ExampleBatch:
        examples = self.batcher(split)
        every = len(examples.lengths)
        index = np.arange(min(count, every)) * every // min(count, every)
        return examples.collate(index, 0, examples.totals(index, 0))

    def look_at(self, model: SequenceModel, split: Split, limit: int) -> tuple[list[int], list[int] | None]:
        return self.task.look_at(model, self.sample(split, 1), limit)


def make_data(
    config: DictConfig,
    splits: Sequence[Split],
    say: Say,
    preprocessor: Preprocessor | None = None,
) -> Data:
    """Reads, tokenises (or takes from the cache) and lays out the splits."""
    source = make_source(config)
    origin = None
    if preprocessor is None and config.init_from is not None:
        run = Run.open(config.init_from, export="take")
        origin = Preprocessor.load(run.path, run.summary.hashes)
        say(f"tokenizer: that of {config.init_from}")
    preprocessor, rows = prepare_rows(
        source,
        make(config.tokenizer),
        splits,
        task_class(config).fields,
        label_kind=task_class(config).label_kind,
        shared=config.task.get("shared_vocab", True),
        preprocessor=preprocessor,
        origin=origin,
        say=say,
    )
    if origin is not None:
        _check_known(str(config.init_from), rows, say)
    with torch.device("meta"):
        task = make_pair(config, preprocessor)[1]
    kind = StreamData if task.streams else ExampleData
    return kind(source, preprocessor, rows, make_batching(config), make(config.tbptt), config.seed, task, say)


def make_source(config: DictConfig) -> Source:
    """The source of `config.data`, without what it says of lanes."""
    options = {key: value for key, value in plain(config.data).items() if key not in Batching.__annotations__}
    source = make(OmegaConf.create({"data": options}).data)
    if "task" in config and task_class(config).label_kind == "number":
        source.expect_numbers()
    return source


def make_batching(config: DictConfig) -> Batching:
    """How the stream of `config.data` is laid out."""
    return Batching(**{key: config.data[key] for key in Batching.__annotations__})


def _check_known(init_from: str, rows: dict[Split, Rows], say: Say) -> None:
    """Says how much of the text the tokenizer of `init_from` does not know; UserError where that is most of it."""
    columns = [corpus for part in rows.values() for corpus in part.columns.values()]
    unknown = sum(corpus.num_unknown for corpus in columns) / sum(len(corpus.tokens) for corpus in columns)
    if unknown > MOST_UNKNOWN:
        raise UserError(
            f"init_from={init_from}: its tokenizer does not know {unknown:.0%} of this text; "
            "begin with a run on text like it, or one with tokenizer=bpe"
        )
    if unknown:
        say(f"{unknown:.1%} of the tokens are <unk> to the tokenizer of {init_from}")
