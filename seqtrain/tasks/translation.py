"""Translation: the target's tokens one after another, given the source (Sutskever et al. 2014)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.data.batching.examples import ExampleBatch, Examples, padded
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.decoding import decode
from seqtrain.tasks.base import Baseline, ExampleTask, Facts, LossTerms, Metric, Reduced, SampleOptions, Say
from seqtrain.tasks.baselines.tfidf import closest
from seqtrain.tasks.metrics import bleu, chrf
from seqtrain.tasks.predictors import Loaded, Predictor

EXTRA = 10  # tokens that a translation may have beyond its share of the source
LANES = 64  # texts that are translated at a time
MOST_ROWS = 1000  # that baselines are measured on
MOST_MEMORY = 100_000  # training rows that the nearest one is looked for in


@dataclass(kw_only=True)
class TranslationBatch(ExampleBatch):
    """Sources as `tokens`, ended by the separator; `targets` (B, T) are the target's tokens and the end."""

    target_tokens: Tensor  # (B, T) start, and the target's tokens
    num_targets: int
    unpadded: bool  # whether no source is padded
    references: Callable[[], list[str]]  # the targets as they are written; evaluation alone reads them

    def without_targets(self) -> Self:
        return replace(super().without_targets(), num_targets=0)


class TranslationExamples(Examples):
    """`source..., separator`, and `start, target..., end`; of a longer side the first tokens."""

    def __init__(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int) -> None:
        if max_length < 4:
            raise UserError(f"data.max_length={max_length}: must be at least 4, two tokens for each side")
        self.rows = rows
        self.columns = rows.columns["source"], rows.columns["target"]
        self.separator = np.array([preprocessor.tokenizer.separator])
        self.start = np.array([preprocessor.target_tokenizer.start])
        self.longest = max_length // 2 - 1
        whole = np.stack([column.lengths for column in self.columns], 1)
        self.lengths = np.minimum(whole, self.longest) + 1
        self.cut = int((whole > self.longest).any(1).sum())  # rows

    @cached_property
    def texts(self) -> list[str]:
        """The targets as they are written, whole."""
        return self.rows.texts("target")

    def totals(self, index: np.ndarray, epoch: int) -> dict[str, int]:
        return {"loss": int(self.lengths[index, 1].sum())}

    def collate(self, index: np.ndarray, epoch: int, totals: dict[str, int]) -> TranslationBatch:
        sources, targets = ([column[i][: self.longest] for i in index] for column in self.columns)
        tokens, lengths = padded([np.concatenate([source, self.separator]) for source in sources])
        target_tokens, target_lengths = padded([np.concatenate([self.start, target]) for target in targets])
        ended, _ = padded([np.concatenate([target, self.start]) for target in targets])  # the start stands for the end
        real = torch.arange(ended.shape[1]) < target_lengths.unsqueeze(1)
        num_targets = int(target_lengths.sum())
        return TranslationBatch(
            tokens=tokens,
            lengths=lengths,
            targets=ended.masked_fill(~real, IGNORED),
            index=torch.from_numpy(index),
            count=int(lengths.sum()) + num_targets,
            totals=totals,
            target_tokens=target_tokens,
            num_targets=num_targets,
            unpadded=bool((lengths == tokens.shape[1]).all()),
            references=partial(self.written, index),
        )

    def written(self, index: np.ndarray) -> list[str]:
        """The targets of some examples as they are written."""
        return [self.texts[i] for i in index]


class Translate(Predictor["Translation"]):
    """The translation of a text; of a text longer than the sources of training the beginning is translated."""

    takes = MappingProxyType({"beam": None, "length_penalty": None})  # None: as the run's task says

    @property
    def longest(self) -> int | None:
        return self.loaded.max_length // 2 - 1

    def without_effect(self, given: Mapping[str, Any]) -> dict[str, str]:
        if (given.get("beam") or self.task.beam) > 1:
            return {}
        return {"length_penalty": "with a beam of 1 the likeliest token is taken, whatever the length; give --beam 4"}

    def predict(self, texts: Sequence[str], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        """The `translation` of each `source`, searched for as the run's task says where nothing else is given."""
        options = {**self.takes, **options}
        found = self.task.translate(
            self.loaded.model, list(texts), self.loaded.preprocessor, longest=self.longest, **options
        )
        return [{"source": source, "translation": text} for source, text in zip(texts, found, strict=True)]

    def words(self, answer: dict[str, Any]) -> str:
        return " ".join(answer["translation"].split("\n"))  # a line for a line


class Translation(ExampleTask):
    """Cross entropy of the target's tokens and its end, with label smoothing (Szegedy et al. 2016)."""

    requires = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL
    needs_whole = "every word of a translation is written from the whole source"
    fields = ("source", "target")
    metrics = (
        Metric("loss", "min", "nats a token"),
        Metric("perplexity", "min", "perplexity"),
        Metric("accuracy", "max", "accuracy"),
        Metric("bleu", "max", "BLEU"),
        Metric("chrf", "max", "chrF"),
        Metric("exact_match", "max", "exact match"),
    )
    monitor = "bleu"
    trained_by = ("shared_vocab", "tied", "label_smoothing")
    known_baselines = MappingProxyType(
        {
            "copy": Baseline("the source as its own translation", "copying the source"),
            "nearest": Baseline("the translation of the most similar training source", "the nearest training source"),
        }
    )
    predictors = MappingProxyType({"translate": Translate})
    signatures = MappingProxyType({"bleu": bleu.signature()})

    def __init__(
        self,
        *,
        shared_vocab: bool,
        tied: bool,
        label_smoothing: float,
        beam: int,
        length_penalty: float,
        max_ratio: float,
        dim: int,
        target_vocab_size: int,
        preprocessor: Preprocessor | None,
    ) -> None:
        """`target_vocab_size`: V of the target; evaluation needs the `preprocessor`, training does without."""
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise UserError(f"task.label_smoothing={label_smoothing}: must be at least 0 and below 1")
        if beam < 1:
            raise UserError(f"task.beam={beam}: must be at least 1")
        if not 0 < max_ratio < math.inf:
            raise UserError(f"task.max_ratio={max_ratio}: must be above 0")
        self.shared_vocab = shared_vocab
        self.label_smoothing = label_smoothing
        self.beam = beam
        self.length_penalty = length_penalty
        self.max_ratio = max_ratio
        self.dim = dim
        self.end = target_vocab_size
        self.preprocessor = preprocessor
        self.head = None if tied else nn.Linear(dim, target_vocab_size + 1)

    @classmethod
    def without_effect(cls, options: Mapping[str, Any]) -> dict[str, str]:
        if options.get("beam") != 1:
            return {}
        return {"length_penalty": "with task.beam=1 no length is judged; only `predict --beam` will look at it"}

    def incompatibility(self, model: SequenceModel) -> str | None:
        if not self.shared_vocab and reads_in_one(model):
            name = type(model).__name__
            return f"{name} reads source and target with one embedding; use task.shared_vocab=true"
        return None

    def logits(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V+1"]:
        """Unnormalised log-probabilities of the next token of the target, the end's last."""
        if self.head is not None:
            return self.head(hidden)
        return target_embedding(model).logits(hidden, end=True)  # type: ignore[operator]

    def evaluate(self, model: SequenceModel, batch: TranslationBatch, state: State | None) -> tuple[LossTerms, State]:
        """`loss` in nats, smoothed in training; outside it plain, with `accuracy` and what translations are worth."""
        begun = model.begin(batch.tokens, None if batch.unpadded else batch.lengths)
        hidden, after = model(batch.target_tokens, begun)
        logits, targets = self.logits(model, hidden).flatten(0, 1), batch.targets.flatten()
        options = {"ignore_index": IGNORED, "label_smoothing": self.label_smoothing if self.training else 0.0}
        if self.training:
            return {"loss": (F.cross_entropy(logits, targets, reduction="sum", **options), batch.num_targets)}, after
        losses = F.cross_entropy(logits, targets, reduction="none", **options)
        parts = {"loss": (losses.double().sum(), batch.num_targets)}
        parts["accuracy"] = (logits.argmax(-1) == targets).sum(), batch.num_targets
        return parts | self._quality(model, batch, begun), after

    def _quality(self, model: SequenceModel, batch: TranslationBatch, begun: State) -> LossTerms:
        """What the translations of a batch add to `bleu`, `chrf` and `exact_match`."""
        if batch.num_targets == 0:  # a share without examples reads a silent batch, whose row is no one's
            return update([], [])
        assert self.preprocessor is not None
        return update(self._texts(model, begun, batch.lengths, self.preprocessor), batch.references())

    def _texts(
        self,
        model: SequenceModel,
        begun: State,
        lengths: Tensor,
        preprocessor: Preprocessor,
        beam: int | None = None,
        length_penalty: float | None = None,
    ) -> list[str]:
        """Translations of sources of `lengths` (B,) tokens that `model.begin` has read."""
        tokenizer = preprocessor.target_tokenizer
        most = (lengths.double() * self.max_ratio).long() + EXTRA
        if model.max_length is not None:
            left = model.max_length - lengths if reads_in_one(model) else most.new_tensor(model.max_length)
            most = torch.minimum(most, left).clamp(min=1)
        found = decode(
            model,
            partial(self.logits, model),
            begun,
            start=tokenizer.start,
            end=self.end,
            max_tokens=most,
            beam=self.beam if beam is None else beam,
            length_penalty=self.length_penalty if length_penalty is None else length_penalty,
        )
        return [tokenizer.decode(target) for target in found]

    @torch.no_grad()
    def translate(
        self,
        model: SequenceModel,
        sources: list[str],
        preprocessor: Preprocessor,
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        longest: int | None = None,
    ) -> list[str]:
        """The translation of each text, with the task's own beam and length penalty where none are given.

        Of a source the first `longest` tokens are read; where the model has a table of positions, half a table at most.
        """
        if model.max_length is not None:
            longest = min(longest or model.max_length, model.max_length // 2 - 1)
        separator = preprocessor.tokenizer.separator
        encoded = [np.append(ids[:longest], separator) for ids in preprocessor.tokenizer.encode_documents(sources)]
        order = sorted(range(len(encoded)), key=lambda number: len(encoded[number]))
        device = next(model.parameters()).device
        found = [""] * len(sources)
        for begin in range(0, len(order), LANES):
            lanes = order[begin : begin + LANES]
            tokens, lengths = (part.to(device) for part in padded([encoded[lane] for lane in lanes]))
            unpadded = len(encoded[lanes[0]]) == len(encoded[lanes[-1]])
            begun = model.begin(tokens, None if unpadded else lengths)
            texts = self._texts(model, begun, lengths, preprocessor, beam, length_penalty)
            for lane, text in zip(lanes, texts, strict=True):
                found[lane] = text
        return found

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """`loss` in nats a token of the target, its `perplexity`, `accuracy`, and what translations are worth:
        `bleu` and `chrf`, 0 to 100, and the share of those that are `exact_match`es of the reference."""
        loss = totals["loss"][0] / totals["loss"][1]
        metrics = {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}
        if "accuracy" in totals:
            metrics["accuracy"] = totals["accuracy"][0] / totals["accuracy"][1]
        return metrics | compute(totals)

    def head_flops(self) -> float:
        return 2.0 * self.dim * (self.end + 1)

    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> TranslationExamples:
        return TranslationExamples(rows, preprocessor, max_length=max_length)

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        """On the first rows of `split`, at most MOST_ROWS, with the first MOST_MEMORY rows of `train` to look in."""
        asked = list(islice(split.read(), MOST_ROWS))
        known = list(islice(train.read(), MOST_MEMORY))
        sources, references = [row["source"] for row in asked], [row["target"] for row in asked]
        alike = [known[place]["target"] for place in closest([row["source"] for row in known], sources)]
        answers = {"copy": sources, "nearest": alike}
        return {
            name: compute({part: (total.tolist(), count) for part, (total, count) in update(texts, references).items()})
            for name, texts in answers.items()
        }

    @torch.no_grad()
    def show(
        self, model: SequenceModel, batch: TranslationBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[str]:
        """Of each example three lines: its source, its reference, and the model's translation."""
        begun = model.begin(batch.tokens, None if batch.unpadded else batch.lengths)
        texts = self._texts(model, begun, batch.lengths, preprocessor)
        lines = []
        for ids, length, reference, text in zip(batch.tokens, batch.lengths, batch.references(), texts, strict=True):
            source = preprocessor.tokenizer.decode(ids[: length - 1].tolist())
            parts = {"source": source, "reference": reference, "model": text}
            lines.append("\n".join(f"{name}: {' '.join(part.split())}" for name, part in parts.items()))
        return lines

    def look_at(self, model: SequenceModel, batch: TranslationBatch, limit: int) -> tuple[list[int], list[int] | None]:
        return joined(model, batch.tokens[0, :limit].tolist(), batch.target_tokens[0, :limit].tolist())

    # -- texts ---------------------------------------------------------------------------------------------------

    def edges(self, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
        return [], [tokenizer.separator]

    def most_tokens(self, loaded: Loaded) -> int | None:
        return None if loaded.model.max_length is None else loaded.model.max_length // 2 - 1

    def attended(self, loaded: Loaded, text: str, target: str | None) -> tuple[list[int], list[int] | None]:
        """The target's tokens, written from the source; both in one where the model reads them so."""
        source, _ = super().attended(loaded, text, None)
        tokenizer = loaded.preprocessor.target_tokenizer
        if target is None:
            target = self.translate(loaded.model, [text], loaded.preprocessor, beam=1)[0]
        return joined(loaded.model, source, [tokenizer.start, *tokenizer.encode(target).tolist()])


def joined(model: SequenceModel, source: list[int], target: list[int]) -> tuple[list[int], list[int] | None]:
    """What a model reads of a pair, and the source that it reads before, where it does not read both as one."""
    if reads_in_one(model):
        return [*source, *target][: model.max_length], None
    return target[: model.max_length], source


def reads_in_one(model: SequenceModel) -> bool:
    """Whether the model reads the source as a prefix of the target, with the same front end."""
    return getattr(model, "target_embed", None) is None


def target_embedding(model: SequenceModel) -> nn.Module:
    """The front end of the target's tokens."""
    return getattr(model, "target_embed", model.embed)


def update(hypotheses: Sequence[str], references: Sequence[str]) -> LossTerms:
    """What sentences add to each part: the statistics of `bleu` and `chrf`, and the number of exact matches."""
    pairs, count = list(zip(hypotheses, references, strict=True)), len(references)
    sums = {"bleu": torch.zeros(bleu.STATISTICS).double(), "chrf": torch.zeros(chrf.STATISTICS).double()}
    for hypothesis, reference in pairs:
        sums["bleu"] += bleu.statistics(hypothesis, reference)
        sums["chrf"] += chrf.statistics(hypothesis, reference)
    sums["exact_match"] = torch.tensor(float(sum(one == other for one, other in pairs)))
    return {name: (total, count) for name, total in sums.items()}


def compute(totals: Reduced) -> dict[str, float]:
    """The metrics of what `update` counted, as far as there is any."""
    scores: dict[str, Callable[[Any, float], float]] = {
        "bleu": lambda table, count: bleu.score(table),
        "chrf": lambda table, count: chrf.score(table),
        "exact_match": lambda equal, count: equal / count,
    }
    return {name: score(*totals[name]) for name, score in scores.items() if name in totals and totals[name][1]}
