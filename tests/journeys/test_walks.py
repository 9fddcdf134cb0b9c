"""Every task with every kind of source, as users have them, from `train` to the exported folder; ways agree."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

import seqtrain as package
from tests.conftest import Seqtrain
from tests.journeys.files import sentences, write_all
from tests.journeys.walk import KILLS, ROUNDING, SMALL, TWO, Walk, assert_near, assert_twins, figures
from tests.support.quick import some_long

TEXTS = ("row 7 of lamp river at 49.", "ship hill ship", "row 99 of cloud")
LANES = "tbptt.k2=8 data.batch_size=4 data.eval_lanes=4"
ROWS = "data.batch_tokens=96"
TEST = "data.test_fraction=0.1"
HUB = "data.validation_split=null data.test_split=null"
SIDES = "data.source_column=source data.target_column=target"


@dataclass(frozen=True)
class Task:
    """How a task is trained here, what is asked of its runs, and what their vectors are tried on."""

    words: str
    asked: tuple[str, ...] = ()  # options of `predict`, and in Python:
    options: tuple[tuple[str, float], ...] = ()
    texts: tuple[str, ...] = TEXTS
    probe: str = "--labels labelled.csv"  # empty: the task reads no text
    answers: bool = True  # whether a text has an answer, or a vector alone


TASKS = {
    "next_token": Task(f"model=gru {LANES}", ("--greedy", "--length", "6"), (("temperature", 0.0), ("length", 6))),
    "masked_lm": Task(
        f"model=bert {ROWS} model.num_heads=2", texts=("row [MASK] of lamp", "[MASK] hill", "at [MASK] .")
    ),
    "bidirectional_lm": Task(f"model=elmo {ROWS}", ("--score",), (("by", "score"),)),  # type: ignore[arg-type]
    "sentiment": Task("model=lstm model.dropout=0 task.dropout=0"),
    "regress": Task("model=lstm model.dropout=0 task.dropout=0", probe="--labels scored.csv --numbers"),
    "tag": Task("model=gru model.dropout=0 task.dropout=0"),
    "regress_steps": Task("model=gru model.dropout=0", probe="--labels scored.csv --numbers"),
    "translation": Task(
        "model=rnn_encoder_decoder model.dropout=0 task.max_ratio=0.2 tokenizer=char",
        probe="--pairs pairs.tsv",
    ),
    "pairs": Task(
        "model=bert model.num_heads=2 model.dropout=0 task.group_size=4", probe="--pairs pairs.tsv", answers=False
    ),
    "forecast": Task("model=gru data.max_length=16 data.batch_size=8 task.horizon=4", probe=""),
}
TEXT = f"{TEST} data.split_by=position data=text data.path="
PAIRS = f"{ROWS} {TEST} data=parallel"
LABELLED = f"{ROWS} {TEST} data=labelled data.path="
SERIES = "data=series data.path="
LONG_FORM = "data.id_column=patient data.time_column=step data.columns=[pulse,pressure] data.label_column="
SOURCES: dict[str, dict[str, str]] = {
    "next_token": {
        "built in": "data=agreement data.size=400",
        "txt": f"{TEXT}hf_wikitext_103_raw_v1.txt",
        "folder of txt": f"{TEXT}books",
        "glob": f"{TEXT}books/*.txt",
        **{name: f"{TEXT}labelled.{name}" for name in ("csv", "tsv", "jsonl", "parquet")},
        "saved hub set": f"data=hub data.path=labelled-saved {HUB} {TEST}",
        "hub folder": f"data=hub data.path=labelled-hub {HUB} {TEST}",
        "store": "data=tokens data.path=store",
        "nanoGPT": "data=nanogpt data.path=train.bin data.test_path=train.bin data.vocab_size=97",
        "datatrove": "data=datatrove data.path=datatrove data.test_path=datatrove data.vocab_size=97",
    },
    "masked_lm": {
        "txt": f"tokenizer=word {TEXT}text.txt",
        "store": "data=tokens data.path=store",
        "built in": "tokenizer=word data=agreement data.size=400",
    },
    "bidirectional_lm": {
        "txt": f"{TEXT}text.txt",
        "parquet": f"{TEXT}labelled.parquet",
        "store": "data=tokens data.path=store",
    },
    "sentiment": {
        "built in": f"{ROWS} data=word_order data.size=400",
        **{name: f"{LABELLED}labelled.{name}" for name in ("csv", "tsv", "jsonl", "parquet", "tsv.gz")},
        "headerless": f"{LABELLED}labelled-headerless.tsv",
        "lines": f"{LABELLED}lines.txt",
        "folder a class": f"{LABELLED}classes",
        "saved hub set": f"{ROWS} {TEST} data=hub data.path=labelled-saved data.label_column=label {HUB}",
        "hub folder": f"{ROWS} {TEST} data=hub data.path=labelled-hub data.label_column=label {HUB}",
        "UCR ts": f"{ROWS} data=ucr data.path=waves",
        "UCR tsv": f"{ROWS} data=ucr data.path=steps_TRAIN.tsv",
        "series by id": f"{ROWS} {SERIES}patients.csv {LONG_FORM}state",
        "vectors in parquet": f"{ROWS} data=vectors data.path=vectors.parquet",
    },
    "regress": {
        "built in": f"{ROWS} data=sums data.size=400",
        **{name: f"{LABELLED}scored.{name}" for name in ("csv", "tsv", "jsonl", "parquet", "tsv.gz")},
        "headerless": f"{LABELLED}scored-headerless.tsv",
        "saved hub set": f"{ROWS} {TEST} data=hub data.path=scored-saved data.label_column=label {HUB}",
        "UCR ts": f"{ROWS} data=ucr data.path=numbers_TRAIN.ts",
        "series by id": f"{ROWS} {SERIES}patients.jsonl {LONG_FORM}score",
        "vectors in jsonl": f"{ROWS} data=vectors data.path=vectors.jsonl data.label_column=score",
    },
    "tag": {
        "built in": f"{ROWS} data=person_or_place data.size=400",
        "made up": "data=recall data.size=400 data.validation_size=20 data.test_size=20 data.batch_tokens=256",
        "CoNLL-2003": f"{ROWS} {TEST} data=conll data.path=conll2003.txt",
        "chains": f"{ROWS} {TEST} data=conll data.path=conll2003.txt task.crf=true",
        "CoNLL-U": f"{ROWS} {TEST} data=conll data.path=words.conllu data.token_column=1 data.label_column=3",
        "lists in jsonl": f"{ROWS} {TEST} data=conll data.path=words.jsonl",
        "parts of words": f"{ROWS} {TEST} data=conll data.path=conll2003.txt tokenizer=bpe",
        "csv": f"{LABELLED}tagged.csv",
        "parquet": f"{LABELLED}tagged.parquet",
        "series by id": f"{ROWS} {SERIES}patients.parquet {LONG_FORM}phase",
        "vectors in jsonl": f"{ROWS} data=vectors data.path=vectors.jsonl data.label_column=phase",
    },
    "regress_steps": {
        "built in": f"{ROWS} data=running_sums data.size=400",
        "csv": f"{LABELLED}efforts.csv",
        "parts of words": f"{LABELLED}efforts.parquet tokenizer=bpe",
        "series by id": f"{ROWS} {SERIES}patients.csv {LONG_FORM}load",
        "vectors in jsonl": f"{ROWS} data=vectors data.path=vectors.jsonl data.label_column=load",
        "vectors in npz": f"{ROWS} data=vectors data.path=arrays.npz",
    },
    "translation": {
        "built in": "data=locale_phrases data.batch_tokens=512",
        "two txt": f"{PAIRS} data.source_path=source.txt data.target_path=target.txt",
        **{name: f"{PAIRS} data.path=pairs.{name}" for name in ("csv", "tsv", "jsonl", "parquet")},
        "headerless": f"{PAIRS} data.path=pairs-headerless.tsv",
        "saved hub set": f"{ROWS} {TEST} data=hub data.path=pairs-saved {SIDES} {HUB}",
        "vectors in parquet": f"{ROWS} data=vectors data.path=vectors.parquet tokenizer=word",
        "vectors in jsonl": f"{ROWS} data=vectors data.path=vectors.jsonl",
        "movies": f"{ROWS} data=frames data.size=100",
    },
    "pairs": {
        "built in": "data=locale_phrases data.batch_tokens=512",
        "two txt": f"{PAIRS} data.source_path=source.txt data.target_path=target.txt",
        **{name: f"{PAIRS} data.path=pairs.{name}" for name in ("csv", "tsv", "jsonl", "parquet")},
        "saved hub set": f"{ROWS} {TEST} data=hub data.path=pairs-saved {SIDES} {HUB}",
    },
    "forecast": {
        "built in": "data=seasonal data.size=1 data.length=700",
        **{name: f"{SERIES}series.{name}" for name in ("csv", "tsv", "jsonl", "parquet")},
        "saved hub set": "data=hub_series data.path=series-saved",
        "hub folder": "data=hub_series data.path=series-hub",
    },
}
JOURNEYS = [f"{task}, {source}" for task, sources in SOURCES.items() for source in sources]
SERIES_FILES = {
    "sentiment, UCR ts": "waves/waves_TEST.ts",
    "sentiment, UCR tsv": "steps_TEST.tsv",
    "regress, UCR ts": "numbers_TEST.ts",
    "sentiment, series by id": "patients.csv",
    "regress, series by id": "patients.jsonl",
    "tag, series by id": "patients.parquet",
    "sentiment, vectors in parquet": "vectors.parquet",
    "regress, vectors in jsonl": "vectors.jsonl",
    "tag, vectors in jsonl": "vectors.jsonl",
    "regress_steps, series by id": "patients.csv",
    "regress_steps, vectors in jsonl": "vectors.jsonl",
    "regress_steps, vectors in npz": "arrays.npy",
    "translation, vectors in parquet": "vectors.parquet",
    "translation, vectors in jsonl": "vectors.jsonl",
    "translation, movies": "movie.jsonl",
}
"""A file that is asked about, where series have labels: of UCR that of test."""

WHOLE = (
    *("next_token, txt", "masked_lm, txt", "bidirectional_lm, txt", "sentiment, csv", "regress, csv", "tag, csv"),
    *("regress_steps, csv", "translation, csv", "pairs, csv", "forecast, parquet"),
    *("sentiment, UCR tsv", "regress_steps, vectors in jsonl", "translation, vectors in jsonl"),
)
"""Of each task, and of each kind of series, the journey that also takes what no source of its rows can change."""

QUICK = (
    *("next_token, txt", "sentiment, headerless", "sentiment, UCR ts", "translation, vectors in parquet"),
    *("tag, CoNLL-2003", "forecast, csv", "regress_steps, vectors in npz"),
)


@pytest.fixture(scope="module")
def walk(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Walk:
    walk = Walk(seqtrain, write_all(tmp_path_factory.mktemp("walked")))
    walk.type("prepare", *f"{TEXT}text.txt".split(), "tokenizer=word", "--store", "store")
    (walk.folder / "corpus.txt").write_text("".join(f"{text}\n" for text in sentences()[:40]))
    return walk


@pytest.mark.parametrize("journey", some_long(JOURNEYS, QUICK))
def test_a_journey_gives_equal_figures_wherever_two_ways_must_agree(journey: str, walk: Walk) -> None:
    name, source = journey.split(", ")
    task = TASKS[name]
    words = [*SMALL, f"task={name}", *task.words.split(), *SOURCES[name][source].split()]
    run = journey.replace(" ", "-").replace(",", "")
    trained = walk.train(run, *words)
    assert_twins(trained, walk.train_killed(f"{run}-killed", *words, kills=KILLS[1:]))
    assert_near(figures(walk.train(f"{run}-two", *words, *TWO)), figures(trained))
    assert_near(walk.evaluate(run, "validation"), figures(trained))
    tested = walk.evaluate(f"{run}-killed", "test")
    assert_near(walk.evaluate(f"{run}-two", "test"), tested)
    walk.type("export", run, "--output", f"{run}-exported")
    whole = journey in WHOLE
    if name == "forecast":
        answers_of_series(walk, run, whole)
    elif journey in SERIES_FILES:
        answers_of_labelled_series(walk, run, SERIES_FILES[journey], whole)
    elif whole:
        answers_of_texts(walk, run, task)
    elif task.answers:
        texts = ["1 2 3", "96", "5 5"] if "vocab_size" in SOURCES[name][source] else list(task.texts)
        answers_of_the_export(walk, run, task, texts)
    if whole:
        compared_with_another(walk, run, words)


def compared_with_another(walk: Walk, run: str, words: list[str]) -> None:
    """A run of other options and another seed is compared with it, as another variant."""
    walk.train(f"{run}-other", *words, "model.dim=24", "seed=2")
    (compared,) = walk.json("compare", run, f"{run}-other")
    assert {len(compared["runs"]), len(compared["groups"])} == {2, 1}


def answers_of_texts(walk: Walk, run: str, task: Task) -> None:
    """Answers and vectors of texts are the same in all ways to ask for them."""
    texts = list(task.texts)
    if task.answers:
        answers_alike(walk, run, task, texts)
    walk.type("embed", run, "--input", "corpus.txt", "--output", f"{run}.parquet")
    nearest = walk.json("search", run, "--corpus", f"{run}.parquet", texts[0])
    assert nearest == walk.json("search", f"{run}-exported", "--corpus", "corpus.txt", texts[0])
    walk.type("probe", run, *task.probe.split())
    if not task.answers:  # a run that was trained for its vectors: they are those of the task's own pooling
        opened = package.load(walk.folder / run)
        assert opened.embed(texts).equal(opened.embed(texts, pool="mean_all"))


def answers_alike(walk: Walk, run: str, task: Task, texts: list[str]) -> None:
    """Texts as arguments, lines of a file, from Python and of the exported folder have the same answers."""
    (walk.folder / f"{run}.txt").write_text("".join(f"{text}\n" for text in texts))
    asked = answers_of_the_export(walk, run, task, texts)
    numbered = [{"line": number, **answer} for number, answer in enumerate(asked, 1)]
    assert walk.json("predict", run, "--input", f"{run}.txt", *task.asked) == numbered
    assert walk.json("predict", f"{run}-exported", *texts, *task.asked) == asked
    plain = walk.type("predict", run, *texts, *task.asked)
    assert plain == walk.type("predict", run, "--input", f"{run}.txt", *task.asked)
    answers = package.load(walk.folder / run).predict(texts, **dict(task.options))
    assert json.loads(json.dumps(answers)) == asked


def answers_of_the_export(walk: Walk, run: str, task: Task, texts: list[str]) -> list[dict[str, Any]]:
    """The exported folder gives Python the answers that the command gives of the run; gives them."""
    asked = walk.json("predict", run, *texts, *task.asked)
    assert len(asked) == len(texts)
    answers = package.load(walk.folder / f"{run}-exported").predict(texts, **dict(task.options))
    assert json.loads(json.dumps(answers)) == asked
    return asked


def answers_of_labelled_series(walk: Walk, run: str, file: str, whole: bool) -> None:
    """Answers to the series of a file are the same as argument, with --input, from Python and of the export."""
    asked = walk.json("predict", run, file)
    if "TEST" in file:
        assert len(asked) == walk.json("evaluate", run, "--split", "test")[0]["examples"]
    answers = package.load(walk.folder / f"{run}-exported").predict(walk.folder / file)
    assert json.loads(json.dumps(answers)) == asked
    if whole:
        assert walk.json("predict", run, "--input", file) == asked
        assert walk.json("predict", f"{run}-exported", file) == asked
        answers = package.load(walk.folder / run).predict(walk.folder / file)
        assert json.loads(json.dumps(answers)) == asked
    if run.startswith("translation"):
        looks_at_steps(walk, run, file)


def looks_at_steps(walk: Walk, run: str, file: str) -> None:
    """Attention is drawn from the words of the answer to the numbers of the steps of the first series."""
    walk.type("predict", run, file, "--attention", f"{run}.png", "--gates", f"{run}-gates.png")
    assert (walk.folder / f"{run}.png").stat().st_size > 0
    opened = package.load(walk.folder / run)
    first, *_ = opened.attention(str(walk.folder / file), "up up")
    assert first.keys == [str(number) for number in range(1, first.weights.shape[-1] + 1)]
    assert first.queries[0] == "[start]"
    assert first.weights.sum(-1).numpy() == pytest.approx(1.0, abs=1e-5)


def answers_of_series(walk: Walk, run: str, whole: bool) -> None:
    """A forecast is the same as table, as json, from Python and of the exported folder."""
    series = "series.csv" if "load" in (walk.folder / run / "series.json").read_text() else "seasonal.csv"
    asked = walk.json("predict", run, "--input", series)
    assert len(asked) == 4
    assert_forecast(walk, f"{run}-exported", series, asked)
    if not whole:
        return
    assert_forecast(walk, run, series, asked)
    assert walk.json("predict", f"{run}-exported", "--input", series) == asked
    table = [line.split(",") for line in walk.type("predict", run, "--input", series).splitlines()]
    assert table[0] == list(asked[0])
    for row, answer in zip(table[1:], asked, strict=True):
        assert row[0] == answer["time"]
        assert [*map(float, row[1:])] == pytest.approx([*answer.values()][1:], rel=ROUNDING)


def assert_forecast(walk: Walk, opened: str, series: str, asked: list[dict[str, Any]]) -> None:
    """Python forecasts of the folder what the command answered."""
    columns = package.load(walk.folder / opened).forecast(walk.folder / series)
    for n, answer in enumerate(asked):
        assert {name: values[n] for name, values in columns.items()} == answer
