"""Laws of folds: disjoint, together everything, balanced by label, equal texts together, the same every time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from unicodedata import normalize

import pytest

from seqtrain.data.sources.labelled import Labelled
from seqtrain.errors import UserError

FOLDS = 5


def write(path: Path, copies: int = 1) -> Path:
    lines = [f"sentence {n} of them\t{'abc'[n * n % 3]}\n" for n in range(103)]
    lines += ["a text  again\ta\n", "A text again\tb\n"] * copies  # equal but for case and white space
    path.write_text("text\tlabel\n" + "".join(lines))
    return path


def split(path: Path, fold: int, name: str = "test", **options) -> list[tuple[str, str]]:
    source = Labelled(path=str(path), folds=FOLDS, fold=fold, **options)
    source.check()
    return [(row["text"], row["label"]) for row in source.rows(name)]


def test_folds_are_disjoint_and_together_everything(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv")
    whole = Labelled(path=str(path), validation_fraction=0.0)
    everything = Counter((row["text"], row["label"]) for row in whole.rows("train"))
    tested: Counter[tuple[str, str]] = Counter()
    for fold in range(FOLDS):
        parts = [Counter(split(path, fold, name)) for name in ("train", "validation", "test")]
        assert sum(parts, Counter()) == everything
        assert all(parts)
        tested += parts[2]
    assert tested == everything


def test_each_label_stands_in_every_fold_alike(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", copies=0)
    counts = [Counter(label for _, label in split(path, fold)) for fold in range(FOLDS)]
    for label in "ab":
        of_label = [count[label] for count in counts]
        assert max(of_label) - min(of_label) <= 1


def test_equal_texts_stand_in_one_split_of_one_fold(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", copies=3)
    for fold in range(FOLDS):
        seen: list[str] = []
        for name in ("train", "validation", "test"):
            seen += {" ".join(text.lower().split()) for text, _ in split(path, fold, name)}
        assert len(seen) == len(set(seen))
    source = Labelled(path=str(path), folds=FOLDS, fold=0)
    source.check()
    assert "texts that stand there more than once (1 in 6 rows) are kept in one fold each" in source.notes()[-1]


def test_nfc_and_nfd_of_one_text_stand_in_one_fold(tmp_path: Path) -> None:
    texts = [f"café {n}" for n in range(40)]
    forms = [normalize(form, text) for text in texts for form in ("NFC", "NFD")]
    (tmp_path / "a.tsv").write_text(
        "text\tlabel\n" + "".join(f"{text}\t{n % 4 // 2}\n" for n, text in enumerate(forms))
    )
    tested = [text for text, _ in split(tmp_path / "a.tsv", 0)]
    assert 0 < len(tested) < len(forms)
    assert len(tested) == 2 * len({normalize("NFC", text) for text in tested})


def test_the_seed_of_folds_deals_them_anew_and_nothing_else_does(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv")
    assert split(path, 2) == split(path, 2)
    assert split(path, 2) != split(path, 2, fold_seed=1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"folds": 5}, r"data\.folds=5: which one is test\?"),
        ({"fold": 1}, r"data\.fold=1: of how many\?"),
        ({"folds": 5, "fold": 5}, "counted from 0 to 4"),
        ({"folds": 5, "fold": 0, "test_path": "b.tsv"}, r"data\.test_path is given too"),
        ({"folds": 200, "fold": 0}, "use fewer folds"),
    ],
)
def test_folds_that_make_no_cross_validation_are_refused(tmp_path: Path, options: dict, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        Labelled(path=str(write(tmp_path / "a.tsv")), **options).check()


def test_a_label_of_one_text_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv")
    path.write_text(path.read_text() + "once only\tz\n")
    with pytest.raises(UserError, match="the label z has one text alone"):
        split(path, 0)
