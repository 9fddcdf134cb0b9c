"""Laws of tagging: spans are those of seqeval, words without a target count nowhere, words that are cut are wrong."""

from __future__ import annotations

import json
import math
import random
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from seqtrain.data.batching.stream import IGNORED
from seqtrain.data.preprocess import prepare_rows
from seqtrain.data.sources.algorithmic import Recall
from seqtrain.data.sources.person_or_place import PersonOrPlace
from seqtrain.data.sources.text import Text
from seqtrain.data.tokenizers.recipes import BPE, Byte, Char, Recipe, Word
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import Facts
from seqtrain.tasks.metrics.labels import NUM_RANGES, count_spans, is_bio, range_names, range_of, span_f1
from seqtrain.tasks.tag import Tag
from seqtrain.tasks.tagged import word_ends
from tests.conftest import Seqtrain

FACTS = Facts(bytes_per_token=1.0, words_per_token=None)

# -- what is counted ---------------------------------------------------------------------------------------------


class Echo(torch.nn.Module):
    """Hidden states that are the tokens, one-hot."""

    max_length = None

    def forward(self, tokens, state=None, lengths=None):
        return torch.nn.functional.one_hot(tokens, 16).float(), {}

    def encode(self, tokens, lengths=None):
        return self(tokens)[0]


def prepared(folder: Path, *rows: str, recipe: Recipe | None = None):
    """The preprocessor, and rows of `text<TAB>labels` as train and test."""
    for name in ("train", "test"):
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "".join(f"{row}\n" for row in rows))
    paths = {"path": str(folder / "train.tsv"), "test_path": str(folder / "test.tsv")}
    source = Text(**paths, label_column="label", validation_fraction=0.0)
    options = (source, recipe or Word(), ("train", "test"), ("text", "label"))
    return prepare_rows(*options, label_kind="names", cache=folder, say=lambda line: None)  # type: ignore[arg-type]


def tag(preprocessor, ignore: str | None = "_", dim: int = 8) -> Tag:
    return Tag(dropout=0.0, ignore=ignore, dim=dim, labels=preprocessor.labels, preprocessor=preprocessor)


def measured(folder: Path, rows: tuple[str, ...], *, ignore: str | None = None, max_length: int = 64, **answers: str):
    """What is measured of a model that gives each word the label in `answers`."""
    preprocessor, splits = prepared(folder, *rows)
    task = tag(preprocessor, ignore, dim=16).eval()
    torch.nn.init.zeros_(task.head.weight)
    torch.nn.init.zeros_(task.head.bias)
    for word, label in answers.items():
        token = int(preprocessor.tokenizer.encode(word)[0])
        task.head.weight.data[task.labels.index(label), token] = 5.0
    examples = task.examples(splits["test"], preprocessor, max_length=max_length, seed=0)
    index = np.arange(len(examples.lengths))  # those without any target are left out
    terms, _ = task.evaluate(Echo(), examples.collate(index, 0, examples.totals(index, 0)), None)  # type: ignore[arg-type]
    totals = {name: (total.double().tolist(), float(count)) for name, (total, count) in terms.items()}
    return task.measure(totals, FACTS), terms, examples, (task, preprocessor, splits)


def test_words_and_sequences_that_are_right_are_counted(tmp_path: Path) -> None:
    rows = ("a b\tX Y", "a a b\tX X X")
    figures, _, _, _ = measured(tmp_path, rows, a="X", b="Y")
    assert figures["accuracy"] == 4 / 5
    assert figures["sequence_accuracy"] == 1 / 2
    assert "span_f1" not in figures


def test_a_label_that_is_no_target_counts_nowhere_and_is_never_an_answer(tmp_path: Path) -> None:
    rows = ("a b c\tX _ Y", "c c\t_ _", "a b\tY X")
    figures, terms, examples, (task, preprocessor, splits) = measured(tmp_path, rows, ignore="_", a="X", c="Y", b="X")
    assert task.labels == ("X", "Y")
    assert terms["loss"][1] == terms["accuracy"][1] == 4
    assert terms["sequence_accuracy"][1] == 2, "a sequence without targets is neither right nor wrong"
    assert examples.remark == "1 of 3 examples have no word with a target and are left out"
    assert figures["accuracy"] == 3 / 4
    assert examples.totals(np.arange(2), 0) == {"loss": 4}
    known = task.baselines(splits["train"], splits["test"], preprocessor, print)
    assert known["word_majority"]["accuracy"] == 3 / 4
    assert known["majority"] == {"accuracy": 0.5, "sequence_accuracy": 0.0}


def test_words_that_are_cut_are_wrong_and_have_no_loss(tmp_path: Path) -> None:
    rows = ("a a a a\tB-X B-X B-X B-X", "a b\tB-X O")
    whole, _, _, _ = measured(tmp_path, rows, a="B-X", b="O")
    cut, terms, examples, _ = measured(tmp_path, rows, max_length=5, a="B-X", b="O")
    assert (whole["accuracy"], whole["span_f1"], whole["sequence_accuracy"]) == (1, 1, 1)
    assert terms["loss"][1] == examples.totals(np.arange(2), 0)["loss"] == 5
    assert (cut["accuracy"], cut["sequence_accuracy"]) == (5 / 6, 1 / 2)
    assert cut["span_f1"] == pytest.approx(2 * 4 / (4 + 5))


def test_a_label_to_ignore_that_no_word_has_is_refused(tmp_path: Path) -> None:
    preprocessor, _ = prepared(tmp_path, "a b\tX Y")
    for ignore, words in (("Z", "no word of train has this label"), ("X", "at least two are needed")):
        with pytest.raises(UserError, match=words):
            tag(preprocessor, ignore)


def test_bio_that_is_not_well_formed_is_said_and_read(tmp_path: Path) -> None:
    _, _, examples, _ = measured(tmp_path, ("a b b\tO I-X I-X", "a b\tI-X I-X"), a="O")
    assert examples.remark is not None
    assert examples.remark.startswith(
        "BIO labels that continue no span (I- after O or another type): 2, in 2 of 2 examples"
    )
    _, _, examples, _ = measured(tmp_path, ("a b\tB-X I-X", "a b\tO O"), a="O")
    assert examples.remark is None


# -- what only reading both ways can know ------------------------------------------------------------------------


def test_sentences_come_in_twos_with_one_beginning_and_other_types() -> None:
    source = PersonOrPlace(size=400)
    beginnings = set()
    for split in ("train", "validation", "test"):
        rows = list(source.rows(split))
        for one, other in zip(rows[::2], rows[1::2], strict=True):
            pairs = list(zip(one["text"].split(), other["text"].split(), strict=False))  # what follows may differ
            (place,) = [at for at, (word, its) in enumerate(pairs) if word != its]
            assert place > max(at for at, label in enumerate(one["label"].split()) if label != "O")
            assert sorted(["PER" in one["label"], "PER" in other["label"]]) == [False, True]
            assert one["label"].replace("PER", "LOC") == other["label"].replace("PER", "LOC")
            beginnings.add(" ".join(one["text"].split()[:place]))
    assert len(beginnings) == 200
    assert list(PersonOrPlace(size=400).rows("train")) == list(source.rows("train"))


SHORT = (
    *("task=tag", "data.size=2000", "model.dim=64", "trainer.max_steps=300", "trainer.validate_every=300"),
    *("optimizer.lr=0.01", "task.dropout=0", "logger=none", "trainer.accelerator=cpu", "trainer.threads=1"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, seqtrain: Seqtrain) -> Path:
    """Two runs: an LSTM that reads both ways, and one that reads forward."""
    folder = tmp_path_factory.mktemp("tagged")
    for name in ("true", "false"):
        words = (*SHORT, "model=lstm", f"model.bidirectional={name}", f"run_dir=runs/{name}")
        answer = seqtrain("train", *words, cwd=folder)
        assert answer.rc == 0, answer.err
    return folder


@pytest.mark.long
def test_a_model_that_reads_both_ways_tags_by_a_later_word_and_a_forward_one_is_exactly_at_chance(folder: Path) -> None:
    both = Run(folder / "runs/true").summary.metrics["validation"]
    summary = Run(folder / "runs/false").summary
    forward = summary.metrics["validation"]
    assert both["span_f1"] > 0.99
    assert both["sequence_accuracy"] > 0.99
    # Up to the verb both sentences of a two are the same, so the forward model labels their names alike: half of all
    # words of names are right, and not one more, whatever it has learnt. So it is with a table of words.
    word_majority = summary.baselines["validation"]["word_majority"]
    assert forward["accuracy"] == pytest.approx(word_majority["accuracy"], abs=1e-12)
    assert word_majority["span_f1"] == word_majority["sequence_accuracy"] == 0.5
    assert forward["span_f1"] <= 0.5  # below: where it calls two names of one sentence by two types
    assert forward["sequence_accuracy"] <= 0.5


@pytest.mark.long
def test_a_run_tags_a_text_for_a_person_and_for_a_machine(folder: Path, seqtrain: Seqtrain) -> None:
    text = "boston hill and zanzibar flooded"
    said = seqtrain("predict", "runs/true", text, cwd=folder)
    answer = json.loads(seqtrain("predict", "runs/true", text, "--json", cwd=folder).out)
    assert [token["token"] for token in answer["tokens"]] == text.split(), "an unknown word keeps its spelling"
    assert said.out == " ".join(f"{token['token']}/{token['label']}" for token in answer["tokens"]) + "\n"
    assert answer["spans"][0] == {"type": "LOC", "text": "boston hill", "first": 0, "last": 1}
    assert all(1 / 5 <= token["probability"] <= 1 for token in answer["tokens"])


def test_f1_by_type_counts_the_spans_of_that_type_alone() -> None:
    task = Tag(dropout=0.0, ignore=None, dim=4, labels=("B-LOC", "B-PER", "I-PER", "O"))
    true, predicted = torch.tensor([[1, 2, 3, 0], [0, 3, 1, 3]]), torch.tensor([[1, 3, 3, 0], [0, 3, 1, 0]])
    totals = {name: (total.tolist(), count) for name, (total, count) in task._count(predicted, true).items()}
    assert task.breakdown(totals)["span F1 by type"] == {"LOC": pytest.approx(4 / 5), "PER": pytest.approx(1 / 2)}
    assert task.measure(totals, FACTS)["span_f1"] == pytest.approx(6 / 9)


# -- words -------------------------------------------------------------------------------------------------------

RECIPES = [Byte(), Char(), BPE(size=300), Word()]
TINY = (
    *("task=tag", "model=lstm", "model.dim=16", "trainer.max_steps=2", "trainer.validate_every=2"),
    *("logger=none", "trainer.accelerator=cpu", "trainer.threads=1"),
)
TEXTS = ["boston  hill", " déjà vu , isn't it ?", "日本 語\tx\n y ", "a", "été  "]


def test_the_tokens_up_to_the_end_of_a_word_hold_the_word_and_nothing_of_the_next() -> None:
    for recipe, text in product(RECIPES[:3], TEXTS):
        tokenizer = recipe.train(TEXTS * 3)
        tokens = tokenizer.encode(text)
        ends = word_ends(tokenizer, text, tokens)
        words = text.split()
        assert len(ends) == len(words)
        for number, end in enumerate(ends):
            assert tokenizer.decode(tokens[: end + 1]).split() == words[: number + 1], recipe
            assert tokenizer.decode(tokens[:end]).split() != words[: number + 1], "it is the last token of the word"


def test_each_word_has_one_target_and_the_other_tokens_none(tmp_path: Path) -> None:
    for recipe in RECIPES:
        preprocessor, splits = prepared(tmp_path, "boston hill burned\tX _ Y", "hill was hill\tY X X", recipe=recipe)
        task = tag(preprocessor)
        examples = task.examples(splits["test"], preprocessor, max_length=64, seed=0)
        totals = examples.totals(np.arange(2), 0)
        assert totals == {"loss": 5}, recipe
        batch = examples.collate(np.arange(2), 0, totals)
        for lane, expected in enumerate((["X", "Y"], ["Y", "X", "X"])):
            targets = batch.targets[lane].tolist()
            assert [task.labels[target] for target in targets if target != IGNORED] == expected, recipe
        # Behind the last token of `boston`, before the next word: what a model knows there ends with the whole word.
        first = int((batch.targets[0] != IGNORED).nonzero()[0, 0])
        assert preprocessor.tokenizer.decode(batch.tokens[0, 1 : first + 1].tolist()) == "boston", recipe


def test_baselines_count_words_whatever_the_tokenizer(tmp_path: Path) -> None:
    rows = ("boston hill burned\tX _ Y", "hill was hill\tY X X", "hill was\tX Y")
    found = []
    for recipe in RECIPES:
        preprocessor, splits = prepared(tmp_path, *rows, recipe=recipe)
        found.append(tag(preprocessor).baselines(splits["train"], splits["test"], preprocessor, print))
    assert found[0]["word_majority"]["accuracy"] == 5 / 7
    assert all(one == found[0] for one in found)


def test_a_split_without_one_target_that_is_read_is_refused(tmp_path: Path) -> None:
    preprocessor, splits = prepared(tmp_path, "a b c d e f g h\t_ _ _ _ _ _ _ X", "a b c d e f g h\t_ _ _ _ _ _ _ Y")
    with pytest.raises(
        UserError, match=r"no word within data\.max_length=8 has a label other than task\.ignore=_; label some"
    ):
        tag(preprocessor).examples(splits["test"], preprocessor, max_length=8, seed=0)


def test_the_usual_mark_is_no_answer_where_it_stands_and_no_error_where_it_does_not(tmp_path: Path) -> None:
    with_mark, _ = prepared(tmp_path, "a b c\tX _ Y")
    without, _ = prepared(tmp_path, "a b\tX Y")
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


@pytest.mark.long
def test_evaluate_says_chance_and_accuracy_by_position_beyond_the_lengths_of_train(
    tmp_path: Path, seqtrain: Seqtrain
) -> None:
    words = (*TINY, "data=parity", "data.asked=every", "data.size=200", "data.test_longest=80", "run_dir=run")
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
    words = ("model.bidirectional=true", "data.size=200", "tokenizer=bpe", "tokenizer.size=270", "run_dir=run")
    trained = seqtrain("train", *TINY, *words, cwd=tmp_path)
    assert trained.rc == 0, trained.err
    assert "span_f1 is seqeval" in trained.out
    text = "boston hill  and zanzibar flooded"
    answer = json.loads(seqtrain("predict", "run", text, "--json", cwd=tmp_path).out)
    assert [token["token"] for token in answer["tokens"]] == text.split()
    texts = (text, "they say jordan and paris west smiled in may")
    asked = (texts, texts[:1], texts[1:])
    both, one, other = (seqtrain("predict", "run", *some, "--json", cwd=tmp_path).out for some in asked)
    for together, alone in zip(both.splitlines(), (one, other), strict=True):
        found, expected = (json.loads(line)["tokens"] for line in (together, alone))
        for token, same in zip(found, expected, strict=True):
            assert token == {**same, "probability": pytest.approx(same["probability"], rel=1e-5)}


# -- spans -------------------------------------------------------------------------------------------------------


def test_labels_are_bio_only_where_all_of_them_are() -> None:
    for labels in ("O B-A I-A", "I-A"):
        assert is_bio(labels.split()), labels
    for labels in ("O", "N V", "O N", "B I O"):
        assert not is_bio(labels.split()), labels


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
