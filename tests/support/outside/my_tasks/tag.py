"""A label for each word, such as its part of speech."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.data.batching.examples import ExampleBatch, TextExamples
from seqtrain.data.batching.stream import IGNORED
from seqtrain.models.base import Capability
from seqtrain.tasks.base import Baseline, ExampleTask, Metric, Sample
from seqtrain.tasks.predictors import Predictor


class TaggedExamples(TextExamples):
    """Texts with a label at each token."""

    def __init__(self, rows: Any, preprocessor: Any, *, max_length: int) -> None:
        super().__init__(rows, preprocessor, max_length=max_length)
        self.labels = rows.labels

    def targets(self, index: np.ndarray) -> Tensor:
        width = int(self.lengths[index].max())
        targets = torch.full((len(index), width), IGNORED)
        for lane, example in enumerate(index):
            labels = self.labels[example][: self.longest]
            targets[lane, 1 : 1 + len(labels)] = torch.from_numpy(labels)
        return targets

    def totals(self, index: np.ndarray, epoch: int) -> dict[str, int]:
        return {"loss": int(self.lengths[index].sum()) - 2 * len(index)}


class Tags(Predictor["Tag"]):
    """The likeliest label of each word."""

    @torch.no_grad()
    def predict(self, texts: Sequence[str], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        answers = []
        for text in texts:
            before, after = self.task.edges(self.loaded.tokenizer)
            tokens = torch.tensor([[*before, *self.encode(text).tolist(), *after]])
            hidden, _ = self.loaded.model(tokens)
            best = self.task.logits(self.loaded.model, hidden[0, 1:-1]).argmax(-1)
            answers.append({"text": text, "labels": [self.task.labels[label] for label in best.tolist()]})
        return answers

    def words(self, answer: dict[str, Any]) -> str:
        return " ".join(f"{word}/{label}" for word, label in zip(answer["text"].split(), answer["labels"], strict=True))


class Tag(ExampleTask):
    """Cross entropy of the label at each token."""

    requires = Capability.UNCONDITIONAL
    fields = ("text", "label")
    label_kind = "names"
    metrics = (Metric("loss", "min", "nats a word"), Metric("accuracy", "max", "words right"))
    monitor = "accuracy"
    trained_by = ("dropout",)
    known_baselines = MappingProxyType({"majority": Baseline("always the most frequent label", "the most frequent")})
    predictors = MappingProxyType({"tag": Tags})

    def __init__(self, *, dropout: float, dim: int, labels: tuple[str, ...]) -> None:
        super().__init__()
        self.labels = labels
        self.dim = dim
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(dim, len(labels))

    def logits(self, model: Any, hidden: Tensor) -> Tensor:
        return self.head(self.dropout(hidden))

    def evaluate(self, model: Any, batch: ExampleBatch, state: Any) -> Any:
        hidden, _ = model(batch.tokens, None, batch.lengths)
        logits, targets = self.logits(model, hidden).flatten(0, 1), batch.targets.flatten()
        count = int((targets != IGNORED).sum())
        losses = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")
        if self.training:
            return {"loss": (losses.sum(), count)}, {}
        right = (logits.argmax(-1) == targets).sum()
        return {"loss": (losses.double().sum(), count), "accuracy": (right, count)}, {}

    def measure(self, totals: Any, facts: Any) -> dict[str, float]:
        return {name: total / count for name, (total, count) in totals.items()}

    def breakdown(self, totals: Any) -> dict[str, dict[str, float]]:
        total, count = totals["accuracy"]
        return {"words of each kind": {"right": total, "wrong": count - total}}

    def head_flops(self) -> float:
        return 2.0 * self.dim * len(self.labels)

    def examples(self, rows: Any, preprocessor: Any, *, max_length: int, seed: int) -> TaggedExamples:
        return TaggedExamples(rows, preprocessor, max_length=max_length)

    def baselines(self, train: Any, split: Any, preprocessor: Any, say: Any) -> dict[str, dict[str, float]]:
        common = np.bincount(np.concatenate(train.labels)).argmax()
        return {"majority": {"accuracy": float((np.concatenate(split.labels) == common).mean())}}

    def samples(self, model: Any, batch: ExampleBatch, preprocessor: Any, options: Any) -> list[Sample]:
        best = self.logits(model, model(batch.tokens, None, batch.lengths)[0]).argmax(-1)
        samples = []
        for tokens, labels, length in zip(batch.tokens.tolist(), best.tolist(), batch.lengths.tolist(), strict=True):
            words = preprocessor.tokenizer.decode(tokens[1 : length - 1])
            samples.append(Sample(f"{words}: {' '.join(self.labels[label] for label in labels[1 : length - 1])}"))
        return samples
