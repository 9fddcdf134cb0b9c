"""What masked language models predict: the likeliest tokens in place of each [MASK] of a text."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from seqtrain.data.tokenizers.encoding import HIDDEN, Tokenizer
from seqtrain.tasks.predictors import Predictor

if TYPE_CHECKING:
    from seqtrain.tasks.masked_lm import MaskedLM  # noqa: F401  in quotes below


class FillMasks(Predictor["MaskedLM"]):
    """The likeliest tokens for each [MASK]; each text is read by itself, so a batch gives what its texts would give."""

    takes = MappingProxyType({"top_k": 5})

    def reason(self, text: str) -> str | None:
        reason = super().reason(text)
        if reason is None and self.task.mask not in self.encode(text):
            return f"has no {HIDDEN} to fill in"
        return reason

    def predict(self, texts: Sequence[str], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Of each text what it is `filled` in, and for each of its `masks` the `top_k` likeliest tokens, each a
        `token` with its `probability`."""
        top_k = {**self.takes, **options}["top_k"]
        return [self._fill(text, top_k) for text in texts]

    @torch.no_grad()
    def _fill(self, text: str, top_k: int) -> dict[str, Any]:
        tokenizer, model, task = self.loaded.tokenizer, self.loaded.model, self.task
        row = task.row(model, self.encode(text).tolist())
        places = (row == task.mask).nonzero().flatten()
        hidden, _ = model(row[None])
        probs = task.logits(model, hidden[0, places]).double().softmax(-1)  # (N, V)
        best = probs.topk(min(top_k, task.vocab_size))
        masks = []
        for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True):
            guesses = []
            for token, prob in zip(tokens, values, strict=True):
                guesses.append({"token": tokenizer.token_text(token), "probability": prob})
            masks.append(guesses)
        return {"text": text, "filled": fill(tokenizer, text, best.indices[:, 0].tolist()), "masks": masks}

    def words(self, answer: dict[str, Any]) -> str:
        lines = [answer["filled"]]
        for number, guesses in enumerate(answer["masks"], 1):
            words = []
            for guess in guesses:
                token = guess["token"].strip() or repr(guess["token"])  # a space alone would not be seen
                words.append(f"{token} {guess['probability']:.1%}")
            lines.append(f"  {number}: {'  '.join(words)}")
        return "\n".join(lines)


def fill(tokenizer: Tokenizer, text: str, tokens: Sequence[int]) -> str:
    """The text with a token in place of each [MASK], and otherwise as it was written."""
    *others, last = text.split(HIDDEN)
    written = ""
    adjacent: list[int] = []  # tokens side by side are decoded together: it may take several to spell a character
    for other, token in zip(others, tokens, strict=True):
        before = other.removesuffix(tokenizer.before)
        if before:
            written += tokenizer.decode(adjacent) + before
            adjacent = []
        adjacent.append(token)
    return written + tokenizer.decode(adjacent) + last
