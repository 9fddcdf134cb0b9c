"""Laws of what is found by number: stretches of documents, their lengths, and a permutation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from seqtrain.data.batching import documents as documents_module
from seqtrain.data.batching.documents import Stretches
from seqtrain.data.batching.example_plan import StretchLengths, distinct, distinct_of_all
from seqtrain.data.batching.splitmix64 import permuted
from seqtrain.data.token_store import tokens
from seqtrain.data.token_store.tokens import mapped_offsets

SIZES = {
    "one": [5],
    "empty ones": [0, 0, 3, 0, 17, 0],
    "many short": np.random.default_rng(0).integers(0, 9, 500).tolist(),
    "many long": np.random.default_rng(1).integers(1, 200, 150).tolist(),
}


def offsets_of(name: str) -> np.ndarray:
    return np.append(0, np.cumsum(SIZES[name]))


def one_by_one(offsets: np.ndarray, size: int) -> np.ndarray:
    """Begin, count and document of every stretch."""
    rows = []
    for document, (begin, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        rows += [(at, min(size, end - at), document) for at in range(begin, end, size)]
    return np.array(rows)


def orders(count: int) -> Iterator[np.ndarray]:
    """Numbers that follow one another, a table of them, and numbers from anywhere."""
    yield np.arange(count)
    yield np.arange(count // 2, count)
    yield np.random.default_rng(0).integers(0, count, (3, 40))
    yield np.random.default_rng(0).permutation(count)
    yield np.zeros(0, dtype=np.int64)


@pytest.mark.parametrize("held", [0, 10**6])
def test_stretches_are_found_by_number_in_any_order(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "MAX_HELD", held)
    monkeypatch.setattr(documents_module, "FOUND_AT_A_TIME", 64)
    monkeypatch.setattr(documents_module, "SPANS_AT_A_TIME", 2)
    for name, size in product(SIZES, (1, 4, 50)):
        offsets = offsets_of(name)
        stretches, expected = Stretches(offsets, size), one_by_one(offsets, size)
        assert len(stretches) == len(expected), (name, size)
        for index in orders(len(expected)):
            found = np.stack(stretches.find(index), -1)
            assert np.array_equal(found, expected[index]), (name, size)


def test_stretches_of_a_file_are_those_of_its_documents_and_memory_holds_some_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(documents_module, "MAX_UNKEPT", 0)
    monkeypatch.setattr(documents_module, "MAX_HELD", 0)
    monkeypatch.setattr(tokens, "MAX_MAPPED_BYTES", 1)  # let go after each reading
    offsets_of("many short").astype("<i8").tofile(tmp_path / "documents.bin")
    expected = one_by_one(offsets_of("many short"), 4)
    for _ in range(2):  # counted, and from the cache
        stretches = Stretches(mapped_offsets(tmp_path / "documents.bin"), 4)
        assert np.array_equal(np.stack(stretches.find(np.arange(len(expected))), -1), expected)
    (entry,) = (tmp_path / "cache" / "stretches").glob("*/before.bin")
    entry.write_bytes(entry.read_bytes()[:-8])  # damaged: made again
    assert len(Stretches(mapped_offsets(tmp_path / "documents.bin"), 4)) == len(expected)


def test_lengths_are_taken_as_of_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqtrain.data.batching.example_plan.AT_ONCE", 32)
    stretches = Stretches(offsets_of("many long"), 50)
    lengths = StretchLengths(stretches, 2)
    array = one_by_one(stretches.documents, 50)[:, 1:2] + 2
    index = np.array([7, 1, 1])
    assert np.array_equal(lengths[index], array[index])
    assert np.array_equal(lengths[3:9], array[3:9])
    assert np.array_equal(lengths[index, 0], array[index, 0])
    for found in (distinct_of_all(lengths), distinct_of_all(array), distinct(array)):
        rows, counts = np.unique(array, axis=0, return_counts=True)
        assert np.array_equal(found.rows, rows)
        assert np.array_equal(found.counts, counts)
        assert found.num_tokens == array.sum()


def test_different_rows_of_lengths_are_told_apart_on_each_side() -> None:
    for most in (9, 10**6):  # counted in a table, and sorted
        rows = np.random.default_rng(0).integers(0, most, (300, 3))
        rows = np.concatenate([rows, rows[:100]])
        expected = np.unique(rows, axis=0, return_counts=True)
        assert all(np.array_equal(one, two) for one, two in zip(distinct(rows), expected, strict=True)), most


def test_a_permutation_has_every_number_once_and_is_another_for_each_key() -> None:
    for count in (*range(1, 70), 1000, 4097):
        drawn = permuted(np.arange(count), count, 1, 2)
        assert sorted(drawn.tolist()) == list(range(count))
        assert permuted(np.array([count - 1]), count, 1, 2)[0] == drawn[-1]
    keys = [(1, 2), (2, 1), (1,), (2,), (1, 3), (-1, 2), (2**70, 2)]
    assert len({tuple(permuted(np.arange(50), 50, *key).tolist()) for key in keys}) == len(keys)


def test_neighbours_of_a_permutation_are_as_far_from_each_other_as_any() -> None:
    drawn = permuted(np.arange(30_000), 30_000, 5).astype(float)
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.03
    assert abs(np.corrcoef(drawn, np.arange(30_000))[0, 1]) < 0.03
    assert (permuted(np.arange(1000), 10**12, 0) < 10**12).all()
