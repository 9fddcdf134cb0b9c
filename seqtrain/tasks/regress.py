"""Regression: a number for a whole sequence, from its pooled hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from scipy.stats import rankdata
from torch import Tensor

from seqtrain.data.batching.examples import ExampleBatch, TextExamples
from seqtrain.data.cache import cached_json
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.models.base import SequenceModel, State
from seqtrain.tasks.base import Baseline, Facts, LossTerms, Metric, Reduced, Sample, SampleOptions, Say
from seqtrain.tasks.baselines import series
from seqtrain.tasks.baselines.texts import DAMPING, bag_of_words
from seqtrain.tasks.numbered import NumberTask
from seqtrain.tasks.output import Pool, first_position_incompatibility, pool
from seqtrain.tasks.predictors import NamedSeries, Predictor, question, question_words, shown_input


@dataclass(kw_only=True)
class NumberedBatch(ExampleBatch):
    """Texts with their numbers, in their own unit."""

    num_examples: int  # number of examples of the split


class NumberedExamples(TextExamples):
    """Texts or series, each with a number."""

    def __init__(
        self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(rows, preprocessor, max_length=max_length, dtype=dtype)
        assert isinstance(rows.labels, np.ndarray)
        self.numbers = rows.labels

    def targets(self, index: Int[np.ndarray, " B"]) -> Float[Tensor, " B"]:
        return torch.from_numpy(self.numbers[index])

    def collate(self, index: Int[np.ndarray, " B"], epoch: int, totals: dict[str, int]) -> NumberedBatch:
        batch = super().collate(index, epoch, totals)
        known = {field.name: getattr(batch, field.name) for field in fields(batch)}
        return NumberedBatch(**known, num_examples=len(self.numbers))


class Numbers(Predictor["Regress"]):
    """The number of a text or a series, in the unit of the data; only the first part of a long one is read."""

    @property
    def longest(self) -> int | None:
        before, after = self.task.edges(self.loaded.tokenizer)
        return self.loaded.max_length - len(before) - len(after)

    @torch.no_grad()
    def predict(self, texts: Sequence[str | NamedSeries], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Return the `number` of each text or series."""
        answers: dict[int, dict[str, Any]] = {}
        for lanes, tokens, lengths in self.batches(texts):
            numbers = self.task.numbers(self.task.scaled(self.loaded.model, tokens, lengths)).tolist()
            for lane, number in zip(lanes, numbers, strict=True):
                answers[lane] = {**question(texts[lane]), "number": number}
        return [answers[lane] for lane in range(len(texts))]

    def words(self, answer: dict[str, Any]) -> str:
        return f"{answer['number']:.6g}: {question_words(answer)}"


class Regress(NumberTask):
    """Squared error of the scaled number of a whole sequence; the head reads the pooled hidden state."""

    label_kind = "number"
    metrics = (
        Metric("loss", "min", "scaled squared error"),
        Metric("mse", "min", "mean squared error", of_answers=True),
        Metric("mae", "min", "mean absolute error", of_answers=True),
        Metric("spearman", "max", "Spearman rank correlation", of_answers=True),
    )
    trained_by = ("pool", "dropout")
    known_baselines = MappingProxyType(
        {
            "mean": Baseline("always the mean of train", "the mean"),
            "bag_of_words": Baseline("ridge regression on how often each token is", "a linear model on words"),
            **series.KNOWN,
        }
    )
    predictors = MappingProxyType({"number": Numbers})

    def __init__(self, *, pool: Pool, dropout: float, dim: int, preprocessor: Preprocessor | None = None) -> None:
        super().__init__(dropout=dropout, dim=dim, preprocessor=preprocessor)
        self.pool: Pool = pool

    def incompatibility(self, model: SequenceModel) -> str | None:
        return first_position_incompatibility(model, self.pool, "task.pool=last, mean or max")

    def scaled(
        self, model: SequenceModel, tokens: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, " B"]:
        """Predict the scaled numbers of texts or series: distances from the mean of train in standard deviations."""
        hidden = model.encode(tokens, lengths)
        return self.logits(model, pool(hidden, lengths, self.pool)).squeeze(-1)

    def evaluate(self, model: SequenceModel, batch: NumberedBatch, state: State | None) -> tuple[LossTerms, State]:
        """Return `loss` of scaled numbers; outside training also `answers`, one column per example of the split."""
        scaled = self.scaled(model, batch.tokens, batch.lengths)
        wanted = self.wanted(batch.targets)
        errors = (scaled - wanted.to(scaled.dtype)) ** 2
        if batch.count == 0:  # a process without examples reads an example of another
            return {"loss": (0.0 * errors.sum(), 0)}, {}
        if self.training:
            return {"loss": (errors.sum(), len(errors))}, {}
        # Ranks need all numbers at once: each example has its own column, so batches add up to a table.
        table = torch.zeros(2, batch.num_examples, dtype=torch.float64, device=scaled.device)
        table[0, batch.index] = self.numbers(scaled)
        table[1, batch.index] = batch.targets.double()
        return {"loss": (((scaled.double() - wanted) ** 2).sum(), len(errors)), "answers": (table, 1)}, {}

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Return `loss` of scaled numbers, and from all predictions and true numbers `mse`, `mae` and `spearman`."""
        total, count = totals["loss"]
        metrics = {"loss": total / count}
        if "answers" in totals:
            found, true = np.array(totals["answers"][0])
            metrics |= quality(found, true)
        return metrics

    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> NumberedExamples:
        return NumberedExamples(rows, preprocessor, max_length=max_length, dtype=self.head.weight.dtype)

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        numbers, true = train.labels, split.labels
        assert isinstance(numbers, np.ndarray)
        assert isinstance(true, np.ndarray)
        # On the whole split, like the model; the baseline sees only the split's texts.
        mean = np.full(len(true), numbers.mean())
        if train.series is not None:
            predictions, reason = series.predictions(train, split, preprocessor)
            if reason:
                say(reason)
            return {"mean": quality(mean, true)} | {name: quality(each, true) for name, each in predictions.items()}
        texts, of_split = train.columns["text"], split.columns["text"]
        size, tokenizer = preprocessor.tokenizer.vocab_size, preprocessor.tokenizer.hash
        linear = cached_json(
            f"bag of words {version('scipy')} {DAMPING} {tokenizer} {train.hash} {split.hash}",
            lambda: quality(bag_of_words(texts, numbers, of_split, size), true),
        )
        return {"mean": quality(mean, true), "bag_of_words": linear}

    def samples(
        self, model: SequenceModel, batch: ExampleBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[Sample]:
        """Return the predicted number of each text and the true one, as text."""
        numbers = self.numbers(self.scaled(model, batch.tokens, batch.lengths)).tolist()
        samples = []
        for lane, (number, true) in enumerate(zip(numbers, batch.targets.tolist(), strict=True)):
            text = shown_input(batch, lane, preprocessor)
            columns = {"text": text, "label": true, "predicted": number}
            samples.append(Sample(f"{number:.6g} (true: {true:.6g}): {text}", columns))
        return samples


def quality(found: Float[np.ndarray, " n"], true: Float[np.ndarray, " n"]) -> dict[str, float]:
    """Return errors in the unit of the data, and the rank correlation; 0 if either side is constant."""
    errors = found - true
    # Equal numbers share the mean of their ranks, as in Spearman's definition.
    ranks, true_ranks = rankdata(found), rankdata(true)
    spearman = 0.0
    if np.ptp(ranks) and np.ptp(true_ranks):
        spearman = float(np.corrcoef(ranks, true_ranks)[0, 1])
    return {"mse": float((errors**2).mean()), "mae": float(np.abs(errors).mean()), "spearman": spearman}
