"""Laws of the baselines beside a result: counted in train alone, measured on the split that is asked for."""

from __future__ import annotations

import lzma
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu

from seqtrain.data.preprocess import prepare_rows
from seqtrain.data.sources.base import Row, Source, Split
from seqtrain.data.tokenizers.recipes import Char, Recipe, Word
from seqtrain.experiment import report
from seqtrain.runs.summary import Summary
from seqtrain.tasks.base import Task
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.tasks.translation import Translation
from seqtrain.training.splits import Data
from tests.support.masked import OPTIONS

SPLITS: tuple[Split, ...] = ("train", "validation")


class Given(Source):
    """Rows of two splits, in memory."""

    document = "a row"

    def __init__(self, fields: tuple[str, ...], **rows: list[tuple[str, ...]]) -> None:
        self.fields = fields
        self.given = rows

    def check(self) -> None: ...

    def documents(self, split: Split) -> Iterator[str]:
        return (row[0] for row in self.given[split])

    def rows(self, split: Split) -> Iterator[Row]:
        return (dict(zip(self.fields, row, strict=True)) for row in self.given[split])

    def has(self, split: Split) -> bool:
        return split in self.given

    def describe(self) -> dict[str, Any]:
        return {}


TEXT = Given(
    ("text",),
    train=[("aaaa aab ",), ("a naïve aa",)],
    validation=[("bbbb ébb é",), ("ba ab",)],  # other letters are frequent here, and more bytes a letter
)
LABELLED = Given(
    ("text", "label"),
    train=[("fine day", "good"), ("fine meal", "good"), ("fine trip", "good"), ("sad day", "bad")],
    validation=[("fine", "bad"), ("fine trip", "bad"), ("sad", "good"), ("fine", "bad"), ("sad", "bad")],
)
PAIRS = Given(
    ("source", "target"),
    train=[("ein Hund", "a small dog"), ("eine rote Katze", "one red cat")],
    validation=[("ein Hund", "some other animal of mine"), ("rote Katze", "one red cat indeed it is")],
)


def opened(source: Given, recipe: Recipe, reader: type[Task], cache: Path, **options: Any) -> Any:
    """What `report` asks of the data of a session."""
    preprocessor, rows = prepare_rows(source, recipe, SPLITS, source.fields, cache=cache, say=lambda line: None)
    vocab_size = preprocessor.tokenizer.vocab_size
    given: dict[str, dict[str, Any]] = {
        "NextToken": {"tied": True, "vocab_size": vocab_size},
        "MaskedLM": {**OPTIONS, "vocab_size": vocab_size},
        "Sentiment": {
            **{"pool": "last", "dropout": 0.0, "class_weights": "none", "bptt_length": 99},
            **{"labels": preprocessor.labels, "label_counts": ()},
        },
        "Translation": {
            **{"shared_vocab": True, "tied": True, "label_smoothing": 0.0, "beam": 1, "length_penalty": 1.0},
            **{"max_ratio": 2.0, "target_vocab_size": vocab_size, "preprocessor": preprocessor},
        },
    }
    found = SimpleNamespace(
        source=source,
        rows=rows,
        preprocessor=preprocessor,
        tokenizer=preprocessor.tokenizer,
        corpora={split: next(iter(rows[split].columns.values())) for split in rows},
        task=reader(dim=4, **given[reader.__name__]),  # type: ignore[call-arg]
        say=print,
        _baselines={},
    )
    found.baselines = lambda split: Data.baselines(found, split)  # type: ignore[arg-type]
    found.baselines_or_none = lambda split: Data.baselines_or_none(found, split)  # type: ignore[arg-type]
    return found


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))


def letters(split: Split) -> str:
    return "".join(row[0] for row in TEXT.given[split])


def surprise(vocab_size: int) -> float:
    """Mean nats of a letter of validation by how often train has it, one added to each count."""
    counts, size = Counter(letters("train")), len(letters("train"))
    unknown = [letter if letter in counts else "<unk>" for letter in letters("validation")]
    return -math.fsum(math.log((counts[letter] + 1) / (size + vocab_size)) for letter in unknown) / len(unknown)


def test_those_of_a_stream_know_train_and_are_measured_on_the_bytes_of_the_split(tmp_path: Path) -> None:
    data = opened(TEXT, Char(), NextToken, tmp_path)
    found = data.baselines("validation")
    asked = letters("validation")
    loss = surprise(data.tokenizer.vocab_size)
    assert found["unigram"]["loss"] == pytest.approx(loss, rel=1e-12)
    bits = loss * len(asked) / math.log(2)
    assert found["unigram"]["bits_per_byte"] == pytest.approx(bits / len(asked.encode()), rel=1e-12)
    alone, before = (len(lzma.compress(letters(split).encode(), preset=9)) for split in ("validation", "train"))
    after = len(lzma.compress((letters("train") + asked).encode(), preset=9))
    assert found["xz"]["bits_per_byte"] == pytest.approx(8 * alone / len(asked.encode()))
    assert found["xz_given_train"]["bits_per_byte"] == pytest.approx(8 * (after - before) / len(asked.encode()))


def test_those_of_masked_text_know_train_alone(tmp_path: Path) -> None:
    data = opened(TEXT, Char(), MaskedLM, tmp_path)
    found = data.baselines("validation")
    assert found["unigram"]["loss"] == pytest.approx(surprise(data.tokenizer.vocab_size), rel=1e-12)
    assert found["unigram"]["accuracy"] == letters("validation").count("a") / len(letters("validation"))
    assert {name: set(figures) for name, figures in found.items()} == {
        "unigram": {"loss", "accuracy"},
        "left_bigram": {"loss"},
    }


def test_those_of_labels_know_train_alone(tmp_path: Path) -> None:
    data = opened(LABELLED, Word(), Sentiment, tmp_path)
    assert data.preprocessor.labels == ("bad", "good")
    assert Data.label_counts.fget(data) == (1, 3)  # type: ignore[misc]
    found = data.baselines("validation")
    assert found["majority"] == {"accuracy": 1 / 5}, "good, the most frequent of train, is right once"
    assert found["naive_bayes"] == {"accuracy": 1 / 5}, "fine is good and sad is bad, as train has it"


def test_those_of_translations_know_train_alone(tmp_path: Path) -> None:
    found = opened(PAIRS, Word(), Translation, tmp_path).baselines("validation")
    sources, references = zip(*PAIRS.given["validation"], strict=True)
    known = [target for _, target in PAIRS.given["train"]]
    for name, answers in (("copy", sources), ("nearest", known)):
        assert found[name]["bleu"] == pytest.approx(sacrebleu.corpus_bleu(answers, [references]).score), name
        assert found[name]["chrf"] == pytest.approx(sacrebleu.corpus_chrf(answers, [references]).score), name
        assert found[name]["exact_match"] == 0


def test_the_summary_holds_those_of_validation_and_the_best_validation_as_it_was() -> None:
    progress = SimpleNamespace(tokens=640, skipped=0)
    best = {"step": 20, "loss": 2.0, "accuracy": 0.5}
    session: Any = SimpleNamespace(
        recorder=SimpleNamespace(elapsed=lambda: 4.0, every=20),
        learner=SimpleNamespace(progress=progress, metrics={"loss": 3.0}),
        checkpoints=SimpleNamespace(best=best),
        data=SimpleNamespace(
            source=Given(("text",), train=[], test=[]), rows={}, baselines_or_none=lambda split: {split: 7}
        ),
        trainer=SimpleNamespace(global_step=40),
        deadline=None,
        max_steps=40,
    )
    run: Any = SimpleNamespace(metrics=list)
    found = report.result(run, session, SimpleNamespace(flops_per_token=100.0))  # type: ignore[arg-type]
    assert found["baselines"] == {"validation": {"validation": 7}}
    assert found["best"] == {"step": 20, "validation": {"loss": 2.0, "accuracy": 0.5}}
    assert found["metrics"] == {"validation": {"loss": 3.0}}
    assert (found["steps"], found["tokens"], found["flops"]) == (40, 640, 64_000.0)
    assert (found["tokens_per_second"], found["splits"]) == (160.0, ["train", "test"])


def test_the_end_of_a_training_holds_the_best_against_the_baselines_and_says_both(tmp_path: Path) -> None:
    summary = {
        **{"status": "finished", "steps": 40, "tokens": 640, "seconds": 4.0, "tokens_per_second": 160.0},
        **{"parameters": {"total": 7}, "unknown": {}, "splits": []},
        "metrics": {"validation": {"accuracy": 0.5}},
        "best": {"step": 20, "validation": {"accuracy": 0.75}},
        "baselines": {"validation": {"majority": {"accuracy": 0.625}}},
        **Sentiment.said(),
    }
    said = report.lines(SimpleNamespace(path=tmp_path, summary=Summary.from_plain(summary)))  # type: ignore[arg-type]
    assert "validation  0.5000 accuracy" in said
    assert "best        0.7500 accuracy at step 20" in said
    assert "That is 0.125 accuracy better than the most frequent label." in said
