"""Translation: the target's tokens one after another, given the source (Sutskever et al. 2014).

The source is a text, or a sequence of values; in the latter case the target is a caption (Venugopalan et al. 2015).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.data.batching.examples import TranslationBatch, TranslationExamples, by_length, padded
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.models.base import Capability, SequenceModel, State, name_of
from seqtrain.models.decoding import decode
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
from seqtrain.tasks.baselines.series import nearest_by_euclid, scaled_series
from seqtrain.tasks.baselines.texts import closest
from seqtrain.tasks.metrics.translations import bleu_signature, compute, update
from seqtrain.tasks.output import Output, head_products
from seqtrain.tasks.predictors import Loaded, NamedSeries, Predictor, shown_input

EXTRA_TOKENS = 10  # tokens allowed beyond task.max_ratio, which short sources need
MAX_HYPOTHESES = 256  # in parallel: a step with few costs nearly as much as with many; they end at different steps
MAX_ROWS = 1000  # rows on which baselines are measured
MAX_TRAIN_ROWS = 100_000  # rows searched for the nearest source


class Translate(Predictor["Translation"]):
    """The translation of a text or a series. A source longer than those of training is cut."""

    takes = MappingProxyType({"beam": None, "length_penalty": None})  # None: the option of the run's task
    at_a_time = MAX_HYPOTHESES

    @property
    def longest(self) -> int | None:
        return self.loaded.max_length // 2 - 1

    def without_effect(self, given: Mapping[str, Any]) -> dict[str, str]:
        if (given.get("beam") or self.task.beam) > 1:
            return {}
        return {"length_penalty": "with a beam of 1 the likeliest token is taken, whatever the length; give --beam 4"}

    def predict(self, texts: Sequence[str | NamedSeries], *, first: int = 0, **options: Any) -> list[dict[str, Any]]:
        """Return the `translation` of each `source` or `series`; search options default to those of the task."""
        options = {**self.takes, **options}
        translations = self.task.translate(
            self.loaded.model, list(texts), self.loaded.preprocessor, longest=self.longest, **options
        )
        answers = []
        for source, text in zip(texts, translations, strict=True):
            asked = {"source": source} if isinstance(source, str) else {"series": source.name}
            answers.append({**asked, "translation": text})
        return answers

    def words(self, answer: dict[str, Any]) -> str:
        return " ".join(answer["translation"].split("\n"))  # one output line per input line


class Translation(ExampleTask):
    """Cross entropy of the target's tokens and its end, with label smoothing (Szegedy et al. 2016)."""

    requires = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL
    needs_whole = "every word of a translation depends on the whole source"
    fields = ("source", "target")
    value_fields = ("values", "target")  # if the data contains series
    metrics = (
        Metric("loss", "min", "nats a token"),
        Metric("perplexity", "min", "perplexity"),
        Metric("accuracy", "max", "accuracy"),
        Metric("bleu", "max", "BLEU", of_answers=True, signature=bleu_signature()),
        Metric("chrf", "max", "chrF", of_answers=True),
        Metric("exact_match", "max", "exact match", of_answers=True),
    )
    monitor = "bleu"
    trained_by = ("shared_vocab", "tied", "label_smoothing")
    answered_by = ("beam", "length_penalty", "max_ratio")
    known_baselines = MappingProxyType(
        {
            "copy": Baseline("the source as its own translation", "copying the source"),
            "nearest": Baseline("the target of the most similar training source", "the nearest training source"),
        }
    )
    predictors = MappingProxyType({"translate": Translate})

    def __init__(
        self,
        *,
        shared_vocab: bool,
        tied: bool,
        label_smoothing: float,
        beam: int,
        length_penalty: float,
        max_ratio: float,
        dim: int,
        target_vocab_size: int,
        preprocessor: Preprocessor | None,
        embed_dim: int | None = None,
    ) -> None:
        """Build the head.

        `target_vocab_size` is V of the target. Evaluation needs the `preprocessor`; training does not.
        """
        super().__init__()
        self.shared_vocab = shared_vocab
        self.label_smoothing = label_smoothing
        self.beam = beam
        self.length_penalty = length_penalty
        self.max_ratio = max_ratio
        self.dim = dim
        self.embed_dim = embed_dim if tied else None
        self.end = target_vocab_size
        self.preprocessor = preprocessor
        self.head = None if tied else nn.Linear(dim, target_vocab_size + 1)

    @classmethod
    def without_effect(cls, options: Mapping[str, Any]) -> dict[str, str]:
        """Return the task's options that have no effect given the others, each with the reason."""
        if options.get("beam") != 1:
            return {}
        return {"length_penalty": "with task.beam=1 length is not scored; only `predict --beam` uses it"}

    def no_distance(self) -> str | None:
        """Return the reason why a loss has no single distance from its input."""
        return "it reads one sequence and writes another"

    def edges(self, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
        return [], [tokenizer.separator]

    def incompatibility(self, model: SequenceModel) -> str | None:
        if not self.shared_vocab and reads_in_one(model):
            return f"model={name_of(model)} reads source and target with one embedding; use task.shared_vocab=true"
        if reads_in_one(model) and hasattr(model.embed, "blank"):  # a front end of values
            return f"model={name_of(model)} reads source and target with one embedding, but values are not words"
        return None

    @final  # a task with other logits overrides `output`, which the loss uses too
    def logits(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V_and_end"]:
        """Return unnormalised log-probabilities of the next token of the target; the last output is its end."""
        return self.output(model, hidden).logits()

    def output(self, model: SequenceModel, hidden: Float[Tensor, "... D"]) -> Output:
        """Return the logits as an `Output`, which computes them on demand."""
        if self.head is not None:
            return Output.of(self.head, hidden)
        return Output.tied(target_embedding(model), hidden, end=True)

    def evaluate(self, model: SequenceModel, batch: TranslationBatch, state: State | None) -> tuple[LossTerms, State]:
        """Return `loss` in nats, smoothed in training; otherwise plain, with `accuracy` and the terms of quality."""
        source_state = _read_sources(model, batch)
        hidden, after = model(batch.target_tokens, source_state)
        output = self.output(model, hidden)
        if self.training:
            return {"loss": (output.loss(batch.targets, self.label_smoothing), batch.num_targets)}, after
        # Evaluation is not smoothed, so that losses of runs with different label_smoothing are comparable.
        losses, guesses = output.measure(batch.targets)
        correct = guesses == batch.targets.flatten()
        terms = {"loss": (losses.double().sum(), batch.num_targets), "accuracy": (correct.sum(), batch.num_targets)}
        return terms | self._quality(model, batch, source_state), after

    def _quality(self, model: SequenceModel, batch: TranslationBatch, source_state: State) -> LossTerms:
        """Return the terms of `bleu`, `chrf` and `exact_match` for the translations of a batch."""
        if batch.num_targets == 0:  # a process without examples gets one dummy row
            return update([], [])
        assert self.preprocessor is not None
        return update(self._decode(model, source_state, batch.lengths, self.preprocessor), batch.references())

    def _decode(
        self,
        model: SequenceModel,
        source_state: State,
        lengths: Int[Tensor, " B"],
        preprocessor: Preprocessor,
        beam: int | None = None,
        length_penalty: float | None = None,
    ) -> list[str]:
        """Translate sources of `lengths` (B,) tokens already read by `model.begin`."""
        if beam is None:
            beam = self.beam
        if length_penalty is None:
            length_penalty = self.length_penalty
        tokenizer = preprocessor.target_tokenizer
        targets = decode(
            model,
            partial(self.logits, model),
            source_state,
            start=tokenizer.start,
            end=self.end,
            max_tokens=self._max_tokens(model, lengths),
            beam=beam,
            length_penalty=length_penalty,
        )
        return list(map(tokenizer.decode, targets))

    def _max_tokens(self, model: SequenceModel, lengths: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Return the maximum number of tokens for the translation of each source, including its end."""
        most = (lengths.double() * self.max_ratio).long() + EXTRA_TOKENS
        if model.max_length is None:
            return most
        positions = torch.full_like(most, model.max_length)
        if reads_in_one(model):  # then the source has used part of the table of positions
            positions -= lengths
        return torch.minimum(most, positions).clamp(min=1)

    @torch.no_grad()
    def translate(
        self,
        model: SequenceModel,
        sources: Sequence[str | NamedSeries],
        preprocessor: Preprocessor,
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        longest: int | None = None,
    ) -> list[str]:
        """Translate each text, or each series.

        Args:
            model: The model that reads the sources and writes the targets.
            sources: The texts, or series.
            preprocessor: The preprocessor, with both tokenizers.
            beam: Number of hypotheses. None: the task's option.
            length_penalty: Length penalty of the search. None: the task's option.
            longest: Number of tokens of a source that are read. None: all, or at most half of a table of positions.
        """
        if model.max_length is not None:
            longest = min(longest or model.max_length, model.max_length // 2 - 1)
        rows = _read(sources, preprocessor, longest)
        device = next(model.parameters()).device
        translations = [""] * len(sources)
        for lanes in by_length(rows, max(MAX_HYPOTHESES // (beam or self.beam), 1)):
            tokens, lengths = padded([rows[lane] for lane in lanes])
            unpadded = bool((lengths == tokens.shape[1]).all())
            source_state = model.begin(tokens.to(device), None if unpadded else lengths.to(device))
            texts = self._decode(model, source_state, lengths.to(device), preprocessor, beam, length_penalty)
            for lane, text in zip(lanes, texts, strict=True):
                translations[lane] = text
        return translations

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Return `loss` in nats a token of the target, its `perplexity`, `accuracy`, and the quality of translations.

        The quality is `bleu` and `chrf`, 0 to 100, and `exact_match`, the share that equals the reference.
        """
        loss = totals["loss"][0] / totals["loss"][1]
        metrics = {"loss": loss, "perplexity": perplexity(loss)}
        if "accuracy" in totals:
            metrics["accuracy"] = totals["accuracy"][0] / totals["accuracy"][1]
        return metrics | compute(totals)

    def head_flops(self) -> float:
        return 2.0 * head_products(self.dim, self.end + 1, self.embed_dim)

    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> TranslationExamples:
        return TranslationExamples(rows, preprocessor, max_length=max_length)

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        """Measure on the first MAX_ROWS rows of `split`, with the first MAX_TRAIN_ROWS rows of `train` to search."""
        asked, known = list(islice(split.read(), MAX_ROWS)), list(islice(train.read(), MAX_TRAIN_ROWS))
        references, written = [row["target"] for row in asked], {}
        if train.series is not None:
            series = (scaled_series(rows, preprocessor)[: len(read)] for rows, read in ((train, known), (split, asked)))
            nearest = nearest_by_euclid(*series)
        else:
            written["copy"] = sources = [row["source"] for row in asked]
            nearest = closest([row["source"] for row in known], sources)
        written["nearest"] = [known[row]["target"] for row in nearest]
        metrics = {}
        for name, texts in written.items():
            reduced: Reduced = {}
            for term, (total, count) in update(texts, references).items():
                reduced[term] = total.tolist(), count
            metrics[name] = compute(reduced)
        return metrics

    @torch.no_grad()
    def samples(
        self, model: SequenceModel, batch: TranslationBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> list[Sample]:
        """Return three lines for each example: its source, its reference, and the model's translation."""
        texts = self._decode(model, _read_sources(model, batch), batch.lengths, preprocessor)
        samples = []
        for lane, (reference, text) in enumerate(zip(batch.references(), texts, strict=True)):
            source = shown_input(batch, lane, preprocessor)
            if preprocessor.series is None:  # without the separator
                source = preprocessor.tokenizer.decode(batch.tokens[lane, : batch.lengths[lane] - 1].tolist())
            columns, lines = {}, []
            for name, words in (("source", source), ("reference", reference), ("model", text)):
                columns[name] = " ".join(words.split())
                lines.append(f"{name}: {columns[name]}")
            samples.append(Sample("\n".join(lines), columns))
        return samples

    # -- attention -----------------------------------------------------------------------------------------------

    def look_at(self, model: SequenceModel, batch: TranslationBatch, limit: int) -> tuple[list[int], list[Any] | None]:
        """Return up to `limit` tokens of the first target and its source, or both in one list and None."""
        return model_inputs(model, batch.tokens[0, :limit].tolist(), batch.target_tokens[0, :limit].tolist())

    def attended(
        self, loaded: Loaded, text: str | NamedSeries, target: str | None
    ) -> tuple[list[int], list[Any] | None]:
        """Return the target's tokens and the source, or both in one list and None if the model reads them in one."""
        source = _read([text], loaded.preprocessor, None)[0].tolist()
        tokenizer = loaded.preprocessor.target_tokenizer
        if target is None:
            target = self.translate(loaded.model, [text], loaded.preprocessor, beam=1)[0]
        return model_inputs(loaded.model, source, [tokenizer.start, *tokenizer.encode(target).tolist()])


def _read(
    sources: Sequence[str | NamedSeries], preprocessor: Preprocessor, longest: int | None
) -> list[Shaped[np.ndarray, " S *F"]]:
    """Return the part of each source that is read: at most `longest` tokens and the separator, or one step more."""
    series = [source.features for source in sources if isinstance(source, NamedSeries)]
    if series:
        return [features[: None if longest is None else longest + 1] for features in series]
    tokenizer, texts = preprocessor.tokenizer, [source for source in sources if isinstance(source, str)]
    return [np.append(ids[:longest], tokenizer.separator) for ids in tokenizer.encode_documents(texts)]


def model_inputs(model: SequenceModel, source: list[Any], target: list[int]) -> tuple[list[int], list[Any] | None]:
    """Return the tokens that a model reads for a pair, and the source; None if the model reads both in one."""
    if reads_in_one(model):
        return [*source, *target][: model.max_length], None
    return target[: model.max_length], source


def reads_in_one(model: SequenceModel) -> bool:
    """Return True if the model reads the source as a prefix of the target, with the same front end."""
    return getattr(model, "target_embed", None) is None


def target_embedding(model: SequenceModel) -> nn.Module:
    """Return the embedding of the target's tokens."""
    return getattr(model, "target_embed", model.embed)


def _read_sources(model: SequenceModel, batch: TranslationBatch) -> State:
    """Read the sources; return the state from which the targets are generated."""
    return model.begin(batch.tokens, None if batch.unpadded else batch.lengths)
