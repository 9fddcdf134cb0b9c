"""Pairs: text vectors, trained so that the two texts of a row are close to each other (Reimers & Gurevych 2019).

One encoder reads each text independently. The loss is a cross entropy: each first text must find its own second text
among those of a group of rows, and vice versa (Radford et al. 2021).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.data.batching.examples import ExampleBatch, Examples, padded
from seqtrain.data.batching.plan import ExampleChunk, deal
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.corpus import Corpus
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.tasks.base import Baseline, ExampleTask, Facts, LossTerms, Metric, Reduced, Sample, SampleOptions, Say
from seqtrain.tasks.baselines.texts import left_out, tfidf_cosines
from seqtrain.tasks.metrics.retrieval import Ranks, chance, cosines, equal, partition, rank
from seqtrain.tasks.output import TextPool, first_position_incompatibility, pool_text

FIRST_TEMPERATURE = 0.05  # divides cosines; the inverse of sentence-transformers' scale of 20
LEAST_TEMPERATURE = 0.01  # of a learned temperature, as in CLIP
NEAREST = 0  # the target of a row: its own second text
KEY_BYTES = 6  # bytes of a text's hash: exact in float64, which evaluation uses for sums


@dataclass(kw_only=True)
class PairBatch(ExampleBatch):
    """First texts as `tokens`; `targets` (B,) are NEAREST."""

    second_tokens: Int[Tensor, "B U"]
    second_lengths: Int[Tensor, " B"]
    keys: Int[Tensor, "B 2"]  # hashes of both texts: equal for equal texts
    groups: Int[Tensor, " B"]  # group of each row; negatives come from the same group
    num_rows: int  # number of rows of the split


class PairExamples(Examples):
    """`start, tokens..., separator` of both texts; each is cut at its end."""

    def __init__(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, group_size: int) -> None:
        self.columns = rows.columns["source"], rows.columns["target"]
        self.edges = np.array([preprocessor.tokenizer.start]), np.array([preprocessor.tokenizer.separator])
        self.longest = max_length - 2
        self.group_size = group_size
        whole = np.stack([column.lengths for column in self.columns], 1)
        self.lengths = np.minimum(whole, self.longest) + 2
        self.cut = int((whole > self.longest).any(1).sum())  # rows

    def totals(self, index: Int[np.ndarray, " B"], epoch: int) -> dict[str, int]:
        return {"loss": len(index)}

    def batch(self, chunk: ExampleChunk, lanes: slice) -> PairBatch:
        """Return the groups of a step that begin in these lanes, or a batch without targets if there are none.

        Groups depend on the step alone and are read whole, so that a row has the same negatives for any number of
        processes and micro-batches.
        """
        count = max(chunk.lanes // self.group_size, 1)
        groups = [deal(chunk.lanes, count, number) for number in range(count)]
        mine = [group for group in groups if lanes.start <= group.start < lanes.stop]
        totals = self.totals(chunk.examples, chunk.epoch)
        if not mine:
            return self.collate(chunk.examples[:1], chunk.epoch, totals).without_targets()
        batch = self.collate(chunk.examples[mine[0].start : mine[-1].stop], chunk.epoch, totals)
        sizes = torch.tensor([group.stop - group.start for group in mine])
        return replace(batch, groups=torch.arange(len(mine)).repeat_interleave(sizes))

    def collate(self, index: Int[np.ndarray, " B"], epoch: int, totals: dict[str, int]) -> PairBatch:
        """Return these examples as one group."""
        start, end = self.edges
        (tokens, lengths), (second_tokens, second_lengths) = (
            padded([np.concatenate([start, column[row][: self.longest], end]) for row in index])
            for column in self.columns
        )
        keys = np.stack([text_keys(column, index) for column in self.columns], 1)
        return PairBatch(
            tokens=tokens,
            lengths=lengths,
            targets=torch.full((len(index),), NEAREST),
            index=torch.from_numpy(index),
            count=int(lengths.sum() + second_lengths.sum()),
            totals=totals,
            second_tokens=second_tokens,
            second_lengths=second_lengths,
            keys=torch.from_numpy(keys),
            groups=torch.zeros(len(index), dtype=torch.int64),
            num_rows=len(self.lengths),
        )


def text_keys(column: Corpus, index: Int[np.ndarray, " B"]) -> Int[np.ndarray, " B"]:
    """Return a hash of the tokens of each text; equal texts have equal hashes."""
    hashes = (hashlib.blake2b(column[row].astype(np.int64).tobytes(), digest_size=KEY_BYTES) for row in index)
    return np.array([int.from_bytes(each.digest()) for each in hashes], dtype=np.int64)


class Pairs(ExampleTask):
    """Cross entropy of a row's own second text among those of its group, and of its first text, with equal weights."""

    requires = Capability.UNCONDITIONAL
    fields = ("source", "target")
    metrics = (
        Metric("loss", "min", "nats a pair"),
        Metric("recall_1", "max", "recall@1", of_answers=True),
        Metric("recall_5", "max", "recall@5", of_answers=True),
        Metric("recall_10", "max", "recall@10", of_answers=True),
        Metric("mrr", "max", "MRR", of_answers=True),
    )
    monitor = "mrr"
    example_text = ""  # the output for a text is a vector, not a text
    trained_by = ("temperature", "group_size")
    known_baselines = MappingProxyType(
        {
            "chance": Baseline("candidates in random order", "chance"),
            "tfidf": Baseline("TF-IDF of character trigrams", "TF-IDF"),
        }
    )

    def __init__(self, *, pool: TextPool, temperature: Literal["learned"] | float, group_size: int, dim: int) -> None:
        """Store the options and create the temperature.

        Args:
            pool: Pooling of the hidden states of a text.
            temperature: Divides the cosines; learned: trained, starting from FIRST_TEMPERATURE.
            group_size: Minimum number of rows that are each other's negatives, if a step has so many; always below
            twice this.
            dim: D, width of the hidden states.
        """
        super().__init__()
        self.text_pool: TextPool = pool
        self.group_size = group_size
        self.dim = dim
        first = FIRST_TEMPERATURE if temperature == "learned" else temperature
        log_scale = torch.tensor([-math.log(first)])  # of shape (1,), because FSDP cannot shard a scalar
        self.log_scale: Tensor
        if temperature == "learned":
            self.log_scale = nn.Parameter(log_scale)
        else:
            self.register_buffer("log_scale", log_scale, persistent=False)

    def incompatibility(self, model: SequenceModel) -> str | None:
        return first_position_incompatibility(model, self.text_pool, "task.pool=mean_all, mean or last")

    def no_distance(self) -> str | None:
        """Return the reason why a loss has no single distance from its input."""
        return "it compares vectors of whole texts"

    def vectors(
        self, model: SequenceModel, tokens: Int[Tensor, "B T"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B D"]:
        """Return a vector of each text, including its start and separator, in at least float32."""
        hidden = model.encode(tokens, lengths)
        hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        return pool_text(hidden, lengths, self.text_pool, before=1, after=1)

    def logits(self, model: SequenceModel, hidden: Float[Tensor, "B 2 D"]) -> Float[Tensor, "B B"]:
        """Return the cosine of each row's first vector with each row's second one, divided by the temperature."""
        if self.training and isinstance(self.log_scale, nn.Parameter):
            with torch.no_grad():  # not a clamp in the graph, which has no gradient beyond its limit
                self.log_scale.clamp_(max=-math.log(LEAST_TEMPERATURE))
        device = "cpu" if hidden.is_meta else hidden.device.type  # torch has no autocast for the meta device
        with torch.autocast(device, enabled=False):  # bf16 has three digits
            first, second = F.normalize(hidden, dim=-1).unbind(1)
            return first @ second.T * self.log_scale.exp()

    def evaluate(self, model: SequenceModel, batch: PairBatch, state: State | None) -> tuple[LossTerms, State]:
        """Return `loss` in nats, among the second texts of a group.

        Outside training, also return the `vectors` of both texts in a table of the whole split, because they are ranked
        among all rows. There `loss` is only the part known before ranking: the negative scores of the correct answers.
        """
        first = self.vectors(model, batch.tokens, batch.lengths)
        second = self.vectors(model, batch.second_tokens, batch.second_lengths)
        scores = self.logits(model, torch.stack([first, second], 1))
        known, count = batch.targets != IGNORED, batch.num_targets
        if self.training:
            scores = scores.masked_fill(not_negatives(batch), -math.inf)
            own = torch.arange(len(scores), device=scores.device)
            forth, back = (F.cross_entropy(way, own, reduction="none") for way in (scores, scores.T))
            return {"loss": ((forth + back).where(known, 0.0).sum() / 2, count)}, {}
        row = torch.cat([first.double(), second.double(), batch.keys.double(), torch.ones_like(first[:, :1])], 1)
        table = row.new_zeros(batch.num_rows, row.shape[1])
        table[batch.index] = row.where(known.unsqueeze(1), 0.0)
        right = scores.diagonal().double().where(known, 0.0).sum()
        return {"loss": (-right, count), "vectors": (table, count)}, {}

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        """Return `loss` in nats a pair; for evaluation, with all rows as negatives, `recall_1` to `recall_10`, `mrr`.

        First texts are queries, and second texts are ranked.
        """
        total, count = totals["loss"]
        if "vectors" not in totals:
            return {"loss": total / count}
        table = np.array(totals["vectors"][0])
        times = np.rint(table[:, -1]).astype(int)  # a bootstrap may draw a row several times or never
        table = np.repeat(table / np.maximum(times, 1)[:, None], times, axis=0)
        first, second = np.split(table[:, :-3], 2, axis=1)
        scores, is_right = cosines(first, second), equal(*np.rint(table[:, -3:-1]).T)
        scale = self.log_scale.detach().double().exp().item()
        loss = total / count + partition(lambda block: scale * scores(block), is_right, count=len(table))
        return {"loss": loss, **_figures(rank(scores, is_right, count=len(table), candidates=len(table)))}

    def head_flops(self) -> float:
        return 4.0 * self.dim * self.group_size  # both directions

    def examples(self, rows: Rows, preprocessor: Preprocessor, *, max_length: int, seed: int) -> PairExamples:
        return PairExamples(rows, preprocessor, max_length=max_length, group_size=self.group_size)

    def baselines(self, train: Rows, split: Rows, preprocessor: Preprocessor, say: Say) -> dict[str, dict[str, float]]:
        """Measure TF-IDF and chance on all rows of `split`."""
        count = len(split)
        is_right = equal(*(text_keys(split.columns[field], np.arange(count)) for field in self.fields))
        found = {"chance": _figures(chance(is_right, count=count, candidates=count))}
        first, second = (split.texts(field) for field in self.fields)
        reason = left_out([*first, *second])
        if reason:
            say(f"baseline tfidf is left out: {reason}")
            return found
        ranks = rank(tfidf_cosines(first, second), is_right, count=count, candidates=count)
        return found | {"tfidf": _figures(ranks)}

    def samples(
        self, model: SequenceModel, batch: PairBatch, preprocessor: Preprocessor, options: SampleOptions
    ) -> Sequence[Sample]:
        """Return three lines for each example: its texts, and the nearest of the second texts shown."""
        sides = (batch.tokens, batch.lengths), (batch.second_tokens, batch.second_lengths)
        vectors = torch.stack([self.vectors(model, *side) for side in sides], 1)
        nearest = self.logits(model, vectors).argmax(1).tolist()
        first, second = (_texts(preprocessor, *side) for side in sides)
        samples = []
        for text, reference, place in zip(first, second, nearest, strict=True):
            columns = {"text": text, "reference": reference, "nearest": second[place]}
            samples.append(Sample("\n".join(f"{name}: {words}" for name, words in columns.items()), columns))
        return samples


def not_negatives(batch: PairBatch) -> Bool[Tensor, "B B"]:
    """Return a mask of second texts that are not negatives of a first text; its own second text is not masked.

    These are texts of other groups, of rows that share a text with it, and texts equal to its own second text.
    """
    first, second = batch.keys.unbind(1)
    same = (first[:, None] == first) | (second[:, None] == second) | (first[:, None] == second)
    others = same | (batch.groups[:, None] != batch.groups)
    return others & ~torch.eye(len(first), dtype=torch.bool, device=first.device)


def _figures(ranks: Ranks) -> dict[str, float]:
    return {name.replace("@", "_"): value for name, value in ranks.plain().items()}


def _texts(preprocessor: Preprocessor, tokens: Int[Tensor, "B T"], lengths: Int[Tensor, " B"]) -> list[str]:
    """Return texts without their special tokens, each in one line."""
    decoded = (
        preprocessor.tokenizer.decode(ids[1 : length - 1].tolist()) for ids, length in zip(tokens, lengths, strict=True)
    )
    return [" ".join(text.split()) for text in decoded]
