"""Laws of `seqtrain scale`: what it refuses, what it trains, and that a second call trains nothing again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqtrain.cli import main
from tests.conftest import Seqtrain


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command; gives exit code, standard output and standard error."""

    def run(*args: object) -> tuple[int, str, str]:
        rc = main.main(["scale", *map(str, args)])
        return rc, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--flops", "1e9,2e9,4e9"), "give at least 4 budgets"),
        (("--flops", "1e9,2e9,4e9,8e9", "--hold-back", "8e9"), "must be above the largest rung"),
        (("model.dim=64",), "the ladder decides it"),
        (("budget=flops:1e9",), "the ladder decides it"),
        (("seed=3",), "the ladder decides it"),
        (("model=lstm,nope",), "no such model"),
        (("optimizer.lrr=1",), "lrr"),
    ],
)
def test_nonsense_is_refused_before_anything_is_trained(
    words: tuple[str, ...], reason: str, call: Any, tmp_path: Path
) -> None:
    rc, out, errors = call(*words, "--out", tmp_path / "out")
    assert (rc, out) == (2, "")
    assert reason in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_ladder_is_trained_fitted_and_asked_and_a_second_call_takes_its_runs(
    tmp_path: Path, seqtrain: Seqtrain
) -> None:
    (tmp_path / "text.txt").write_text("".join(f"the animal number {n} was {n * n % 7}\n" for n in range(3000)))
    data = ("data=text", "data.path=text.txt", "data.split_by=position", "tokenizer=char", "callbacks=none")
    sizes = ("data.batch_size=4", "tbptt.k2=8", "data.eval_lanes=4")
    # Of so small models few widths are within a percent of what is asked; few tokens each make them larger.
    ladder = ("--flops", "1e9,2e9,4e9,8e9", "--seeds", "1", "--tokens-per-parameter", "0.5", "--out", "out")
    answer = seqtrain("scale", "model=rnn", *data, *sizes, *ladder, cwd=tmp_path)
    assert answer.rc == 0, answer.err
    record = json.loads((tmp_path / "out" / "scale.json").read_text())
    assert len(record["rungs"]) == 5
    for rung in record["rungs"]:
        assert rung["flops"] == pytest.approx(rung["asked_flops"], rel=0.02)
    assert record["rungs"][-1]["asked_flops"] == 4 * record["rungs"][-2]["asked_flops"]
    model = record["models"]["rnn"]
    inside = model["prediction"]["low"] <= model["measured"][0] <= model["prediction"]["high"]
    assert model["inside"] == [inside]
    # What was predicted was said before the held-back rung was trained.
    said = answer.err.index("predicted at")
    assert said < answer.err.index("3.2e+10-1")
    again = seqtrain("scale", "model=rnn", *data, *sizes, *ladder, cwd=tmp_path)
    assert again.rc == 0
    assert "trains:" not in again.err
    assert json.loads((tmp_path / "out" / "scale.json").read_text()) == record
    other = seqtrain("scale", "model=rnn", *data, *sizes, "optimizer.lr=0.1", *ladder, cwd=tmp_path)
    assert other.rc == 2
    assert "other options made this run" in other.err
