"""Laws of the run directory."""

from __future__ import annotations

import json
import math
import multiprocessing
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import numpy as np
import pytest

from seqtrain.errors import UserError
from seqtrain.files.untrusted import check_references
from seqtrain.runs import directory
from seqtrain.runs.directory import METRICS, Run, default_name
from seqtrain.runs.provenance import mask_command, mask_secrets
from seqtrain.runs.summary import RESUMED
from seqtrain.training.callbacks.record import Recorder


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run.create(tmp_path / "outputs" / "run")
    run.write_config({"seed": 1})
    return run


ROUNDS, MAKERS = 40, 4


def _make(folder: Path, taken: Literal["refuse", "number"], together, made) -> None:
    for number in range(ROUNDS):
        together.wait()
        try:
            made.put(Run.create(folder / f"{number}_run", taken=taken).path.name)
        except UserError:
            made.put(f"{number} refused")


@pytest.mark.parametrize("taken", ["refuse", "number"])
def test_processes_that_create_one_run_at_the_same_time_never_share_it(tmp_path: Path, taken: str) -> None:
    forked = multiprocessing.get_context("fork")
    together, made = forked.Barrier(MAKERS), forked.Queue()
    makers = [forked.Process(target=_make, args=(tmp_path, taken, together, made)) for _ in range(MAKERS)]
    for maker in makers:
        maker.start()
    names = [made.get(timeout=10) for _ in range(MAKERS * ROUNDS)]
    for maker in makers:
        maker.join()
    others = [" refused"] * (MAKERS - 1) if taken == "refuse" else [f"_run-{copy}" for copy in range(2, MAKERS + 1)]
    assert sorted(names) == sorted(f"{number}{end}" for number in range(ROUNDS) for end in ["_run", *others])


def test_a_taken_name_is_refused_and_a_taken_generated_name_is_numbered(run: Run) -> None:
    with pytest.raises(
        UserError, match=r"run_dir=.*run exists already; use `seqtrain resume .*run` or another run_dir"
    ):
        Run.create(run.path)
    numbered = [Run.create(run.path, taken="number").path.name for _ in range(2)]
    assert numbered == ["run-2", "run-3"]


def test_a_new_run_takes_an_empty_folder_but_no_folder_with_files(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert Run.create(tmp_path / "empty").path == tmp_path / "empty"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(UserError, match="exists already and is not an empty folder"):
        Run.create(tmp_path / "mine")


def test_only_run_directories_open_and_a_near_name_is_offered(run: Run) -> None:
    assert Run.open(run.path).config == {"seed": 1}
    with pytest.raises(UserError, match=r"does not exist; did you mean run\?"):
        Run.open(run.path.with_name("runn"))
    with pytest.raises(UserError, match=r"is not a run directory: it has no config\.yaml"):
        Run.open(run.path.parent)


def test_every_record_comes_back_as_it_was_written(run: Run) -> None:
    record = {"step": 1, "tokens": 2**40, "train/loss": 0.1 + 0.2, "text": "é\n\u2028", "none": None}
    run.append(record)
    assert Run.open(run.path).metrics() == [record]


def test_numbers_of_numpy_and_numbers_that_are_none_stay_valid_json(run: Run) -> None:
    run.append(
        {"step": np.int64(1), "loss": math.nan, "norm": np.float32("inf"), "low": -math.inf, "lr": np.float32(0.5)}
    )
    line = (run.path / METRICS).read_text()
    assert json.loads(line, parse_constant=pytest.fail)["loss"] == "nan"
    (record,) = run.metrics()
    assert math.isnan(record.pop("loss"))
    assert record == {"step": 1, "norm": math.inf, "low": -math.inf, "lr": 0.5}


def test_a_killed_process_keeps_every_record_that_it_appended(tmp_path: Path) -> None:
    script = (
        "import os, sys; from seqtrain.runs.directory import Run\n"
        "run = Run.create(sys.argv[1]); run.write_config({})\n"
        "[run.append({'step': step}) for step in range(100)]\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path / "run")]).returncode == -9
    assert [record["step"] for record in Run.open(tmp_path / "run").metrics()] == list(range(100))


def test_a_torn_last_line_loses_nothing_else_at_whatever_byte_it_tore(tmp_path: Path) -> None:
    for cut in range(1, 12):
        run = Run.create(tmp_path / str(cut), config={"seed": 1})
        run.append({"step": 1, "x": "é"})
        run.append({"step": 2, "x": "é"})
        run.close()
        path = run.path / METRICS
        torn = path.read_bytes()[:-cut]
        path.write_bytes(torn)
        kept = run.metrics()
        run.mark_resume(2)
        run.append({"step": 3})
        assert kept[0] == {"step": 1, "x": "é"}, cut
        assert len(kept) == (2 if cut == 1 else 1), cut  # only the line end is missing
        assert run.metrics() == [*kept, {"step": 3}], cut
        assert path.read_bytes().startswith(torn), "the file of records is append-only"


def test_a_full_disk_is_an_error_and_keeps_what_was_recorded(run: Run) -> None:
    run.append({"step": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        with pytest.raises(OSError, match=r"No space left on device: '.*metrics\.jsonl'"):
            run.append({"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    run.close()
    assert run.metrics() == [{"step": 1}]


def test_a_generated_name_sorts_by_time_and_fits_an_override() -> None:
    name = default_name("next_token", "my/model=x")
    assert name.endswith("_next_token_my-model-x")
    assert not set(name) & set("= /,{}[]'\"$")


def test_what_is_removed_takes_outputs_along_only_where_that_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run", "refused"):
        (Path("outputs") / name).mkdir(parents=True)
    directory.remove(Path("outputs/refused"))
    assert [path.name for path in Path("outputs").iterdir()] == ["run"]
    directory.remove(Path("outputs/run"))
    assert not Path("outputs").exists()


def test_a_record_reaches_as_far_as_it_was_gone_on_with(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    reached = [run.newest_step()]
    for step in (10, 30, 20):
        run.append({"step": step})
        reached.append(run.newest_step())
    run.mark_resume(20)  # what was recorded beyond is overwritten
    reached.append(run.newest_step())
    run.append({"step": 25})
    assert [*reached, run.newest_step()] == [0, 10, 30, 30, 20, 25]


def test_secrets_of_loggers_are_masked_by_exact_names_and_nothing_that_starts_a_run_is() -> None:
    for key in ("api_key", "token", "password"):
        uri, deep = "http://me:pass@host/x", {"tags": ["a"], key: {"inner": 7}}
        others = {"data": {key: "abc", "path": "hf_wikitext_103_raw_v1.txt", "token_column": 0, "url": uri}}
        logger = {"x": {key: "abc", f"hf_{key}": "kept", "uri": uri, "deep": deep, "empty": {key: None}}}
        masked = {"x": {key: "***", f"hf_{key}": "kept", "uri": "http://host/x", "deep": {"tags": ["a"], key: "***"}}}
        masked["x"]["empty"] = {key: None}
        assert mask_secrets({**others, "logger": logger}) == {**others, "logger": masked}
        references = {"logger": {"x": {key: "${oc.env:K}", "uri": "http://${oc.env:U}:${oc.env:P}@host"}}}
        assert mask_secrets(references) == references


def test_a_reference_to_the_environment_is_found_at_any_depth() -> None:
    for value in ("${oc.env:KEY}", ["${oc.env:KEY}"], {"deep": [{"er": "${oc.env:KEY}"}]}):
        config = {"logger": {"mine": {"tags": value}}}
        with pytest.raises(UserError, match=r"^run: logger\.mine\.tags.*=\$\{oc\.env:KEY\}: .* add --trust oc\.env$"):
            check_references(config, Path("run"), ())
        check_references(config, Path("run"), ("oc.env",))


def test_secrets_are_masked_in_a_command_line() -> None:
    kept = ["train", "data.token_column=1", "data.path=http://u:p@h/hf_a", "++data.token=1", "logger.x.max_token=3"]
    assert mask_command(kept) == kept
    secret = ["++logger.x.password=1", "logger.x.uri=http://u:p@h", "+logger.y={a: b, api_key: 'k', c: d}"]
    masked = ["++logger.x.password=***", "logger.x.uri=http://h", "+logger.y={a: b, api_key: ***, c: d}"]
    assert mask_command(secret) == masked


def test_what_is_no_record_is_not_parsed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (run.path / METRICS).write_bytes(b"\0" * 9 + b'\n[1]\n\n{"step": 1}\n{"st')
    asked, loads = [], json.loads
    monkeypatch.setattr("seqtrain.files.checked.json.loads", lambda line: asked.append(line) or loads(line))
    assert run.metrics() == [{"step": 1}]
    assert asked == ['{"step": 1}\n', '{"st']


# -- records that stand -----------------------------------------------------------------------------------------------


def standing(records: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, dict[str, Any]]]:
    monkeypatch.setattr(Run, "records", lambda run: iter(records))
    return Run(Path("nowhere")).standing()


def test_each_resume_drops_what_lies_after_the_step_it_began_from(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    for _ in range(200):
        kinds = [draw.choice(["step", "step", RESUMED, "other"]) for _ in range(12)]
        records: list[dict[str, Any]] = [{kind: draw.randrange(-1, 6)} for kind in kinds]
        kept: list[tuple[int, dict[str, Any]]] = []
        for place, record in enumerate(records, 1):
            if RESUMED in record:
                kept = [(before, each) for before, each in kept if each.get("step", 0) <= record[RESUMED]]
            else:
                kept.append((place, record))
        assert standing(records, monkeypatch) == kept


def test_the_places_of_records_count_on_over_a_resume_and_what_it_overwrites(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run")
    for step in (1, 2, 3):
        run.append({"step": step})
    run.mark_resume(1)
    sent: list[int] = []
    logger = SimpleNamespace(log_metrics=lambda record, step: sent.append(record["record"]))
    trainer: Any = SimpleNamespace(global_step=2, loggers=[logger])
    learner: Any = SimpleNamespace(progress=SimpleNamespace(tokens=0))
    recorder = Recorder(run=run, every=1, plan=cast(Any, SimpleNamespace(steps=1)))
    for _ in range(2):
        recorder._write(trainer, learner, {"train/loss": 1.0})
    assert sent == [place for place, record in run.standing() if "train/loss" in record] == [5, 6]
