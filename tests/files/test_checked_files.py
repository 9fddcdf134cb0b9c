"""A file that somebody else may have put there: a plain one of bounded size is opened, anything else is one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from seqtrain.data.cache import cached_json
from seqtrain.errors import UserError
from seqtrain.files.atomic import locked, write_text
from seqtrain.files.checked import load_json, open_checked, open_new, read_checked
from seqtrain.files.untrusted import read_json, read_yaml
from seqtrain.runs.directory import Run
from seqtrain.runs.listing import is_written
from seqtrain.runs.summary import Summary
from seqtrain.sweeps.folder import Asked, Sweep
from seqtrain.training.loggers.base import load_or_make_identity
from tests.support import fake_runs

pytestmark = pytest.mark.timeout(20)  # a pipe that is waited for


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file outside the folder that a stranger made."""
    (tmp_path / "home").mkdir()
    path = tmp_path / "precious"
    path.write_text("{}")
    return path


def _link(path: Path, precious: Path) -> None:
    path.symlink_to(precious)


def _circle(path: Path, _: Path) -> None:
    path.symlink_to(path.name)


def _pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path, _: Path) -> None:
    path.mkdir()


def _device(path: Path, _: Path) -> None:
    path.symlink_to("/dev/zero")


def _huge(path: Path, _: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


LAID = {
    "link": _link,
    "circle": _circle,
    "pipe": _pipe,
    "folder": _folder,
    "device": _device,
    "file without end": _huge,
}

READERS: dict[str, Callable[[Path], object]] = {
    "sweep.yaml": read_yaml,
    "index.json": read_json,
    "state.json": lambda path: load_json(path, 1 << 20),
}


@pytest.mark.parametrize("laid", LAID)
@pytest.mark.parametrize("name", READERS)
def test_what_is_read_is_a_plain_file_of_bounded_size(precious: Path, name: str, laid: str) -> None:
    path = precious.parent / "home" / name
    LAID[laid](path, precious)
    with pytest.raises(UserError, match=name):
        READERS[name](path)


def test_a_link_within_its_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("here")
    (tmp_path / "name").symlink_to("real")
    assert read_checked(tmp_path / "name", 4) == b"here"
    (tmp_path / "gone").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        open_checked(tmp_path / "gone")


def test_a_file_that_tells_no_size_is_bounded_as_well() -> None:
    with pytest.raises(UserError, match="more bytes"):
        read_checked(Path("/proc/self/status"), 10)


def test_json_of_more_values_than_memory_holds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" + "[]," * (1 << 22) + "[]]")
    with pytest.raises(UserError, match="values"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("laid", ["link", "circle", "pipe", "folder"])
def test_a_lock_is_taken_on_a_plain_file_only(precious: Path, laid: str) -> None:
    path = precious.parent / "home" / ".lock"
    LAID[laid](path, precious)
    with pytest.raises(UserError, match=r"\.lock"):
        locked(path)
    assert precious.read_text() == "{}"


def test_a_lock_that_is_a_link_to_nothing_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "metrics.jsonl").touch()
    (tmp_path / "trial" / ".lock").symlink_to(tmp_path / "made")
    with pytest.raises(UserError, match=r"\.lock"):
        is_written(tmp_path / "trial")
    assert not (tmp_path / "made").exists()


def test_records_are_not_added_through_a_link_laid_while_the_run_is_open(precious: Path) -> None:
    run = Run.create(precious.parent / "run")
    (run.path / "metrics.jsonl").symlink_to(precious)
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        run.append({"step": 1})
    run.close()
    assert precious.read_text() == "{}"


def test_the_records_of_a_trial_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(UserError, match=r"metrics\.jsonl"):
        list(Run(tmp_path).records())


def test_nothing_is_written_through_a_name_that_can_be_foreseen(precious: Path) -> None:
    home = precious.parent / "home"
    (home / f".summary.json.{os.getpid()}.tmp").symlink_to(precious)
    write_text(home / "summary.json", "mine")
    assert ((home / "summary.json").read_text(), precious.read_text()) == ("mine", "{}")
    (home / "other").symlink_to(precious)
    with open_new(home / "other") as file:
        file.write(b"mine")
    assert precious.read_text() == "{}"


def test_an_identity_is_not_written_through_a_link(precious: Path) -> None:
    path = precious.parent / "home" / "wandb_id"
    path.symlink_to(precious.parent / "made")
    load_or_make_identity(path, lambda: "abc")
    assert not (precious.parent / "made").exists()


def test_a_cache_that_others_write_too_empties_no_file_of_mine(precious: Path) -> None:
    store = precious.parent / "home" / "cache"
    assert cached_json("key", lambda: 1, store) == 1
    (lock,) = store.glob("json/*.lock")
    lock.unlink()
    lock.symlink_to(precious)
    with pytest.raises(UserError, match=r"\.lock"):
        cached_json("key", lambda: 1, store)
    assert precious.read_text() == "{}"


@pytest.mark.parametrize("laid", LAID)
def test_a_sweep_of_a_stranger_is_not_waited_for(precious: Path, laid: str) -> None:
    sweep = Sweep.create(precious.parent / "sweep", Asked(overrides=("seed=1,2",)))
    trial = sweep.plan(0, ["seed=1"], "seed=1")
    path = trial.sweep / "trials" / "000.json"
    path.unlink()
    LAID[laid](path, precious)
    with pytest.raises(UserError, match="000"):
        sweep.trials()


@pytest.mark.parametrize("word", ["seed=" + "[" * 1000, "seed=" + "1" * 100_000])
def test_a_recorded_override_that_takes_minutes_to_parse_is_no_word_of_a_sweep(tmp_path: Path, word: str) -> None:
    sweep = Sweep.create(tmp_path / "sweep", Asked(overrides=(word,)))
    trial = sweep.plan(0, [], "")
    trial.conclude("planned")
    (tmp_path / "sweep" / "trials" / "000.json").write_text(
        json.dumps({"overrides": [word], "label": "", "status": "planned", "reason": ""})
    )
    with pytest.raises(UserError, match=r"sweep\.yaml: not what a sweep writes"):
        _ = sweep.asked
    with pytest.raises(UserError, match=r"000\.json: not what a sweep writes"):
        sweep.trials()


YAML = {
    "number with a colon": "seed: 1" + ":59" * 200_000,
    "number with a colon and a point": "seed: 1" + ":59" * 400 + ".5",
    "number of too many digits": "seed: 0x" + "f" * 10_000,
    "tag of a number": 'seed: !!int ""',
    "tag of a date": "seed: !!timestamp x",
    "tag of a truth": "seed: !!bool perhaps",
    "tag of a list": "seed: !!seq {}",
    "unknown tag": "seed: !mine 1",
    "a list as a key": "[1]: 2",
}


@pytest.mark.parametrize("name", YAML)
def test_yaml_that_costs_time_or_trips_the_reader_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.yaml").write_text(YAML[name])
    with pytest.raises(UserError, match="cannot be read"):
        read_yaml(tmp_path / "config.yaml")


def test_yaml_of_an_honest_run_is_read(tmp_path: Path) -> None:
    text = f"seed: 1\nlr: 1.0e-3\npath: /data/{'a' * 300}\nletters: '{'abc' * 50}'\n"
    (tmp_path / "config.yaml").write_text(text)
    assert read_yaml(tmp_path / "config.yaml")["seed"] == 1


HALF = '{"status": "finished", "other": "a\\ud800b"}'
WHOLE = '{"status": "finished", "other": "a\\ud83d\\ude00b"}'


def test_json_with_half_of_a_surrogate_pair_is_refused_in_one_line_and_a_whole_pair_is_read(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text(HALF)
    with pytest.raises(UserError, match=r"summary.json cannot be read: holds half of a surrogate pair") as told:
        read_json(path)
    assert len(told.value.lines) == 1
    path.write_text(WHOLE)
    assert read_json(path)["other"] == "a\N{GRINNING FACE}b"


def test_a_run_whose_summary_or_config_spells_half_a_pair_is_refused_before_it_is_written(tmp_path: Path) -> None:
    run = Run(fake_runs.run(tmp_path / "run"))
    for name in ("summary.json", "config.yaml"):
        path = run.path / name
        before = path.read_bytes()
        halved = HALF if name == "summary.json" else before.decode() + 'other: "a\\ud800b"\n'
        path.write_text(halved)
        with pytest.raises(UserError, match=f"{name} cannot be read"):
            read(run, name)
        assert path.read_text() == halved
        path.write_bytes(before)


def read(run: Run, name: str) -> object:
    return run.summary if name == "summary.json" else run.config


def test_a_record_that_spells_half_a_pair_is_no_record_of_the_run(tmp_path: Path) -> None:
    run = Run(fake_runs.run(tmp_path / "run"))
    known = run.metrics()
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 3, "a\\ud800": 1}\n{"step": 4, "a\xed\xa0\x80": 1}\n{"step": 5, "a": 1}\n')
    assert run.metrics() == [*known, {"step": 5, "a": 1}]


def test_what_is_written_can_be_read_and_written_again_whatever_text_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    summary = Summary()
    summary.update(command=["train", "--config-dir", "c\udcff"], reason="\ud800")
    summary.write(path)
    again = Summary.read(path)
    assert again.command == ["train", "--config-dir", r"c\udcff"]
    again.write(path)
    assert Summary.read(path) == again
    write_text(path, "sample: \ud800")
    assert path.read_text() == r"sample: \ud800"
