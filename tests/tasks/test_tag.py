"""Laws of tagging: spans are those of seqeval, words without a target count nowhere, words that are cut are wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from seqtrain.data.preprocess import prepare_rows
from seqtrain.data.sources.person_or_place import PersonOrPlace
from seqtrain.data.sources.text import Text
from seqtrain.data.tokenizers.recipes import Word
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import Facts
from seqtrain.tasks.metrics.labels import count_spans, is_bio, malformed, span_f1, spans
from seqtrain.tasks.tag import Tag
from tests.conftest import Seqtrain

FACTS = Facts(bytes_per_token=1.0, words_per_token=None)

# -- spans -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("B-PER I-PER O B-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),  # seqeval's own example
        ("O O O B-MISC I-MISC I-MISC O", [("MISC", 3, 5)]),
        ("B-A B-A", [("A", 0, 0), ("A", 1, 1)]),
        ("I-A I-A O I-B", [("A", 0, 1), ("B", 3, 3)]),  # what no span begins before is read as its beginning
        ("B-A I-B", [("A", 0, 0), ("B", 1, 1)]),
        ("O I-A B-A", [("A", 1, 1), ("A", 2, 2)]),
        ("B-A E-A I-A", [("A", 0, 1), ("A", 2, 2)]),
        ("S-A I-A", [("A", 0, 0), ("A", 1, 1)]),
        ("B-A-X I-A-X", [("A-X", 0, 1)]),  # a type may hold a hyphen
        ("O O", []),
        ("", []),
    ],
)
def test_spans_are_those_of_seqeval(labels: str, expected: list[tuple[str, int, int]]) -> None:
    assert [tuple(span) for span in spans(labels.split())] == expected


def test_span_f1_counts_type_and_both_ends_over_all_sequences() -> None:
    # The example of seqeval's page: of two true spans, in two sequences, one is found whole: F1 0.5.
    first = count_spans(["O", "O", "B-M", "I-M", "I-M", "I-M", "O"], ["O", "O", "O", "B-M", "I-M", "I-M", "O"])
    second = count_spans(["B-P", "I-P", "O"], ["B-P", "I-P", "O"])
    assert (first, second) == ((0, 1, 1), (1, 1, 1))
    assert span_f1(*np.add(first, second)) == 0.5
    assert span_f1(0, 0, 0) == 0


@pytest.mark.parametrize(
    ("labels", "expected"),
    [("O B-A I-A", True), ("O", False), ("N V", False), ("O N", False), ("B I O", False), ("I-A", True)],
)
def test_labels_are_bio_only_where_all_of_them_are(labels: str, expected: bool) -> None:
    assert is_bio(labels.split()) == expected


@pytest.mark.parametrize(("labels", "count"), [("B-A I-A I-A", 0), ("O I-A", 1), ("B-A I-B I-B", 1), ("S-A I-A", 1)])
def test_what_goes_on_with_no_span_is_counted_once(labels: str, count: int) -> None:
    assert malformed(labels.split()) == count


# -- what is counted ---------------------------------------------------------------------------------------------


def prepared(folder: Path, *rows: str):
    """Rows of `text<TAB>labels`, the first half train; the preprocessor and both splits."""
    for name, part in (("train", rows), ("validation", rows)):
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "".join(f"{row}\n" for row in part))
    source = Text(
        path=str(folder / "train.tsv"), test_path=str(folder / "validation.tsv"), label_column="label",
        validation_fraction=0.0,
    )  # fmt: skip
    return prepare_rows(
        source, Word(), ("train", "test"), ("text", "label"), label_kind="names", cache=folder, say=lambda line: None
    )


class Echo(torch.nn.Module):
    """Hidden states that are the tokens, one-hot."""

    max_length = None

    def forward(self, tokens, state=None, lengths=None):
        return torch.nn.functional.one_hot(tokens, 16).float(), {}

    def encode(self, tokens, lengths=None):
        return self(tokens)[0]


def measured(folder: Path, rows: tuple[str, ...], *, ignore: str | None = None, max_length: int = 64, **answers: str):
    """What is measured of a model that gives each word the label in `answers`."""
    preprocessor, splits = prepared(folder, *rows)
    task = Tag(dropout=0.0, ignore=ignore, dim=16, labels=preprocessor.labels, preprocessor=preprocessor).eval()
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
    assert examples.remark == "1 of 3 examples have no word with a target, and are left out"
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
    for ignore, words in (("Z", "no word of train has this label"), ("X", "nothing to tell apart")):
        with pytest.raises(UserError, match=words):
            Tag(dropout=0.0, ignore=ignore, dim=4, labels=preprocessor.labels, preprocessor=preprocessor)


def test_bio_that_is_not_well_formed_is_said_and_read(tmp_path: Path) -> None:
    _, _, examples, _ = measured(tmp_path, ("a b\tO I-X", "a b\tI-X I-X"), a="O")
    assert examples.remark is not None
    assert examples.remark.startswith("2 BIO labels in 2 examples go on with a span that does not stand before them")
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


def test_a_run_tags_a_text_for_a_person_and_for_a_machine(folder: Path, seqtrain: Seqtrain) -> None:
    text = "boston hill and zanzibar flooded"
    said = seqtrain("predict", "runs/true", text, cwd=folder)
    answer = json.loads(seqtrain("predict", "runs/true", text, "--json", cwd=folder).out)
    assert [token["token"] for token in answer["tokens"]] == text.split(), "an unknown word keeps its spelling"
    assert said.out == " ".join(f"{token['token']}/{token['label']}" for token in answer["tokens"]) + "\n"
    assert answer["spans"][0] == {"type": "LOC", "text": "boston hill", "first": 0, "last": 1}
    assert all(1 / 5 <= token["probability"] <= 1 for token in answer["tokens"])


def test_tags_of_a_text_do_not_depend_on_the_texts_beside_it(folder: Path, seqtrain: Seqtrain) -> None:
    texts = ("boston hill flooded", "they say jordan and paris west smiled in may")
    both = seqtrain("predict", "runs/true", *texts, cwd=folder).out
    assert both == "".join(seqtrain("predict", "runs/true", text, cwd=folder).out for text in texts)


def test_its_runs_are_compared_and_embedded(folder: Path, seqtrain: Seqtrain) -> None:
    compared = seqtrain("compare", "runs", cwd=folder)
    assert compared.rc == 0, compared.err
    assert "tag, word accuracy of validation, 2 runs" in compared.out
    (folder / "texts.txt").write_text("boston flooded\nparis smiled\n")
    for name in ("true", "false"):
        words = ("embed", f"runs/{name}", "--input", "texts.txt", "--output", f"{name}.parquet")
        answer = seqtrain(*words, cwd=folder)
        assert answer.rc == 0, answer.err


def test_f1_by_type_counts_the_spans_of_that_type_alone() -> None:
    task = Tag(dropout=0.0, ignore=None, dim=4, labels=("B-LOC", "B-PER", "I-PER", "O"))
    true, predicted = torch.tensor([[1, 2, 3, 0], [0, 3, 1, 3]]), torch.tensor([[1, 3, 3, 0], [0, 3, 1, 0]])
    totals = {name: (total.tolist(), count) for name, (total, count) in task._count(predicted, true).items()}
    assert task.breakdown(totals)["span F1 by type"] == {"LOC": pytest.approx(4 / 5), "PER": pytest.approx(1 / 2)}
    facts = Facts(bytes_per_token=1.0, words_per_token=None)
    assert task.measure(totals, facts)["span_f1"] == pytest.approx(6 / 9)
