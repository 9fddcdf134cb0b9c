"""Laws of `seqtrain scale`: what it refuses, what it trains, and that a second call trains nothing again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seqtrain.analysis.scale_plan import plan, size_words
from seqtrain.config import check
from seqtrain.experiment.start import Request, dry_run
from seqtrain.runs.directory import Run
from tests.conftest import Seqtrain
from tests.support.tiny import wait_until


@pytest.fixture
def others(tmp_path: Path) -> list[str]:
    """Overrides of a tiny text."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"the animal number {n} was {n * n % 7}\n" for n in range(3000)))
    words = ("data=text", f"data.path={text}", "data.split_by=position", "tokenizer=char", "callbacks=none")
    return [*words, "data.batch_size=4", "tbptt.k2=8", "data.eval_lanes=4"]


@pytest.mark.long
def test_where_no_width_is_within_a_percent_the_nearest_is_planned_with_its_true_number_and_it_is_said(
    others: list[str],
) -> None:
    rungs = plan(["rnn"], others, [5e8, 1e9, 2e9, 4e9, 1.6e10], 20)
    far = [rung for rung in rungs["rnn"] if not rung.is_near]
    assert far, "a case in which some width is not within a percent"
    for rung in rungs["rnn"]:
        assert rung.parameters == pytest.approx(rung.asked_parameters, rel=0.1)
        assert rung.flops == pytest.approx(rung.asked_flops, rel=0.1)
    line = size_words("rnn", rungs["rnn"])
    assert line is not None
    for rung in far:
        assert f"params:{rung.parameters}," in rung.budget
        assert f"{rung.parameters:,} parameters (model.dim={rung.dim}) for {rung.asked_parameters:,.0f}" in line
        # The training that is asked for it finds the same size, to the last parameter.
        cost = dry_run(check.compose([*others, "model=rnn", rung.budget], ()), Request())
        assert cost.parameters["total"] == rung.parameters
        assert cost.flops == pytest.approx(rung.flops)


@pytest.mark.long
def test_a_killed_ladder_goes_on_is_fitted_and_asked_and_another_call_takes_its_runs(
    tmp_path: Path, seqtrain: Seqtrain
) -> None:
    (tmp_path / "text.txt").write_text("".join(f"the animal number {n} was {n * n % 7}\n" for n in range(3000)))
    data = ("data=text", "data.path=text.txt", "data.split_by=position", "tokenizer=char", "callbacks=none")
    sizes = ("data.batch_size=16", "tbptt.k2=8", "data.eval_lanes=4")
    # Of so small models few widths are within a percent of what is asked; few tokens each make them larger.
    ladder = ("--flops", "1e9,2e9,4e9,8e9", "--seeds", "1", "--tokens-per-parameter", "0.5", "--out", "out")
    child = seqtrain.start("scale", "model=rnn", *data, *sizes, *ladder, cwd=tmp_path)
    first = tmp_path / "out" / "runs" / "rnn-1e+09-1"
    wait_until((first / "summary.json").exists, child, "its first training")
    child.kill()
    child.wait()
    begun = Run(first)
    assert begun.summary.status != "finished"
    answer = seqtrain("scale", "model=rnn", *data, *sizes, *ladder, cwd=tmp_path)
    assert answer.rc == 0, answer.err
    assert f"resumes: {Path('out/runs/rnn-1e+09-1')}" in answer.err
    assert Run(first).identity == begun.identity
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
    assert "this run has other options" in other.err
