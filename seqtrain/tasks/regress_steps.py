"""Regression at each step: a number for each word of a text, or each step of a series, from the hidden state there.

A causal model answers from the current and earlier steps only.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from seqtrain.data.batching.examples import ExampleBatch
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.tokenizers.encoding import LINE_END
from seqtrain.models.base import SequenceModel, State
from seqtrain.tasks.base import Baseline, Facts, LossTerms, Metric, Reduced, Sample, SampleOptions, Say
from seqtrain.tasks.baselines.series import ridge, scaled_series
from seqtrain.tasks.numbered import NumberTask
from seqtrain.tasks.predictors import NamedSeries, question, question_words, shown_input
from seqtrain.tasks.tagged import PlacedExamples, WordPredictor, asked, words_of

MAX_SHOWN = 40  # numbers per sample


class StepNumbers(WordPredictor["RegressSteps"]):
    """The number of each word of a text, or of each step of a series, in the unit of the data."""

    @torch.no_grad()
    def predict(self, texts: Sequence[str | NamedSeries], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Return the words or steps of each input as `tokens`, each a `token` with its `number`."""
        answers: dict[int, dict[str, Any]] = {}
        for lanes, tokens, lengths in self.batches(texts):
            numbers = self.task.numbers(self.task.scaled(self.loaded.model, tokens, lengths))
            for lane, each, length in zip(lanes, numbers, lengths.tolist(), strict=True):
                names, found = self.at_words(texts[lane], each[:length])
                pairs = zip(names, found.tolist(), strict=True)
                # The end of a line is a token, not a word.
                known = [{"token": name, "number": number} for name, number in pairs if name != LINE_END]
                answers[lane] = {**question(texts[lane]), "tokens": known}
        return [answers[lane] for lane in range(len(texts))]

    def words(self, answer: dict[str, Any]) -> str:
        if "series" in answer:
            numbers = " ".join(f"{token['number']:.6g}" for token in answer["tokens"])
            return f"{numbers}: {question_words(answer)}"
        return " ".join(f"{token['token']}/{token['number']:.6g}" for token in answer["tokens"])


class RegressSteps(NumberTask):
    """Squared error of the scaled number at each word or step that has one."""

    label_kind = "numbers"
    metrics = (
        Metric("loss", "min", "scaled squared error"),
        Metric("mse", "min", "mean squared error", of_answers=True),
        Metric("mae", "min", "mean absolute error", of_answers=True),
    )
    trained_by = ("dropout",)
    known_baselines = MappingProxyType(
        {
            "mean": Baseline("always the mean of train", "the mean"),
            "word_mean": Baseline("the mean of each word in train", "the mean of the word"),
            "ridge": Baseline("ridge regression on the values of the step alone", "ridge on the step alone"),
        }
    )
    predictors = MappingProxyType({"numbers": StepNumbers})

    def scaled(
        self, model: SequenceModel, tokens: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B T"]:
        """Predict the scaled number at each token."""
        return self.logits(model, model.encode(tokens, lengths)).squeeze(-1)

    def evaluate(self, model: SequenceModel, batch: ExampleBatch, state: State | None) -> tuple[LossTerms, State]:
        """Return `loss` of the scaled numbers that are read; outside training also the errors of all numbers.

        An unread word is answered by the mean of train; otherwise cutting texts would improve the metrics.
        """
        scaled = self.scaled(model, batch.tokens, batch.lengths)
        if batch.count == 0:  # a process without examples reads an example of another
            return {"loss": (0.0 * scaled.sum(), 0)}, {}
        width, present = scaled.shape[1], ~batch.targets.isnan()
        targets = batch.targets.nan_to_num()
        wanted = self.wanted(targets)[:, :width]
        if self.training:
            errors = (scaled - wanted.to(scaled.dtype)) ** 2
            return {"loss": ((errors * present[:, :width]).sum(), batch.num_targets)}, {}
        losses = (scaled.double() - wanted) ** 2 * present[:, :width]
        unread = targets.shape[1] - width
        errors = (self.numbers(F.pad(scaled.double(), (0, unread))) - targets) * present
        count = int(present.sum())
        terms: LossTerms = {"loss": (losses.sum(), batch.num_targets)}
        return terms | {"mse": ((errors**2).sum(), count), "mae": (errors.abs().sum(), count)}, {}

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Return `loss` of scaled numbers, and of all numbers, in the unit of the data, `mse` and `mae`."""
        return {name: total / count for name, (total, count) in totals.items()}

    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> PlacedExamples:
        assert isinstance(rows.labels, list)
        dtype = self.head.weight.dtype
        return PlacedExamples(rows, preprocessor, rows.labels, max_length=max_length, dtype=dtype, needed="a number")

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        assert isinstance(train.labels, list)
        assert isinstance(split.labels, list)
        numbers, true = np.concatenate(train.labels), np.concatenate(split.labels)
        known, present = asked(numbers), asked(true)
        if not present.any():
            say("no baselines: no word has a number")
            return {}
        found = {"mean": np.full(len(true), numbers[known].mean())}
        if train.series is not None:
            values = np.concatenate(scaled_series(train, preprocessor))[known]
            of_split = np.concatenate(scaled_series(split, preprocessor))
            found["ridge"] = ridge(values, numbers[known][:, None], of_split)[:, 0]
        else:
            in_train, in_split = words_of(train, split, preprocessor)
            size = 1 + max(in_train.max(), in_split.max())
            sums = np.bincount(in_train[known], numbers[known], minlength=size)
            counts = np.bincount(in_train[known], minlength=size)
            means = np.where(counts, sums / np.maximum(counts, 1), found["mean"][0])
            found["word_mean"] = means[in_split]
        errors = {name: (each - true)[present] for name, each in found.items()}
        return {name: {"mse": float((e**2).mean()), "mae": float(np.abs(e).mean())} for name, e in errors.items()}

    def samples(
        self, model: SequenceModel, batch: ExampleBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[Sample]:
        """Return the first predicted numbers of each example and the true ones."""
        numbers = self.numbers(self.scaled(model, batch.tokens, batch.lengths))
        samples = []
        for lane, (found, true) in enumerate(zip(numbers, batch.targets[:, : numbers.shape[1]], strict=True)):
            shown = (~true.isnan()).nonzero()[:MAX_SHOWN, 0]
            label, predicted = (" ".join(f"{number:.4g}" for number in row[shown].tolist()) for row in (true, found))
            text = shown_input(batch, lane, preprocessor)
            columns = {"text": text, "label": label, "predicted": predicted}
            samples.append(Sample(f"{text}: {predicted} (true: {label})", columns))
        return samples
