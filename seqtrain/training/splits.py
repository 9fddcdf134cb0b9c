"""Tokenised splits with their plans and loaders, which lay them out as a stream on lanes or as single examples."""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from seqtrain.config.options import Batching
from seqtrain.data.batching.example_plan import ExamplePlan, distinct_of_all
from seqtrain.data.batching.examples import ExampleBatch, ExampleLoader, Examples
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import EvalLoader, Stream
from seqtrain.data.batching.values import SeriesStream
from seqtrain.data.corpus import Corpus
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.sources.base import OF_NUMBERS, Source, Split
from seqtrain.data.tokenizers.recipes import Tokenizer
from seqtrain.distributed import ranks
from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.tasks.base import ExampleTask, Facts, Say, SeriesTask, Task
from seqtrain.training.accumulators import LOSS
from seqtrain.training.cost import ReadPattern

LONG = 2.0  # seconds; baselines that take longer log their time


@runtime_checkable
class LooksAt(Protocol):
    """A task whose examples have two texts: attention is drawn over both."""

    def look_at(self, model: SequenceModel, batch: Any, limit: int) -> tuple[list[int], list[Any] | None]:
        """Return up to `limit` tokens of the first target and its source, or both in one list and None."""
        ...


@dataclass
class Data(ABC):
    """Preprocessor and tokenised splits, their layout, and their source."""

    source: Source
    preprocessor: Preprocessor
    rows: dict[Split, Rows]
    batching: Batching
    tbptt: TBPTT
    seed: int
    task: Task  # on the meta device: its options lay out rows; another instance trains
    say: Say

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of text, and of sources."""
        return self.preprocessor.tokenizer

    @property
    def corpora(self) -> dict[Split, Corpus]:
        """The text of each split, or of its sources."""
        return {split: next(iter(rows.columns.values())) for split, rows in self.rows.items()}

    def facts(self) -> dict[str, Facts]:
        """Return the facts of each split that convert losses per token into losses per byte and word."""
        if self.preprocessor.series is not None:  # a value has neither bytes nor words
            return dict.fromkeys(self.rows, Facts(bytes_per_token=1.0, words_per_token=None))
        facts: dict[str, Facts] = {}
        for split, corpus in self.corpora.items():
            words_per_token = corpus.num_words / len(corpus.tokens) if self.tokenizer.kind == "word" else None
            facts[split] = Facts(bytes_per_token=corpus.bytes_per_token, words_per_token=words_per_token)
        return facts

    @property
    def label_counts(self) -> tuple[int, ...]:
        """Count of each label in train. Empty if there are no labels."""
        if "train" not in self.rows or "label" not in self.task.fields or self.task.label_kind in OF_NUMBERS:
            return ()
        labels = self.rows["train"].labels
        if labels is None:
            return ()
        if isinstance(labels, list):  # a label for each token of a row
            labels = np.concatenate(labels)
        return tuple(np.bincount(labels, minlength=len(self.preprocessor.labels)).tolist())

    def baselines(self, split: Split) -> dict[str, dict[str, float]]:
        """Return metrics of baselines on the same split. They are computed once; a long computation is logged."""
        if split not in self._baselines:
            begin = time.perf_counter()
            known = self.task.baselines(self.rows["train"], self.rows[split], self.preprocessor, self.say)
            self._baselines[split] = known
            seconds = time.perf_counter() - begin
            if seconds > LONG:
                self.say(f"{split}: baselines computed in {seconds:.1f} s")
        return self._baselines[split]

    def baselines_or_none(self, split: Split) -> dict[str, dict[str, float]]:
        """Return the baselines, or none if they fail, with a log line: a run is useful without them."""
        try:
            return self.baselines(split)
        except Exception as error:  # any call of a task may fail: memory, a missing file, a library
            words = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            self.say(f"{split}: no baselines: {words}")
            self._baselines[split] = {}
            return {}

    @functools.cached_property
    def _baselines(self) -> dict[Split, dict[str, dict[str, float]]]:
        return {}

    @abstractmethod
    def batcher(self, split: Split) -> Stream | Examples:
        """Return the stream or examples that cut batches from a split."""

    def plan(self, split: Split) -> Any:
        """Return the plan by which a run reads a split: for train the plan of training, else that of evaluation."""
        return self._train_plan if split == "train" else self.eval_plan(split)

    @functools.cached_property
    @abstractmethod
    def _train_plan(self) -> Any:
        """The plan of training."""

    def eval_plan(self, split: Split, batch_size: int | None = None) -> Any:
        """Return the plan of evaluation on any split, made once. `batch_size`: examples per batch."""
        if (split, batch_size) not in self._eval_plans:
            self._eval_plans[split, batch_size] = self._make_eval_plan(split, batch_size)
        return self._eval_plans[split, batch_size]

    @functools.cached_property
    def _eval_plans(self) -> dict[tuple[Split, int | None], Any]:
        return {}

    @abstractmethod
    def _make_eval_plan(self, split: Split, batch_size: int | None) -> Any:
        """Return the plan of evaluation."""

    @abstractmethod
    def eval_loader(self, split: Split, batch_size: int | None = None) -> EvalLoader | ExampleLoader:
        """Return a loader that reads every token or example of a split once; each process reads its own share."""

    @abstractmethod
    def reading(self) -> ReadPattern:
        """Return how training reads its data, for the cost."""

    @abstractmethod
    def context(self) -> dict[str, Any]:
        """Return what evaluation metrics depend on, besides weights and text."""

    @abstractmethod
    def size(self, split: Split) -> dict[str, int | None]:
        """Return how evaluation reads a split, for the record: `eval_lanes` or number of `examples`."""

    @abstractmethod
    def sample(self, split: Split, count: int) -> Any:
        """Return a batch of `count` examples spread over the split, the same each time; None for a stream of text."""

    @abstractmethod
    def look_at(self, model: SequenceModel, split: Split, limit: int) -> tuple[list[int], list[int] | None]:
        """Return the first tokens of a split, at most `limit`, and their source or None."""


class StreamData(Data):
    """One long text, read on parallel lanes."""

    def batcher(self, split: Split) -> Stream:
        corpus = self.corpora[split]
        return Stream(corpus.tokens, corpus.documents, self.tokenizer.start)

    def documents(self, split: Split) -> np.ndarray:
        """Return the beginning of each document of a split, and the end of the last."""
        return self.corpora[split].documents

    @functools.cached_property
    def _train_plan(self) -> StreamPlan:
        return self._plan("train", self.batching.lanes, self.tbptt, shuffle=True)

    def _make_eval_plan(self, split: Split, batch_size: int | None) -> StreamPlan:
        tbptt = self.tbptt.evaluation
        # Independent of machine and memory, because the number of lanes determines how much context each token has.
        lanes = min(self.batching.eval_lanes, int(self.documents(split)[-1]))
        if lanes < self.batching.eval_lanes:
            self.say(f"{split}: read on {lanes} lanes; its text is too short for {self.batching.eval_lanes}")
        return self._plan(split, lanes, tbptt, shuffle=False)

    def _plan(self, split: Split, lanes: int, tbptt: TBPTT, *, shuffle: bool) -> StreamPlan:
        return StreamPlan(documents=self.documents(split), lanes=lanes, tbptt=tbptt, seed=self.seed, shuffle=shuffle)

    def eval_loader(self, split: Split, batch_size: int | None = None) -> EvalLoader:
        here = ranks.rank_info()
        batch_size = batch_size or self.batching.eval_batch_size
        return EvalLoader(
            self.batcher(split), self.eval_plan(split), batch_size=batch_size, world=here.world, rank=here.rank
        )

    def reading(self) -> ReadPattern:
        cut = self.tbptt
        return ReadPattern(length=cut.k1, warmup_chunks=cut.warmup_chunks, carry=cut.carry, recompute=cut.recompute)

    def context(self) -> dict[str, Any]:
        context = {"eval_lanes": self.plan("validation").lanes, "carry": self.tbptt.carry}
        if self.tbptt.carry and self.tbptt.reset == "never":
            return context  # the state is carried across cuts, so they do not change results
        cut = self.tbptt.evaluation
        return context | {"k1": cut.k1, "k2": cut.k2, "reset": cut.reset}

    def size(self, split: Split) -> dict[str, int | None]:
        return {"eval_lanes": self.eval_plan(split).lanes, "examples": None}

    def sample(self, split: Split, count: int) -> None:
        return None

    def look_at(self, model: SequenceModel, split: Split, limit: int) -> tuple[list[int], list[int] | None]:
        return [self.tokenizer.start, *self.corpora[split].tokens[: limit - 1].tolist()], None


class SeriesData(StreamData):
    """Series, read as a stream. One lane evaluates each series from beginning to end."""

    task: SeriesTask

    @functools.cached_property
    def _streams(self) -> dict[Split, SeriesStream]:
        return {}

    def batcher(self, split: Split) -> SeriesStream:
        """Return the stream of a split, made once. Before validation and test, rows are read to build up the state."""
        if split not in self._streams:
            context = 0 if split == "train" else self.batching.max_length
            self._streams[split] = self.task.series_stream(self.rows[split], self.preprocessor, context=context)
        return self._streams[split]

    def documents(self, split: Split) -> np.ndarray:
        documents = self.batcher(split).documents
        if len(documents) > 2 and self.tbptt.reset == "never":
            raise UserError(
                f"tbptt.reset=never: the state of one of {len(documents) - 1:,} series would carry over into the next; "
                "use tbptt.reset=document"
            )
        return documents

    def _make_eval_plan(self, split: Split, batch_size: int | None) -> StreamPlan:
        # A lane that began in the middle of a series would lack its history.
        lengths = np.diff(self.documents(split))
        lanes = len(lengths) if (lengths == lengths[0]).all() else 1
        return self._plan(split, lanes, self.tbptt.evaluation, shuffle=False)

    def context(self) -> dict[str, Any]:
        return {"max_length": self.batching.max_length, "carry": True}

    @functools.cached_property
    def _windows(self) -> dict[Split, Examples]:
        return {}

    def sample(self, split: Split, count: int) -> Any:
        # Created once, so that each validation shows the same examples.
        if split not in self._windows:
            self._windows[split] = self.task.examples(
                self.rows[split], self.preprocessor, max_length=self.batching.max_length, seed=self.seed
            )
        return spread(self._windows[split], count)

    def look_at(self, model: SequenceModel, split: Split, limit: int) -> tuple[list[int], list[int] | None]:
        raise UserError("attention is drawn over tokens, and series have none")


def spread(examples: Examples, count: int) -> ExampleBatch:
    """Return a batch of `count` examples, evenly spaced: rows may be sorted."""
    every = len(examples.lengths)
    index = np.arange(min(count, every)) * every // min(count, every)
    return examples.collate(index, 0, examples.totals(index, 0))


class ExampleData(Data):
    """Single examples, batched by similar length."""

    task: ExampleTask

    @functools.cached_property
    def _examples(self) -> dict[Split, Examples]:
        return {}

    def batcher(self, split: Split) -> Examples:
        """Return the examples of a split, made once."""
        if split not in self._examples:
            examples = self.task.examples(
                self.rows[split], self.preprocessor, max_length=self.batching.max_length, seed=self.seed
            )
            self._describe(split, examples)
            self._examples[split] = examples
        return self._examples[split]

    def _describe(self, split: Split, examples: Examples) -> None:
        """Log which examples are cut, read alone, or otherwise changed."""
        if examples.cut:
            self.say(
                f"{split}: {examples.cut:,} of {len(examples.lengths):,} examples are cut to data.max_length="
                f"{self.batching.max_length} tokens; baselines read them whole"
            )
        most = self.batching.step_tokens
        if most is not None:
            lengths = distinct_of_all(examples.lengths)
            alone = int(lengths.counts[lengths.rows.sum(1) > most].sum())
            if alone:
                self.say(f"{split}: {alone:,} examples are longer than data.batch_tokens={most}: each is one step")
        if examples.remark and split == "train":
            self.say(f"{split}: {examples.remark}")

    @functools.cached_property
    def _train_plan(self) -> ExamplePlan:
        plan = self._plan("train", self.batching.batch_size, shuffle=True)
        if plan.num_windows > 1:
            self.say(
                f"train: {len(plan.lengths):,} examples are sorted by length and shuffled within {plan.num_windows:,} "
                f"windows of at most {plan.window:,}; the seed assigns them to windows in blocks of {plan.block:,}"
            )
        return plan

    def _make_eval_plan(self, split: Split, batch_size: int | None) -> ExamplePlan:
        return self._plan(split, batch_size or self.batching.eval_batch_size, shuffle=False)

    def _plan(self, split: Split, batch_size: int | None, *, shuffle: bool) -> ExamplePlan:
        return ExamplePlan(
            lengths=self.batcher(split).lengths,
            batch_tokens=self.batching.step_tokens,
            batch_size=batch_size,
            seed=self.seed,
            shuffle=shuffle,
        )

    def eval_loader(self, split: Split, batch_size: int | None = None) -> ExampleLoader:
        here = ranks.rank_info()
        # Without either, only batch_tokens limits the examples per batch.
        batch_size = batch_size or self.batching.eval_batch_size or len(self.batcher(split).lengths)
        return ExampleLoader(self.batcher(split), self.eval_plan(split, batch_size), world=here.world, rank=here.rank)

    def reading(self) -> ReadPattern:
        examples = self.batcher("train")
        lengths = distinct_of_all(examples.lengths)
        longest = int(lengths.rows.max())
        most = self.tbptt.k2 if self.task.needs_whole is None else longest  # tokens read at a time
        num_reached = int(lengths.counts @ lengths.rows.clip(max=most).sum(1))
        reached = num_reached / lengths.num_tokens
        # An estimate from the first step: for all steps, a task might have to draw every mask.
        first = self.plan("train").chunk(0, 0).examples
        return ReadPattern(
            length=min(round(lengths.num_tokens / (len(examples.lengths) * lengths.rows.shape[1])), most),
            carry=self.tbptt.carry or reached < 1,  # longer examples are read from state to state
            targets_per_token=examples.totals(first, 0)[LOSS] / int(examples.lengths[first].sum()),
            reached=reached,
        )

    def context(self) -> dict[str, Any]:
        return {"max_length": self.batching.max_length}

    def size(self, split: Split) -> dict[str, int | None]:
        return {"eval_lanes": None, "examples": len(self.batcher(split).lengths)}

    def sample(self, split: Split, count: int) -> ExampleBatch:
        return spread(self.batcher(split), count)

    def look_at(self, model: SequenceModel, split: Split, limit: int) -> tuple[list[int], list[int] | None]:
        if self.preprocessor.series is not None and not isinstance(self.task, LooksAt):
            raise UserError("attention is drawn over tokens, and series have none")
        batch = self.sample(split, 1)
        if isinstance(self.task, LooksAt):
            return self.task.look_at(model, batch, limit)
        return batch.tokens[0, :limit].tolist(), None
