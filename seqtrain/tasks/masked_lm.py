"""Masked language modelling: predict hidden tokens from all others (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, final

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
from seqtrain.tasks.baselines.counts import MOST_TOKENS, baselines, token_counts
from seqtrain.tasks.masked_text import MAX_CHARACTERS, bracketed, fill
from seqtrain.tasks.output import Output, head_products
from seqtrain.tasks.predictors import Predictor, Score

COPIES = 64  # copies of a text, each with a different hidden token, per batch
NEXT_SENTENCE = ("next", "not next")  # names of the two labels


class FillMasks(Predictor["MaskedLM"]):
    """The likeliest tokens for each [MASK]. Each text is read independently, so batching changes no answer."""

    takes = MappingProxyType({"top_k": 5})

    def reason(self, text: str) -> str | None:
        reason = super().reason(text)
        if reason is None and self.task.mask not in self.encode(text):
            return f"has no {HIDDEN} to fill in"
        return reason

    def predict(self, texts: Sequence[str], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Return, for each text, `filled` and its `masks`.

        `filled` is the text with the likeliest tokens filled in. Each of the `masks` is a list of the `top_k` likeliest
        tokens, each a `token` with its `probability`.
        """
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
                token = guess["token"].strip() or repr(guess["token"])  # a lone space would be invisible
                words.append(f"{token} {guess['probability']:.1%}")
            lines.append(f"  {number}: {'  '.join(words)}")
        return "\n".join(lines)


class PseudoScore(Score["MaskedLM"]):
    """Hides each token of a text in turn: the negative pseudo-log-likelihood of Salazar et al. (2020)."""

    @torch.no_grad()
    def surprisals(self, ids: Int[np.ndarray, " n"]) -> list[float]:
        return self.task.surprisals(self.loaded.model, self.task.row(self.loaded.model, ids.tolist())).tolist()

    def total(self, nats: float, loss: float, text: str) -> dict[str, float]:
        return {"pseudo_perplexity": perplexity(loss)}

    def total_words(self, answer: dict[str, Any]) -> str:
        return f"pseudo-perplexity {answer['pseudo_perplexity']:.4g}"


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
    needs_whole = "a hidden token is predicted from both sides"

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
        norm_eps: float = 1e-5,
        embed_dim: int | None = None,
    ) -> None:
        """Build the head. Raise ValueError if `mask_share` and `random_share` sum to more than 1.

        `norm_eps` is the epsilon of the norm before the output.
        """
        super().__init__()
        if mask_share + random_share > 1 + 1e-9:  # tolerance for rounding
            raise ValueError(
                f"mask_share={mask_share}, random_share={random_share}: must be at least 0 and sum to at most 1"
            )
        self.masking = Masking(
            mask_prob=mask_prob, mask_share=mask_share, random_share=random_share, whole_word=whole_word
        )
        self.pseudo_examples = pseudo_examples
        self.dim = dim
        self.embed_dim = embed_dim if tied else None
        self.vocab_size = vocab_size
        self.mask = vocab_size + 2  # after all tokens of text, the start and the separator
        self.transform = None
        if transform:
            self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim, eps=norm_eps))
        self.head = None if tied else nn.Linear(dim, vocab_size)
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if tied else None
        self.follows = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, 2)) if next_sentence else None
        self.differentiated = ("loss", "next_sentence") if next_sentence else ("loss",)

    def incompatibility(self, model: SequenceModel) -> str | None:
        segments = getattr(model, "segments", None)
        if self.follows is not None and segments is not None and segments.num_embeddings < 2:
            return "task.next_sentence=true: two sentences need two segments; use model.num_segments=2"
        return None

    @final  # a task with other logits overrides `output`, which the loss uses too
    def logits(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        """Return unnormalised log-probabilities of the token at each position."""
        return self.output(model, hidden).logits()

    def output(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Output:
        """Return the logits as an `Output`, which computes them on demand."""
        if self.transform is not None:
            hidden = self.transform(hidden)
        if self.head is not None:
            return Output.of(self.head, hidden)
        return Output.tied(model.embed, hidden, bias=self.bias)

    # -- loss and metrics ----------------------------------------------------------------------------------------

    def evaluate(self, model: SequenceModel, batch: MaskedBatch, state: State | None) -> tuple[LossTerms, State]:
        """Return `loss` in nats of the hidden tokens and `next_sentence`; outside training in float64 with accuracies.

        Outside training also `pseudo`: -log p of each token hidden in turn, in the first examples of the split.
        """
        hidden = self._hidden_states(model, batch)
        # Only hidden tokens go through the head, which over a large vocabulary costs more than the model.
        output = self.output(model, hidden.flatten(0, 1)[batch.places])
        targets = batch.targets.flatten()[batch.places]
        terms = self._terms("loss", "accuracy", output, targets, len(batch.places))
        if self.follows is not None:
            pairs = len(batch.tokens) if batch.count else 0  # a batch without targets also has no pair
            output = Output.of(self.follows[-1], self.follows[:-1](hidden[:, 0]))  # type: ignore[arg-type]
            terms |= self._terms("next_sentence", "next_sentence_accuracy", output, batch.next_labels, pairs)
        if self.pseudo_examples and not self.training:
            terms["pseudo"] = self._pseudo_term(model, batch)
        return terms, {}

    def _hidden_states(self, model: SequenceModel, batch: MaskedBatch) -> Float[Tensor, "B T D"]:
        unpadded = batch.count == batch.tokens.numel()  # uses a count on the CPU: reading `lengths` waits for the GPU
        hidden, _ = model(batch.tokens, None, None if unpadded else batch.lengths)
        return hidden

    def _terms(self, loss: str, accuracy: str, output: Output, targets: Int[Tensor, " N"], count: int) -> LossTerms:
        """Return the summed loss and, outside training, the number of correct answers, under the given names."""
        if self.training:
            return {loss: (output.loss(targets), count)}
        losses, guesses = output.measure(targets)
        return {loss: (losses.double().sum(), count), accuracy: ((guesses == targets).sum(), count)}

    def _pseudo_term(self, model: SequenceModel, batch: MaskedBatch) -> tuple[Float[Tensor, ""], int]:
        """Return sum and count of the pseudo-log-likelihood (Salazar et al. 2020) of the split's first examples."""
        total, count = torch.zeros((), dtype=torch.float64, device=batch.tokens.device), 0
        if not batch.count:  # a batch without targets repeats an example of another process
            return total, count
        for lane in (batch.index < self.pseudo_examples).nonzero().flatten().tolist():
            nats = self.surprisals(model, batch.original[lane, : int(batch.lengths[lane])])
            total = total + nats.sum()
            count += len(nats)
        return total, count

    def surprisals(self, model: SequenceModel, row: Int[Tensor, " T"]) -> Float[Tensor, " N"]:
        """Return nats, in float64, of each text token of a row when only this token is hidden."""
        nats = [row.new_zeros(0, dtype=torch.float64)]  # a row may contain no text
        for places in (row < self.vocab_size).nonzero().flatten().split(COPIES):
            copies = torch.arange(len(places), device=row.device)
            tokens = row.repeat(len(places), 1)
            tokens[copies, places] = self.mask  # each copy hides a different token
            hidden, _ = model(tokens)
            logits = self.logits(model, hidden[copies, places])
            nats.append(F.cross_entropy(logits.double(), row[places], reduction="none"))
        return torch.cat(nats)

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Return `loss` in nats a hidden token, `perplexity`, `accuracy`, `pseudo_perplexity` and `next_sentence_*`."""
        means = {name: total / count for name, (total, count) in totals.items() if count}
        metrics = {"loss": means["loss"], "perplexity": perplexity(means["loss"])}
        if "pseudo" in means:
            metrics["pseudo_perplexity"] = perplexity(means["pseudo"])
        if "next_sentence" in means:
            metrics["next_sentence_loss"] = means["next_sentence"]
        for name in ("accuracy", "next_sentence_accuracy"):
            if name in means:
                metrics[name] = means[name]
        return metrics

    def head_flops(self) -> float:
        products = head_products(self.dim, self.vocab_size, self.embed_dim)
        if self.transform is not None:
            products += self.dim**2
        return 2.0 * products

    # -- data ----------------------------------------------------------------------------------------------------

    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> MaskedExamples:
        """Return documents cut into pieces. Raise UserError if `max_length` leaves no room for text."""
        return MaskedExamples(
            rows.columns["text"],
            preprocessor.tokenizer,
            self.masking,
            max_length=max_length,
            next_sentence=self.follows is not None,
            seed=seed,
        )

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        """Measure `unigram` and `left_bigram` (reads the token before) on all tokens of the split, hidden or not."""
        train_text, split_text = train.columns["text"], split.columns["text"]
        losses = baselines(train_text, split_text, preprocessor.tokenizer.vocab_size, say)
        size = preprocessor.tokenizer.vocab_size
        most_frequent = token_counts(train_text, size, MOST_TOKENS).argmax()
        accuracy = float(token_counts(split_text, size)[most_frequent] / len(split_text.tokens))
        return {
            "unigram": {"loss": losses["unigram"]["loss"], "accuracy": accuracy},
            "left_bigram": {"loss": losses["bigram"]["loss"]},
        }

    # -- texts ---------------------------------------------------------------------------------------------------

    def encode(self, tokenizer: Tokenizer, text: str) -> Int[np.ndarray, " n"]:
        """Return the ids of a text in which [MASK] marks a hidden token."""
        return tokenizer.encode_masked(text)

    @torch.no_grad()
    def samples(
        self, model: SequenceModel, batch: MaskedBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[Sample]:
        """Return the start of each example: `[word]` was hidden and guessed right, `[guess|word]` was guessed wrong."""
        hidden = self._hidden_states(model, batch)
        guesses = torch.full_like(batch.targets, IGNORED).flatten()
        guesses[batch.places] = self.logits(model, hidden.flatten(0, 1)[batch.places]).argmax(-1)
        lines = []
        for row, guess, length in zip(batch.original, guesses.view_as(batch.targets), batch.lengths, strict=True):
            text = slice(1, int(length) - 1)  # without the start and the last separator
            lines.append(bracketed(preprocessor.tokenizer, row[text].tolist(), guess[text].tolist()))
        if self.follows is None:
            return list(map(Sample, lines))
        answers = self.follows(hidden[:, 0]).argmax(-1).tolist()
        for lane, (answer, label) in enumerate(zip(answers, batch.next_labels.tolist(), strict=True)):
            verdict = "right" if answer == label else "wrong"
            lines[lane] = f"{NEXT_SENTENCE[answer]} ({verdict}): {lines[lane]}"[:MAX_CHARACTERS]
        return list(map(Sample, lines))

    def row(self, model: SequenceModel, text: list[int]) -> Int[Tensor, " T"]:
        """Return the tokens of a text between the special tokens of an example."""
        device = next(model.parameters()).device
        return torch.tensor([self.vocab_size, *text, self.vocab_size + 1], device=device)
