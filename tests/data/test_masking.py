"""Laws of masked examples: which tokens are hidden, and which sentences stand together."""

from __future__ import annotations

import dataclasses
import math
import re
from itertools import product
from typing import cast

import numpy as np
import pytest
import torch

from seqtrain.data.batching.masking import MaskedBatch
from seqtrain.data.batching.plan import ExampleChunk, deal
from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.corpus import Corpus
from seqtrain.errors import UserError
from tests.support.masked import TOKENIZER, USUAL, V, batch, corpus, make, random_corpus, row

KINDS = list(product((False, True), (False, True)))
"""With words hidden whole or not, and with two sentences or one."""


def test_pieces_end_to_end_are_the_text_and_stand_between_start_and_separator() -> None:
    text = corpus()
    found = batch(make(text))
    pieces = []
    for lane, length in enumerate(found.lengths.tolist()):
        assert length <= 16
        original = found.original[lane]
        assert original[0] == TOKENIZER.start
        assert original[length - 1] == TOKENIZER.separator
        assert not original[length:].any()
        pieces += original[1 : length - 1].tolist()
    assert pieces == np.asarray(text.tokens).tolist()
    assert found.count == len(pieces) + 2 * len(found.tokens)
    assert sum(-(-n // 14) for n in text.lengths) == len(found.tokens), "no piece crosses the end of a document"


def test_so_many_tokens_of_each_example_are_hidden_as_the_rate_says_and_always_one() -> None:
    for mask_prob in (0.01, 0.15, 0.5, 1.0):
        found = batch(make(corpus(), dataclasses.replace(USUAL, mask_prob=mask_prob)))
        wanted = [max(1, round(mask_prob * (length - 2))) for length in found.lengths.tolist()]
        assert (found.targets != IGNORED).sum(1).tolist() == wanted, mask_prob


def test_only_text_is_hidden_and_what_is_not_hidden_is_no_target_and_is_left() -> None:
    for whole_word, next_sentence in KINDS:
        masking = dataclasses.replace(USUAL, whole_word=whole_word, mask_prob=0.4)
        unmasked = dataclasses.replace(USUAL, mask_share=0.0, random_share=0.0)
        examples, clear = (make(corpus(), each, next_sentence=next_sentence) for each in (masking, unmasked))
        for epoch in range(10):
            found, original = batch(examples, epoch=epoch), batch(clear, epoch=epoch).tokens
            hidden = found.targets != IGNORED
            assert torch.equal(found.original, original)
            assert torch.equal(found.targets[hidden], original[hidden])
            assert torch.equal(found.tokens[~hidden], original[~hidden])
            assert torch.equal(hidden.flatten().nonzero().flatten(), found.places)
            beyond = torch.arange(hidden.shape[1]) >= found.lengths.unsqueeze(1)
            assert not hidden[beyond | (original >= V)].any()


def test_an_example_is_the_same_alone_and_in_any_batch() -> None:
    for (whole_word, next_sentence), epoch in product(KINDS, range(3)):
        examples = make(corpus(), dataclasses.replace(USUAL, whole_word=whole_word), next_sentence=next_sentence)
        whole = batch(examples, epoch=epoch)
        for one in range(len(whole.tokens)):
            alone, among = batch(examples, [one], epoch), batch(examples, [5, one, 0], epoch)
            assert row(whole, one) == row(alone, 0) == row(among, 1)
            assert whole.next_labels[one] == alone.next_labels[0] == among.next_labels[1]


def test_masks_differ_between_examples_epochs_and_seeds() -> None:
    text = random_corpus([40] * 30)
    found = {
        tuple(batch(make(text, max_length=42, seed=seed), epoch=epoch).places.tolist())
        for seed in (0, 1)
        for epoch in range(5)
    }
    assert len(found) == 10
    one = batch(make(text, max_length=42))
    assert len({tuple(lane.tolist()) for lane in one.targets != IGNORED}) == 30


def test_hidden_tokens_are_masked_swapped_and_kept_as_the_shares_say_and_everywhere_alike() -> None:
    examples = make(random_corpus([40] * 50), max_length=42)
    found = [batch(examples, epoch=epoch) for epoch in range(40)]
    targets = torch.stack([each.targets for each in found])
    tokens, hidden = torch.stack([each.tokens for each in found]), targets != IGNORED
    seen, true = tokens[hidden], targets[hidden]
    count = len(true)
    assert count == 40 * 50 * 6
    masked, kept = seen == TOKENIZER.mask, seen == true
    swapped = ~masked & ~kept
    chance_to_keep = 0.1 + 0.1 / V  # a random token may be the true one
    for share, expected in ((masked, 0.8), (kept, chance_to_keep), (swapped, 0.2 - chance_to_keep)):
        spread = math.sqrt(expected * (1 - expected) / count)
        assert abs(share.double().mean().item() - expected) < 4 * spread
    assert set(seen[swapped].tolist()) == set(range(V))
    by_place = hidden.double().mean((0, 1))[1:41]
    assert (by_place - 0.15).abs().max() < 4.5 * math.sqrt(0.15 * 0.85 / 2000)


def test_words_are_hidden_whole_and_no_more_of_them_than_needed() -> None:
    masking = dataclasses.replace(USUAL, whole_word=True, mask_prob=0.3)
    examples = make(corpus(), masking, max_length=32)
    several = 0
    for epoch in range(10):
        found = batch(examples, epoch=epoch)
        for lane, length in enumerate(found.lengths.tolist()):
            text = TOKENIZER.decode(found.original[lane, 1 : length - 1].tolist())
            hidden = (found.targets[lane, 1 : length - 1] != IGNORED).tolist()
            words = [hidden[slice(*word.span())] for word in re.finditer(r"[^\W_]+|[\W_]", text)]
            assert sum(map(len, words)) == len(text)
            assert all(len(set(word)) == 1 for word in words), "a word is torn"
            sizes, wanted = [len(word) for word in words if word[0]], max(1, round(0.3 * len(text)))
            assert sum(sizes) - max(sizes) < wanted <= sum(sizes)
            several += len(sizes) > 1
    assert several > 10


def test_the_totals_of_a_step_are_the_targets_of_its_shares() -> None:
    for whole_word, next_sentence in KINDS:
        examples = make(corpus(), dataclasses.replace(USUAL, whole_word=whole_word), next_sentence=next_sentence)
        picked = ExampleChunk(np.array([4, 1, 3]), epoch=2)
        shares = [cast(MaskedBatch, examples.batch(picked, deal(picked.lanes, 5, share))) for share in range(5)]
        sums = {"loss": sum(int((share.targets != IGNORED).sum()) for share in shares)}
        if next_sentence:
            sums["next_sentence"] = sum(int((share.next_labels != IGNORED).sum()) for share in shares)
        assert all(share.totals == sums for share in shares)
        assert sum(share.count == 0 for share in shares) == 2


def test_a_length_without_room_for_text_is_refused() -> None:
    for next_sentence, least in ((False, 3), (True, 5)):
        assert len(batch(make(corpus(), max_length=least, next_sentence=next_sentence)).tokens)
        with pytest.raises(UserError, match=f"must be at least {least}"):
            make(corpus(), max_length=least - 1, next_sentence=next_sentence)


# -- sentences that follow one another ---------------------------------------------------------------------------


def sentences(found: MaskedBatch) -> list[tuple[list[int], list[int]]]:
    """The two sentences of each example, before tokens were hidden."""
    pairs = []
    for original, length in zip(found.original.tolist(), found.lengths.tolist(), strict=True):
        assert original[0] == TOKENIZER.start
        assert original[length - 1] == TOKENIZER.separator
        cut = original.index(TOKENIZER.separator)
        pairs.append((original[1:cut], original[cut + 1 : length - 1]))
    return pairs


def place(text: Corpus, tokens: list[int]) -> int:
    """Where a stretch stands in the corpus."""
    windows = np.lib.stride_tricks.sliding_window_view(text.tokens, len(tokens))
    found = (windows == np.array(tokens)).all(1).nonzero()[0]
    assert len(found) == 1
    return int(found[0])


def test_half_of_the_sentences_follow_and_the_others_stand_in_another_document() -> None:
    text = random_corpus([90, 200, 57, 160, 90, 83])
    examples = make(text, max_length=23, next_sentence=True)
    strange = 0
    for epoch in range(12):
        found = batch(examples, epoch=epoch)
        assert found.lengths.tolist() == examples.lengths[:, 0].tolist(), "lengths are the same in every epoch"
        for (first, second), label in zip(sentences(found), found.next_labels.tolist(), strict=True):
            assert len(second) <= len(first) <= min(10, len(second) + 1)
            if len(second) < 6:
                continue  # too short to be found again
            begin, other = place(text, first), place(text, second)
            documents = np.searchsorted(text.documents, [begin, other, other + len(second) - 1], "right")
            assert documents[1] == documents[2]
            assert (documents[0] == documents[1]) == (label == 0)
            assert (other == begin + len(first)) == (label == 0)
        strange += int(found.next_labels.sum())
    count = 12 * len(examples.lengths)
    assert abs(strange - count / 2) < 4 * math.sqrt(count / 4)


def test_every_sentence_of_equal_length_from_elsewhere_is_drawn_equally_often() -> None:
    examples = make(random_corpus([40, 60, 20]), max_length=23, next_sentence=True)
    whole = examples.pieces.find(np.arange(6))
    assert examples._second(whole).tolist() == [10] * 6
    counts = np.zeros((6, 6), dtype=int)
    begins = (whole.begin + whole.count - 10).tolist()
    for epoch in range(1200):
        begin, label = examples._follower(whole, np.arange(6), epoch)
        for own in label.nonzero()[0]:
            counts[own, begins.index(begin[own])] += 1
    owners = np.array([0, 0, 1, 1, 1, 2])
    for own in range(6):
        allowed = owners != owners[own]
        assert not counts[own, ~allowed].any()
        expected = 600 / allowed.sum()
        assert np.abs(counts[own, allowed] - expected).max() < 5 * math.sqrt(expected)


def test_without_a_sentence_as_long_elsewhere_a_longer_one_is_cut_or_one_of_the_same_document_is_taken() -> None:
    text = random_corpus([20, 34])  # second sentences of 10, and of 10 and 7 tokens
    examples = make(text, max_length=23, next_sentence=True)
    last = examples.pieces.find(np.array([2]))
    assert examples._second(examples.pieces.find(np.arange(3))).tolist() == [10, 10, 7]
    found = {int(begin) for epoch in range(40) for begin in examples._follower(last, np.array([2]), epoch)[0]}
    assert found == {47, 10}, "its own, or the beginning of the first document's"
    alone = make(random_corpus([60]), max_length=23, next_sentence=True)
    three = alone.pieces.find(np.arange(3))
    drawn = [alone._follower(three, np.arange(3), epoch) for epoch in range(40)]
    assert {int(begin) for begins, _ in drawn for begin in begins} == {10, 30, 50}
    for begins, labels in drawn:
        assert ((begins == np.array([10, 30, 50])) == (labels == 0)).all()


def test_a_single_token_has_nothing_behind_it_and_says_so() -> None:
    found = batch(make(random_corpus([1, 1, 30]), max_length=23, next_sentence=True))
    assert [len(second) for _, second in sentences(found)] == [0, 0, 10, 5]
    assert found.next_labels[:2].tolist() == [0, 0]
