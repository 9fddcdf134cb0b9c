"""A run's vectors put to the test: labels read off them, and pairs found by them, beside what needs no training."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from seqtrain.data.sources.labelled import Rows
from seqtrain.errors import UserError
from seqtrain.inference import probing
from seqtrain.training.model_and_task import make_pair

if TYPE_CHECKING:
    from seqtrain.inference.embedding import Pool
    from seqtrain.inference.trained import Trained

GROUP = 1024  # texts whose tokens are in memory at a time

Ranked = dict[str, dict[str, float]]
"""For each kind of vectors, and for chance, the figures of its ranks."""


def untrained(trained: Trained) -> Trained:
    """Return the run with the weights that its seed draws, before any step. It keeps its tokenizer.

    A run with `init_from` began with other weights; these are random nevertheless.
    """
    opened = trained.opened
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
        model, task = make_pair(opened.config, opened.preprocessor)
    return replace(trained, opened=replace(opened, model=model.eval(), task=task.eval(), step=0))


def probe_labels(
    trained: Trained,
    texts: Sequence[str],
    labels: Sequence[str] | Sequence[float],
    *,
    kind: probing.Kind = "names",
    pool: Pool = "mean",
    folds: int = 5,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure how well linear models predict labels from a run's vectors, as in `seqtrain probe RUN --labels`.

    Args:
        trained: the run.
        texts: texts that the run can embed.
        labels: one for each text: names, or numbers.
        kind: kind of the labels.
        pool: how vectors are pooled.
        folds: number of cross-validation folds.
        seed: assigns the texts to folds.

    Returns:
        `results`, by features (the run's vectors, those of the same model untrained, TF-IDF, none), and, for labels
        that are names, `neighbours`: whether the nearest other texts have the same label.

    Raises:
        UserError: If there is nothing to learn or to measure.
    """
    rows = Rows.of(
        ({"text": text, "label": str(label)} for text, label in zip(texts, labels, strict=True)),
        stratify=kind == "names",
    )
    values = np.array(labels, dtype=np.float64 if kind == "numbers" else None)
    _check_labels(rows, values, kind, folds)
    if not any(re.search(probing.WORD, text) for text in texts):
        raise UserError("labels: no text has a word, of which TF-IDF could be taken")
    # Beside an untrained twin, since random recurrences and attention mix words usefully already; beside TF-IDF, since
    # a bag of words is what a representation must beat to be worth its training.
    vectors: dict[str, probing.Features] = {
        "run": _vectors(trained, texts, pool),
        "untrained": _vectors(untrained(trained), texts, pool),
        "tfidf": texts,
    }
    found = probing.probe(vectors, rows, values, kind=kind, folds=folds, seed=seed)
    result: dict[str, Any] = {
        "rows": len(texts),
        "repeated": dict(zip(("texts", "rows"), rows.repeated(), strict=True)),
        "kind": kind,
        "labels": Counter(labels) if kind == "names" else None,
        "folds": folds,
        "seed": seed,
        "results": {name: measured.plain() for name, measured in found.items()},
    }
    if kind == "names":
        result["neighbours"] = _neighbours(vectors, texts, values, rows)
    return result


def probe_pairs(
    trained: Trained, sources: Sequence[str], targets: Sequence[str], *, pool: Pool = "mean"
) -> dict[str, Any]:
    """Measure how early a run's vectors find the counterpart of a text, as in `seqtrain probe RUN --pairs`.

    A target is encoded by itself, like a source: a vector that depends on its source would reveal the answer.

    Args:
        trained: the run.
        sources: texts that the run can embed.
        targets: the counterpart of each source.
        pool: how vectors are pooled.

    Returns:
        `source_to_target` and `target_to_source`, each with the ranks by kind of vectors; and how often texts repeat.

    Raises:
        UserError: If a target cannot be encoded like a source, or there is nothing to tell apart.
    """
    if not trained.opened.preprocessor.shared:
        raise UserError(
            f"run {trained.directory}: source and target have vocabularies of their own, so what reads sources cannot "
            "read a target; train with task.shared_vocab=true"
        )
    keys = [_groups(sources), _groups(targets)]
    is_right = equal(*keys)
    # Not 1 / pairs: equal texts answer for each other, so that chance depends on the file.
    by_chance = chance(is_right, count=len(sources), candidates=len(sources))
    if by_chance.recall(1) == 1:
        raise UserError("pairs: each is right for every other one; give at least two pairs of different texts")
    # Both ways: a few vectors that are near to everything spoil one direction more than the other.
    forth: Ranked = {}
    back: Ranked = {}
    for name, run in (("run", trained), ("untrained", untrained(trained))):
        left, right = _vectors(run, sources, pool), _vectors(run, targets, pool)
        forth[name] = _ranked(cosines(left, right), is_right, len(sources))
        back[name] = _ranked(cosines(right, left), is_right, len(sources))
    forth["tfidf"] = _ranked(tfidf_cosines(sources, targets), is_right, len(sources))
    back["tfidf"] = _ranked(tfidf_cosines(targets, sources), is_right, len(sources))
    forth["chance"] = back["chance"] = by_chance.plain()
    equal_sides = sum(source == target for source, target in zip(sources, targets, strict=True))
    return {
        "pairs": len(sources),
        "repeated_sources": _repeated(keys[0]),
        "repeated_targets": _repeated(keys[1]),
        "equal_sides": equal_sides,
        "source_to_target": forth,
        "target_to_source": back,
    }


def _vectors(trained: Trained, texts: Sequence[str], pool: Pool) -> Float[np.ndarray, "n D"]:
    """Embed all texts. Tokens and hidden states are in memory for one group at a time."""
    groups = []
    for begin in range(0, len(texts), GROUP):
        groups.append(trained.embed(texts[begin : begin + GROUP], pool=pool).float().numpy())
    return np.concatenate(groups)


def _neighbours(vectors: dict[str, probing.Features], texts: Sequence[str], labels: np.ndarray, rows: Rows) -> Ranked:
    """Rank the nearest text with the same label. Equal texts are not each other's neighbours."""
    _, codes = np.unique(labels, return_inverse=True)
    # An equal text would be nearest whatever the vectors are, and mostly has the same label.
    is_right, is_same = equal(codes.tolist()), equal(rows.groups)
    found: Ranked = {}
    for name in ("run", "untrained"):
        values = np.asarray(vectors[name])
        found[name] = _ranked(cosines(values, values), is_right, len(texts), is_same)
    found["tfidf"] = _ranked(tfidf_cosines(texts, texts), is_right, len(texts), is_same)
    found["chance"] = chance(is_right, is_same, count=len(texts), candidates=len(texts)).plain()
    return found


def _ranked(scores: Scores, is_right: Marks, count: int, is_left_out: Marks | None = None) -> dict[str, float]:
    return rank(scores, is_right, is_left_out, count=count, candidates=count).plain()


def _groups(texts: Sequence[str]) -> list[int]:
    """Return, for each text, the index of the first text equal to it apart from case and white space."""
    return Rows.of(({"text": text, "label": ""} for text in texts), stratify=False).groups


def _repeated(groups: Sequence[int]) -> int:
    """Count the texts that repeat an earlier one."""
    return len(groups) - len(set(groups))


def _check_labels(rows: Rows, labels: np.ndarray, kind: probing.Kind, folds: int) -> None:
    """Raise UserError if there is nothing to learn, or if a label is missing inside or outside a fold."""
    if folds < probing.MIN_FOLDS:
        raise UserError(f"folds={folds}: must be at least {probing.MIN_FOLDS}")
    different = len(set(rows.groups))
    if different < folds:
        raise UserError(f"labels: there are {different} different texts, fewer than {folds} folds")
    if kind == "numbers":
        if not len(labels) or labels.min() == labels.max():
            raise UserError(f"labels: every text has the number {labels[0]:g}; there is nothing to predict")
        return
    # Different texts, not rows: equal ones stand in one fold, and a fold without a label measures nothing of it.
    counts = Counter(labels[group] for group in set(rows.groups))
    if len(set(labels)) == 1:
        raise UserError(f"labels: every text has the label {labels[0]}; there is nothing to tell apart")
    name, count = min(counts.items(), key=lambda item: (item[1], item[0]))
    if count < folds:
        few = f"labels: {name} has {count} different text{'s' * (count != 1)}, fewer than {folds} folds"
        raise UserError(f"{few}; give more, or leave its rows out (labels that are numbers: --numbers)")


DEPTHS = (1, 5, 10)
# Cosines this near are equal: a text has another last bit among others, and a constant vector has many bits of noise.
TIE = 1e-6
MAX_CELLS = 1 << 22  # cosines that are in memory at a time: 32 MiB, and a few arrays of that shape beside them

Scores = Callable[[slice], Float[np.ndarray, "b N"]]
"""The cosine of each query of a block with each candidate."""
Marks = Callable[[slice], Bool[np.ndarray, "b N"]]
"""Of each query of a block a mark on some candidates."""


class Ranks(NamedTuple):
    """The rank of the first right candidate of each query, as counts."""

    above: Int[np.ndarray, " n"]  # wrong ones with a larger cosine
    wrong: Int[np.ndarray, " n"]  # wrong ones with the same cosine
    right: Int[np.ndarray, " n"]  # right ones with the same cosine; at least one

    def recall(self, depth: int) -> float:
        """Return the share of queries with a right candidate in the first `depth`, expected over the order of ties."""
        drawn = depth - self.above  # places that are left to the candidates with this cosine
        missed = np.ones(len(self.above))
        for place in range(depth):
            # The next place goes to a wrong one, too: drawn without putting back.
            chance = np.maximum(self.wrong - place, 0) / np.maximum(self.wrong + self.right - place, 1)
            missed = np.where(place < drawn, missed * chance, missed)
        return float(np.where(drawn > 0, 1 - missed, 0.0).mean())

    def mrr(self) -> float:
        """Return the mean of 1 / the place of the first right candidate, expected over the order of ties."""
        # Most queries stand in the same few places.
        cases, counts = np.unique(np.stack(self), axis=1, return_counts=True)
        total = 0.0
        for case, count in zip(cases.T.tolist(), counts.tolist(), strict=True):
            total += count * _reciprocal(*case)
        return total / len(self.above)

    def plain(self) -> dict[str, float]:
        """Return the measures by name."""
        return {**{f"recall@{depth}": self.recall(depth) for depth in DEPTHS}, "mrr": self.mrr()}


def _reciprocal(above: int, wrong: int, right: int) -> float:
    """Return the expected 1 / place of the first of `right` among `wrong`, in random order after `above` others."""
    if wrong == 0:
        return 1 / (above + 1)
    before = np.arange(wrong + 1)  # wrong ones that come before it
    missed = np.concatenate([[1.0], np.cumprod((wrong - before[:-1]) / (wrong + right - before[:-1]))])
    return float((missed * right / (wrong + right - before) / (above + before + 1)).sum())


def rank(scores: Scores, is_right: Marks, is_left_out: Marks | None = None, *, count: int, candidates: int) -> Ranks:
    """Rank the candidates of each query. Memory does not grow with queries times candidates.

    Args:
        scores: the cosines of a block of queries.
        is_right: which candidates answer a query.
        is_left_out: which candidates are excluded for a query, such as the query itself.
        count: number of queries.
        candidates: number of candidates.

    Returns:
        The ranks of the queries that have a right candidate.
    """
    parts = []
    # Whole rows, not tiles: the place of the best right candidate must be known before the others are counted.
    step = max(1, MAX_CELLS // candidates)
    for begin in range(0, count, step):
        block = slice(begin, min(begin + step, count))
        cosines, right = scores(block), is_right(block)
        if is_left_out is not None:
            left_out = is_left_out(block)
            right &= ~left_out
            cosines = np.where(left_out, -np.inf, cosines)
        # The first right one alone decides recall and 1 / place; whatever stands behind it does not count.
        best = np.where(right, cosines, -np.inf).max(1, keepdims=True)
        # A query without a right candidate cannot be answered: it would count as a miss of the vectors.
        asked = np.isfinite(best[:, 0])
        cosines, right, best = cosines[asked], right[asked], best[asked]
        tied = np.abs(cosines - best) <= TIE
        above = (cosines > best + TIE).sum(1)
        parts.append((above, (tied & ~right).sum(1), (tied & right).sum(1)))
    return Ranks(*map(np.concatenate, zip(*parts, strict=True)))


def chance(is_right: Marks, is_left_out: Marks | None = None, *, count: int, candidates: int) -> Ranks:
    """Rank with equal scores for all candidates."""

    def constant(block: slice) -> Float[np.ndarray, "b N"]:
        return np.zeros((block.stop - block.start, candidates))

    return rank(constant, is_right, is_left_out, count=count, candidates=candidates)


def cosines(queries: Float[np.ndarray, "n D"], candidates: Float[np.ndarray, "N D"]) -> Scores:
    """Return cosines of vectors; a vector of zeros has cosine 0 with all others."""
    left, right = _unit(queries), _unit(candidates).T
    return lambda block: left[block] @ right


def tfidf_cosines(queries: Sequence[str], candidates: Sequence[str]) -> Scores:
    """Return cosines of TF-IDF over character trigrams, of which two languages share more than of words.

    The inverse document frequencies are computed over all queries and candidates together.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), sublinear_tf=True)
    # No label and no pairing is looked at here, only letters, so that to fit it on what is asked gives nothing away.
    letters.fit([*queries, *candidates])
    left: Any = letters.transform(queries)  # sparse matrices, which pyright does not know
    right: Any = letters.transform(candidates)
    right = right.T.tocsr()
    return lambda block: (left[block] @ right).toarray()


def equal(*columns: Sequence[int]) -> Marks:
    """Mark candidates that have the same key as the query in one of the columns; row i of both belongs to one pair."""
    keys = [np.asarray(column) for column in columns]

    def marks(block: slice) -> Bool[np.ndarray, "b N"]:
        found = keys[0][block, None] == keys[0]
        for key in keys[1:]:
            found |= key[block, None] == key
        return found

    return marks


def _unit(vectors: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
    """Scale vectors to length 1 in float64, where rounding errors of their products are far below TIE."""
    vectors = vectors.astype(np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float64).tiny)
