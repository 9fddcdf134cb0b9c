"""Tagging: a label for each word, or each step of a series, read from the hidden state there (Collobert et al. 2011).

A series is tagged from the current and earlier steps only, unless the model is bidirectional.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.data.batching.examples import ExampleBatch
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.tokenizers.encoding import LINE_END
from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel, State, encode_in_pieces
from seqtrain.tasks.base import Baseline, ExampleTask, Facts, LossTerms, Metric, Reduced, Sample, SampleOptions, Say
from seqtrain.tasks.baselines.texts import majority_of_words
from seqtrain.tasks.chain import Chain, barred_steps, pack
from seqtrain.tasks.metrics.labels import (
    NUM_RANGES,
    OUTSIDE,
    count_spans,
    is_bio,
    range_names,
    range_of,
    span_f1,
    spans,
)
from seqtrain.tasks.output import Output
from seqtrain.tasks.predictors import NamedSeries, question, shown_input
from seqtrain.tasks.tagged import TaggedExamples, WordPredictor, answer_of_label, answers, ends_of, joined, words_of

UNREAD = -1  # prediction for a word beyond data.max_length: not a label, so it is wrong
MAX_SHOWN_WORDS = 40  # per sample


class Tags(WordPredictor["Tag"]):
    """The likeliest label of each word of a text, or of each step of a series, with its probability."""

    @torch.no_grad()
    def predict(self, texts: Sequence[str | NamedSeries], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Return the words of each text as `tokens`, each a `token` with its `label` and `probability`.

        If labels are BIO, return `spans` too, each a `type` with its `text` and the positions of its `first` and `last`
        token, from 0.
        """
        answers: dict[int, dict[str, Any]] = {}
        for lanes, tokens, lengths in self.batches(texts):
            hidden = self.loaded.model.encode(tokens, lengths)
            scores = self.task.logits(self.loaded.model, hidden).double()  # (B, T, V)
            probs = scores if self.task.chain else scores.softmax(-1)
            for lane, each, length in zip(lanes, probs, lengths.tolist(), strict=True):
                answers[lane] = self._answer(texts[lane], each[:length])
        return [answers[lane] for lane in range(len(texts))]

    def _answer(self, item: str | NamedSeries, probs: Float[Tensor, "T V"]) -> dict[str, Any]:
        """Return the answer to an item. `probs`: probabilities at its tokens; for a task with a chain, scores."""
        tagged = []
        names, probs = self.at_words(item, probs)
        if self.task.chain is None:
            values, places = probs.max(-1)
        else:
            lengths = torch.tensor([len(probs)], device=probs.device)
            places = self.task.chain.best(probs[None], lengths)[0]
            values = self.task.chain.marginals(probs[None], lengths)[0].gather(1, places.unsqueeze(1)).squeeze(1)
        for word, value, place in zip(names, values.tolist(), places.tolist(), strict=True):
            if word != LINE_END:  # the end of a line is a token, not a word
                tagged.append({"token": word, "label": self.task.labels[place], "probability": value})
        answer: dict[str, Any] = {**question(item), "tokens": tagged}
        if self.task.is_bio:
            answer["spans"] = self._spans(tagged)
        return answer

    def _spans(self, tagged: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = []
        for kind, first, last in spans([token["label"] for token in tagged]):
            text = " ".join(token["token"] for token in tagged[first : last + 1])
            found.append({"type": kind, "text": text, "first": first, "last": last})
        return found

    def words(self, answer: dict[str, Any]) -> str:
        words = " ".join(f"{token['token']}/{token['label']}" for token in answer["tokens"])
        return f"{words}: {answer['series']}" if "series" in answer else words


class Tag(ExampleTask):
    """Cross entropy of the label of each word; the head is linear in the hidden state at the word."""

    requires = Capability.UNCONDITIONAL  # a causal model may tag too, from earlier words only
    fields = ("text", "label")
    value_fields = ("values", "label")  # if the data contains series
    label_kind = "names"
    metrics = (
        Metric("loss", "min", "nats a word"),
        Metric("accuracy", "max", "word accuracy", of_answers=True),
        Metric("sequence_accuracy", "max", "sequence accuracy", of_answers=True),
        Metric("span_f1", "max", "span F1", of_answers=True, signature="seqeval, default mode, micro average"),
    )
    monitor = "accuracy"
    trained_by = ("dropout", "crf")
    known_baselines = MappingProxyType(
        {
            "chance": Baseline("a guess among the possible answers", "chance"),
            "majority": Baseline("always the most frequent label", "the most frequent label"),
            "word_majority": Baseline("the most frequent label of each word", "the most frequent label of the word"),
        }
    )
    predictors = MappingProxyType({"tag": Tags})

    def __init__(
        self,
        *,
        dropout: float,
        ignore: str | None,
        dim: int,
        labels: tuple[str, ...],
        preprocessor: Preprocessor | None = None,
        crf: bool = False,
    ) -> None:
        """Build the head, with one output for each label except `ignore`.

        Args:
            dropout: Probability of dropout before the head.
            ignore: Label of words without a target, which loss and metrics leave out. None: each label is an answer.
            dim: D, width of the hidden states.
            labels: Labels of train.
            preprocessor: None before data is read; then `labels` and `ignore` are not checked.
            crf: True for a linear-chain CRF over the words that have a target (Lafferty et al. 2001).

        Raises:
            UserError: If fewer than two labels are left, or if `ignore` is neither `_` nor in train.
        """
        super().__init__()
        self.ignore = ignore
        self.labels = labels
        if preprocessor is not None:  # else only compatibility is checked, before labels are known
            self.labels = answers(labels, ignore)
        self.is_bio = is_bio(self.labels)
        self.span_types = sorted({label.partition("-")[2] for label in self.labels if label != OUTSIDE})
        self.dim = dim
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(dim, len(self.labels))
        self.chain = Chain(self.labels) if crf else None

    @final  # a task with other logits overrides `output`, which the loss uses too
    def logits(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        """Return unnormalised log-probabilities of the labels at each word."""
        return self.output(model, hidden).logits()

    def output(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Output:
        """Return the logits as an `Output`, which computes them on demand."""
        return Output.of(self.head, self.dropout(hidden))

    def _read(self, model: SequenceModel, batch: ExampleBatch) -> Output:
        return self.output(model, model.encode(batch.tokens, batch.lengths))

    def evaluate(self, model: SequenceModel, batch: ExampleBatch, state: State | None) -> tuple[LossTerms, State]:
        """Return `loss` in nats of read words that have a target; outside training also the counts of the metrics."""
        width = batch.tokens.shape[1]
        targets = batch.targets[:, :width]
        count = batch.num_targets
        # Counting spans uses Python lists, which is too slow for each step of training.
        if self.training:
            output = self._read(model, batch)
            if self.chain is None:
                return {"loss": (output.loss(targets), count)}, {}
            return {"loss": (self._chain_loss(self.chain, output.logits(), targets), count)}, {}
        losses, guesses, begin = targets.new_zeros((), dtype=torch.float64), [], 0
        for hidden in encode_in_pieces(model, batch.tokens, batch.lengths):
            wanted = targets[:, begin : begin + hidden.shape[1]]
            begin += hidden.shape[1]
            output = self.output(model, hidden)
            if self.chain is not None:
                guesses.append(output.logits())  # a chain needs the whole sequence
                continue
            each, found = output.measure(wanted)
            losses = losses + each.double().sum()
            guesses.append(found.view_as(wanted))
        if self.chain is not None:
            scores = torch.cat(guesses, 1).double()
            losses = self._chain_loss(self.chain, scores, targets)
            guesses = [self._decoded(scores, targets)]
        # Unread words count as wrong; otherwise cutting texts would raise the metrics.
        predicted = F.pad(torch.cat(guesses, 1), (0, batch.targets.shape[1] - width), value=UNREAD)
        return {"loss": (losses, count), **self._count(predicted, batch.targets)}, {}

    def _chain_loss(
        self, chain: Chain, scores: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]
    ) -> Float[Tensor, ""]:
        order, lengths = pack(targets != IGNORED)
        labels = targets.gather(1, order).clamp(min=0)
        # Sums over all paths need at least float32.
        return chain.loss(_at(scores, order).to(torch.promote_types(scores.dtype, torch.float32)), labels, lengths)

    def _decoded(self, scores: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
        """Return the predicted label of each position; with a chain, only positions with a target are meaningful."""
        if self.chain is None:
            return scores.argmax(-1)
        order, lengths = pack(targets != IGNORED)
        best = self.chain.best(_at(scores, order).double(), lengths)
        # Positions beyond a lane's words have no target and are not counted.
        return torch.zeros_like(targets).scatter(1, order, best)

    def _count(self, predicted: Int[Tensor, "B W"], targets: Int[Tensor, "B W"]) -> LossTerms:
        """Return a batch's terms of the metrics: correct words and sequences, and three numbers on spans."""
        asked = targets != IGNORED
        # An unread word still has a target, and no answer equals it.
        right = (predicted == targets) & asked
        has_targets = asked.any(1)  # a sequence without targets is neither right nor wrong
        whole = (right == asked).all(1) & has_targets
        terms: LossTerms = {
            "accuracy": (right.sum(), int(asked.sum())),
            "sequence_accuracy": (whole.sum(), int(has_targets.sum())),
        }
        terms["positions"] = (_by_position(right, asked), 1)
        read = asked & (predicted != UNREAD)
        size = len(self.labels)
        cells = targets[read] * size + predicted[read]  # index into the confusion matrix
        terms["confusion"] = (torch.bincount(cells, minlength=size * size).view(size, size), 1)
        if self.is_bio:
            # Summed over sequences: F1 is computed over all spans, not averaged over sequences.
            counts = np.zeros((len(self.span_types), 3), dtype=np.int64)
            for ours, theirs in self._label_pairs(predicted, targets):
                for row, kind in enumerate(self.span_types):
                    counts[row] += count_spans(ours, theirs, kind)
            terms["spans"] = (torch.from_numpy(counts), 1)
        return terms

    def _label_pairs(
        self, predicted: Int[Tensor, "B W"], targets: Int[Tensor, "B W"]
    ) -> Iterator[tuple[list[str], list[str]]]:
        """Yield the predicted and the true labels of each sequence, at the words that have a target."""
        for ours, theirs in zip(predicted.tolist(), targets.tolist(), strict=True):
            pairs = [(one, other) for one, other in zip(ours, theirs, strict=True) if other != IGNORED]
            yield [self._name(one) for one, _ in pairs], [self.labels[other] for _, other in pairs]

    def _name(self, place: int) -> str:
        # An unread word counts as outside any span, so a span that is cut off counts as missed.
        return "O" if place == UNREAD else self.labels[place]

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Return `loss` in nats a word, the shares of correct words and sequences, and for BIO labels `span_f1`."""
        metrics = {}
        for name in ("loss", "accuracy", "sequence_accuracy"):
            if name in totals:
                total, count = totals[name]
                metrics[name] = total / count
        if "spans" in totals:
            metrics["span_f1"] = span_f1(*np.asarray(totals["spans"][0]).sum(0).tolist())
        return metrics

    def breakdown(self, totals: Reduced) -> dict[str, dict[str, float]]:
        """Return word accuracy by the position of the word, and for BIO labels the F1 of each type of span."""
        if "positions" not in totals:
            return {}
        by_range = {}
        for name, (right, asked) in zip(range_names(), totals["positions"][0], strict=True):
            if asked:
                by_range[name] = right / asked
        tables = {"word accuracy by position": by_range}
        if "spans" in totals:
            counts = zip(self.span_types, totals["spans"][0], strict=True)
            tables["span F1 by type"] = {kind: span_f1(*each) for kind, each in counts}
        return tables

    def head_flops(self) -> float:
        between = len(self.labels) if self.chain else 0  # one addition and one exponential sum per pair of labels
        return 2.0 * (self.dim + between) * len(self.labels)

    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> TaggedExamples:
        dtype = self.head.weight.dtype
        found = TaggedExamples(rows, preprocessor, max_length=max_length, ignore=self.ignore, dtype=dtype)
        if self.chain is not None:
            self._check_spans(found)
        return found

    def _check_spans(self, examples: TaggedExamples) -> None:
        """Raise UserError if the chain gives a label sequence the probability 0."""
        begin = len(self.labels)
        joined = np.concatenate([np.append(begin, labels[labels != IGNORED]) for labels in examples.labels])
        before, after = joined[:-1][joined[1:] != begin], joined[1:][joined[1:] != begin]
        count = int((np.array(barred_steps(self.labels))[before, after] != 0).sum())
        if count:
            raise UserError(
                f"task.crf=true: the data breaks a span at {count:,} of its labels (I- after O or another type, or a "
                "span without its E-); write B- where a span begins, or leave task.crf out"
            )

    def chance(self, split: Rows, preprocessor: Preprocessor) -> dict[str, float]:
        """Return the expected metrics of a random guess among the possible answers; empty if it is unknown."""
        if split.chance is None:
            return {}
        true = joined(split, answer_of_label(preprocessor.labels, self.ignore))
        whole = []
        # Per sequence: a guess rarely answers all questions of a long sequence correctly.
        for answers_of_row in np.split(true, ends_of(split)):
            asked = int((answers_of_row != IGNORED).sum())
            if asked:
                whole.append(split.chance**asked)
        return {
            "loss": -math.log(split.chance),
            "accuracy": split.chance,
            "sequence_accuracy": sum(whole) / max(len(whole), 1),
        }

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        """Measure the baselines on every word of the split that has a target, like the model."""
        table = answer_of_label(preprocessor.labels, self.ignore)
        labels, true = joined(train, table), joined(split, table)
        if not (true != IGNORED).any() or not (labels != IGNORED).any():
            say("no baselines: no word has a label that is a target")
            return {}
        known = labels != IGNORED
        # The most frequent label of train, because that of the split is not known in advance.
        common = int(np.bincount(labels[known]).argmax())
        ends = ends_of(split)
        majority = {"majority": self._measured(np.full(len(true), common), true, ends)}
        if split.series is not None:
            return majority
        in_train, in_split = words_of(train, split, preprocessor)
        by_word = majority_of_words(in_train[known], labels[known], in_split, default=common)
        # The words of all sequences are concatenated; spans must not cross from one to the next.
        found = {**majority, "word_majority": self._measured(by_word, true, ends)}
        chance = self.chance(split, preprocessor)
        if chance:
            found = {"chance": chance, **found}
        return found

    def _measured(
        self, predicted: Int[np.ndarray, " n"], true: Int[np.ndarray, " n"], ends: Int[np.ndarray, " s"]
    ) -> dict[str, float]:
        """Compute the metrics of answers to all words of a split, which is cut into sequences at `ends`."""
        totals: dict[str, Any] = {}
        for ours, theirs in zip(np.split(predicted, ends), np.split(true, ends), strict=True):
            terms = self._count(torch.from_numpy(ours)[None], torch.from_numpy(theirs)[None])
            for name, (total, count) in terms.items():
                total_before, count_before = totals.get(name, (0, 0))
                totals[name] = total_before + total.double(), count_before + count
        figures = self.measure(totals, Facts(bytes_per_token=1.0, words_per_token=None))
        return {name: float(value) for name, value in figures.items()}

    def samples(
        self, model: SequenceModel, batch: ExampleBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[Sample]:
        """Return the words of each example with their predicted labels, and the true label next to a wrong one."""
        scores = self._read(model, batch).logits()
        predicted = self._decoded(scores, batch.targets[:, : scores.shape[1]])
        samples = []
        for lane, length in enumerate(batch.lengths.tolist()):
            inside = slice(0, length) if preprocessor.series is not None else slice(1, length - 1)
            tokens, ours, theirs = batch.tokens[lane, inside], predicted[lane, inside], batch.targets[lane, inside]
            shown = _shown(theirs.tolist())
            if preprocessor.series is not None:
                texts, whole = [str(step) for step in range(1, length + 1)], shown_input(batch, lane, preprocessor)
            else:
                texts = [preprocessor.tokenizer.token_text(token) for token in tokens.tolist()]
                whole = preprocessor.tokenizer.decode(tokens.tolist()[shown])
            samples.append(self._sample(whole, texts[shown], ours.tolist()[shown], theirs.tolist()[shown]))
        return samples

    def _sample(self, whole: str, texts: list[str], ours: list[int], theirs: list[int]) -> Sample:
        written, given, right = [], [], []
        for text, one, other in zip(texts, ours, theirs, strict=True):
            if other == IGNORED:  # no target, so the prediction is meaningless
                written.append(text)
                continue
            label, true = self.labels[one], self.labels[other]
            given.append(label)
            right.append(true)
            written.append(f"{text}/{label}" if one == other else f"{text}/{label} (true: {true})")
        columns = {
            "text": whole,
            "label": " ".join(right),
            "predicted": " ".join(given),
            "right": given == right,
        }
        return Sample(" ".join(written), columns)


def _at(scores: Float[Tensor, "B T V"], order: Int[Tensor, "B N"]) -> Float[Tensor, "B N V"]:
    return scores.gather(1, order.unsqueeze(2).expand(-1, -1, scores.shape[2]))


def _by_position(right: Bool[Tensor, "B W"], asked: Bool[Tensor, "B W"]) -> Int[Tensor, "ranges 2"]:
    """Return the number of correct targets and the number of targets in each range of positions."""
    # Unread words are one position further, after the separator, which hardly matters in such ranges.
    ranges = range_of(torch.arange(asked.shape[1], device=asked.device)).expand_as(asked)  # `start` is at 0
    counts = []
    for chosen in (right, asked):
        counts.append(torch.bincount(ranges[chosen], minlength=NUM_RANGES))
    return torch.stack(counts, 1)


def _shown(targets: list[int]) -> slice:
    """Choose the part of a long sentence to show: the beginning, unless all targets come later."""
    asked = [place for place, target in enumerate(targets) if target != IGNORED]
    begin = 0
    if asked and asked[0] >= MAX_SHOWN_WORDS:
        begin = max(0, min(asked[0], len(targets) - MAX_SHOWN_WORDS))
    return slice(begin, begin + MAX_SHOWN_WORDS)
