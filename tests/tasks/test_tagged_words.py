"""Laws of labels by word: they stand at the last token of a word, chance is said, and spans agree with seqeval."""

from __future__ import annotations

import json
import math
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.preprocess import prepare_rows
from seqtrain.data.sources.algorithmic import Recall
from seqtrain.data.sources.text import Text
from seqtrain.data.tokenizers.recipes import BPE, Byte, Char, Recipe, Word
from seqtrain.errors import UserError
from seqtrain.tasks.metrics.labels import NUM_RANGES, count_spans, range_names, range_of, span_f1
from seqtrain.tasks.tag import Tag
from seqtrain.tasks.tagged import word_ends
from tests.conftest import Seqtrain

RECIPES = [Byte(), Char(), BPE(size=300), Word()]
TEXTS = ["boston  hill", " déjà vu , isn't it ?", "日本 語\tx\n y ", "a", "été  "]


@pytest.mark.parametrize("recipe", RECIPES[:3], ids=lambda recipe: type(recipe).__name__)
def test_the_tokens_up_to_the_end_of_a_word_hold_the_word_and_nothing_of_the_next(recipe: Recipe) -> None:
    tokenizer = recipe.train(TEXTS * 3)
    for text in TEXTS:
        tokens = tokenizer.encode(text)
        ends = word_ends(tokenizer, text, tokens)
        words = text.split()
        assert len(ends) == len(words)
        for number, end in enumerate(ends):
            assert tokenizer.decode(tokens[: end + 1]).split() == words[: number + 1]
            assert tokenizer.decode(tokens[:end]).split() != words[: number + 1], "it is the last token of the word"


def prepared(folder: Path, recipe: Recipe, *rows: str):
    """The preprocessor, and rows of `text<TAB>labels` as train and test."""
    for name in ("train", "test"):
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "".join(f"{row}\n" for row in rows))
    source = Text(
        path=str(folder / "train.tsv"),
        test_path=str(folder / "test.tsv"),
        label_column="label",
        validation_fraction=0.0,
    )
    return prepare_rows(
        source, recipe, ("train", "test"), ("text", "label"), label_kind="names", cache=folder, say=lambda line: None
    )


def tag(preprocessor, ignore: str | None = "_") -> Tag:
    return Tag(dropout=0.0, ignore=ignore, dim=8, labels=preprocessor.labels, preprocessor=preprocessor)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: type(recipe).__name__)
def test_each_word_has_one_target_and_the_other_tokens_none(tmp_path: Path, recipe: Recipe) -> None:
    preprocessor, splits = prepared(tmp_path, recipe, "boston hill burned\tX _ Y", "hill was hill\tY X X")
    task = tag(preprocessor)
    examples = task.examples(splits["test"], preprocessor, max_length=64, seed=0)
    totals = examples.totals(np.arange(2), 0)
    assert totals == {"loss": 5}
    batch = examples.collate(np.arange(2), 0, totals)
    for lane, expected in enumerate((["X", "Y"], ["Y", "X", "X"])):
        targets = batch.targets[lane]
        assert [task.labels[target] for target in targets.tolist() if target != IGNORED] == expected
    # Behind the last token of `boston`, before the next word: what a model knows there ends with the whole word.
    first = int((batch.targets[0] != IGNORED).nonzero()[0, 0])
    assert preprocessor.tokenizer.decode(batch.tokens[0, 1 : first + 1].tolist()) == "boston"


def test_baselines_count_words_whatever_the_tokenizer(tmp_path: Path) -> None:
    rows = ("boston hill burned\tX _ Y", "hill was hill\tY X X", "hill was\tX Y")
    found = []
    for recipe in RECIPES:
        preprocessor, splits = prepared(tmp_path, recipe, *rows)
        found.append(tag(preprocessor).baselines(splits["train"], splits["test"], preprocessor, print))
    assert found[0]["word_majority"]["accuracy"] == 5 / 7
    assert all(one == found[0] for one in found)


def test_a_split_without_one_target_that_is_read_is_refused(tmp_path: Path) -> None:
    preprocessor, splits = prepared(
        tmp_path, Word(), "a b c d e f g h\t_ _ _ _ _ _ _ X", "a b c d e f g h\t_ _ _ _ _ _ _ Y"
    )
    with pytest.raises(
        UserError, match=r"no word that is read has a label other than task\.ignore=_.*data\.max_length=8"
    ):
        tag(preprocessor).examples(splits["test"], preprocessor, max_length=8, seed=0)


def test_the_usual_mark_is_no_answer_where_it_stands_and_no_error_where_it_does_not(tmp_path: Path) -> None:
    with_mark, _ = prepared(tmp_path, Word(), "a b c\tX _ Y")
    without, _ = prepared(tmp_path, Word(), "a b\tX Y")
    assert tag(with_mark).labels == tag(without).labels == ("X", "Y")
    assert tag(with_mark, ignore=None).labels == ("X", "Y", "_")


# -- chance and positions ----------------------------------------------------------------------------------------


def test_chance_of_a_source_is_a_baseline_and_of_whole_sequences_a_power_of_it(tmp_path: Path) -> None:
    source = Recall(size=400, validation_size=40, test_size=0, vocab=32, shortest=20, longest=20)
    preprocessor, splits = prepare_rows(
        source, Word(), ("train", "validation"), ("text", "label"), label_kind="names", cache=tmp_path,
        say=lambda line: None,
    )  # fmt: skip
    known = tag(preprocessor).baselines(splits["train"], splits["validation"], preprocessor, print)
    assert known["chance"] == {"loss": math.log(4), "accuracy": 0.25, "sequence_accuracy": 0.25**4}
    assert known["majority"]["accuracy"] < 0.25


def test_ranges_of_positions_hold_the_numbers_that_their_names_say() -> None:
    names = range_names()
    assert len(names) == NUM_RANGES
    for position in (1, 2, 3, 4, 5, 8, 9, 64, 65, 4096, 2**20 + 1):
        name = names[int(range_of(torch.tensor([position]))[0])]
        first, _, last = name.partition("-")
        assert int(first) <= position <= int(last or first)


SHORT = (
    *("task=tag", "model=lstm", "model.dim=16", "trainer.max_steps=2", "trainer.validate_every=2"),
    *("logger=none", "trainer.accelerator=cpu", "trainer.threads=1"),
)


@pytest.mark.long
def test_evaluate_says_chance_and_accuracy_by_position_beyond_the_lengths_of_train(
    tmp_path: Path, seqtrain: Seqtrain
) -> None:
    words = (*SHORT, "data=parity", "data.asked=every", "data.size=200", "data.test_longest=80", "run_dir=run")
    trained = seqtrain("train", *words, cwd=tmp_path)
    assert trained.rc == 0, trained.err
    assert "  chance            0.500 word accuracy" in trained.out
    assert "span_f1" not in trained.out, "labels that are not BIO have no spans, so no rule of their F1 is named"
    said = seqtrain("evaluate", "run", "--split", "test", cwd=tmp_path).out
    assert "chance: 0.6931 nats a word, 0.5000 word accuracy" in said
    assert "\nword accuracy by position: 1 " in said
    assert ", 65-128 0." in said
    answer = json.loads(seqtrain("evaluate", "run", "--split", "test", "--json", cwd=tmp_path).out)
    parts = answer["breakdown"]["word accuracy by position"]
    assert list(parts) == ["1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65-128"]
    assert min(parts.values()) <= answer["metrics"]["accuracy"] <= max(parts.values())


def test_predict_gives_one_label_a_word_where_tokens_are_parts_of_words(tmp_path: Path, seqtrain: Seqtrain) -> None:
    words = (*SHORT, "data=person_or_place", "data.size=200", "tokenizer=bpe", "tokenizer.size=270", "run_dir=run")
    trained = seqtrain("train", *words, cwd=tmp_path)
    assert trained.rc == 0, trained.err
    assert "span_f1 is seqeval" in trained.out
    text = "boston hill  and zanzibar flooded"
    answer = json.loads(seqtrain("predict", "run", text, "--json", cwd=tmp_path).out)
    assert [token["token"] for token in answer["tokens"]] == text.split()


# -- seqeval -----------------------------------------------------------------------------------------------------


def test_span_f1_is_that_of_seqeval_on_random_labels() -> None:
    f1_score = pytest.importorskip("seqeval.metrics", reason="seqeval is an extra: pip install -e '.[test]'").f1_score
    draw = random.Random(0)
    names = ["O", "O", "B-A", "I-A", "B-B", "I-B", "E-A", "S-B"]
    for _ in range(300):
        true, predicted, counts = [], [], np.zeros(3)
        for _ in range(draw.randint(1, 5)):
            length = draw.randint(1, 9)
            true.append(draw.choices(names, k=length))
            # Half of the labels right, or nothing would ever match.
            predicted.append([label if draw.random() < 0.5 else draw.choice(names) for label in true[-1]])
            counts += count_spans(predicted[-1], true[-1])
        with warnings.catch_warnings():  # of no spans at all
            warnings.simplefilter("ignore")
            expected = f1_score(true, predicted)
        assert span_f1(*counts) == pytest.approx(float(expected), abs=1e-12)
