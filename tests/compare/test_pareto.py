"""The Pareto front: what it says of variants that the seeds tell apart, and of those that they do not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from seqtrain.cli import compare
from seqtrain.compare import pareto
from seqtrain.compare.entries import read
from seqtrain.compare.page import report
from seqtrain.compare.verdict import Conclusion, conclusions
from tests.support import fake_runs
from tests.support.pages import content


def concluded(folder: Path, sizes: Mapping[int, Sequence[float]], costs: Sequence[int] = (), **more: Any) -> Conclusion:
    """A variant for each width, of one run for each value; it has a thousand parameters a width, or as `costs` says."""
    for place, (dim, values) in enumerate(sizes.items()):
        total = costs[place] if costs else 1000 * dim
        for seed, value in enumerate(values, 1):
            summary = {"parameters": {"total": total}, **more}
            fake_runs.run(folder / f"{dim}-{seed}", value, seed=seed, config={"model.dim": dim}, **summary)
    (found,) = conclusions(read([folder]))
    return found


def standing(found: Conclusion, cost: pareto.Cost = "parameters") -> dict[str, str]:
    return {point.variant.name.removeprefix("lstm "): point.standing for point in pareto.fronts(found)[cost]}


def test_what_is_better_at_each_cost_is_the_front_and_what_a_cheaper_one_beats_is_behind(tmp_path: Path) -> None:
    sizes = {8: [2.0, 2.01, 1.99], 16: [1.5, 1.51, 1.49], 32: [1.8, 1.81, 1.79], 64: [1.2, 1.21, 1.19]}
    found = concluded(tmp_path, sizes)
    assert standing(found) == {"dim=8": "front", "dim=16": "front", "dim=32": "behind", "dim=64": "front"}
    costs = [point.cost for point in pareto.fronts(found)["parameters"]]
    assert costs == [8000, 16000, 32000, 64000]


def test_a_dearer_variant_that_is_better_by_less_than_the_seeds_spread_is_on_the_front_perhaps(tmp_path: Path) -> None:
    found = concluded(tmp_path, {8: [1.5, 1.6, 1.7], 64: [1.45, 1.58, 1.72]})
    assert standing(found) == {"dim=8": "front", "dim=64": "perhaps"}
    lines = pareto.text_lines(found, ["parameters"])
    assert lines == [
        "Pareto front, bits per byte against parameters, the cheapest first (2 variants):",
        "  lstm dim=8: 1.6000 at 8k",
        "  lstm dim=64: 1.5833 at 64k, perhaps by chance: no significant difference from lstm dim=8, at no higher cost",
    ]


def test_a_variant_that_is_not_shown_to_be_worse_than_a_cheaper_one_is_near_and_not_behind(tmp_path: Path) -> None:
    found = concluded(tmp_path, {8: [1.5, 1.6, 1.7], 64: [1.48, 1.62, 1.75]})
    assert standing(found) == {"dim=8": "front", "dim=64": "near"}
    assert "  not on it by the means, no significant difference from it: lstm dim=64" in pareto.text_lines(
        found, ["parameters"]
    )


def test_of_one_seed_each_no_variant_is_surely_on_the_front_but_the_cheapest_nor_behind(tmp_path: Path) -> None:
    found = concluded(tmp_path, {8: [2.0], 16: [1.5], 32: [1.8]})
    assert standing(found) == {"dim=8": "front", "dim=16": "perhaps", "dim=32": "near"}
    lines = pareto.text_lines(found, ["parameters"])
    assert lines[1:3] == ["  lstm dim=8: 2.0000 at 8k", "  lstm dim=16: 1.5000 at 16k, perhaps by chance"]
    assert lines[-1].startswith("  one seed shows no significant difference")
    assert pareto.text_lines(found, ["tokens"]) == [
        "Pareto front, bits per byte against tokens: no conclusion: all cost about the same (1k), the best is all of it"
    ]


def test_costs_within_a_hundredth_are_equal_so_that_the_better_of_two_leaves_the_other_behind(tmp_path: Path) -> None:
    found = concluded(tmp_path, {8: [2.0, 2.01, 1.99], 9: [1.5, 1.51, 1.49]}, [10_000, 10_050])
    assert standing(found) == {"dim=8": "behind", "dim=9": "front"}


def test_seconds_that_overlap_over_seeds_leave_no_variant_behind(tmp_path: Path) -> None:
    for dim, base, speeds in ((8, 1.5, (100.0, 50.0, 70.0)), (64, 1.9, (60.0, 65.0, 75.0))):
        for seed, speed in enumerate(speeds, 1):
            path = tmp_path / f"{dim}-{seed}"
            fake_runs.run(path, base + seed / 1000, seed=seed, tokens_a_second=speed, config={"model.dim": dim})
    (found,) = conclusions(read([tmp_path]))
    assert standing(found, "parameters") == {"dim=8": "front", "dim=64": "behind"}, "as many parameters each"
    assert standing(found, "seconds") == {"dim=8": "front", "dim=64": "near"}


def test_a_variant_of_unknown_cost_is_named_and_a_cost_that_nobody_knows_has_no_front(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "none", 1.0, config={"model.dim": 99}, parameters={}, flops=None, flops_per_token=None)
    found = concluded(tmp_path, {8: [2.0], 16: [1.5]}, flops=None, flops_per_token=None)
    assert "  left out, without a value or a known cost: 1 of 3 variants" in pareto.text_lines(found, ["parameters"])
    assert pareto.text_lines(found, ["flops"]) == [
        "Pareto front, bits per byte against FLOPs: no conclusion: fewer than two comparable variants have both"
    ]


def test_of_weights_that_have_read_validation_there_is_no_front(tmp_path: Path) -> None:
    leaks = {"validation": {"train": {"share": 0.5, "kind": "documents", "asked": 50}}}
    found = concluded(tmp_path, {8: [2.0, 2.1], 16: [1.5, 1.6]}, leaks=leaks)
    assert found.group.refusal
    assert pareto.fronts(found) == {}


def test_the_text_has_the_fronts_that_are_asked_for_and_json_csv_and_page_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = concluded(tmp_path / "runs", {8: [2.0, 2.01, 1.99], 16: [1.5, 1.51, 1.49], 32: [1.8, 1.81, 1.79]})
    runs = str(tmp_path / "runs")
    assert compare.main([runs]) == 0
    assert "Pareto" not in capsys.readouterr().out
    table = tmp_path / "t.csv"
    assert compare.main([runs, "--pareto", "parameters", "--pareto", "flops", "--csv", str(table)]) == 0
    out = capsys.readouterr().out
    assert "Pareto front, bits per byte against parameters, the cheapest first (3 variants):" in out
    assert "Pareto front, bits per byte against FLOPs: no conclusion: all cost about the same" in out
    assert compare.main([runs, "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    told = {each["variant"].removeprefix("lstm "): each["standing"] for each in group["pareto"]["parameters"]}
    assert told == standing(found) == {"dim=8": "front", "dim=16": "front", "dim=32": "behind"}
    head, *rows = (line.split(",") for line in table.read_text().splitlines())
    for row in rows:
        cells = dict(zip(head, row, strict=True))
        assert cells["pareto_parameters"] == told[f"dim={cells['model.dim']}"]
    page = content(report.page([found], title="t"))
    for each in page["groups"][0]["variants"]:
        assert each["pareto"]["parameters"] == told[each["name"].removeprefix("lstm ")]


def test_more_is_better_where_the_metric_says_so(tmp_path: Path) -> None:
    for dim, base in {8: 0.6, 16: 0.9, 32: 0.7}.items():
        config = {"task._target_": "seqtrain.tasks.sentiment.Sentiment", "model.dim": dim}
        for seed in (1, 2, 3):
            path = tmp_path / f"{dim}-{seed}"
            total = {"total": 1000 * dim}
            fake_runs.run(path, base + seed / 1000, seed=seed, metric="accuracy", config=config, parameters=total)
    (found,) = conclusions(read([tmp_path]), metric="accuracy")
    assert standing(found) == {"dim=8": "front", "dim=16": "front", "dim=32": "behind"}
