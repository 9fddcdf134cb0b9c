"""Laws of a probe: nothing of a fold is known to what is measured on it, and its baselines are what they say."""

from __future__ import annotations

import itertools
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest

from seqtrain import UserError
from seqtrain.data.sources.labelled import Rows, fold_of_rows
from seqtrain.inference import probing
from seqtrain.inference.probing import INNER_FOLDS, PENALTIES, Kind, probe
from seqtrain.tasks.metrics import retrieval
from seqtrain.tasks.metrics.retrieval import DEPTHS, Ranks, chance, cosines, equal, rank

pytest.importorskip("sklearn")
FOLDS = 3


def rows_of(texts: list[str], labels: Any) -> Rows:
    return Rows.of({"text": text, "label": str(label)} for text, label in zip(texts, labels, strict=True))


@pytest.fixture
def drawn() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Vectors, names and texts that have nothing to do with each other."""
    draw = np.random.default_rng(1)
    texts = [" ".join(map(str, draw.integers(0, 50, 6))) for _ in range(60)]
    return draw.standard_normal((60, 60)), np.array(["a", "b"])[draw.integers(0, 2, 60)], texts


@pytest.mark.parametrize("of", ["vectors", "texts"])
def test_what_is_measured_on_a_fold_has_learnt_nothing_of_its_rows(
    of: str, drawn: tuple[np.ndarray, np.ndarray, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, labels, texts = drawn
    rows = rows_of(texts, labels)
    fold = fold_of_rows(rows, FOLDS, 0) == 0
    learnt: list[Any] = []
    sound = probing._fitted

    def watched(inputs: Any, known: np.ndarray, asked: Any, kind: Kind, penalty: float) -> Any:
        learnt.append((inputs.toarray() if hasattr(inputs, "toarray") else inputs, known, penalty))
        return sound(inputs, known, asked, kind, penalty)

    monkeypatch.setattr(probing, "_fitted", watched)
    fits = INNER_FOLDS * len(PENALTIES) + 1  # of the first fold
    seen = []
    for change in (False, True):
        learnt.clear()
        others, names, words = vectors.copy(), labels.copy(), list(texts)
        if change:
            others[fold] = 1e3 * others[fold] + 7
            names[fold] = "a"
            words = [text + " 1 2 3 new" if is_in else text for text, is_in in zip(texts, fold, strict=True)]
        features = {"it": others if of == "vectors" else words}
        probe(features, rows, names, kind="names", folds=FOLDS, seed=0)
        seen.append(learnt[:fits])
    for before, after in zip(*seen, strict=True):
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_text_that_stands_twice_is_never_learnt_from_and_asked(
    drawn: tuple[np.ndarray, np.ndarray, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, labels, texts = drawn
    names = np.concatenate([labels, labels])
    rows = rows_of([*texts, *(text.replace(" ", "  ").upper() for text in texts)], names)
    asked_of: list[set[int]] = []
    sound = probing._prepared

    def watched(features: Any, train: np.ndarray, test: np.ndarray) -> Any:
        learnt, asked = set((train % 60).tolist()), set((test % 60).tolist())
        assert not learnt & asked
        asked_of.append(asked)
        return sound(features, train, test)

    monkeypatch.setattr(probing, "_prepared", watched)
    probe({"it": np.concatenate([vectors, vectors])}, rows, names, kind="names", folds=FOLDS, seed=0)
    assert len(asked_of) == FOLDS * (INNER_FOLDS + 1)


@pytest.mark.parametrize("kind", ["names", "numbers"])
def test_labels_that_stand_in_the_vectors_are_read_off_them_and_nothing_else_reads_them(kind: Kind) -> None:
    draw = np.random.default_rng(1)
    vectors = draw.standard_normal((90, 4)) * (1, 100, 1e-3, 1) + 5
    numbers = vectors @ (1, 0.02, 2000, 0)
    labels = np.where(numbers > np.median(numbers), "high", "low") if kind == "names" else numbers
    rows = rows_of([f"text {number}" for number in range(90)], labels if kind == "names" else [0] * 90)
    found = probe({"it": vectors}, rows, labels, kind=kind, folds=FOLDS, seed=0)
    if kind == "names":
        assert found["it"].mean("accuracy") > 0.9
        assert found["most_frequent"].mean("accuracy") == pytest.approx(0.5, abs=0.05)
        return
    assert found["it"].mean("mse") < 0.01 * numbers.var()
    assert found["mean"].mean("mse") == pytest.approx(numbers.var(), rel=0.1)


def test_the_baseline_is_the_most_frequent_label_of_the_other_folds_and_the_spread_is_over_folds() -> None:
    labels = np.array(["a"] * 12 + ["b"] * 6)
    rows = rows_of([f"text {number}" for number in range(18)], labels)
    found = probe({}, rows, labels, kind="names", folds=FOLDS, seed=0)["most_frequent"]
    assert found.folds["accuracy"] == pytest.approx([2 / 3] * FOLDS)
    assert found.folds["macro_f1"] == pytest.approx([0.8 / 2] * FOLDS)
    assert found.spread("accuracy") == 0
    assert probing.Measured({"mse": [1.0, 3.0]}, []).spread("mse") == pytest.approx(2**0.5)


@pytest.mark.long
def test_a_seed_deals_the_same_folds_and_another_seed_others(drawn: tuple[np.ndarray, np.ndarray, list[str]]) -> None:
    vectors, labels, texts = drawn
    rows = rows_of(texts, labels)
    found = []
    for seed in (0, 0, 1):
        measured = probe({"it": vectors, "tfidf": texts}, rows, labels, kind="names", folds=FOLDS, seed=seed)
        found.append([measured[name].plain() for name in measured])
    assert found[0] == found[1]
    assert found[0] != found[2]


def test_without_scikit_learn_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UserError, match=r"^seqtrain probe needs scikit-learn: pip install 'seqtrain\[linear\]'$"):
        probing.check_installed()


# -- retrieval: ties are in random order, equal texts answer for each other --------------------------------------


def ranked(left: np.ndarray, right: np.ndarray, *keys: list[int]) -> Ranks:
    size = {"count": len(left), "candidates": len(right)}
    return rank(cosines(left, right), equal(*(keys or [list(range(len(left)))])), **size)


def test_a_vector_that_says_nothing_scores_what_chance_scores() -> None:
    noise, count = np.random.default_rng(1).standard_normal((40, 8)), 40
    by_chance = chance(equal(list(range(count))), count=count, candidates=count).plain()
    assert by_chance["recall@1"] == pytest.approx(1 / count)
    assert by_chance["recall@10"] == pytest.approx(10 / count)
    assert by_chance["mrr"] == pytest.approx(sum(1 / place for place in range(1, count + 1)) / count)
    for constant in (np.zeros((count, 8)), np.ones((count, 8)), 1 + 1e-8 * noise):
        assert ranked(constant, constant[::-1]).plain() == pytest.approx(by_chance)


@pytest.mark.parametrize("seed", range(4))
def test_figures_are_the_mean_over_every_order_of_the_ties(seed: int) -> None:
    draw = np.random.default_rng(seed)
    scores = draw.integers(0, 3, (4, 6)).astype(float)
    right = draw.integers(0, 2, (4, 6)).astype(bool)
    right[:, 0] = True
    found = rank(lambda block: scores[block], lambda block: right[block].copy(), count=4, candidates=6)
    places = []
    for query, order in itertools.product(range(4), itertools.permutations(range(6))):
        ordered = sorted(order, key=lambda candidate: -scores[query, candidate])
        places.append(next(place for place, candidate in enumerate(ordered, 1) if right[query, candidate]))
    assert found.mrr() == pytest.approx(np.mean([1 / place for place in places]))
    for depth in DEPTHS:
        assert found.recall(depth) == pytest.approx(np.mean([place <= depth for place in places])), depth


def test_blocks_change_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    left, right = draw.standard_normal((37, 3)), draw.standard_normal((37, 3))
    keys = (draw.integers(0, 30, 37).tolist(), draw.integers(0, 30, 37).tolist())
    whole = ranked(left, right, *keys)
    monkeypatch.setattr(retrieval, "MAX_CELLS", 5 * 37)
    for one, other in zip(ranked(left, right, *keys), whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_stands_beside_an_equal_text_is_right() -> None:
    left = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    right = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, -1.0]])
    # The first source is the second one, too: what that one's target answers is an answer to it.
    assert ranked(left, right, [0, 0, 2], [0, 1, 2]).recall(1) == pytest.approx(2 / 3)
    assert ranked(left, right, [0, 1, 2], [0, 1, 2]).recall(1) == pytest.approx(1 / 3)


def test_a_query_is_no_candidate_for_itself_and_one_without_an_answer_is_not_asked() -> None:
    vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    labels, same = equal([0, 0, 1]), equal([0, 1, 2])
    found = rank(cosines(vectors, vectors), labels, same, count=3, candidates=3)
    assert len(found.above) == 2  # the third has a label of its own
    assert found.recall(1) == 1
    assert chance(labels, same, count=3, candidates=3).recall(1) == pytest.approx(1 / 2)


def test_memory_does_not_grow_with_queries_times_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "MAX_CELLS", 1 << 15)
    count = 3000
    vectors = np.random.default_rng(1).standard_normal((count, 4))
    tracemalloc.start()
    try:
        ranked(vectors, vectors)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < count * count  # bytes, of which all cosines would be eight times as many
