"""A file that somebody else may have put there: a plain one of bounded size is opened, anything else is one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from seqtrain.data.cache import cached_json
from seqtrain.errors import UserError
from seqtrain.files.atomic import locked, write_text
from seqtrain.files.checked import load_json, open_checked, open_new, read_checked
from seqtrain.files.untrusted import MAX_VALUES, check_plain, read_json, read_yaml
from seqtrain.runs.directory import Run, is_written
from seqtrain.runs.summary import Summary
from seqtrain.sweeps.folder import Asked, Sweep
from seqtrain.training.loggers.base import load_or_make_identity
from tests.support import fake_runs
from tests.support.refused import refusal

pytestmark = pytest.mark.timeout(20)  # a pipe that is waited for


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file outside the folder that a stranger made."""
    (tmp_path / "home").mkdir()
    path = tmp_path / "precious"
    path.write_text("{}")
    return path


LAID: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, precious: path.symlink_to(precious),
    "circle": lambda path, _: path.symlink_to(path.name),
    "pipe": lambda path, _: os.mkfifo(path),
    "folder": lambda path, _: path.mkdir(),
    "device": lambda path, _: path.symlink_to("/dev/zero"),
    "file without end": lambda path, _: (path.touch(), os.truncate(path, 1 << 40)),
}
READERS: dict[str, Callable[[Path], object]] = {
    "sweep.yaml": read_yaml,
    "index.json": read_json,
    "state.json": lambda path: load_json(path, 1 << 20),
}


def test_what_is_read_or_locked_is_a_plain_file_of_bounded_size(precious: Path) -> None:
    for laid, lay in LAID.items():
        home = precious.parent / laid
        home.mkdir()
        for name, read in READERS.items():
            lay(home / name, precious)
            assert name in refusal(read, home / name), laid
        if laid not in ("device", "file without end"):
            lay(home / ".lock", precious)
            assert ".lock" in refusal(locked, home / ".lock"), laid
    assert precious.read_text() == "{}"


def test_a_link_within_its_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("here")
    (tmp_path / "name").symlink_to("real")
    assert read_checked(tmp_path / "name", 4) == b"here"
    (tmp_path / "gone").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError):
        open_checked(tmp_path / "gone")


def test_what_tells_no_size_or_holds_more_values_than_memory_is_bounded_as_well(tmp_path: Path) -> None:
    assert "more bytes" in refusal(read_checked, Path("/proc/self/status"), 10)
    (tmp_path / "a.json").write_text("[" + "[]," * (1 << 22) + "[]]")
    assert "values" in refusal(read_json, tmp_path / "a.json")


def test_a_lock_that_is_a_link_to_nothing_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "metrics.jsonl").touch()
    (tmp_path / "trial" / ".lock").symlink_to(tmp_path / "made")
    with pytest.raises(UserError, match=r"\.lock"):
        is_written(tmp_path / "trial")
    assert not (tmp_path / "made").exists()


def test_records_are_not_added_through_a_link_and_not_waited_for(precious: Path) -> None:
    run = Run.create(precious.parent / "run")
    (run.path / "metrics.jsonl").symlink_to(precious)
    assert "metrics.jsonl" in refusal(run.append, {"step": 1})
    run.close()
    assert precious.read_text() == "{}"
    os.mkfifo(precious.parent / "metrics.jsonl")
    assert "metrics.jsonl" in refusal(lambda: list(Run(precious.parent).records()))


def test_nothing_is_written_through_a_name_that_can_be_foreseen(precious: Path) -> None:
    home = precious.parent / "home"
    (home / f".summary.json.{os.getpid()}.tmp").symlink_to(precious)
    write_text(home / "summary.json", "mine")
    assert ((home / "summary.json").read_text(), precious.read_text()) == ("mine", "{}")
    (home / "other").symlink_to(precious)
    with open_new(home / "other") as file:
        file.write(b"mine")
    assert precious.read_text() == "{}"
    (home / "wandb_id").symlink_to(precious.parent / "made")
    load_or_make_identity(home / "wandb_id", lambda: "abc")
    assert not (precious.parent / "made").exists()


def test_a_cache_that_others_write_too_empties_no_file_of_mine(precious: Path) -> None:
    store = precious.parent / "home" / "cache"
    assert cached_json("key", lambda: 1, store) == 1
    (lock,) = store.glob("json/*.lock")
    lock.unlink()
    lock.symlink_to(precious)
    assert ".lock" in refusal(cached_json, "key", lambda: 1, store)
    assert precious.read_text() == "{}"


def test_a_sweep_of_a_stranger_is_not_waited_for(precious: Path) -> None:
    for laid in LAID:
        sweep = Sweep.create(precious.parent / laid, Asked(overrides=("seed=1,2",)))
        path = sweep.plan(0, ["seed=1"], "seed=1").sweep / "trials" / "000.json"
        path.unlink()
        LAID[laid](path, precious)
        assert "000" in refusal(sweep.trials), laid


def test_a_recorded_override_that_takes_minutes_to_parse_is_no_word_of_a_sweep(tmp_path: Path) -> None:
    for number, word in enumerate(("seed=" + "[" * 1000, "seed=" + "1" * 100_000)):
        sweep = Sweep.create(tmp_path / str(number), Asked(overrides=(word,)))
        sweep.plan(0, [], "").conclude("planned")
        (tmp_path / str(number) / "trials" / "000.json").write_text(
            json.dumps({"overrides": [word], "label": "", "status": "planned", "reason": ""})
        )
        assert "sweep.yaml: not in the form that a sweep writes" in refusal(lambda of: of.asked, sweep)
        assert "000.json: not in the form that a sweep writes" in refusal(sweep.trials)


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


def test_yaml_that_costs_time_or_trips_the_reader_is_one_line_and_that_of_an_honest_run_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for name, text in YAML.items():
        path.write_text(text)
        assert "cannot be read" in refusal(read_yaml, path), name
    path.write_text(f"seed: 1\nlr: 1.0e-3\npath: /data/{'a' * 300}\nletters: '{'abc' * 50}'\n")
    assert read_yaml(path)["seed"] == 1


DEEP = "a: &a [[1, 1, 1, 1, 1]]\n" + "".join(
    f"{name}: &{name} [[{', '.join(f'*{below}' for _ in range(10))}]]\n"
    for below, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_values_of_yaml_count_however_deep_they_lie_and_as_many_as_may_be_are_taken() -> None:
    for text in (DEEP, f"a: [{'[1, 2, 3], ' * (MAX_VALUES // 4 + 1)}]"):
        with pytest.raises(yaml.YAMLError, match="holds more than"):
            check_plain(text, written_by="person")
    check_plain(f"a: [{'[1, 2], ' * (MAX_VALUES // 3 - 2)}]", written_by="person")


HALF = '{"status": "finished", "other": "a\\ud800b"}'


WHOLE = '{"status": "finished", "other": "a\\ud83d\\ude00b"}'


def test_half_of_a_surrogate_pair_is_refused_in_one_line_and_a_whole_pair_is_read(tmp_path: Path) -> None:
    run = Run(fake_runs.run(tmp_path / "run"))
    config = run.path / "config.yaml"
    for path, halved, read in (
        (run.path / "summary.json", HALF, lambda: run.summary),
        (config, config.read_text() + 'other: "a\\ud800b"\n', lambda: run.config),
    ):
        before = path.read_bytes()
        path.write_text(halved)
        assert f"{path.name} cannot be read" in refusal(read)
        path.write_bytes(before)
    known = run.metrics()
    with (run.path / "metrics.jsonl").open("ab") as file:  # no record of the run
        file.write(b'{"step": 3, "a\\ud800": 1}\n{"step": 4, "a\xed\xa0\x80": 1}\n{"step": 5, "a": 1}\n')
    assert run.metrics() == [*known, {"step": 5, "a": 1}]
    (tmp_path / "a.json").write_text(WHOLE)
    assert read_json(tmp_path / "a.json")["other"] == "a\N{GRINNING FACE}b"


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
