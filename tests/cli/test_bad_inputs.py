"""Files of other runs and changed data are refused; what looks bad and is sound, such as a byte order mark, trains."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from seqtrain.runs.directory import Run
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.tasks.translation import Translation
from tests.conftest import Answer, Seqtrain
from tests.support import bad_inputs
from tests.support.bad_inputs import TASKS, contents

TWO_STEPS = ("trainer.max_steps=2", "trainer.checkpoint_every=1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bad_inputs.files(tmp_path_factory.mktemp("bad_inputs"))


def check(answer: Answer, words: tuple[str, ...]) -> None:
    """Exit code 2 and one line that holds the words."""
    assert answer.rc == 2, answer.err
    assert "Traceback" not in answer.err + answer.out
    errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, answer.err
    assert answer.err.splitlines()[-1] == errors[0]
    assert [word for word in words if word not in errors[0]] == [], errors[0]


# -- of a run that is there already ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(seqtrain: Seqtrain, folder: Path) -> Path:
    """A finished run of two steps of each task, in the folder, by the task's name."""
    for task in ("next_token", "masked_lm", "sentiment", "translation"):
        answer = seqtrain("train", *TASKS[task], *TWO_STEPS, f"run_dir={task}", cwd=folder)
        assert answer.rc == 0, answer.err
    return folder


@pytest.mark.long
def test_a_task_names_all_that_it_measures(runs: Path) -> None:
    """What early stopping may go by is known before there is a measurement."""
    for task in (MaskedLM, NextToken, Sentiment, Translation):
        name = task.__module__.rpartition(".")[2]
        assert set(Run(runs / name).summary.metrics["validation"]) <= {metric.name for metric in task.metrics}, name


@pytest.fixture
def copy(runs: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A copy of the run of a task, to be spoilt."""
    yield Path(shutil.copytree(runs / request.param, runs / "copy"))
    shutil.rmtree(runs / "copy")


@pytest.mark.long
@pytest.mark.parametrize(
    ("copy", "command"),
    [
        ("next_token", ("predict", "a")),
        ("masked_lm", ("evaluate",)),
        ("sentiment", ("resume", "trainer.max_steps=4")),
        ("translation", ("evaluate",)),
    ],
    indirect=["copy"],
)
def test_the_tokenizer_of_another_run_is_refused(
    copy: Path, command: tuple[str, ...], runs: Path, seqtrain: Seqtrain
) -> None:
    other = "sentiment" if Run(copy).config["task"]["_target_"].endswith("NextToken") else "next_token"
    shutil.copy(runs / other / "tokenizer.json", copy)
    before = contents(runs / "copy" / "checkpoints")
    name, *rest = command
    check(seqtrain(name, "copy", *rest, cwd=runs), ("tokenizer",))
    assert contents(runs / "copy" / "checkpoints") == before


@pytest.mark.long
@pytest.mark.parametrize("copy", ["sentiment"], indirect=True)
@pytest.mark.parametrize("labels", ['["yes", "no"]', "{", None], ids=str)
def test_the_labels_of_another_run_are_refused(copy: Path, labels: str | None, runs: Path, seqtrain: Seqtrain) -> None:
    if labels is None:
        (copy / "labels.json").unlink()
    else:
        (copy / "labels.json").write_text(labels)
    check(seqtrain("predict", "copy", "a", cwd=runs), ("labels.json",))


@pytest.mark.long
@pytest.mark.parametrize("copy", ["sentiment", "translation"], indirect=True)
def test_data_that_changed_by_a_byte_is_not_gone_on_with(copy: Path, runs: Path, seqtrain: Seqtrain) -> None:
    path = runs / next(
        Run(copy).config["data"][key] for key in ("path", "target_path") if Run(copy).config["data"].get(key)
    )
    whole, before = path.read_bytes(), contents(copy / "checkpoints")
    place = whole.index(b"1", len(whole) // 3)
    try:
        path.write_bytes(whole[:place] + b"8" + whole[place + 1 :])
        check(seqtrain("resume", "copy", "trainer.max_steps=4", cwd=runs), ("has changed since", "start a new run"))
        check(seqtrain("evaluate", "copy", "--split", "train", cwd=runs), ("the data has changed",))
        path.unlink()
        check(seqtrain("resume", "copy", "trainer.max_steps=4", cwd=runs), (path.name, "no such file"))
        check(seqtrain("evaluate", "copy", cwd=runs), (path.name, "no such file"))
        assert seqtrain("predict", "copy", "1 and", cwd=runs).rc == 0  # which needs no data
    finally:
        path.write_bytes(whole)
    assert contents(copy / "checkpoints") == before


@pytest.mark.long
def test_a_translation_reads_as_much_of_a_line_as_training_did(runs: Path, seqtrain: Seqtrain) -> None:
    long = "1 and 1 " * 20_000
    whole = seqtrain("predict", "translation", long, cwd=runs)
    cut = seqtrain("predict", "translation", long[:-4000], cwd=runs)
    assert (whole.rc, whole.out) == (0, cut.out)
    assert "1 texts are longer than data.max_length=16 tokens: only their beginning was read" in whole.err
    assert seqtrain("predict", "translation", "1 and 1", cwd=runs).err == ""


@pytest.mark.long
def test_a_masked_line_beyond_memory_is_refused(runs: Path, seqtrain: Seqtrain) -> None:
    check(
        seqtrain("predict", "masked_lm", "[MASK] " + "ab " * 9000, cwd=runs),
        ("TEXT 1: has 27,002 tokens", "may have at most"),
    )


# -- what looks bad, and is not ----------------------------------------------------------------------------------

BYTES_FIRST = b"\xef\xbb\xbftext,label\r\n" + b"a b,x\r\nc d,y\r\n" * 9
NUMBERS = '{"text": "a", "label": 1}\n\n{"text": "b", "label": 0}\n' * 9
TRUTHS = '{"text": "a", "label": true}\n{"text": "b", "label": false}\n' * 9
SHORT = '{"text": ""}\n{"text": "a"}\n' * 30
BY_DOCUMENT = ("data.path=it.jsonl", "data.split_by=document")

SOUND: dict[str, tuple[str, str | bytes, tuple[str, ...]]] = {
    # name: (task, a file, what is changed)
    "a byte order mark and CRLF": ("sentiment", BYTES_FIRST, ("data.path=it.csv",)),
    "lone CR": ("sentiment", "text,label\r" + "a b,x\rc d,y\r" * 9, ("data.path=it.csv",)),
    "NUL bytes": ("next_token", "some\0 words of text\n" * 30, ("data.path=it.txt",)),
    "labels that are numbers, and blank lines": ("sentiment", NUMBERS, ("data.path=it.jsonl",)),
    "labels that are truths": ("sentiment", TRUTHS, ("data.path=it.jsonl",)),
    "labels of several words": ("sentiment", "text\tlabel\n" + "a\tvery good\nb\tbad\n" * 9, ("data.path=it.tsv",)),
    "empty texts and texts of one token": (
        "sentiment",
        "text\tlabel\n" + "\tx\na\ty\nb\tx\n" * 9,
        ("data.path=it.tsv",),
    ),
    "empty documents and documents of one token": ("next_token", SHORT, BY_DOCUMENT),
    "documents of one token, masked": ("masked_lm", SHORT, BY_DOCUMENT),
    "blank lines of a translation": ("translation", "a\n\n" * 20, ("data.target_path=it.txt",)),
    "a validation split smaller than a batch": ("sentiment", "text\tlabel\na\tyes\n", ("data.validation_path=it.tsv",)),
    "batches smaller than an example": ("masked_lm", "", ("data.batch_tokens=3",)),
}


def alone(words: tuple[str, ...], change: Sequence[str]) -> tuple[str, ...]:
    """The words without the fraction that a validation file of its own leaves nothing to do."""
    given = any(word.startswith("data.validation_path") for word in change)
    return tuple(word for word in words if not (given and word.startswith("data.validation_fraction")))


@pytest.mark.long
@pytest.mark.parametrize("name", SOUND)
def test_what_only_looks_bad_trains(name: str, folder: Path, seqtrain: Seqtrain) -> None:
    task, content, change = SOUND[name]
    written = folder / next((text.partition("=")[2] for text in change if "=it." in text), "it.txt")
    written.write_bytes(content if isinstance(content, bytes) else content.encode())
    answer = seqtrain("train", *alone(TASKS[task], change), "trainer.max_steps=1", *change, "run_dir=sound", cwd=folder)
    assert answer.rc == 0, answer.err
    assert Run(folder / "sound").summary.status == "finished"
    shutil.rmtree(folder / "sound")
    written.unlink()


def test_of_values_given_twice_the_last_counts_and_that_is_said(folder: Path, seqtrain: Seqtrain) -> None:
    twice = ("model=lstm", "model=gru", "model.dim=8", "model.dim=16", "seed=1", "seed=1", "run_dir=twice")
    answer = seqtrain("train", *TASKS["next_token"], "trainer.max_steps=1", *twice, cwd=folder)
    assert answer.rc == 0, answer.err
    assert "model is given 2 times: gru is used, lstm is ignored" in answer.err
    assert "model.dim is given 3 times: 16 is used, 8 is ignored" in answer.err
    assert "seed is given" not in answer.err
    assert Run(folder / "twice").config["model"]["dim"] == 16
    shutil.rmtree(folder / "twice")
