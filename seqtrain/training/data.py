"""The source read, tokenised, and laid out in plans and loaders."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from omegaconf import DictConfig, OmegaConf

from seqtrain.config.instantiate import make, plain
from seqtrain.config.options import Batching
from seqtrain.data.batching.examples import ExampleLoader, Examples
from seqtrain.data.batching.plan import TBPTT, ExamplePlan, StreamPlan, most_lanes
from seqtrain.data.batching.stream import EvalLoader, Stream
from seqtrain.data.corpus import Corpus
from seqtrain.data.rows import Rows, Vocabularies, prepare_rows
from seqtrain.data.sources.base import Source, Split
from seqtrain.data.tokenizers.recipes import Tokenizer
from seqtrain.distributed import ranks
from seqtrain.errors import Fault
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import ExampleTask, Facts, Task
from seqtrain.training.model_and_task import make_pair, task_class

Say = Callable[[str], None]

MOST_UNKNOWN = 0.5  # share of tokens that a tokenizer from elsewhere may not know


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

    @functools.cached_property
    def _narrow(self) -> set[Split]:
        """Splits of which it was said that they are read on fewer lanes than data.eval_lanes."""
        return set()

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

    def plan(self, split: Split) -> StreamPlan | ExamplePlan:
        """How a run reads a split: train by the plan of training, any other by that of evaluation."""
        return self._plan(split, train=split == "train")

    def eval_plan(self, split: Split, batch_size: int | None = None) -> StreamPlan | ExamplePlan:
        """How evaluation reads a split, train too; of examples, so many at a time."""
        return self._plan(split, train=False, batch_size=batch_size)

    def _plan(self, split: Split, *, train: bool, batch_size: int | None = None) -> StreamPlan | ExamplePlan:
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
        if not train and eval_lanes < self.batching.eval_lanes and split not in self._narrow:
            self._narrow.add(split)
            self.say(f"{split}: read on {eval_lanes} lanes; its text is too short for {self.batching.eval_lanes}")
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
        here = ranks.place()
        share = here.world, here.rank
        if isinstance(self.reader, ExampleTask):
            batch_size = batch_size or self.batching.eval_batch_size or len(self.rows[split])
            return ExampleLoader(
                self.examples(split), cast(ExamplePlan, self.eval_plan(split, batch_size)), share=share
            )
        plan = cast(StreamPlan, self.eval_plan(split))
        batch_size = batch_size or self.batching.eval_batch_size
        return EvalLoader(self.stream(split), plan, batch_size=batch_size, share=share)


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
        run = Run.open(config.init_from, export="take")
        origin = Vocabularies.load(run.path, run.summary.get("hashes", {}))
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


def make_source(config: DictConfig, trust: Sequence[str]) -> Source:
    """The source of `config.data`, without what it says of lanes."""
    options = {key: value for key, value in plain(config.data).items() if key not in Batching.__annotations__}
    return make(OmegaConf.create({"data": options}).data, trust)


def make_batching(config: DictConfig) -> Batching:
    """How the stream of `config.data` is laid out."""
    return Batching(**{key: config.data[key] for key in Batching.__annotations__})


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
