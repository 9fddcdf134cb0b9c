"""Laws of `evaluate --split test`: each look is kept and counted; what cannot be written is still measured."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from seqtrain.cli.main import main
from seqtrain.runs import evaluations
from seqtrain.runs.evaluations import EVALUATIONS, kept
from seqtrain.tasks.sentiment import Sentiment
from tests.support.untrained_runs import make_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.txt").write_text(f"the street of {split} was too long\n" * 3, encoding="utf-8")
    data = ["data=text", f"data.path={tmp_path}/train.txt"]
    data += [f"data.{split}_path={tmp_path}/{split}.txt" for split in ("validation", "test")]
    small = ("task=next_token", "model=gru", "tokenizer=char", "data.eval_lanes=1", "tbptt.k2=8", "logger=none")
    return make_run(tmp_path / "run", *small, *data, "trainer.accelerator=cpu", "trainer.precision=32-true")


def evaluate(run: Path, *words: str) -> None:
    assert main(["evaluate", str(run), "--checkpoint", "last", *words]) == 0


def test_each_look_at_test_is_kept_and_evaluate_says_which_one_it_is(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(run, "--split", "test")
    assert "test split evaluated 1 time\n" in capsys.readouterr().err
    evaluate(run, "--split", "test")
    day = kept(run).evaluations[0].date[:10]
    later = f"times (first on {day}): a choice made since then makes this result optimistic"
    assert f"test split evaluated 2 {later}" in capsys.readouterr().err
    evaluate(run, "--split", "test", "--json", "--batch-size", "1")
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert (answer["look"], answer["kept"]) == (3, True)
    assert f"test split evaluated 3 {later}" in err
    first, _, third = kept(run).evaluations
    assert third.metrics == answer["metrics"] == pytest.approx(first.metrics)
    assert (third.split, third.checkpoint, third.hash) == ("test", "last", answer["hash"])
    assert third.step == answer["step"]
    assert third.options["batch_size"] == 1


def test_a_look_at_another_split_is_neither_kept_nor_counted(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "validation"):
        evaluate(run, "--split", split)
    assert not (run / EVALUATIONS).exists()
    assert "look" not in capsys.readouterr().err


def test_a_run_that_cannot_be_written_is_measured_and_nothing_kept_is_said(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate(run, "--split", "test")
    before = (run / EVALUATIONS).read_bytes()

    def refuse(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(evaluations, "open_append", refuse)
    evaluate(run, "--split", "test", "--json")
    out, err = capsys.readouterr()
    answer = json.loads(out.splitlines()[-1])
    assert (answer["look"], answer["kept"]) == (2, False)
    assert "bits_per_byte" in answer["metrics"]
    assert f"nothing was kept in {run} (Read-only file system): this evaluation is not counted" in err
    assert (run / EVALUATIONS).read_bytes() == before


def labelled(path: Path, *words: str) -> Path:
    for name in ("train", "validation", "news", "films"):
        rows = [f"the {name} was {word} {place}\t{word}\n" for place in range(4) for word in ("bad", "good")]
        (path / f"{name}.tsv").write_text("text\tlabel\n" + "".join(rows), encoding="utf-8")
    data = [
        "data=labelled",
        f"data.path={path}/train.tsv",
        f"data.validation_path={path}/validation.tsv",
        "data.batch_tokens=1024",
        *words,
    ]
    small = ("task=sentiment", "model=gru", "tokenizer=char", "trainer.accelerator=cpu", "trainer.precision=32-true")
    return make_run(path / "run", *small, *data, labels=("bad", "good"))


def test_each_named_test_set_is_kept_and_counted_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = labelled(tmp_path, f"data.test_paths={{news: {tmp_path}/news.tsv, films: {tmp_path}/films.tsv}}")
    evaluate(run, "--split", "test")
    err = capsys.readouterr().err
    assert "test set news evaluated 1 time" in err
    assert "test set films evaluated 1 time" in err
    found = kept(run)
    assert [one.test_set for one in found.evaluations] == ["news", "films"]
    assert found.looks() == 0
    assert found.evaluations[0].hash != found.evaluations[1].hash


def test_a_baseline_that_fails_loses_no_figure_and_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Sentiment, *args: object) -> None:
        raise ValueError("no features")

    monkeypatch.setattr(Sentiment, "baselines", fail)
    run = labelled(tmp_path, f"data.test_path={tmp_path}/news.tsv")
    evaluate(run, "--split", "test", "--baselines")
    assert "test: no baselines: ValueError: no features" in capsys.readouterr().err
    (one,) = kept(run).evaluations
    assert "accuracy" in one.metrics
    assert one.baselines == {}
