"""Probes of a run's vectors: prediction of labels and retrieval of pairs, compared with untrained baselines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from seqtrain.data.sources.labelled import Rows
from seqtrain.errors import UserError
from seqtrain.inference import probing
from seqtrain.tasks.baselines.texts import tfidf_cosines
from seqtrain.tasks.metrics.retrieval import Marks, Scores, chance, cosines, equal, rank
from seqtrain.training.model_and_task import make_pair

if TYPE_CHECKING:
    from seqtrain.inference.trained import Trained
    from seqtrain.tasks.output import TextPool

GROUP = 1024  # texts whose tokens are in memory at a time

Ranked = dict[str, dict[str, float]]
"""The retrieval metrics of each kind of vectors, and of chance."""


def untrained(trained: Trained) -> Trained:
    """Return the run with the random weights of its seed, before any step, and with its tokenizer.

    A run with `init_from` started from other weights; here they are random nevertheless.
    """
    opened = trained.opened
    with torch.random.fork_rng(devices=[]):  # leave the caller's random state unchanged
        model, task = make_pair(opened.config, opened.preprocessor)
    return replace(trained, opened=replace(opened, model=model.eval(), task=task.eval(), step=0))


def probe_labels(
    trained: Trained,
    texts: Sequence[str],
    labels: Sequence[str] | Sequence[float],
    *,
    kind: probing.Kind = "names",
    pool: TextPool = "mean",
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
        raise UserError("labels: no text contains a word, which TF-IDF needs")
    # Baselines: the untrained model, because random recurrences and attention already mix words usefully; and TF-IDF,
    # because a trained representation should beat a bag of words.
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
    trained: Trained, sources: Sequence[str], targets: Sequence[str], *, pool: TextPool = "mean"
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
        UserError: If a target cannot be encoded like a source, or all pairs are equal.
    """
    if not trained.opened.preprocessor.shared:
        raise UserError(
            f"run {trained.directory}: source and target have separate vocabularies, so the encoder cannot read "
            "targets; train with task.shared_vocab=true"
        )
    keys = [_groups(sources), _groups(targets)]
    is_right = equal(*keys)
    # Not 1 / pairs: equal texts count as right for each other, so chance depends on the file.
    by_chance = chance(is_right, count=len(sources), candidates=len(sources))
    if by_chance.recall(1) == 1:
        raise UserError("pairs: all pairs are equal; give at least two pairs of different texts")
    # Both directions: a few vectors that are near to everything harm one direction more than the other.
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


def _vectors(trained: Trained, texts: Sequence[str], pool: TextPool) -> Float[np.ndarray, "n D"]:
    """Embed all texts, with tokens and hidden states in memory for one group at a time."""
    groups = []
    for begin in range(0, len(texts), GROUP):
        groups.append(trained.embed(texts[begin : begin + GROUP], pool=pool).float().numpy())
    return np.concatenate(groups)


def _neighbours(vectors: dict[str, probing.Features], texts: Sequence[str], labels: np.ndarray, rows: Rows) -> Ranked:
    """Rank the nearest text with the same label. Equal texts are not each other's neighbours."""
    _, codes = np.unique(labels, return_inverse=True)
    # An equal text would be nearest with any vectors, and usually has the same label.
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
    # Count different texts, not rows: equal texts are in one fold, and each fold needs every label.
    counts = Counter(labels[group] for group in set(rows.groups))
    if len(set(labels)) == 1:
        raise UserError(f"labels: every text has the label {labels[0]}; there is nothing to tell apart")
    name, count = min(counts.items(), key=lambda item: (item[1], item[0]))
    if count < folds:
        few = f"labels: {name} has {count} different text{'s' * (count != 1)}, fewer than {folds} folds"
        raise UserError(f"{few}; give more, or leave its rows out (labels that are numbers: --numbers)")
