"""Laws of a probe: nothing of a fold is known to what is measured on it, and its baselines are what they say."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from seqtrain import UserError
from seqtrain.data.sources.labelled import Rows, fold_of_rows
from seqtrain.inference import probing
from seqtrain.inference.probing import INNER_FOLDS, PENALTIES, Kind, probe

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
