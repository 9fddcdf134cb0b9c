"""The tables of `seqtrain compare`: which columns, in which order, how wide, and what a stranger wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from seqtrain.compare import entries, records, table
from seqtrain.compare.entries import read
from seqtrain.compare.verdict import conclusions
from tests.support import fake_runs

VARIANTS = {"lstm": (1.5, 1.51, 1.52), "gpt": (1.63, 1.62, 1.64)}


def shown(folder: Path, **options: Any) -> str:
    """The text on the runs in a folder."""
    return table.text(conclusions(read([folder])), **options)


def head(text: str) -> list[str]:
    """The columns of the first table."""
    return re.split(r"  +", next(line for line in text.splitlines() if line.startswith("run ")).strip())


def test_the_table_shows_the_settings_that_differ_and_no_others(tmp_path: Path) -> None:
    unseen = ("checkpoint_every", "keep_last", "keep_best", "check_ranks_every", "log_every")  # these change no number
    for seed, lr, path in ((1, 0.1, "corpus.txt"), (2, 0.006, "elsewhere.txt")):
        others = {f"trainer.{name}": seed for name in unseen}
        fake_runs.run(tmp_path / f"{seed}", seed=seed, config={"optimizer.lr": lr, "data.path": path, **others})
    assert head(shown(tmp_path))[:4] == ["run", "lr", "seed", "bits per byte"]
    # What one model alone has is no difference; a name that two settings end in is written whole.
    fake_runs.run(tmp_path / "a" / "1", config={"model.final": 1.0})
    gpt = {"model.num_heads": 2, "model.final": 2.0, "schedule.final": 0.5}
    fake_runs.run(tmp_path / "a" / "2", model="gpt", config=gpt)
    assert head(shown(tmp_path / "a"))[1:4] == ["model", "model.final", "schedule.final"]


def test_no_line_of_a_table_is_wider_than_the_terminal(tmp_path: Path) -> None:
    wide = {f"model.option_{number}": f"first {'x' * 40} last" for number in range(9)}
    fake_runs.run(tmp_path / "one-run-of-a-very-long-name", config=wide, status="failed")
    fake_runs.run(tmp_path / "two-runs-of-a-very-long-name", config=dict.fromkeys(wide, "y" * 40))
    everything = {"run", *(f"option_{number}" for number in range(9)), "bits per byte", "best", "status", "tokens"}
    for width in (80, 120):
        lines = shown(tmp_path, width=width).splitlines()
        rows = [line for line in lines if re.match("run|one-|two-", line)]
        assert len(rows) == 3
        assert max(map(len, rows)) <= width
        assert "first xxxxxxx..xxxxxxxx last" in rows[1]
        left_out = next(line for line in lines if line.startswith("(no room for"))
        heads = set(re.split(r"  +", rows[0]))
        assert {name for name in everything if name not in heads} == {name for name in everything if name in left_out}


def test_a_run_that_is_not_finished_shows_what_it_has_recorded(tmp_path: Path) -> None:
    path = fake_runs.run(tmp_path / "1", 1.7, values=(2.0, 1.5))
    (path / "summary.json").write_text(json.dumps({"status": "interrupted", "flops_per_token": 10.0}))
    (entry,) = read([tmp_path])
    assert (entry.metric("bits_per_byte"), entry.metric("bits_per_byte", checkpoint="best")) == (1.7, 1.5)
    assert [entry.cost(axis) for axis in ("steps", "tokens", "seconds", "flops")] == [150, 3000, 30, 30_000]


def test_the_state_has_a_column_where_a_run_knows_it(tmp_path: Path) -> None:
    for seed in (1, 2):
        fake_runs.run(tmp_path / f"gpt{seed}", 1.6 + seed / 100, model="gpt", seed=seed)
    assert "state" not in shown(tmp_path, width=200)
    for seed in (1, 2):
        fake_runs.run(tmp_path / f"lstm{seed}", 1.5 + seed / 100, seed=seed, state=64)
    lines = [line.split() for line in shown(tmp_path, width=200).splitlines()]
    assert [line[0] for line in lines if line and line[-1] == "state"] == ["run", "variant"]
    assert [line[-1] for line in lines if line and line[0] in ("lstm1", "lstm2", "lstm")][:3] == ["64"] * 3
    rows = records.rows(conclusions(read([tmp_path])))
    assert [row["state"] for row in rows] == [64, 64, None, None]


def test_a_table_of_the_variants_stands_where_one_has_several_seeds(tmp_path: Path) -> None:
    fake_runs.sweep(tmp_path / "one", {"lstm": (1.5,), "gpt": (1.7,)})
    assert "variant" not in shown(tmp_path / "one").split()
    fake_runs.sweep(tmp_path / "more", {"lstm": (1.5, 1.6), "gpt": (1.7,)})
    rows = [re.split(r"  +", line) for line in shown(tmp_path / "more").splitlines()]
    place = next(place for place, row in enumerate(rows) if row[0] == "variant")
    assert [row[:5] for row in rows[place + 1 : place + 3]] == [
        ["lstm", "2", "1.5500", "0.9147 to 2.1853", "0.0707"],
        ["gpt", "1", "1.7000", "1k", "6M"],  # of one seed there is no interval
    ]


def test_of_many_sentences_the_first_are_told_and_the_rest_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (entries, table):
        monkeypatch.setattr(module, "MOST_LINES", 2)
    for number, value in enumerate((1.0, 2.0, 3.0, 4.0, 4.5)):
        for seed in (1, 2):
            fake_runs.run(
                tmp_path / f"{number}-{seed}", value + seed / 1000, seed=seed, config={"model.dim": 8 + number}
            )
    lines = shown(tmp_path).splitlines()
    assert ["beats" in line for line in lines[-4:]] == [False, False, True, False]
    assert lines[-1] == "and 3 more, 3 of them significant: --json has all"


def test_a_trial_that_left_no_run_is_told_with_its_reason_and_of_many_the_rest_is_counted(tmp_path: Path) -> None:
    fake_runs.sweep(tmp_path / "sweep", VARIANTS)
    fake_runs.trial(tmp_path / "sweep", 6, "model=bert seed=1", status="refused", reason="model=bert: does not fit")
    told = [line for line in table.report([tmp_path / "sweep"]).splitlines() if line.startswith("no run")]
    assert told == ["no run: sweep/006 model=bert seed=1: refused: model=bert: does not fit"]
    for number in range(7, 27):
        fake_runs.trial(tmp_path / "sweep", number, f"model=rnn seed={number}", status="planned")
    lines = table.report([tmp_path / "sweep"]).splitlines()
    assert sum(line.startswith("no run: ") for line in lines) == entries.MOST_LINES
    assert lines[-1] == f"and {21 - entries.MOST_LINES} more: --json has all"


def test_each_run_that_does_not_count_is_told_on_one_line_of_the_width_and_whole_to_machines(tmp_path: Path) -> None:
    reason = "the loss is no number at step 120; set a smaller optimizer.lr or trainer.on_nonfinite=skip"
    fake_runs.sweep(tmp_path / "sweep", VARIANTS)
    fake_runs.run(tmp_path / "sweep" / "006", seed=4, status="failed", reason=f"{reason}\n")
    found = conclusions(read([tmp_path / "sweep"]))
    line = f"does not count: sweep/006 lstm: failed: {reason}"
    last = table.text(found, width=80).splitlines()[-1]
    assert (len(last), last) == (80, f"{line[:78]}..")
    assert table.text(found, width=len(line)).splitlines()[-1] == line
    assert records.record(found)["groups"][0]["remarks"] == [line]
    assert {row["status"]: row["reason"] for row in records.rows(found)} == {"finished": "", "failed": reason}


def test_a_title_and_a_column_say_how_the_runs_stand_once_one_has_not_finished(tmp_path: Path) -> None:
    fake_runs.sweep(tmp_path / "sweep", VARIANTS)
    assert shown(tmp_path).splitlines()[0].endswith("validation, 6 runs")
    assert "status" not in head(shown(tmp_path))
    for number, status in ((6, "failed"), (7, "pruned"), (8, "failed")):
        fake_runs.run(tmp_path / "sweep" / f"{number:03d}", seed=number, status=status)
    assert shown(tmp_path).splitlines()[0].endswith("validation, 9 runs (6 finished, 2 failed, 1 pruned)")
    assert "status" in head(shown(tmp_path))


def test_runs_of_all_groups_are_named_from_the_folder_that_they_share(tmp_path: Path) -> None:
    for name in ("b", "b2"):
        fake_runs.run(tmp_path / "a" / name / "c" / "1")
    assert [line.split()[0] for line in shown(tmp_path).splitlines()[3:5]] == ["b/c/1", "b2/c/1"]
    fake_runs.run(tmp_path / "unlike", hashes=fake_runs.HASHES | {"validation": "d" * 32})
    named = [line.split()[0] for line in shown(tmp_path).splitlines() if line.endswith("2.56k")]
    assert named == ["a/b/c/1", "a/b2/c/1", "unlike"]


def test_what_a_stranger_wrote_steers_no_terminal(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "1", config={"model.norm": "\x1b[2J\nlstm beats all" + "\x1b" * 9})
    fake_runs.run(tmp_path / "2", config={"model.norm": "pre"})
    text = shown(tmp_path, width=80)
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith(("run ", "1 ", "2 "))]
    assert max(map(len, rows)) <= 80  # spelled out, it takes more room than it did
    assert not any(line.startswith("lstm beats") for line in text.splitlines())


def test_what_a_stranger_wrote_is_shown_as_far_as_it_makes_sense(tmp_path: Path) -> None:
    strange: list[dict[str, Any]] = [
        {"metrics": {"validation": ["bits_per_byte"]}, "parameters": 7, "best": "yes", "monitor": 3, "unknown": [1]},
        {"metrics": {"validation": {"bits_per_byte": 10**400}}, "tokens": "many", "flops": True, "context": [None]},
        {"metrics": {"validation": {"bits_per_byte": "nan"}}, "hashes": {"validation": [{}], "tokenizer": None}},
        {"command": {"not": "a list"}},
    ]
    for place, summary in enumerate(strange):
        fake_runs.run(tmp_path / str(place) / "sound")
        run = fake_runs.run(tmp_path / str(place) / "strange", seed=2, **summary)
        (run / "config.yaml").write_text(f"1: {{2: 3}}\nmodel: null\n{yaml.safe_dump({'seed': [1]})}")
        assert "validation, 1 run" in shown(tmp_path / str(place)), summary
