"""A number for a text, such as a price or a rating."""

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor, nn

from seqtrain.data.batching.examples import ExampleBatch, TextExamples
from seqtrain.models.base import Capability
from seqtrain.tasks.base import Baseline, ExampleTask, Metric, Sample
from seqtrain.tasks.predictors import Predictor

BINS = 512  # of a table of predictions and truths, from which ranks are computed whatever the batches were


class NumberedExamples(TextExamples):
    """Texts with a number."""

    def __init__(self, rows: Any, preprocessor: Any, *, max_length: int) -> None:
        super().__init__(rows, preprocessor, max_length=max_length)
        self.numbers = rows.labels

    def targets(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(self.numbers[index])


class Number(Predictor["Regress"]):
    """The number that a text is given."""

    takes = MappingProxyType({"factor": 1.0, "unit": "", "times": 1})

    @torch.no_grad()
    def predict(self, texts: Sequence[str], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        answers = []
        for text in texts:
            before, after = self.task.edges(self.loaded.tokenizer)
            tokens = torch.tensor([[*before, *self.encode(text).tolist(), *after]])
            hidden, _ = self.loaded.model(tokens)
            number = self.task.logits(self.loaded.model, hidden[0, -1]).item()
            asked = {**self.takes, **options}
            answer = {"text": text, "number": number * asked["factor"]}
            if asked["unit"]:
                answer["unit"] = asked["unit"] * asked["times"]
            answers.append(answer)
        return answers

    def words(self, answer: dict[str, Any]) -> str:
        return f"{answer['number']:.4g}: {answer['text']}"


class Regress(ExampleTask):
    """Squared error of a number, read from the last hidden state."""

    requires = Capability.UNCONDITIONAL
    fields = ("text", "label")
    label_kind = "number"
    metrics = (Metric("loss", "min", "mean squared error"), Metric("spearman", "max", "rank correlation"))
    trained_by = ("scale",)
    known_baselines = MappingProxyType({"mean": Baseline("always the mean of train", "the mean")})
    predictors = MappingProxyType({"number": Number})

    def __init__(self, *, scale: float, dim: int) -> None:
        super().__init__()
        self.scale = scale
        self.dim = dim
        self.head = nn.Linear(dim, 1)

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        return self.head(hidden).squeeze(-1) * self.scale

    def evaluate(self, model: Any, batch: ExampleBatch, state: Any) -> Any:
        hidden, _ = model(batch.tokens, None, batch.lengths)
        last = hidden[torch.arange(len(hidden), device=hidden.device), batch.lengths - 1]
        errors = (self.logits(model, last) - batch.targets.to(hidden.dtype)) ** 2
        if batch.count == 0:
            return {"loss": (0.0 * errors.sum(), 0)}, {}
        if self.training:
            return {"loss": (errors.sum(), len(errors))}, {}
        found = self.logits(model, last).double()
        return {"loss": (errors.double().sum(), len(errors)), "pairs": (self._table(found, batch.targets), 1)}, {}

    def _table(self, found: Tensor, true: Tensor) -> Tensor:
        """Counts (BINS, BINS) of found and true numbers between -5 and 5 scales: sums of tables know all ranks."""
        places = [((each / self.scale + 5) / 10 * BINS).long().clamp(0, BINS - 1) for each in (found, true.double())]
        return torch.bincount(places[0] * BINS + places[1], minlength=BINS * BINS).view(BINS, BINS)

    def measure(self, totals: Any, facts: Any) -> dict[str, float]:
        metrics = {"loss": totals["loss"][0] / totals["loss"][1]}
        if "pairs" in totals:
            found, true = np.nonzero(table := np.array(totals["pairs"][0]))
            times = table[found, true].astype(int)
            ranks = [rankdata(np.repeat(each, times)) for each in (found, true)]
            value = float(np.corrcoef(*ranks)[0, 1]) if np.ptp(ranks[0]) and np.ptp(ranks[1]) else 0.0
            metrics["spearman"] = 0.0 if math.isnan(value) else value
        return metrics

    def head_flops(self) -> float:
        return 2.0 * self.dim

    def examples(self, rows: Any, preprocessor: Any, *, max_length: int, seed: int) -> NumberedExamples:
        return NumberedExamples(rows, preprocessor, max_length=max_length)

    def baselines(self, train: Any, split: Any, preprocessor: Any, say: Any) -> dict[str, dict[str, float]]:
        return {"mean": {"loss": float(((split.labels - train.labels.mean()) ** 2).mean())}}

    def samples(self, model: Any, batch: ExampleBatch, preprocessor: Any, options: Any) -> list[Sample]:
        hidden, _ = model(batch.tokens, None, batch.lengths)
        last = hidden[torch.arange(len(hidden)), batch.lengths - 1]
        pairs = zip(self.logits(model, last).tolist(), batch.targets.tolist(), strict=True)
        return [Sample(f"{found:.3g}, and it is {true:.3g}") for found, true in pairs]
