"""Sentiment: one label for a sequence of tokens or values, from pooled hidden states (Collobert & Weston 2008)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.data.batching.examples import ExampleBatch, TextExamples
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.cache import cached_json
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.errors import NonFinite
from seqtrain.models.base import Capability, Segment, SequenceModel, State, read_in_segments
from seqtrain.tasks.base import Baseline, ExampleTask, Facts, LossTerms, Metric, Reduced, Sample, SampleOptions, Say
from seqtrain.tasks.baselines import series
from seqtrain.tasks.baselines.texts import OPTIONS, left_out, naive_bayes, tfidf_linear
from seqtrain.tasks.output import Pool, first_position_incompatibility, padding, pool
from seqtrain.tasks.predictors import NamedSeries, Predictor, question, question_words, shown_input


class LabelledExamples(TextExamples):
    """Texts or series, each with a label."""

    def __init__(
        self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(rows, preprocessor, max_length=max_length, dtype=dtype)
        assert isinstance(rows.labels, np.ndarray)
        self.labels = rows.labels

    def targets(self, index: Int[np.ndarray, " B"]) -> Int[Tensor, " B"]:
        return torch.from_numpy(self.labels[index])


class Classify(Predictor["Sentiment"]):
    """The label of a text or a series, and the probability of each label; only the first part of a long one is read."""

    num_named = 3  # number of labels in the text output

    @property
    def longest(self) -> int | None:
        before, after = self.task.edges(self.loaded.tokenizer)
        return self.loaded.max_length - len(before) - len(after)

    @torch.no_grad()
    def predict(self, texts: Sequence[str | NamedSeries], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Return the `label` of each text and the `probabilities` of all labels, likeliest first."""
        answers: dict[int, dict[str, Any]] = {}
        for lanes, tokens, lengths in self.batches(texts):
            pooled = self.task.pooled(self.loaded.model, tokens, lengths)
            probs = _probabilities(self.task.logits(self.loaded.model, pooled)).tolist()
            for lane, values in zip(lanes, probs, strict=True):
                by_label = dict(zip(self.task.labels, values, strict=True))
                likeliest = sorted(by_label, key=by_label.__getitem__, reverse=True)
                ordered = {label: by_label[label] for label in likeliest}
                answers[lane] = {**question(texts[lane]), "label": likeliest[0], "probabilities": ordered}
        return [answers[lane] for lane in range(len(texts))]

    def words(self, answer: dict[str, Any]) -> str:
        likeliest = islice(answer["probabilities"].items(), self.num_named)
        words = "  ".join(f"{label} {prob:.1%}" for label, prob in likeliest)
        return f"{words}: {question_words(answer)}"


class Sentiment(ExampleTask):
    """Cross entropy of the label; the head is linear in the pooled hidden state."""

    requires = Capability.UNCONDITIONAL
    needs_whole = None
    fields = ("text", "label")
    value_fields = ("values", "label")  # if the data contains series
    metrics = (
        Metric("loss", "min", "nats an example"),
        Metric("accuracy", "max", "accuracy", of_answers=True),
        Metric("macro_f1", "max", "macro F1", of_answers=True),
    )
    monitor = "accuracy"
    trained_by = ("pool", "dropout", "class_weights")
    known_baselines = MappingProxyType(
        {
            "majority": Baseline("always the most frequent label", "the most frequent label"),
            "naive_bayes": Baseline("naive Bayes on words and pairs of neighbours", "naive Bayes"),
            "linear": Baseline("logistic regression on TF-IDF of words and pairs", "the linear model"),
            **series.KNOWN,
        }
    )
    predictors = MappingProxyType({"classify": Classify})

    def __init__(
        self,
        *,
        pool: Pool,
        dropout: float,
        class_weights: Literal["none", "balanced"] | list[float],
        dim: int,
        bptt_length: int,
        labels: tuple[str, ...],
        label_counts: tuple[int, ...],
    ) -> None:
        """Build the head and set the weights of the labels.

        Args:
            pool: Pooling of the hidden states of a sequence.
            dropout: Probability of dropout before the head.
            class_weights: Weight of each label's loss, in the order of the labels; balanced: weights as if all labels
            were equally frequent. They are scaled so that their mean over the training examples is 1.
            dim: D, width of the hidden states.
            bptt_length: Number of tokens at the end of an example that receive gradients. Longer examples are read in
                segments of this length.
            labels: Names of the labels.
            label_counts: Number of training examples of each label. Empty if unknown, such as before data is read and
                after training: then there are no weights.
        """
        super().__init__()
        self.pool: Pool = pool
        self.dim = dim
        self.bptt_length = bptt_length
        self.labels = labels
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(dim, len(labels))
        weights = _weights(class_weights, label_counts)
        self.register_buffer("weights", weights, persistent=False)
        self.weights: Tensor | None

    def incompatibility(self, model: SequenceModel) -> str | None:
        return first_position_incompatibility(model, self.pool, "task.pool=last, mean or max")

    def pooled(
        self, model: SequenceModel, tokens: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B D"]:
        """Pool each sequence into one vector. Mean and max treat all but the last `bptt_length` tokens as constants."""
        if tokens.shape[1] > self.bptt_length:
            segments = read_in_segments(model, tokens, lengths, self.bptt_length)
            return pool_segments(segments, lengths, self.pool)
        hidden = model.encode(tokens, lengths)
        return pool(hidden, lengths, self.pool)

    def logits(self, model: SequenceModel, hidden: Float[Tensor, "B D"]) -> Float[Tensor, "B V"]:
        """Return unnormalised log-probabilities of the labels from pooled hidden states."""
        return self.head(self.dropout(hidden))

    def evaluate(self, model: SequenceModel, batch: ExampleBatch, state: State | None) -> tuple[LossTerms, State]:
        """Return `loss` in nats, weighted; outside training unweighted, with a table `confusion` (true, predicted)."""
        logits = self.logits(model, self.pooled(model, batch.tokens, batch.lengths))
        count = batch.num_targets
        if self.training:
            weight = self.weights
            if weight is not None:
                weight = weight.to(logits.dtype)  # cross_entropy needs equal types, and logits may be bf16
            loss = F.cross_entropy(logits, batch.targets, weight, ignore_index=IGNORED, reduction="sum")
            return {"loss": (loss, count)}, {}
        losses = F.cross_entropy(logits, batch.targets, ignore_index=IGNORED, reduction="none")
        known = batch.targets != IGNORED
        size = len(self.labels)
        pairs = batch.targets[known] * size + logits.argmax(-1)[known]  # index into the table
        confusion = torch.bincount(pairs, minlength=size * size).view(size, size)
        return {"loss": (losses.double().sum(), count), "confusion": (confusion, count)}, {}

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Return `loss` in nats an example, and from a table of true and predicted labels `accuracy` and `macro_f1`."""
        total, count = totals["loss"]
        metrics = {"loss": total / count}
        if "confusion" in totals:
            table = np.array(totals["confusion"][0])
            correct = table.diagonal()
            metrics["accuracy"] = float(correct.sum() / table.sum())
            both = table.sum(0) + table.sum(1)  # how often each label is predicted, and how often it is true
            seen = both > 0  # a label that neither occurs nor is predicted has no F1
            metrics["macro_f1"] = float((2 * correct[seen] / both[seen]).mean())
        return metrics

    def head_flops(self) -> float:
        return 2.0 * self.dim * len(self.labels)

    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> LabelledExamples:
        examples = LabelledExamples(rows, preprocessor, max_length=max_length, dtype=self.head.weight.dtype)
        longer = int((examples.lengths[:] > self.bptt_length).sum())
        if longer:
            examples.remark = (
                f"{longer:,} of {len(examples.lengths):,} examples are longer than tbptt.k2={self.bptt_length} tokens: "
                f"gradients reach only the last {self.bptt_length}, read from the state after the others"
            )
            if self.pool != "last":  # mean and max include positions without gradients
                examples.remark += f"; task.pool={self.pool} treats earlier positions as constants"
        return examples

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        labels, true = train.labels, split.labels
        assert isinstance(labels, np.ndarray)
        assert isinstance(true, np.ndarray)
        counts = np.bincount(labels, minlength=len(preprocessor.labels))
        majority = float((true == counts.argmax()).mean())
        if train.series is not None:
            predictions, reason = series.predictions(train, split, preprocessor)
            if reason:
                say(reason)
            accuracies = {name: {"accuracy": float((found == true).mean())} for name, found in predictions.items()}
            return {"majority": {"accuracy": majority}, **accuracies}
        texts, of_split = train.texts("text"), split.texts("text")
        predicted = naive_bayes(texts, labels, of_split, len(preprocessor.labels))
        found = {
            "majority": {"accuracy": majority},
            "naive_bayes": {"accuracy": float((predicted == true).mean())},
        }
        reason = left_out(texts)
        if reason:
            say(f"baseline linear is left out: {reason}")
            return found
        key = f"linear {version('scikit-learn')} {OPTIONS} {train.hash} {split.hash}"
        accuracy = cached_json(key, lambda: float((tfidf_linear(texts, labels, of_split) == true).mean()))
        return found | {"linear": {"accuracy": accuracy}}

    def samples(
        self, model: SequenceModel, batch: ExampleBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[Sample]:
        """Return each text or series with its predicted label, and the true label next to a wrong one."""
        probs = _probabilities(self.logits(model, self.pooled(model, batch.tokens, batch.lengths)))
        samples = []
        for lane, (target, each) in enumerate(zip(batch.targets, probs, strict=True)):
            text = shown_input(batch, lane, preprocessor)
            best, label = int(each.argmax()), self.labels[int(target)]
            verdict = "right"
            if best != target:
                verdict = f"wrong: it is {label}"
            columns = {
                "text": text,
                "label": label,
                "predicted": self.labels[best],
                "probability": each[best].item(),
                "right": best == int(target),
            }
            samples.append(Sample(f"{self.labels[best]} {each[best]:.0%} ({verdict}): {text}", columns))
        return samples


def _probabilities(logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
    """Return the probability of each label; raise NonFinite for nan or inf, for which some label would still win."""
    if not bool(logits.isfinite().all()):
        raise NonFinite("the scores of the labels are not finite: a weight is nan or inf, or the model overflows")
    return logits.double().softmax(-1)


def pool_segments(segments: Iterable[Segment], lengths: Int[Tensor, " B"], how: Pool) -> Float[Tensor, "B D"]:
    """Pool lanes that are read segment by segment, storing one vector per lane; such models never pool by cls."""
    pooled: Tensor | None = None
    for lanes, hidden, counts in segments:
        if pooled is None:
            empty = -math.inf if how == "max" else 0.0
            # At least float32: a long text has more positions than bf16 can count.
            wide = torch.promote_types(hidden.dtype, torch.float32)
            pooled = hidden.new_full((len(lengths), hidden.shape[-1]), empty, dtype=wide)
        pooled = pooled.index_copy(0, lanes, _pool_more(pooled[lanes], hidden, counts, how))
    assert pooled is not None
    return pooled / lengths.unsqueeze(1) if how == "mean" else pooled


def _pool_more(
    before: Float[Tensor, "b D"], hidden: Float[Tensor, "b T D"], lengths: Int[Tensor, " b"], how: Pool
) -> Float[Tensor, "b D"]:
    """Update the last, the maximum or the sum of earlier segments with the real positions of one more segment."""
    if how == "mean":
        return before + hidden.masked_fill(padding(hidden, lengths), 0.0).sum(1, dtype=before.dtype)
    newest = pool(hidden, lengths, how).to(before.dtype)
    return torch.maximum(before, newest) if how == "max" else newest


def _weights(choice: str | list[float], counts: tuple[int, ...]) -> Float[Tensor, " labels"] | None:
    """Return the weight of each label, or None if all labels weigh 1."""
    if choice == "none" or not counts:
        return None
    seen = torch.tensor(counts, dtype=torch.float64)
    if isinstance(choice, str):
        raw = seen.sum() / seen
    else:
        if len(choice) != len(counts) or not all(0 <= weight < math.inf for weight in choice):
            raise ValueError(f"class_weights={choice}: expected {len(counts)} numbers of at least 0, one per label")
        if not any(choice):
            raise ValueError(f"class_weights={choice}: no label would count; give at least one a weight above 0")
        raw = torch.tensor(choice, dtype=torch.float64)
    # The mean over training examples is 1, so weights change the balance of labels but not the step size.
    return (raw * seen.sum() / (raw * seen).sum()).float()
