"""Language modelling: predict each token from those before it (Bengio et al. 2003)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeVar, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqtrain.data.batching.plan import StreamPlan
from seqtrain.data.batching.stream import EvalLoader, Stream, StreamBatch
from seqtrain.data.corpus import from_the_end
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.models.base import Capability, SequenceModel, State, read, read_warmup
from seqtrain.models.decoding import continue_tokens
from seqtrain.tasks.base import (
    Baseline,
    Facts,
    LossTerms,
    Metric,
    Reduced,
    Sample,
    SampleOptions,
    Say,
    Task,
    perplexity,
)
from seqtrain.tasks.baselines.counts import Text, baselines, xz_baselines
from seqtrain.tasks.output import Output, head_products
from seqtrain.tasks.predictors import Predictor, Score

T = TypeVar("T", np.ndarray, list[int], list[float])
MAX_XZ_BYTES = 64 << 20  # that xz is run on: some seconds for every ten million


class Continue(Predictor["NextToken"]):
    """Continues a text. Each text draws with its own seed, which depends on its index, so batching changes nothing."""

    takes = MappingProxyType(
        {
            **{"length": 200, "temperature": 0.8, "top_k": None, "top_p": None, "greedy": False, "seed": 0},
            **{"stop": (), "num_samples": 1, "repetition_penalty": 1.0},
        }
    )
    needs_text = False

    def without_effect(self, given: Mapping[str, Any]) -> dict[str, str]:
        if not given.get("greedy"):
            return {}
        reason = "with --greedy nothing is drawn, the likeliest token is taken; leave one of them out"
        return dict.fromkeys(("temperature", "top_k", "top_p", "seed", "num_samples"), reason)

    def predict(self, texts: Sequence[str], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Continue each `prompt` by a `text` of `length` tokens; greedy decoding, or temperature 0, is deterministic.

        With `num_samples` above 1 an answer has the list `texts` instead. A text ends before the first of the texts in
        `stop`.
        """
        if not texts:
            return []
        asked = self._asked(first, options)
        found = self.task.continue_texts(self.loaded.model, self.loaded.tokenizer, texts, **asked)
        count = asked["num_samples"]
        if count == 1:
            return [{"prompt": prompt, "text": text} for prompt, text in zip(texts, found, strict=True)]
        return [{"prompt": prompt, "texts": found[n * count : (n + 1) * count]} for n, prompt in enumerate(texts)]

    def pieces(self, text: str, *, first: int = 0, **options: Any) -> Iterator[str]:
        """Yield `words` of one continuation of a text, in pieces as they are generated."""
        model, tokenizer = self.loaded.model, self.loaded.tokenizer
        asked = self._asked(first, options)
        if self.task.direction != "forward":  # the last generated token comes first in the text
            yield self.task.in_words(text, *self.task.continue_texts(model, tokenizer, [text], **asked))
            return
        yield text
        shown = written = ""
        for (written,) in self.task.texts_so_far(model, tokenizer, [text], **asked):
            certain = written[: _certain(written, asked["stop"])]
            if len(certain) > len(shown) and certain.startswith(shown):
                yield certain[len(shown) :]
                shown = certain
        yield written[len(shown) :]

    def _asked(self, first: int, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of `continue_texts`; `first` is the index of the first text."""
        options = {**self.takes, **options}
        asked = {name: options[name] for name in ("top_k", "top_p", "stop", "num_samples", "repetition_penalty")}
        temperature = 0.0 if options["greedy"] else options["temperature"]
        seed = options["seed"] + first
        return {**asked, "num_tokens": options["length"], "temperature": temperature, "seed": seed}

    def words(self, answer: dict[str, Any]) -> str:
        if "text" in answer:
            return self.task.in_words(answer["prompt"], answer["text"])
        texts = [self.task.in_words(answer["prompt"], text) for text in answer["texts"]]
        return "\n".join(f"--- sample {number}\n{text}" for number, text in enumerate(texts, 1))


class ScoreText(Score["NextToken"]):
    """Scores a text as evaluation reads a document: in the run's own chunks, with its rule for carrying state."""

    @property
    def room(self) -> int | None:
        return None  # the text is read in chunks

    @torch.no_grad()
    def surprisals(self, ids: Int[np.ndarray, " n"]) -> list[float]:
        model, tbptt, start = self.loaded.model, self.loaded.tbptt, self.loaded.tokenizer.start
        ids = self.task.in_order(ids)
        documents = np.array([0, len(ids)])
        plan = StreamPlan(documents=documents, lanes=1, tbptt=tbptt, seed=0, shuffle=False)
        state = None
        nats: list[float] = []
        for batch in EvalLoader(Stream(ids, documents, start), plan, batch_size=None):
            if not tbptt.carry:  # then a chunk sees earlier text only through its warm-up
                state = None
            state = read_warmup(model, batch.warmup_chunks, state)[-1]
            hidden, state = model(batch.tokens, state)
            # In float64, because evaluation sums this over a whole split, but here it is printed for a single token.
            log_probs = self.task.logits(model, hidden).double().log_softmax(-1)  # (1, T, V)
            nats += (-log_probs.gather(-1, batch.targets.unsqueeze(-1))).flatten().tolist()
        return list(self.task.in_order(nats))  # in text order, for either reading direction

    def total(self, nats: float, loss: float, text: str) -> dict[str, float]:
        return {"bits_per_byte": nats / math.log(2) / len(text.encode())}

    def total_words(self, answer: dict[str, Any]) -> str:
        return f"{answer['bits_per_byte']:.4f} bits per byte"


class NextToken(Task):
    """Cross entropy of the next token; a tied head shares the embedding's weights (Press & Wolf 2017)."""

    requires = Capability.CAUSAL | Capability.UNCONDITIONAL
    metrics = (
        Metric("loss", "min", "nats a token"),
        Metric("perplexity", "min", "perplexity"),
        Metric("bits_per_byte", "min", "bits per byte", tokenizer_free=True),
        Metric("word_perplexity", "min", "word perplexity"),
        Metric("accuracy", "max", "accuracy"),
    )
    compared_by = "bits_per_byte"
    trained_by = ("tied",)
    known_baselines = MappingProxyType(
        {
            "uniform": Baseline("every token as likely"),
            "unigram": Baseline("how often each token is", "the unigram"),
            "bigram": Baseline("which token follows which", "the bigram"),
            "xz": Baseline("xz -9 of this text alone", "xz"),
            "xz_given_train": Baseline("xz -9 given the training text", "xz given the training text"),
        }
    )
    predictors = MappingProxyType({"continue": Continue, "score": ScoreText})

    def __init__(
        self,
        *,
        tied: bool,
        dim: int,
        vocab_size: int,
        direction: Literal["forward", "backward"] = "forward",
        embed_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim if tied else None
        self.direction = direction
        self.vocab_size = vocab_size
        self.dim = dim
        self.head = None if tied else nn.Linear(dim, vocab_size)

    @final  # a task with other logits overrides `output`, which the loss uses too
    def logits(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        """Return unnormalised log-probabilities of the next token."""
        return self.output(model, hidden).logits()

    def output(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Output:
        """Return the logits as an `Output`, which computes them on demand."""
        if self.head is not None:
            return Output.of(self.head, hidden)
        return Output.tied(model.embed, hidden)

    def evaluate(self, model: SequenceModel, batch: StreamBatch, state: State | None) -> tuple[LossTerms, State]:
        """Return `loss` in nats; outside training also `accuracy`, and the loss summed in float64."""
        hidden, after = read(model, batch.tokens, state, batch.starts)
        output = self.output(model, hidden)
        if self.training:
            return {"loss": (output.loss(batch.targets), batch.count)}, after
        losses, guesses = output.measure(batch.targets)
        correct = guesses == batch.targets.flatten()  # IGNORED is not a token, so it is never correct
        return {"loss": (losses.double().sum(), batch.count), "accuracy": (correct.sum(), batch.count)}, after

    def token_losses(
        self, model: SequenceModel, hidden: Float[Tensor, "B T D"], targets: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]:
        """Return the loss in nats of each token of a stream, from the hidden state before it; in float64."""
        return self.output(model, hidden).measure(targets, double=True)[0].view_as(targets)

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Return `loss` in nats a token, `perplexity`, `bits_per_byte`, `accuracy`, and for words `word_perplexity`."""
        total, count = totals["loss"]
        loss = total / count
        metrics = {
            "loss": loss,
            "perplexity": perplexity(loss),
            "bits_per_byte": loss / math.log(2) / facts.bytes_per_token,
        }
        if facts.words_per_token is not None:
            metrics["word_perplexity"] = perplexity(loss / facts.words_per_token)
        if "accuracy" in totals:
            metrics["accuracy"] = totals["accuracy"][0] / totals["accuracy"][1]
        return metrics

    def head_flops(self) -> float:
        return 2.0 * head_products(self.dim, self.vocab_size, self.embed_dim)

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        """Return the metrics of unigram and bigram counts of `train`, and of a compressor, on the same text."""
        counts = baselines(train.columns["text"], split.columns["text"], preprocessor.tokenizer.vocab_size, say)
        num_bytes = train.columns["text"].num_bytes + split.columns["text"].num_bytes
        xz: dict[str, dict[str, float]] = {}
        # Only if the size is already known: the text of a token store would have to be decoded just to measure it.
        if preprocessor.tokenizer.kind == "ids":
            say("xz is left out: the text is not known")
        elif num_bytes > MAX_XZ_BYTES:
            say("xz is left out: the text is too large to compress twice")
        else:
            xz = xz_baselines(_text(train), _text(split), say)
        return counts | xz

    def samples(
        self, model: SequenceModel, batch: None, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[Sample]:
        """Return each prompt with the model's continuation."""
        (text,) = self.continue_texts(
            model,
            preprocessor.tokenizer,
            [options.prompt],
            num_tokens=options.length,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
        )
        return [Sample(self.in_words(options.prompt, text), {"prompt": options.prompt, "continuation": text})]

    def continue_texts(
        self, model: SequenceModel, tokenizer: Tokenizer, prompts: Sequence[str], **options: Any
    ) -> list[str]:
        """Return the model's continuations of each prompt; `options` are those of `texts_so_far`."""
        if options.get("stop"):
            *_, texts = self.texts_so_far(model, tokenizer, prompts, **options)
            return texts
        options.pop("stop", None)
        steps = self._steps(model, tokenizer, prompts, options)
        return [tokenizer.decode(self.in_order(written)) for written in torch.stack(list(steps), 1).tolist()]

    def texts_so_far(
        self,
        model: SequenceModel,
        tokenizer: Tokenizer,
        prompts: Sequence[str],
        *,
        stop: Sequence[str] = (),
        **options: Any,
    ) -> Iterator[list[str]]:
        """Yield the continuations after each token, until each contains one of the texts in `stop`.

        Args:
            model: The model.
            tokenizer: Tokenizer of the prompts.
            prompts: Texts to continue.
            stop: Texts before which a continuation ends, in reading order.
            **options: Options of `continue_tokens`.
        """
        tokens: list[list[int]] = []
        for step in self._steps(model, tokenizer, prompts, options):
            tokens = tokens or [[] for _ in step]
            for lane, token in zip(tokens, step.tolist(), strict=True):
                lane.append(token)
            whole = [tokenizer.decode(self.in_order(lane)) for lane in tokens]
            texts = [self._before(text, stop) for text in whole]
            yield texts
            if stop and all(len(text) < len(more) for text, more in zip(texts, whole, strict=True)):
                return

    def _steps(
        self, model: SequenceModel, tokenizer: Tokenizer, prompts: Sequence[str], options: Mapping[str, Any]
    ) -> Iterator[Int[Tensor, " L"]]:
        """Return the tokens of all continuations, step by step."""
        ids = [[tokenizer.start, *self.in_order(tokenizer.encode(prompt)).tolist()] for prompt in prompts]
        return continue_tokens(model, partial(self.logits, model), ids, **options)

    def _before(self, text: str, stop: Sequence[str]) -> str:
        """Return the part of a text before the first of the texts in `stop`."""
        if self.direction == "forward":
            return text[: min([text.find(end) for end in stop if end in text], default=len(text))]
        return text[max([text.rfind(end) + len(end) for end in stop if end in text], default=0) :]

    # -- direction -----------------------------------------------------------------------------------------------

    def arrange(self, rows: Rows) -> Rows:
        """Return the rows of a split in reading order."""
        if self.direction == "forward":
            return rows
        return replace(rows, columns={name: from_the_end(corpus) for name, corpus in rows.columns.items()})

    def in_order(self, tokens: T) -> T:
        """Turn a text's tokens from text order into the order in which the task reads, and back."""
        if self.direction == "forward":
            return tokens
        return tokens[::-1]

    def in_words(self, prompt: str, written: str) -> str:
        """Join a prompt and its continuation, which comes after it, or before it if text is read from the end."""
        if self.direction == "forward":
            return prompt + written
        return written + prompt


def _certain(text: str, stop: Sequence[str]) -> int:
    """Return the number of characters that later tokens cannot change: complete characters outside a stop text."""
    whole = text.rstrip("\ufffd")  # stands for bytes of an incomplete character
    sizes = [size for end in stop for size in range(1, len(end)) if whole.endswith(end[:size])]
    return len(whole) - max(sizes, default=0)


def _text(rows: Rows) -> Text:
    """Return the text of a split, read from its source each time."""
    corpus = rows.columns["text"]
    return Text(corpus.hash, corpus.num_bytes, lambda: (row["text"] for row in rows.read()))
