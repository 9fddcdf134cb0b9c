"""Rows and lines that stand elsewhere too are found; what recurs by itself is not called a leak."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtrain.data.leaks import (
    EVERY,
    KINDS,
    MAX_FILE_BYTES,
    MAX_KEPT,
    MIN_ASKED,
    Leak,
    Sketch,
    find_leak,
    sketches,
    trained_text,
)
from seqtrain.data.preprocess import Rows
from seqtrain.data.sources.locale_phrases import LocalePhrases
from seqtrain.data.sources.word_order import WordOrder
from tests.support.refused import refusal


def words(seed: int, count: int) -> str:
    """Prose in which no stretch comes twice."""
    draw = random.Random(seed)
    return " ".join("".join(draw.choices("etaoinshrdlu", k=draw.randint(1, 9))) for _ in range(count))


def rows(seed: int, count: int, length: int = 12) -> list[str]:
    return [words(seed * 1000 + number, length) for number in range(count)]


def leak(asked: Iterable[str], known: Iterable[str]) -> Leak | None:
    return find_leak([Sketch.of(asked)], Sketch.of(known))


def test_the_share_of_a_stream_is_found_wherever_its_lines_stand() -> None:
    for copied, shift in ((0, 0), (200, 1), (200, 6997)):
        validation, train = rows(1, 2000), rows(9, 7000)
        train[shift:shift] = validation[300 : 300 + copied]
        found = leak(["\n".join(validation)], ["\n\n".join(train).upper()])
        assert found is not None
        assert found.kind == "text"
        assert found.share == pytest.approx(copied / 2000, abs=0.005), (copied, shift)


def test_the_share_of_rows_is_found_without_regard_to_case_and_white_space_and_on_lines_too() -> None:
    validation, train = rows(1, 50), rows(2, 500)
    found = leak(validation, train + [f"  {text.upper()}\n" for text in validation[:6]])
    assert found == Leak(0.12, "documents", 50)
    assert leak(validation, ["\n".join(train + validation)]) == Leak(1.0, "documents", 50)


def test_short_documents_are_a_leak_only_where_all_are_short_and_empty_ones_are_none() -> None:
    found = leak([*rows(1, 50), "good", "so good", "Plot", ""], [*rows(2, 500), "good", "so good", "plot", ""])
    assert found is not None
    assert found.share == 0
    phrases = [f"phrase {number}" for number in range(100)]
    assert leak(phrases, phrases[:30]) == Leak(0.3, "short documents", 100)
    assert leak(["", " ", "\n"], ["", " "]) is None


def test_lines_that_recur_one_by_one_are_no_copied_text() -> None:
    validation, train = rows(1, 400), rows(2, 400)
    train[::4] = validation[::4]
    found = leak(["\n".join(validation)], ["\n".join(train)])
    assert found is not None
    assert (found.share, found.kind) == (0, "text")


def test_a_sketch_is_bounded_keeps_the_smallest_hashes_of_all_and_joins_as_the_texts_do() -> None:
    one, other = rows(1, 3000), rows(9, 1000)
    every, some = Sketch.of(one, 1 << 20), Sketch.of(one, 500)
    assert every.bound == EVERY
    assert np.array_equal(some.hashes["documents"], every.hashes["documents"][:500])
    assert every.up_to(some.bound).hashes["documents"].tolist() == some.hashes["documents"].tolist()
    joined = some.joined(Sketch.of(other, 500)).cut(500)
    assert np.array_equal(joined.hashes["documents"], Sketch.of([*one, *other], 500).hashes["documents"])


def test_too_small_a_sample_tells_nothing() -> None:
    def sketch(hashes: np.ndarray, bound: int = EVERY) -> Sketch:
        return Sketch({**dict.fromkeys(KINDS, np.zeros(0, dtype=np.uint64)), "documents": hashes}, bound)

    known = sketch(np.arange(100, dtype=np.uint64), 99)
    asked = np.arange(90, 90 + MIN_ASKED, dtype=np.uint64)
    assert find_leak([sketch(asked)], known) is None
    assert find_leak([sketch(asked - np.uint64(30))], known) == Leak(1.0, "documents", MIN_ASKED)


def columns(**fields: list[str]) -> Rows:
    """Rows without tokens: their text is all that is looked at."""

    class Hashed:
        def __init__(self, hash: str) -> None:
            self.hash = hash

    names = list(fields)
    corpora: Any = {name: Hashed(repr(fields[name])) for name in names}
    together = zip(*fields.values(), strict=True)
    every = [dict(zip(names, row, strict=True)) for row in together]
    return Rows(corpora, None, lambda: iter(every))


def test_a_pair_is_in_train_where_both_its_sides_are(tmp_path: Path) -> None:
    source, target = rows(1, 50), rows(2, 50)
    train = columns(source=rows(3, 200) + source[:10], target=rows(4, 200) + target[:5] + rows(5, 5))
    asked = sketches(columns(source=source, target=target), cache=tmp_path)
    known = trained_text(train, cache=tmp_path)
    assert find_leak(asked, known) == Leak(0.1, "documents", 50)
    assert find_leak(asked, known, max) == Leak(0.2, "documents", 50)


def test_the_cache_gives_the_same_sketch_and_reads_no_text_for_it(tmp_path: Path) -> None:
    text = columns(text=rows(1, 50))
    (first,) = sketches(text, cache=tmp_path)

    def unread() -> Any:
        raise AssertionError("read again")

    (again,) = sketches(Rows(text.columns, None, unread), cache=tmp_path)
    assert np.array_equal(first.hashes["documents"], again.hashes["documents"])


@pytest.mark.long
@pytest.mark.parametrize("source", [WordOrder, LocalePhrases])
def test_the_data_that_we_make_up_ourselves_leaks_nothing(source: Callable[[], Any]) -> None:
    made = source()
    for split in ("validation", "test"):
        fields = [field for field in made.fields if field != "label"]
        asked = [Sketch.of(row[field] for row in made.rows(split)) for field in fields]
        train = (row[field] for row in made.rows("train") for field in fields)
        found = find_leak(asked, Sketch.of(train), max)
        assert found is not None
        assert found.share == 0


def test_a_sketch_is_saved_small_and_read_as_it_was_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    sketch = Sketch.of(["\n".join(rows(1, 20_000)), *rows(2, 20)]).cut(MAX_KEPT).unfinished()
    assert sketch.bound < EVERY
    sketch.save(tmp_path / "sketch")
    assert (tmp_path / "sketch").stat().st_size <= MAX_FILE_BYTES < 1 << 18
    read = Sketch.load(tmp_path / "sketch")
    assert (read.whole, read.bound) == (False, sketch.bound)
    for kind in KINDS:
        assert np.array_equal(read.hashes[kind], sketch.hashes[kind])
    for damage in (b"", b"x" * 7, b"\x00" * 64, b"\xff" * 64):
        (tmp_path / "sketch").write_bytes(damage)
        assert "not a sketch that this version can read" in refusal(Sketch.load, tmp_path / "sketch"), damage
