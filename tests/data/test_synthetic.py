"""Laws of the sequences of the theory: labels are right, test may be longer than train, and chance is a guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from seqtrain.data.sources.algorithmic import CopySymbols, GroupWords, Induction, Parity, Recall, _table
from seqtrain.data.sources.base import SPLITS
from seqtrain.data.sources.synthetic import NOT_ASKED, Synthetic
from tests.support.refused import refusal

KINDS: list[type[Any]] = [CopySymbols, GroupWords, Induction, Parity, Recall]


SMALL = {"size": 300, "validation_size": 60, "test_size": 60}


def read(source: Synthetic, split: Any) -> list[tuple[list[str], list[str]]]:
    pairs = []
    for row in source.rows(split):
        words, labels = row["text"].split(), row["label"].split()
        assert len(words) == len(labels)
        pairs.append((words, labels))
    return pairs


def test_rows_depend_on_the_seed_and_longer_sequences_of_test_change_nothing_of_train() -> None:
    for kind in KINDS:
        source, longer = kind(**SMALL), kind(**SMALL, test_shortest=200, test_longest=210)
        for split in SPLITS:
            assert list(source.rows(split)) == list(kind(**SMALL).rows(split)), kind
        assert list(source.rows("train")) != list(kind(**SMALL, seed=1).rows("train")), kind
        for split in ("train", "validation"):
            assert list(source.rows(split)) == list(longer.rows(split)), kind
        shortest_of_test = min(len(words) for words, _ in read(longer, "test"))
        assert shortest_of_test >= 200 > max(len(words) for words, _ in read(longer, "train")), kind
        as_test = kind(**SMALL, test_shortest=200, test_longest=210, validation_lengths="test")
        assert min(len(words) for words, _ in read(as_test, "validation")) >= 200, kind


def test_no_sequence_of_validation_or_test_is_in_a_split_before_it() -> None:
    for kind in KINDS:
        # So short that without care most would come again.
        least = max(kind.least, 16 if kind is Recall else 5)
        source = kind(**SMALL, shortest=least, longest=least + 5, test_shortest=None, test_longest=None)
        texts = {split: set(source.documents(split)) for split in SPLITS}
        assert not texts["train"] & texts["validation"], kind
        assert not (texts["train"] | texts["validation"]) & texts["test"], kind


def test_lengths_are_from_the_shortest_to_the_longest() -> None:
    source = Parity(size=2000, test_size=2000, shortest=10, longest=13, test_shortest=None, test_longest=20)
    assert {len(words) for words, _ in read(source, "train")} == {10, 11, 12, 13}
    assert {len(words) for words, _ in read(source, "test")} == set(range(10, 21))


def test_parity_says_whether_the_ones_are_odd() -> None:
    for words, labels in read(Parity(**SMALL, asked="every"), "test"):
        assert labels == [("even", "odd")[words[: place + 1].count("1") % 2] for place in range(len(words))]
    for words, labels in read(Parity(**SMALL, asked="end"), "test"):
        assert labels == [*[NOT_ASKED] * (len(words) - 1), ("even", "odd")[words.count("1") % 2]]


def test_copy_asks_for_the_symbols_in_order_after_so_many_blanks() -> None:
    for words, labels in read(CopySymbols(**SMALL, shortest=7, longest=9, symbols=4), "train"):
        blanks = words[4:-4]
        assert set(blanks) == {"."}
        assert 7 <= len(blanks) <= 9
        assert words[-4:] == ["?"] * 4
        assert labels == [*[NOT_ASKED] * (4 + len(blanks)), *words[:4]]


def test_recall_asks_each_key_once_for_the_value_of_its_pair() -> None:
    for words, labels in read(Recall(**SMALL), "train"):
        pairs = dict(zip(words[:8:2], words[1:8:2], strict=True))
        assert len(pairs) == len(set(pairs.values())) == 4
        assert all(1 <= int(key[1:]) < 128 <= int(value[1:]) < 256 for key, value in pairs.items())
        asked = {at: label for at, label in enumerate(labels) if label != NOT_ASKED}
        assert {words[at]: label for at, label in asked.items()} == pairs
        assert all(at >= 8 and at % 2 == 0 for at in asked)


def test_questions_of_recall_follow_the_power_law_of_their_gap() -> None:
    soon, alike = Counter(), Counter()
    for power, counts in ((0.0, soon), (1.0, alike)):
        for _, labels in read(Recall(size=3000, validation_size=0, test_size=0, pairs=2, power=power), "train"):
            counts.update((at - 4) // 2 for at, label in enumerate(labels) if label != NOT_ASKED)
    # The first question alone is at place g as often as 1 / g; the second one, of what is left, evens it out a little.
    weights = [1 / (place + 1) for place in range(30)]
    total = sum(weights)
    for place in (0, 1, 5, 20):
        second = sum(
            weights[other] / total * weights[place] / (total - weights[other]) for other in range(30) if other != place
        )
        assert soon[place] / 3000 == pytest.approx(weights[place] / total + second, rel=0.2)
        assert alike[place] / 3000 == pytest.approx(2 / 30, rel=0.2)


def test_the_groups_are_groups_and_a5_and_s3_are_not_commutative() -> None:
    orders = {}
    for name, size in (("A5", 60), ("Z60", 60), ("S3", 6)):
        table = _table(name)  # type: ignore[arg-type]
        everything = list(range(size))
        assert table[0] == everything
        assert [row[0] for row in table] == everything
        for one in everything:
            assert sorted(table[one]) == everything
            for other in everything[::7]:
                assert all(table[table[one][other]][third] == table[one][table[other][third]] for third in everything)
        orders[name] = Counter(order(table, element) for element in everything)
    assert orders["A5"] == {1: 1, 2: 15, 3: 20, 5: 24}
    assert orders["Z60"][60] == 16
    assert orders["S3"] == {1: 1, 2: 3, 3: 2}
    for table in (_table("A5"), _table("S3")):
        assert any(table[one][other] != table[other][one] for one in range(6) for other in range(6))


def order(table: list[list[int]], element: int) -> int:
    """How often an element stands in the shortest product of itself that is neutral."""
    product, count = element, 1
    while product != 0:
        product, count = table[product][element], count + 1
    return count


def test_each_label_of_group_words_is_the_product_so_far() -> None:
    table = _table("A5")
    for words, labels in read(GroupWords(**SMALL, group="A5"), "test"):
        product = 0
        for word, label in zip(words, labels, strict=True):
            product = table[product][int(word[1:])]
            assert label == f"g{product}"


def test_induction_asks_at_the_end_for_what_followed_the_mark() -> None:
    for words, labels in read(Induction(**SMALL), "test"):
        assert words.count("?") == 2
        assert words[-1] == "?"
        assert labels == [*[NOT_ASKED] * (len(words) - 1), words[words.index("?") + 1]]


GUESSES: list[tuple[Synthetic, str, float]] = [
    (Parity(size=2000), "odd", 1 / 2),
    (CopySymbols(size=400), "s0", 1 / 8),
    (Recall(size=400), "", 1 / 4),  # the first value of its own row
    (GroupWords(size=400), "g7", 1 / 60),
    (Induction(size=4000), "w3", 1 / 16),
]


def test_chance_is_what_a_guess_among_the_possible_answers_comes_to() -> None:
    for source, guess, chance in GUESSES:
        assert source.chance() == chance  # type: ignore[attr-defined]
        right = [
            label == (guess or words[1])
            for words, labels in read(source, "train")
            for label in labels
            if label != NOT_ASKED
        ]
        assert sum(right) / len(right) == pytest.approx(chance, rel=0.2), source


FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Parity(shortest=9, longest=5), "data.longest=5: is below data.shortest=9"),
    (lambda: Parity(test_shortest=9, test_longest=5), "data.test_longest=5: is below data.test_shortest=9"),
    (lambda: Recall(shortest=15, longest=64), "data.shortest=15: must be at least 16 for recall"),
    (lambda: Recall(vocab=8), "data.vocab=8: has too few keys for data.pairs=4; set it to at least 10"),
    (lambda: Induction(test_shortest=2), "data.test_shortest=2: must be at least 3"),
    (lambda: list(Parity(shortest=3, longest=4).rows("train")), "no sequence of 3 to 4 is left for validation"),
    (lambda: list(Parity(test_size=0).rows("test")), "data.test_size=0: there is no test split"),
]


def test_what_cannot_be_drawn_is_refused_with_the_option() -> None:
    for make, says in FAULTS:
        assert says in refusal(make)
