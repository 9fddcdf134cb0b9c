"""Which runs `seqtrain compare` reads, by which keys they are chosen, and in which order they stand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from seqtrain.compare import records
from seqtrain.compare.entries import read
from seqtrain.compare.filters import chosen
from seqtrain.compare.verdict import conclusions
from tests.support import fake_runs

VARIANTS = {"lstm": (1.5, 1.51, 1.52), "gpt": (1.63, 1.62, 1.64)}


def test_a_word_means_a_figure_or_a_metric_before_the_last_word_of_a_setting(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "1", 1.5, config={"model.tokens": 9, "model.loss": 9})
    fake_runs.run(tmp_path / "2", 1.6, config={"model.tokens": 8, "model.loss": 8})
    entries = read([tmp_path])
    assert {key: len(chosen(entries, [key])) for key in ("tokens=1000", "model.tokens=9", "loss=1.5")} == {
        **{"tokens=1000": 2, "model.tokens=9": 1, "loss=1.5": 1}
    }


def test_sort_takes_settings_metrics_and_costs_either_way(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "1", 1.5, seed=1, tokens_a_second=30.0)
    fake_runs.run(tmp_path / "2", 1.4, seed=3, tokens_a_second=10.0)
    fake_runs.run(tmp_path / "3", 1.6, seed=2, tokens_a_second=20.0)
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "config.yaml").write_text(yaml.safe_dump(fake_runs.CONFIG | {"seed": 9}))
    (tmp_path / "4" / "metrics.jsonl").touch()
    found = conclusions(read([tmp_path]))
    for key, order in {
        "seed": "1324",
        "bits_per_byte": "2134",
        "-loss": "3124",
        "-seconds": "2314",
        "-final": "3124",
    }.items():
        rows = records.rows(found, sort=key)
        assert "".join(str(row["name"])[-1] for row in rows) == order


def test_a_run_is_read_once_however_often_it_is_named(tmp_path: Path) -> None:
    fake_runs.sweep(tmp_path / "sweep", VARIANTS)
    assert len(read([tmp_path, tmp_path / "sweep", tmp_path / "sweep" / ".." / "sweep" / "000"])) == 6


def test_runs_of_one_name_keep_the_names_that_were_typed(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        fake_runs.run(tmp_path / folder / "run")
    paths = [tmp_path / folder / "run" for folder in ("a", "b")]
    assert [entry.name for entry in read(paths)] == [str(path) for path in paths]


@pytest.mark.parametrize("checkpoint", ["final", "best"])
def test_runs_are_sorted_by_the_best_or_the_final_value_as_asked(checkpoint: str) -> None:
    def stands(final: float, best: float) -> Any:
        return SimpleNamespace(metric=lambda name, checkpoint: {"final": final, "best": best}[checkpoint])

    entries = [stands(2.0, 1.0), stands(1.0, 3.0), stands(3.0, 2.0)]
    fake_runs: Any = SimpleNamespace(group=SimpleNamespace(entries=entries, metric="loss", mode="min"))
    order = {"final": [1, 0, 2], "best": [0, 2, 1]}[checkpoint]
    for sort, expected in ((checkpoint, order), (f"-{checkpoint}", order[::-1])):
        ((_, _, found),) = records.in_order([fake_runs], sort)
        assert [entries.index(entry) for entry in found] == expected
