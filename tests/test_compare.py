"""`seqtrain compare`: what it shows of runs, how they are chosen and sorted, and what it refuses."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from seqtrain.callbacks.base_sink import direction as sinks_direction
from seqtrain.comparison import table
from seqtrain.comparison.entries import differing, option, read
from seqtrain.comparison.selection import chosen
from seqtrain.comparison.verdict import conclusions
from seqtrain.faults import Fault
from seqtrain.sweeps.study import Objective
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.tasks.translation import Translation
from tests import made, tiny
from tests.conftest import REPOSITORY, Seqtrain
from tests.test_imports import MODULES, closure

ARMS = {"lstm": (1.5, 1.51, 1.52), "gpt": (1.63, 1.62, 1.64)}


def shown(folder: Path, **options: Any) -> str:
    """The text on the runs in a folder."""
    return table.text(conclusions(read([folder])), **options)


def head(text: str) -> list[str]:
    """The columns of the first table."""
    return re.split(r"  +", next(line for line in text.splitlines() if line.startswith("run ")).strip())


# -- the table ---------------------------------------------------------------------------------------------------


def test_the_table_shows_the_settings_that_differ_and_no_others(tmp_path: Path) -> None:
    made.run(tmp_path / "1", config={"optimizer.lr": 0.1, "trainer.log_every": 1})
    made.run(tmp_path / "2", seed=2, config={"data.path": "elsewhere.txt"})
    assert head(shown(tmp_path))[:4] == ["run", "lr", "seed", "bits per byte"]


def test_a_setting_that_one_model_alone_has_is_no_difference(tmp_path: Path) -> None:
    made.run(tmp_path / "1", config={"model.bidirectional": False})
    made.run(tmp_path / "2", model="gpt", config={"model.num_heads": 2, "model.dim": 32})
    assert differing(read([tmp_path])) == ["model", "model.dim"]


def test_a_name_that_two_settings_end_in_is_written_whole(tmp_path: Path) -> None:
    made.run(tmp_path / "1", config={"model.final": 1.0})
    made.run(tmp_path / "2", config={"model.final": 2.0, "schedule.final": 0.5})
    assert head(shown(tmp_path))[1:3] == ["model.final", "schedule.final"]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_of_a_table_is_wider_than_the_terminal(tmp_path: Path, width: int) -> None:
    wide = {f"model.option_{number}": "x" * 40 for number in range(9)}
    made.run(tmp_path / "one-run-of-a-very-long-name", config=wide, status="failed")
    made.run(tmp_path / "two-runs-of-a-very-long-name", config=dict.fromkeys(wide, "y" * 40))
    lines = shown(tmp_path, width=width).splitlines()
    rows = [line for line in lines if re.match("run|one-|two-", line)]
    assert len(rows) == 3
    assert max(map(len, rows)) <= width
    left_out = next(line for line in lines if line.startswith("(no room for"))
    heads = set(re.split(r"  +", rows[0]))
    everything = {"run", *(f"option_{number}" for number in range(9)), "bits per byte", "best", "status", "tokens"}
    assert {name for name in everything if name not in heads} == {name for name in everything if name in left_out}


def test_a_status_is_shown_once_a_run_has_not_finished(tmp_path: Path) -> None:
    made.run(tmp_path / "1")
    assert "status" not in head(shown(tmp_path))
    made.run(tmp_path / "2", seed=2, status="pruned")
    assert "status" in head(shown(tmp_path))


def test_a_run_that_is_not_finished_shows_what_it_has_recorded(tmp_path: Path) -> None:
    path = made.run(tmp_path / "1", 1.7, values=(2.0, 1.5))
    (path / "summary.json").write_text(json.dumps({"status": "interrupted", "flops_per_token": 10.0}))
    (entry,) = read([tmp_path])
    assert (entry.metric("bits_per_byte"), entry.metric("bits_per_byte", which="best")) == (1.7, 1.5)
    assert [entry.cost(axis) for axis in ("steps", "tokens", "seconds", "flops")] == [150, 3000, 30, 30_000]


def test_a_run_that_has_only_begun_is_shown(tmp_path: Path) -> None:
    begun = tmp_path / "1"
    begun.mkdir()
    (begun / "config.yaml").write_text(yaml.safe_dump(made.CONFIG))
    (begun / "metrics.jsonl").touch()
    lines = shown(tmp_path).splitlines()
    assert lines[0] == "next_token, bits per byte of validation, 1 run (1 interrupted)"
    assert ["1", "interrupted"] in [line.split() for line in lines]


def test_the_best_stand_first(tmp_path: Path) -> None:
    made.sweep(tmp_path / "sweep", ARMS)
    rows = [row["name"] for row in table.rows(conclusions(read([tmp_path / "sweep"])))]
    assert rows == [f"sweep/{number:03d}" for number in (0, 1, 2, 4, 3, 5)]


def test_a_trial_that_left_no_run_is_told_with_its_reason(tmp_path: Path) -> None:
    made.sweep(tmp_path / "sweep", ARMS)
    made.trial(tmp_path / "sweep", 6, "model=bert seed=1", status="refused", reason="model=bert: does not fit")
    told = table.report([tmp_path / "sweep"]).splitlines()[-1]
    assert told == "no run: sweep/006 model=bert seed=1: refused: model=bert: does not fit"


def test_each_run_that_does_not_count_is_told_on_one_line_of_the_width_and_whole_to_machines(tmp_path: Path) -> None:
    reason = "the loss is no number at step 120; set a smaller optimizer.lr or trainer.on_nonfinite=skip"
    made.sweep(tmp_path / "sweep", ARMS)
    made.run(tmp_path / "sweep" / "006", seed=4, status="failed", reason=f"{reason}\n")
    found = conclusions(read([tmp_path / "sweep"]))
    line = f"does not count: sweep/006 lstm: failed: {reason}"
    last = table.text(found, width=80).splitlines()[-1]
    assert (len(last), last) == (80, f"{line[:78]}..")
    assert table.text(found, width=len(line)).splitlines()[-1] == line
    assert table.record(found)["groups"][0]["remarks"] == [line]
    assert {row["status"]: row["reason"] for row in table.rows(found)} == {"finished": "", "failed": reason}


def test_of_many_trials_without_a_run_the_first_are_told_and_the_rest_counted(tmp_path: Path) -> None:
    made.sweep(tmp_path / "sweep", ARMS)
    for number in range(6, 26):
        made.trial(tmp_path / "sweep", number, f"model=rnn seed={number}", status="planned")
    lines = table.report([tmp_path / "sweep"]).splitlines()
    assert sum(line.startswith("no run: ") for line in lines) == table.MOST_SENTENCES
    assert lines[-1] == f"and {20 - table.MOST_SENTENCES} more: --json has all"


def test_a_title_says_how_the_runs_stand_once_one_has_not_finished(tmp_path: Path) -> None:
    made.sweep(tmp_path / "sweep", ARMS)
    assert shown(tmp_path).splitlines()[0].endswith("validation, 6 runs")
    for number, status in ((6, "failed"), (7, "pruned"), (8, "failed")):
        made.run(tmp_path / "sweep" / f"{number:03d}", seed=number, status=status)
    assert shown(tmp_path).splitlines()[0].endswith("validation, 9 runs (6 finished, 2 failed, 1 pruned)")


def test_runs_of_all_groups_are_named_from_the_folder_that_they_share(tmp_path: Path) -> None:
    for name in ("b", "b2"):
        made.run(tmp_path / "a" / name / "c" / "1")
    assert [line.split()[0] for line in shown(tmp_path).splitlines()[3:5]] == ["b/c/1", "b2/c/1"]
    made.run(tmp_path / "unlike", hashes=made.HASHES | {"validation": "d" * 32})
    named = [line.split()[0] for line in shown(tmp_path).splitlines() if line.endswith("2.56k")]
    assert named == ["a/b/c/1", "a/b2/c/1", "unlike"]


def test_what_a_stranger_wrote_steers_no_terminal(tmp_path: Path) -> None:
    made.run(tmp_path / "1", config={"model.norm": "\x1b[2J\nlstm beats all"})
    made.run(tmp_path / "2", config={"model.norm": "pre"})
    text = shown(tmp_path)
    assert "\x1b" not in text
    assert not any(line.startswith("lstm beats") for line in text.splitlines())


@pytest.mark.parametrize(
    "summary",
    [
        {"metrics": {"validation": ["bits_per_byte"]}, "parameters": 7, "best": "yes", "monitor": 3, "unknown": [1]},
        {"metrics": {"validation": {"bits_per_byte": 10**400}}, "tokens": "many", "flops": True, "context": [None]},
        {"metrics": {"validation": {"bits_per_byte": "nan"}}, "hashes": {"validation": [{}], "tokenizer": None}},
        {"command": {"not": "a list"}},
    ],
)
def test_what_a_stranger_wrote_is_shown_as_far_as_it_makes_sense(tmp_path: Path, summary: dict[str, Any]) -> None:
    made.run(tmp_path / "0")
    strange = made.run(tmp_path / "1", seed=2, **summary)
    (strange / "config.yaml").write_text(f"1: {{2: 3}}\nmodel: null\n{yaml.safe_dump({'seed': [1]})}")
    assert "validation, 1 run" in shown(tmp_path)


# -- which runs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "kept"),
    [
        (["model=lstm"], "123"),
        (["model=lstm,gpt", "seed=2"], "2"),
        (["model=g*"], "4"),
        (["dim=64"], "4"),
        (["model.dim=16"], "123"),
        (["optimizer.lr=6e-3"], "1234"),
        (["status=failed"], "3"),
        (["name=*/1"], "1"),
        (["layer_decay=1"], "1234"),
    ],
)
def test_where_keeps_the_runs_that_are_so(tmp_path: Path, conditions: list[str], kept: str) -> None:
    made.run(tmp_path / "1")
    made.run(tmp_path / "2", seed=2)
    made.run(tmp_path / "3", seed=3, status="failed")
    made.run(tmp_path / "4", model="gpt", config={"model.dim": 64})
    assert "".join(entry.path.name for entry in chosen(read([tmp_path]), conditions)) == kept


def test_sort_takes_settings_metrics_and_costs_either_way(tmp_path: Path) -> None:
    made.run(tmp_path / "1", 1.5, seed=1, tokens_a_second=30.0)
    made.run(tmp_path / "2", 1.4, seed=3, tokens_a_second=10.0)
    made.run(tmp_path / "3", 1.6, seed=2, tokens_a_second=20.0)
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "config.yaml").write_text(yaml.safe_dump(made.CONFIG | {"seed": 9}))
    (tmp_path / "4" / "metrics.jsonl").touch()
    found = conclusions(read([tmp_path]))
    for key, order in {
        "seed": "1324",
        "bits_per_byte": "2134",
        "-loss": "3124",
        "-seconds": "2314",
        "-final": "3124",
    }.items():
        rows = table.rows(found, sort=key)
        assert "".join(str(row["name"])[-1] for row in rows) == order


def test_a_run_is_read_once_however_often_it_is_named(tmp_path: Path) -> None:
    made.sweep(tmp_path / "sweep", ARMS)
    assert len(read([tmp_path, tmp_path / "sweep", tmp_path / "sweep" / ".." / "sweep" / "000"])) == 6


def test_runs_of_one_name_keep_the_names_that_were_typed(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        made.run(tmp_path / folder / "run")
    paths = [tmp_path / folder / "run" for folder in ("a", "b")]
    assert [entry.name for entry in read(paths)] == [str(path) for path in paths]


FAULTS: dict[str, tuple[tuple[str, ...], str]] = {
    "no such folder": (("swep",), "swep: no such run, sweep or folder of runs; did you mean sweep?"),
    "a folder without runs": (("empty",), "empty: holds no run"),
    "no such key": (("sweep", "--where", "modle=gpt"), "--where modle=gpt: no run has modle; did you mean model?"),
    "no condition": (("sweep", "--where", "model"), "--where model: expected KEY=VALUE"),
    "nothing left": (("sweep", "--where", "model=rnn"), "--where model=rnn: none of 6 runs is so"),
    "no such column": (("sweep", "--sort", "-lose"), "--sort -lose: no run has lose; did you mean loss?"),
    "a name of two settings": (("sweep", "--sort", "dropout"), "--sort dropout: no run has dropout; say which: "),
    "no such metric": (("sweep", "--metric", "los"), "--metric los: no run has it; did you mean loss?"),
    "no such axis": (("sweep", "--x", "epochs"), "seqtrain compare: argument --x"),
    "no place for the file": (("sweep", "--csv", "nowhere/out.csv"), "nowhere/out.csv cannot be written"),
    "a page on standard output": (("sweep", "--html", "-"), "--html -: a page is opened from a file; name one"),
    "two answers in one place": (("sweep", "--csv", "-", "--json"), "--csv -: --json writes to standard output, too"),
    "pieces in a table": (("sweep", "--pieces", "--csv", "-"), "--pieces: answers in one sentence, which --csv does"),
    "pieces of many": (("sweep", "--pieces"), "--pieces: needs two runs, not 6"),
    "pieces of unlike ones": (("sweep/000", "other", "--pieces"), "--pieces: the two runs are not alike: other valid"),
    "a damaged run": (("damaged",), "damaged/summary.json cannot be read"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep, a run on another text, a damaged run, and an empty folder."""
    folder = tmp_path_factory.mktemp("compared")
    made.sweep(folder / "sweep", ARMS, config={"model.dropout": 0.0, "task.dropout": 0.0})
    made.run(folder / "other", hashes=made.HASHES | {"validation": "d" * 32})
    (made.run(folder / "damaged") / "summary.json").write_text('{"status": ')
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_that_says_what_to_do(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from seqtrain.commands.cli import main

    words, says = FAULTS[name]
    monkeypatch.chdir(folder)
    assert main(["compare", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {says}")


def test_every_fault_of_several_runs_is_told_at_once(tmp_path: Path) -> None:
    for number in (1, 2):
        (made.run(tmp_path / str(number)) / "config.yaml").write_text("- a list")
    with pytest.raises(Fault) as caught:
        read([tmp_path])
    assert len(caught.value.lines) == 2


def test_a_damaged_run_among_others_is_left_out_with_the_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left_out: list[str] = []
    entries = read([folder], left_out)
    assert len(entries) == 7
    assert len(left_out) == 1
    assert left_out[0].startswith(f"left out: {folder / 'damaged' / 'summary.json'} cannot be read")
    from seqtrain.commands.cli import main

    assert main(["compare", str(folder)]) == 0
    assert left_out[0] in capsys.readouterr().out


# -- for machines ------------------------------------------------------------------------------------------------


def test_csv_and_json_hold_the_figures_of_the_runs(folder: Path, tmp_path: Path, seqtrain: Seqtrain) -> None:
    answer = seqtrain("compare", "sweep", "--json", "--csv", str(tmp_path / "out.csv"), cwd=folder)
    assert answer.rc == 0, answer.err
    found = json.loads(answer.out)
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], float(row["final"])) for row in rows] == [
        (row["name"], row["final"]) for row in found["runs"]
    ]
    assert {row["model"]: row["best"] for row in reversed(found["runs"])} == {"lstm": 1.5, "gpt": 1.62}
    (group,) = found["groups"]
    assert [(arm["name"], sorted(arm["values"])) for arm in group["arms"]] == [
        (name, sorted(values)) for name, values in ARMS.items()
    ]
    assert group["verdict"][0].startswith("lstm beats gpt by 0.120 bits per byte (95 % interval")


def test_csv_on_standard_output_stands_there_alone(folder: Path, tmp_path: Path, seqtrain: Seqtrain) -> None:
    answer = seqtrain("compare", ".", "--csv", "-", cwd=folder)
    assert answer.rc == 0, answer.err
    assert len(list(csv.DictReader(answer.out.splitlines()))) == 7
    assert [line.partition(":")[0] for line in answer.err.splitlines()] == ["left out"]
    assert not (folder / "-").exists()
    file = tmp_path / "out.csv"
    assert seqtrain("compare", ".", "--csv", str(file), cwd=folder).rc == 0
    assert file.read_text().splitlines() == answer.out.splitlines()


def test_the_page_is_written_where_it_is_asked_for(folder: Path, tmp_path: Path, seqtrain: Seqtrain) -> None:
    answer = seqtrain("compare", "sweep", "--x", "tokens", "--html", str(tmp_path / "page.html"), cwd=folder)
    assert answer.rc == 0, answer.err
    assert "at equal tokens" in answer.out
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "lstm beats gpt" in text
    assert '"equal":"at equal tokens"' in text


# -- real runs ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two tiny runs that differ in model and seed."""
    home = tiny.corpus(tmp_path_factory.mktemp("trained"), lines=100)
    for model, seed in (("lstm", 1), ("gru", 2)):
        options = (f"model={model}", f"seed={seed}", "trainer.max_steps=4", "trainer.validate_every=2")
        answer = seqtrain("train", *tiny.OPTIONS, *options, f"run_dir=runs/{model}", cwd=home)
        assert answer.rc == 0, answer.err
    return home


def test_real_runs_are_compared(seqtrain: Seqtrain, trained: Path) -> None:
    answer = seqtrain("compare", "runs", "--x", "flops", "--json", cwd=trained)
    assert answer.rc == 0, answer.err
    found = json.loads(answer.out)
    (group,) = found["groups"]
    assert group["metric"] == "bits_per_byte"
    assert "one seed each" in group["verdict"][0]
    summaries = {name: json.loads((trained / "runs" / name / "summary.json").read_text()) for name in ("lstm", "gru")}
    for row in found["runs"]:
        summary = summaries[row["model"]]
        assert row["final"] == summary["metrics"]["validation"]["bits_per_byte"]
        assert row["flops"] == pytest.approx(summary["flops_per_token"] * summary["tokens"])


def test_two_runs_are_compared_piece_by_piece_in_words_about_these_two(seqtrain: Seqtrain, trained: Path) -> None:
    answer = seqtrain("compare", "runs/lstm", "runs/gru", "--pieces", "--json", cwd=trained)
    assert answer.rc == 0, answer.err
    found = json.loads(answer.out)
    lstm, gru = (
        json.loads((trained / "runs" / name / "summary.json").read_text())["best"]["validation"]["bits_per_byte"]
        for name in ("lstm", "gru")
    )
    assert found["difference"] == pytest.approx(gru - lstm, abs=1e-6)
    assert found["low"] <= found["difference"] <= found["high"]
    assert found["pieces"] > 9
    assert found["verdict"].startswith("these two runs: ")
    assert found["verdict"].endswith("that says nothing of other seeds")


# -- the code ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["model", "task", "tokenizer", "optimizer"])
def test_an_option_is_called_by_the_name_that_chooses_it(group: str) -> None:
    shipped = {path.stem: yaml.safe_load(path.read_text()) for path in (REPOSITORY / "conf" / group).glob("*.yaml")}
    targets = {name: content["_target_"] for name, content in shipped.items() if "_target_" in content}
    assert len(targets) > 2
    assert {name: option(target) for name, target in targets.items()} == {name: name for name in targets}


def test_comparing_needs_no_torch() -> None:
    used = [name for name in MODULES if name.startswith("seqtrain.comparison.")]
    assert len(used) > 5
    assert "torch" not in closure("seqtrain.commands.compare", *used)


@pytest.mark.long
def test_a_thousand_finished_runs_are_compared_within_five_seconds(tmp_path: Path) -> None:
    for number in range(1000):
        made.run(
            tmp_path / "sweep" / f"{number:04d}",
            1.5 + number % 97 / 1000,
            model=list(made.MODELS)[number % 4],
            seed=number // 4 % 5,
            config={"model.dim": 16 * (1 + number // 20)},
            values=[2.0] * 50,
        )
    began = time.monotonic()
    command = [sys.executable, "-m", "seqtrain.commands.cli", "compare", str(tmp_path / "sweep")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | {"COLUMNS": "100"})
    seconds = time.monotonic() - began
    assert answer.returncode == 0, answer.stderr
    assert len(re.findall(r"^\d{4} ", answer.stdout, re.MULTILINE)) == 1000
    assert seconds < 5


def test_more_of_every_measured_metric_is_better_where_its_loggers_say_so(tmp_path: Path) -> None:
    entry = read([made.run(tmp_path / "run", monitor=["loss", "min"])])[0]
    for task in (NextToken, MaskedLM, Sentiment, Translation):
        for name in task.metrics:
            assert entry.maximises(name) == (sinks_direction(f"validation/{name}") == "max"), name
    assert entry.maximises("next_sentence_accuracy")
    assert Objective.read("best/next_sentence_accuracy", MaskedLM.metrics).mode == "max"
