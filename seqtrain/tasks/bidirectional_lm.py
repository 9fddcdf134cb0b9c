"""Two language models at once: predict each token from those before it and from those after it (Peters et al. 2018)."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.data.batching.documents import Stretches
from seqtrain.data.batching.example_plan import StretchLengths
from seqtrain.data.batching.examples import ExampleBatch, Examples, padded
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.corpus import Corpus, from_the_end
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.models.base import Capability, SequenceModel, State, directions
from seqtrain.tasks.base import (
    Baseline,
    ExampleTask,
    Facts,
    LossTerms,
    Metric,
    Reduced,
    Sample,
    SampleOptions,
    Say,
    perplexity,
)
from seqtrain.tasks.baselines.counts import baselines
from seqtrain.tasks.masked_text import bracketed
from seqtrain.tasks.output import Output, head_products
from seqtrain.tasks.predictors import Score

DIRECTIONS = ("forward", "backward")


class StretchExamples(Examples):
    """`start, stretch, separator`; the targets (B, T) are the tokens of text, each at its own position.

    Every token of the split is in one stretch, so it is a target once.
    """

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, *, max_length: int) -> None:
        self.tokens = corpus.tokens
        self.edges = np.array([tokenizer.start]), np.array([tokenizer.separator])
        self.stretches = Stretches(corpus.documents, max_length - 2)
        self.lengths = StretchLengths(self.stretches, 2)

    def totals(self, index: Int[np.ndarray, " B"], epoch: int) -> dict[str, int]:
        return {"loss": int(self.stretches.find(index).count.sum())}

    def collate(self, index: Int[np.ndarray, " B"], epoch: int, totals: dict[str, int]) -> ExampleBatch:
        start, end = self.edges
        rows = []
        found = self.stretches.find(index)
        for begin, count in zip(found.begin.tolist(), found.count.tolist(), strict=True):
            text = self.tokens[begin : begin + count].astype(np.int64)
            rows.append(np.concatenate([start, text, end]))
        tokens, lengths = padded(rows)
        time = torch.arange(tokens.shape[1])
        is_text = (time > 0) & (time < lengths[:, None] - 1)
        return ExampleBatch(
            tokens=tokens,
            lengths=lengths,
            targets=torch.where(is_text, tokens, IGNORED),
            index=torch.from_numpy(index),
            count=int(lengths.sum()),
            totals=totals,
        )


class ScoreBothWays(Score["BidirectionalLM"]):
    """The surprisal of each token: the mean of those given the tokens before it and given the tokens after it."""

    @torch.no_grad()
    def surprisals(self, ids: Int[np.ndarray, " n"]) -> list[float]:
        before, after = self.task.edges(self.loaded.tokenizer)
        device = next(self.loaded.model.parameters()).device
        tokens = torch.tensor([[*before, *ids.tolist(), *after]], device=device)
        targets = tokens.clone()
        targets[:, [0, -1]] = IGNORED
        forward, backward = self.task.surprisals(self.loaded.model, tokens, targets, None)
        return ((forward + backward) / 2)[0, 1:-1].tolist()

    def total(self, nats: float, loss: float, text: str) -> dict[str, float]:
        return {"perplexity": perplexity(loss)}

    def total_words(self, answer: dict[str, float]) -> str:
        return f"perplexity {answer['perplexity']:.4g} (mean of both directions)"


class BidirectionalLM(ExampleTask):
    """Cross entropy of each token twice: from the hidden state before it, and from the one after it, with one head.

    The loss is the mean of the two. Each direction is its own language model: neither sees what it predicts.
    """

    requires = Capability.SEPARABLE | Capability.UNCONDITIONAL
    metrics = (
        Metric("loss", "min", "nats a token"),
        Metric("loss_forward", "min", "nats a token forward"),
        Metric("loss_backward", "min", "nats a token backward"),
        Metric("perplexity", "min", "perplexity"),
        Metric("bits_per_byte", "min", "bits per byte", tokenizer_free=True),
        Metric("accuracy", "max", "accuracy"),
    )
    compared_by = "bits_per_byte"
    trained_by = ("tied",)
    known_baselines = MappingProxyType(
        {
            "unigram": Baseline("how often each token is", "the unigram"),
            "bigram": Baseline("which token follows which, and which stands before which", "the bigram"),
        }
    )
    predictors = MappingProxyType({"score": ScoreBothWays})
    needs_whole = "an example is read from both ends"

    def __init__(self, *, tied: bool, dim: int, vocab_size: int, embed_dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.vocab_size = vocab_size
        units = dim // 2  # width of each direction
        # A tied head uses the embedding's vectors, which are as wide as both directions together.
        self.head = nn.Linear(units, dim if tied else vocab_size)
        self.tied = tied
        self.embed_dim = embed_dim

    @final  # a task with other logits overrides `output`, which the loss uses too
    def logits(self, model: SequenceModel, hidden: Float[Tensor, "... U"]) -> Float[Tensor, "... V"]:
        """Return unnormalised log-probabilities of the next token in the direction of these hidden states."""
        return self.output(model, hidden).logits()

    def output(self, model: SequenceModel, hidden: Float[Tensor, "... U"]) -> Output:
        """Return the logits as an `Output`, which computes them on demand."""
        if self.tied:
            return Output.tied(model.embed, self.head(hidden))
        return Output.of(self.head, hidden)

    # -- loss and metrics ----------------------------------------------------------------------------------------

    def predictions(
        self, model: SequenceModel, tokens: Int[Tensor, "B T"], lengths: Int[Tensor, " B"] | None
    ) -> tuple[Output, Output]:
        """Return the outputs, not yet computed, for tokens 1..T-1 given those before, and 0..T-2 given those after."""
        forwards, backwards = directions(model, tokens, lengths)
        # A hidden state has read its own token, so it predicts only the neighbour.
        return self.output(model, forwards[:, :-1]), self.output(model, backwards[:, 1:])

    def surprisals(
        self,
        model: SequenceModel,
        tokens: Int[Tensor, "B T"],
        targets: Int[Tensor, "B T"],
        lengths: Int[Tensor, " B"] | None,
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Return nats of each target by both directions, at its own position, in float64; 0 if there is no target."""
        from_before, from_behind = self.predictions(model, tokens, lengths)
        nats = []
        for output, there, sides in ((from_before, slice(1, None), (1, 0)), (from_behind, slice(None, -1), (0, 1))):
            wanted = targets[:, there]
            losses, _ = output.measure(wanted, double=True)
            nats.append(F.pad(losses.view_as(wanted), sides))  # tokens at the edges are predicted by only one direction
        return nats[0], nats[1]

    def evaluate(self, model: SequenceModel, batch: ExampleBatch, state: State | None) -> tuple[LossTerms, State]:
        """Return `loss` in nats a token; outside training also each direction, and `accuracy`, the mean of both."""
        # Each example has two special tokens besides its text; counted on the CPU, to avoid waiting for a GPU.
        count = batch.count - 2 * len(batch.tokens) if batch.count else 0
        unpadded = batch.count == batch.tokens.numel()
        lengths = None if unpadded else batch.lengths
        if not self.training:
            return self._measured(model, batch, lengths, count), {}
        from_before, from_behind = self.predictions(model, batch.tokens, lengths)
        total = from_before.loss(batch.targets[:, 1:]) + from_behind.loss(batch.targets[:, :-1])
        return {"loss": (total / 2, count)}, {}

    def _measured(
        self, model: SequenceModel, batch: ExampleBatch, lengths: Int[Tensor, " B"] | None, count: int
    ) -> LossTerms:
        from_before, from_behind = self.predictions(model, batch.tokens, lengths)
        after, before = batch.targets[:, 1:], batch.targets[:, :-1]
        losses_after, guesses_after = from_before.measure(after, double=True)
        losses_before, guesses_before = from_behind.measure(before, double=True)
        forward, backward = losses_after.sum(), losses_before.sum()
        right = (guesses_after == after.flatten()).sum() + (guesses_before == before.flatten()).sum()
        return {
            "loss": ((forward + backward) / 2, count),
            "forward": (forward, count),
            "backward": (backward, count),
            "accuracy": (right, 2 * count),
        }

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Return `loss` in nats a token, `loss_forward`, `loss_backward`, `perplexity`, `bits_per_byte`, `accuracy`."""
        total, count = totals["loss"]
        loss = total / count
        metrics = {"loss": loss, "perplexity": perplexity(loss)}
        metrics["bits_per_byte"] = loss / math.log(2) / facts.bytes_per_token
        for direction in DIRECTIONS:
            if direction in totals:
                metrics[f"loss_{direction}"] = totals[direction][0] / totals[direction][1]
        if "accuracy" in totals:
            metrics["accuracy"] = totals["accuracy"][0] / totals["accuracy"][1]
        return metrics

    def head_flops(self) -> float:
        """Return the operations of both directions: each token is predicted twice."""
        units = self.dim // 2
        if self.tied:
            return 2 * 2.0 * (units * self.dim + head_products(self.dim, self.vocab_size, self.embed_dim))
        return 2 * 2.0 * units * self.vocab_size

    # -- data ----------------------------------------------------------------------------------------------------

    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> StretchExamples:
        """Return documents cut into stretches. Raise UserError if `max_length` leaves no room for text."""
        return StretchExamples(rows.columns["text"], preprocessor.tokenizer, max_length=max_length)

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        """Return the metrics of unigram and bigram counts of `train`, once in each direction, as the model reads."""
        size = preprocessor.tokenizer.vocab_size
        train_text, split_text = train.columns["text"], split.columns["text"]
        forward = baselines(train_text, split_text, size, say)
        backward = baselines(from_the_end(train_text), from_the_end(split_text), size, say)
        found: dict[str, dict[str, float]] = {}
        for name in self.known_baselines:
            both = forward[name], backward[name]
            found[name] = {"loss_forward": both[0]["loss"], "loss_backward": both[1]["loss"]}
            for metric in ("loss", "bits_per_byte"):
                found[name][metric] = (both[0][metric] + both[1][metric]) / 2
        return found

    # -- texts ---------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def samples(
        self, model: SequenceModel, batch: ExampleBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[Sample]:
        """Return the start of each example with a guess at each token from both sides: `[word]`, or `[guess|word]`."""
        from_before, from_behind = self.predictions(model, batch.tokens, batch.lengths)
        # The tokens that both directions predict: all but the first and the last, which are special tokens.
        both = from_before.logits()[:, :-1].log_softmax(-1) + from_behind.logits()[:, 1:].log_softmax(-1)
        guesses = both.argmax(-1)
        samples = []
        for row, guess, length in zip(batch.tokens, guesses, batch.lengths.tolist(), strict=True):
            text = slice(0, length - 2)
            samples.append(Sample(bracketed(preprocessor.tokenizer, row[1:][text].tolist(), guess[text].tolist())))
        return samples
