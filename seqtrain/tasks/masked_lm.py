"""Masked language modelling: predict hidden tokens from all others (Devlin et al. 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.data.batching.masking import MaskedBatch, MaskedExamples, Masking
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.tokenizers.encoding import HIDDEN, Tokenizer
from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.tasks.base import Baseline, ExampleTask, Facts, LossTerms, Metric, Reduced, SampleOptions, Say
from seqtrain.tasks.baselines.counts import baselines
from seqtrain.tasks.predictors import Loaded, Predictor, Score

ROWS = 64  # copies of a text, each with another token hidden, that are read at a time
SHOWN = 160  # characters of an example
AT_ONCE = 8192  # tokens of a text that are read where the model has no table of positions: memory has an end


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
        probs = task.logits(model, model(row[None])[0][0, places]).double().softmax(-1)
        best = probs.topk(min(top_k, task.vocab_size))
        masks = [
            [{"token": tokenizer.token_text(token), "probability": prob} for token, prob in zip(*each, strict=True)]
            for each in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        return {"text": text, "filled": filled(tokenizer, text, best.indices[:, 0].tolist()), "masks": masks}

    def words(self, answer: dict[str, Any]) -> str:
        lines = [answer["filled"]]
        for number, mask in enumerate(answer["masks"], 1):
            best = (f"{each['token'].strip() or repr(each['token'])} {each['probability']:.1%}" for each in mask)
            lines.append(f"  {number}: " + "  ".join(best))
        return "\n".join(lines)


class PseudoScore(Score["MaskedLM"]):
    """Each token of a text is hidden in turn: the pseudo-log-likelihood of Salazar et al. (2020), turned in sign."""

    @torch.no_grad()
    def surprisals(self, ids: np.ndarray) -> list[float]:
        return self.task.surprisals(self.loaded.model, self.task.row(self.loaded.model, ids.tolist())).tolist()

    def total(self, nats: float, loss: float, text: str) -> dict[str, float]:
        return {"pseudo_perplexity": _perplexity(loss)}

    def total_words(self, answer: dict[str, Any]) -> str:
        return f"pseudo-perplexity {answer['pseudo_perplexity']:.4g}"


def filled(tokenizer: Tokenizer, text: str, tokens: Sequence[int]) -> str:
    """The text with a token in place of each [MASK], and otherwise as it was written.

    Tokens side by side are decoded together, since it may take several to spell a character.
    """
    *others, last = text.split(HIDDEN)
    parts: list[str] = []
    spelled: list[int] = []
    for other, token in zip(others, tokens, strict=True):
        before = other.removesuffix(tokenizer.before)
        if before:
            parts += [tokenizer.decode(spelled), before]
            spelled = []
        spelled.append(token)
    return "".join([*parts, tokenizer.decode(spelled), last])


class MaskedLM(ExampleTask):
    """Cross entropy of the hidden tokens, and with `next_sentence` of whether two sentences follow one another."""

    requires = Capability.BIDIRECTIONAL | Capability.UNCONDITIONAL
    metrics = (
        Metric("loss", "min", "nats a hidden token"),
        Metric("perplexity", "min", "perplexity"),
        Metric("pseudo_perplexity", "min", "pseudo perplexity"),
        Metric("next_sentence_loss", "min", "next sentence loss"),
        Metric("accuracy", "max", "accuracy"),
        Metric("next_sentence_accuracy", "max", "next sentence accuracy"),
    )
    trained_by = ("tied", "transform", "pseudo_examples")
    known_baselines = MappingProxyType(
        {
            "unigram": Baseline("how often each token is", "the unigram"),
            "left_bigram": Baseline("which token follows its left neighbour", "the bigram"),
        }
    )
    predictors = MappingProxyType({"fill": FillMasks, "score": PseudoScore})
    example_text = "'TEXT WITH A [MASK]'"
    needs_whole = "a hidden token is told from both sides"

    def __init__(
        self,
        *,
        mask_prob: float,
        mask_share: float,
        random_share: float,
        whole_word: bool,
        next_sentence: bool,
        tied: bool,
        transform: bool,
        pseudo_examples: int,
        dim: int,
        vocab_size: int,
    ) -> None:
        """Raises ValueError for shares that are none."""
        super().__init__()
        if not 0 < mask_prob <= 1:
            raise ValueError(f"mask_prob={mask_prob}: must be above 0 and at most 1")
        if min(mask_share, random_share) < 0 or mask_share + random_share > 1 + 1e-9:
            raise ValueError(f"mask_share={mask_share}, random_share={random_share}: from 0, and at most 1 together")
        if pseudo_examples < 0:
            raise ValueError(f"pseudo_examples={pseudo_examples}: must be at least 0")
        self.masking = Masking(
            mask_prob=mask_prob, mask_share=mask_share, random_share=random_share, whole_word=whole_word
        )
        self.pseudo_examples = pseudo_examples
        self.dim = dim
        self.vocab_size = vocab_size
        self.mask = vocab_size + 2
        self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim)) if transform else None
        self.head = None if tied else nn.Linear(dim, vocab_size)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if tied else None
        self.follows = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, 2)) if next_sentence else None
        self.differentiated = ("loss", "next_sentence") if next_sentence else ("loss",)

    def incompatibility(self, model: SequenceModel) -> str | None:
        segments = getattr(model, "segments", None)
        if self.follows is not None and segments is not None and segments.num_embeddings < 2:
            return "task.next_sentence=true: two sentences need two segments; use model.num_segments=2"
        return None

    def logits(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        """Unnormalised log-probabilities of the token at each position."""
        hidden = hidden if self.transform is None else self.transform(hidden)
        if self.head is not None:
            return self.head(hidden)
        return model.embed.logits(hidden) + self.bias  # type: ignore[operator]

    # -- loss and metrics ----------------------------------------------------------------------------------------

    def evaluate(self, model: SequenceModel, batch: MaskedBatch, state: State | None) -> tuple[LossTerms, State]:
        """`loss` in nats of the hidden tokens, and `next_sentence`; outside training in float64, with their accuracy.

        Outside training also `pseudo`: -log p of each token hidden in turn, in the first examples of the split.
        """
        hidden = self._hidden(model, batch)
        logits = self.logits(model, hidden.flatten(0, 1)[batch.places])
        parts = self._parts("loss", "accuracy", logits, batch.targets.flatten()[batch.places], len(batch.places))
        if self.follows is not None:
            pairs = len(batch.tokens) if batch.count else 0  # a silent batch has no target
            told = self.follows(hidden[:, 0])
            parts |= self._parts("next_sentence", "next_sentence_accuracy", told, batch.next_labels, pairs)
        if self.pseudo_examples and not self.training:
            parts["pseudo"] = self._pseudo(model, batch)
        return parts, {}

    def _hidden(self, model: SequenceModel, batch: MaskedBatch) -> Float[Tensor, "B T D"]:
        full = batch.count == batch.tokens.numel()  # no padding, told without waiting for a GPU
        return model(batch.tokens, None, None if full else batch.lengths)[0]

    def _parts(self, loss: str, accuracy: str, logits: Tensor, targets: Tensor, count: int) -> LossTerms:
        if self.training:
            return {loss: (F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum"), count)}
        losses = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")
        right = logits.argmax(-1) == targets
        return {loss: (losses.double().sum(), count), accuracy: (right.sum(), count)}

    def _pseudo(self, model: SequenceModel, batch: MaskedBatch) -> tuple[Tensor, int]:
        """Sum and count of the pseudo-log-likelihood (Salazar et al. 2020) of the split's first examples."""
        total, count = torch.zeros((), dtype=torch.float64, device=batch.tokens.device), 0
        asked = batch.index < self.pseudo_examples if batch.count else torch.zeros(0, dtype=torch.bool)
        for lane in asked.nonzero().flatten().tolist():
            row = batch.original[lane, : int(batch.lengths[lane])]
            found = self.surprisals(model, row)
            total, count = total + found.sum(), count + len(found)
        return total, count

    def surprisals(self, model: SequenceModel, row: Int[Tensor, " T"]) -> Float[Tensor, " N"]:
        """Nats of each token of a row that stands for text, in float64, where it alone is hidden."""
        found = [row.new_zeros(0, dtype=torch.float64)]
        for places in (row < self.vocab_size).nonzero().flatten().split(ROWS):
            copies = torch.arange(len(places), device=row.device)
            tokens = row.repeat(len(places), 1)
            tokens[copies, places] = self.mask
            logits = self.logits(model, model(tokens)[0][copies, places])
            found.append(F.cross_entropy(logits.double(), row[places], reduction="none"))
        return torch.cat(found)

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """`loss` in nats a hidden token, its `perplexity`, `accuracy`, `pseudo_perplexity` and `next_sentence_*`."""
        means = {name: total / count for name, (total, count) in totals.items() if count}
        metrics = {"loss": means["loss"], "perplexity": _perplexity(means["loss"])}
        if "pseudo" in means:
            metrics["pseudo_perplexity"] = _perplexity(means["pseudo"])
        if "next_sentence" in means:
            metrics["next_sentence_loss"] = means["next_sentence"]
        return metrics | {name: means[name] for name in ("accuracy", "next_sentence_accuracy") if name in means}

    def head_flops(self) -> float:
        return 2.0 * self.dim * (self.vocab_size + (0 if self.transform is None else self.dim))

    # -- data ----------------------------------------------------------------------------------------------------

    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> MaskedExamples:
        """Documents cut into pieces; raises UserError where `max_length` leaves no room for text."""
        return MaskedExamples(
            rows.columns["text"],
            preprocessor.tokenizer,
            self.masking,
            max_length=max_length,
            next_sentence=self.follows is not None,
            seed=seed,
        )

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        """Over all tokens of the split, hidden or not: `unigram`, and `left_bigram`, which sees the one before."""
        text, asked = train.columns["text"], split.columns["text"]
        losses = baselines(text, asked, preprocessor.tokenizer.vocab_size)
        common = np.bincount(text.tokens).argmax()
        return {
            "unigram": {"loss": losses["unigram"]["loss"], "accuracy": float((asked.tokens == common).mean())},
            "left_bigram": {"loss": losses["bigram"]["loss"]},
        }

    # -- texts ---------------------------------------------------------------------------------------------------

    def encode(self, tokenizer: Tokenizer, text: str) -> np.ndarray:
        """Ids of a text in which [MASK] stands for a hidden token."""
        return tokenizer.encode_masked(text)

    def most_tokens(self, loaded: Loaded) -> int | None:
        positions = loaded.model.max_length or max(AT_ONCE, loaded.max_length)
        return positions - 2

    @torch.no_grad()
    def show(
        self, model: SequenceModel, batch: MaskedBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[str]:
        """The beginning of each example: `[word]` was hidden and guessed, `[guess|word]` was not."""
        hidden = self._hidden(model, batch)
        guesses = torch.full_like(batch.targets, IGNORED).flatten()
        guesses[batch.places] = self.logits(model, hidden.flatten(0, 1)[batch.places]).argmax(-1)
        rows = zip(batch.original, guesses.view_as(batch.targets), batch.lengths, strict=True)
        lines = [
            _line(preprocessor.tokenizer, row[1 : length - 1].tolist(), guess[1 : length - 1].tolist())
            for row, guess, length in rows
        ]
        if self.follows is None:
            return lines
        told = self.follows(hidden[:, 0]).argmax(-1).tolist()
        words = ("next", "not next")
        verdicts = [
            f"{words[guess]} ({'right' if guess == label else 'wrong'})"
            for guess, label in zip(told, batch.next_labels.tolist(), strict=True)
        ]
        return [f"{verdict}: {line}"[:SHOWN] for verdict, line in zip(verdicts, lines, strict=True)]

    def row(self, model: SequenceModel, text: list[int]) -> Int[Tensor, " T"]:
        """A text between the special tokens that examples have."""
        device = next(model.parameters()).device
        return torch.tensor([self.vocab_size, *text, self.vocab_size + 1], device=device)


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))


def _line(tokenizer: Tokenizer, tokens: list[int], guesses: list[int]) -> str:
    """Text in which the tokens that have a guess stand in brackets, in one line, cut to what can be read."""
    parts: list[str] = []
    run: list[int] = []
    for token, guess in zip([*tokens, None], [*guesses, 0], strict=True):
        if token is not None and guess == IGNORED and token < tokenizer.vocab_size:
            run.append(token)
            continue
        parts += [tokenizer.decode(run)] if run else []
        run = []
        if token is None:
            break
        if token >= tokenizer.vocab_size:
            parts.append(" [SEP] ")
        elif guess == token:
            parts.append(f"[{tokenizer.decode([token])}]")
        else:
            parts.append(f"[{tokenizer.decode([guess])}|{tokenizer.decode([token])}]")
    text = (" " if tokenizer.kind == "word" else "").join(parts)
    return "".join(char if char.isprintable() else " " for char in text)[:SHOWN]
