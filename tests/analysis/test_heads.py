"""Laws of the head that finds the noun: a head is chosen on one half of the sentences and measured on the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqtrain.analysis import heads
from seqtrain.analysis.demos.agreement import judge
from seqtrain.data.sources.agreement import ASKED, OTHER, RIGHT, Agreement
from seqtrain.inference.opened import Opened, open_run
from seqtrain.models.layers.recorder import recording
from tests.support.untrained_runs import MASKED, make_run

PARTS = {"asked": ASKED, "noun": RIGHT, "other": OTHER}


def sentences(count: int) -> list[heads.Sentence]:
    found = []
    for row in Agreement(size=400).rows("train"):
        one = heads.sentence(row["text"], row["label"], **PARTS)
        if len(one.others) == 3:
            found.append(one)
    return found[:count]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A masked language model of drawn weights whose tokens are words; it knows few of them, which changes nothing."""
    options = [option for option in MASKED if not option.startswith("tokenizer")]
    path: Path = tmp_path_factory.mktemp("masked") / "run"
    return open_run(make_run(path, *options, "tokenizer=word", "tokenizer.min_count=1"))


def test_a_sentence_knows_its_hidden_word_and_its_nouns():
    one = heads.sentence("near a b , c fell because d", "_ _ other _ noun _ _ pronoun", **PARTS)
    assert (one.answer, one.noun, one.others) == ("d", 4, (2,))
    assert one.text == "near a b , c fell because [MASK]"


def test_scores_are_of_the_place_of_the_mask_whatever_stands_beside_it_in_a_batch(opened: Opened):
    some = sentences(24)
    together = heads.score(opened, some)
    assert len({len(each.words) for each in some}) > 1  # so that some are padded
    for number, each in enumerate(some):
        task: Any = opened.task
        tokens = task.row(opened.model, opened.predictor("fill").encode(each.text).tolist())
        (place,) = (tokens == task.mask).nonzero().flatten().tolist()
        with recording() as maps, torch.no_grad():
            opened.model(tokens[None])
        for layer, seen in enumerate(maps):
            row = seen.weights[0, :, place].double().numpy()  # (H, T)
            phrases = row[:, 1:] + row[:, :-1]  # of each word, with the word before it
            others = phrases[:, list(each.others)]
            margin = phrases[:, each.noun] - others.mean(1)
            np.testing.assert_allclose(together.margin[layer, :, number], margin, atol=1e-6)
            assert (together.found[layer, :, number] == (phrases[:, each.noun] > others.max(1))).all()


def test_the_map_of_a_head_is_of_the_words_alone(opened: Opened):
    (one,) = sentences(1)
    weights = heads.attention_map(opened, one, 1, 0)
    assert weights.shape == (len(one.words), len(one.words))
    looks = weights[one.hidden]
    phrases = looks + np.roll(looks, 1)
    margin = phrases[one.noun] - phrases[list(one.others)].mean()
    assert margin == pytest.approx(heads.score(opened, [one]).margin[1, 0, 0], abs=1e-6)


def test_of_many_heads_that_know_nothing_the_best_one_is_at_chance_on_the_other_half():
    draw = np.random.default_rng(1)
    shape = (12, 16, 400)  # 192 heads: the best of them is far above chance where it was chosen
    found, chosen_on = [], []
    for _ in range(20):
        scores = heads.Scores(draw.normal(size=shape), draw.random(shape) < 0.25)
        scores = heads.Scores(scores.found - 0.25, scores.found)
        best = heads.best(scores, 4)
        found.append(best.found)
        chosen_on.append(scores.found[best.layer, best.head, :200].mean())
    assert min(chosen_on) > 0.29
    assert np.mean(found) == pytest.approx(0.25, abs=0.03)


def test_the_head_that_finds_the_noun_is_the_one_that_is_chosen():
    draw = np.random.default_rng(1)
    margin = draw.normal(scale=0.1, size=(2, 4, 40))
    margin[1, 2] += 0.5
    best = heads.best(heads.Scores(margin, margin > 0.2), 4)
    assert (best.layer, best.head) == (1, 2)
    assert best.margin == pytest.approx(margin[1, 2, 20:].mean())
    assert best.found == (margin[1, 2, 20:] > 0.2).mean()


@pytest.mark.parametrize(("count", "middle"), [(16, 8), (20, 8), (4, 0)])
def test_a_set_is_never_in_both_halves(count: int, middle: int):
    first, second = heads.halves(count, 4)
    assert (first.stop, second.start, second.stop) == (middle, middle, count)


def rows(found: float, filled: float, before: float = 0.3) -> list[dict[str, str | float]]:
    shared = {"finds_noun_error": 0.02}
    return [
        {"model": "untrained", "finds_noun": before, "fills_pronoun": 0.25, **shared},
        {"model": "trained", "finds_noun": found, "fills_pronoun": filled, **shared},
    ]


@pytest.mark.parametrize(
    ("rows", "holds", "said"),
    [
        (rows(0.9, 1.0), True, "in 90% of sentences (untrained 30%, chance 25%)"),
        (rows(0.35, 1.0), False, "no head is told from chance"),
        (rows(0.9, 1.0, before=0.85), False, "no head is told from chance"),
        (rows(0.9, 0.6), None, "below 90% the model has not learnt"),
    ],
)
def test_the_verdict_follows_from_the_numbers(rows, holds, said):
    words, found = judge(rows)
    assert found is holds
    assert said in words
