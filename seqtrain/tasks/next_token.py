"""Language modelling: predict each token from those before it (Bengio et al. 2003)."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.data.batching.stream import IGNORED, StreamBatch
from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.tasks.base import Facts, Parts, Task, Totals


class NextToken(Task):
    """Cross entropy of the next token; a tied head shares the embedding's weights (Press & Wolf 2017)."""

    requires = Capability.CAUSAL | Capability.UNCONDITIONAL
    specials = 1
    metrics = ("loss", "perplexity", "bits_per_byte", "word_perplexity", "accuracy")

    def __init__(self, *, tied: bool, dim: int, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.dim = dim
        self.head = None if tied else nn.Linear(dim, vocabulary)

    def scores(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        """Unnormalised log-probabilities of the next token."""
        return model.embed.scores(hidden) if self.head is None else self.head(hidden)  # type: ignore[operator]

    def evaluate(self, model: SequenceModel, batch: StreamBatch, state: State | None) -> tuple[Parts, State]:
        """`loss` in nats; outside training also `accuracy`, and the loss summed in float64."""
        hidden, after = model(batch.tokens, state)
        scores = self.scores(model, hidden).flatten(0, 1)
        targets = batch.targets.flatten()
        if self.training:
            loss = F.cross_entropy(scores, targets, ignore_index=IGNORED, reduction="sum")
            return {"loss": (loss, batch.count)}, after
        losses = F.cross_entropy(scores, targets, ignore_index=IGNORED, reduction="none")
        right = scores.argmax(-1) == targets
        return {"loss": (losses.double().sum(), batch.count), "accuracy": (right.sum(), batch.count)}, after

    def measure(self, totals: Totals, facts: Facts) -> dict[str, float]:
        """`loss` in nats a token, its `perplexity`, `bits_per_byte`, `accuracy`, and `word_perplexity` of words."""
        total, count = totals["loss"]
        loss = total / count
        metrics = {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bits_per_byte": loss / math.log(2) / facts.bytes_per_token,
        }
        if facts.words_per_token is not None:
            metrics["word_perplexity"] = math.exp(min(loss / facts.words_per_token, 700.0))
        if "accuracy" in totals:
            metrics["accuracy"] = totals["accuracy"][0] / totals["accuracy"][1]
        return metrics

    def head_flops(self) -> float:
        return 2.0 * self.dim * self.vocabulary
