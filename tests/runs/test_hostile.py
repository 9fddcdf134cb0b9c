"""What a stranger made may be opened: nothing in it executes, leads outside, hangs, or ends in more than one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqtrain as package
from seqtrain.data.cache import Store
from seqtrain.data.corpus import tokenised
from seqtrain.data.tokenizers.foreign import load_tokenizer
from seqtrain.data.tokenizers.recipes import Byte
from seqtrain.errors import UserError
from seqtrain.training.loggers.base import load_or_make_identity
from tests.conftest import Seqtrain
from tests.support import tiny, untrained_runs
from tests.support.quick import some_long
from tests.support.untrusted_runs import (
    ALIASES,
    ATTACKS,
    BEGIN,
    EMBED,
    EVALUATE,
    LAST,
    NESTED,
    PREDICT,
    RESUME,
    SEARCH,
    SECRET,
    STEPS,
    Place,
    config,
)

PATIENCE = 30.0  # seconds; a trap would hold a command for ever
EXPECTED = (
    "skipped ",
    "run new",
    "precision ",
    "tokenizer: ",
    "train: ",
    "validation: ",
    "trainer.max_steps: ",
    "run run: ",
)
"""How a line may begin that says what is done until something is refused."""


# -- nothing executes --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and a run of a few steps, which each attack gets a copy of."""
    home = tiny.corpus(tmp_path_factory.mktemp("honest"), lines=60)
    options = (*tiny.OPTIONS, f"trainer.max_steps={STEPS}", "trainer.validate_every=2", "run_dir=run")
    answer = seqtrain("train", *options, cwd=home)
    assert answer.rc == 0, answer.err
    return home


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Place:
    """A copy of the honest run, beside what no run may touch."""
    shutil.copytree(trained, tmp_path / "home")
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "precious").write_text(SECRET)
    return Place(tmp_path / "home" / "run", outside)


def seen(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def one_line(seqtrain: Seqtrain, place: Place, command: tuple[str, ...], says: str) -> None:
    """Opens what a stranger made: one line, exit 2, nothing outside is touched or told."""
    before = seen(place.outside)
    answer = seqtrain(*command, cwd=place.run.parent, env={"SECRET": SECRET}, timeout=PATIENCE)
    assert seen(place.outside) == before, "it executed, or wrote outside"
    *others, last = answer.err.splitlines()
    assert answer.rc == 2, answer.err
    assert last.startswith("error: "), answer.err
    assert says in last
    assert all(line.startswith(EXPECTED) for line in others), answer.err
    assert all(map(str.isprintable, answer.err.splitlines()))
    assert not (place.run.parent / "new").exists(), "a run that was refused leaves nothing behind"
    assert SECRET not in answer.out + answer.err
    assert answer.out == ""


@pytest.mark.long
@pytest.mark.parametrize("name", ATTACKS)
def test_what_a_stranger_made_executes_nothing_and_is_answered_in_one_line(
    seqtrain: Seqtrain, place: Place, name: str
) -> None:
    damage, command, says = ATTACKS[name]
    damage(place)
    one_line(seqtrain, place, command, says)


def test_an_honest_run_opens_with_every_command(seqtrain: Seqtrain, place: Place) -> None:
    for command in (EVALUATE, PREDICT, LAST, EMBED, SEARCH, BEGIN, RESUME):
        answer = seqtrain(*command, cwd=place.run.parent)
        assert answer.rc == 0, answer.err


def test_what_wandb_links_elsewhere_does_not_close_a_run(seqtrain: Seqtrain, place: Place) -> None:
    attempt = place.run / "wandb" / "offline-run-1"
    (attempt / "logs").mkdir(parents=True)
    (attempt / "logs" / "debug-core.log").symlink_to(place.outside / "log")
    (place.run / "wandb" / "latest-run").symlink_to("offline-run-1")
    answer = seqtrain(*PREDICT, cwd=place.run.parent)
    assert answer.rc == 0, answer.err
    (place.run / "wandb" / "debug.log").symlink_to(place.outside / "log")
    answer = seqtrain(*PREDICT, cwd=place.run.parent)
    assert (answer.rc, "wandb/debug.log: a link that leads out" in answer.err) == (2, True)


def test_a_run_that_reads_the_environment_opens_for_who_trusts_it(seqtrain: Seqtrain, place: Place) -> None:
    config(run_dir="${oc.env:SECRET}")(place)
    answer = seqtrain(*PREDICT, "--trust", "oc.env", cwd=place.run.parent, env={"SECRET": SECRET})
    assert answer.rc == 0, answer.err


# -- configs of a stranger ---------------------------------------------------------------------------------------

EXPERIMENTS: dict[str, tuple[str, tuple[str, ...], str]] = {
    # name: (what the file says, more arguments, what the line says)
    "target for a sweep": ("model: {{_target_: os.system, command: {code}}}", ("-m",), "--trust os"),
    "callback of Hydra": (
        "hydra: {{callbacks: {{x: {{_target_: os.system, command: {code}}}}}}}",
        ("-m",),
        "os.system",
    ),
    "handler of a log": (
        "hydra: {{job_logging: {{version: 1, root: {{handlers: [x]}}, "
        "handlers: {{x: {{(): os.system, command: {code}}}}}}}}}",
        ("-m",),
        "os.system",
    ),
    "programs of its own": ("hydra: {{job: {{env_set: {{PATH: {bin}}}}}}}", ("-m",), "env_set"),
    "secret by a detour": ("tokenizer: {{x: env}}\nrun_dir: '${{oc.${{tokenizer.x}}:SECRET}}'", (), "--trust oc.env"),
    "YAML tag": ("model: !!python/object/apply:os.system ['{code}']", (), "evil.yaml"),
    "YAML of aliases": (ALIASES, (), "evil.yaml"),
}


@pytest.mark.parametrize("name", some_long(EXPERIMENTS, ("target for a sweep", "secret by a detour")))
def test_a_config_of_a_stranger_executes_nothing(seqtrain: Seqtrain, place: Place, name: str) -> None:
    says, more, expected = EXPERIMENTS[name]
    programs = place.outside / "bin"
    programs.mkdir()
    (programs / "git").write_text(f"#!/bin/sh\n{place.code}\n")
    (programs / "git").chmod(0o755)
    experiments = place.run.parent / "conf" / "experiment"
    experiments.mkdir(parents=True)
    (experiments / "evil.yaml").write_text(f"# @package _global_\n{says.format(code=place.code, bin=programs)}\n")
    before = seen(place.outside)
    options = (*tiny.OPTIONS, "trainer.max_steps=1", "experiment=evil", *more)
    answer = seqtrain("train", "--config-dir", "conf", *options, cwd=place.run.parent, env={"SECRET": SECRET})
    assert seen(place.outside) == before, "it executed, or wrote outside"
    assert answer.rc == 2, answer.err
    assert expected in answer.err
    assert "Traceback" not in answer.err
    assert SECRET not in answer.out + answer.err


# -- data and caches of a stranger -------------------------------------------------------------------------------


def readme(path: str) -> str:
    files = f"configs:\n- config_name: default\n  data_files: [{{split: train, path: {path}}}]"
    return f"---\n{files}\n---\n"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("data.py", "import os\nos.system('touch {outside}/executed')\n", "script"),
        ("README.md", readme("{outside}/precious.txt"), "names"),
        ("README.md", readme("../../outside/precious.txt"), "names"),
        ("state.json", json.dumps({"_data_files": [{"filename": "../../outside/data.arrow"}]}), "names"),
    ],
)
def test_data_of_a_stranger_executes_nothing_and_names_no_other_files(
    seqtrain: Seqtrain, place: Place, name: str, content: str, says: str
) -> None:
    (place.outside / "precious.txt").write_text(f"{SECRET}\n" * 50)
    data = place.run.parent / "data"
    data.mkdir()
    (data / name).write_text(content.replace("{outside}", str(place.outside)))
    command = ("train", "data=hub", "data.path=data", "data.validation_split=null", "run_dir=new", "--dry-run")
    answer = seqtrain(*command, cwd=place.run.parent, env={"HF_HOME": str(place.run.parent / "hub")})
    assert answer.rc == 2, answer.err
    assert answer.err.startswith("error: data.path=data: ")
    assert says in answer.err
    assert len(answer.err.splitlines()) == 1
    assert not (place.outside / "executed").exists()


def test_no_cache_is_read_as_objects(tmp_path: Path) -> None:
    """Bytes that are read as objects are addresses that a process follows."""

    def tokens() -> Any:
        return tokenised(Store(tmp_path), lambda: iter(["some text"]), "train", Byte().train([]), print).tokens

    expected = tokens().tolist()
    (meta,) = tmp_path.rglob("meta.json")
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"dtype": "O", "num_tokens": 1}))
    meta.with_name("tokens.bin").write_bytes(b"A" * 8)
    assert (tokens().dtype, tokens().tolist()) == (np.uint16, expected)


def test_a_tokenizer_of_a_stranger_brings_no_expressions(tmp_path: Path) -> None:
    """An expression may take years; of a file only the tables are used."""
    run = untrained_runs.make_run(tmp_path / "run", *untrained_runs.MASKED)
    path = run / "tokenizer.json"
    before = package.load(run).tokenizer.encode("a film that was not good").tolist()
    content = json.loads(path.read_text())
    content["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "(a|a)*b"}, "behavior": "Isolated"} | content[
        "pre_tokenizer"
    ]
    content["normalizer"] = {"type": "Replace", "pattern": {"String": "film"}, "content": "x" * 9}
    path.write_text(json.dumps(content))
    untrained_runs.sign(run, {"tokenizer": load_tokenizer(path).hash})
    assert package.load(run).tokenizer.encode("a film that was not good").tolist() == before


def test_labels_are_texts_and_an_identity_for_a_logger_is_a_word(tmp_path: Path) -> None:
    run = untrained_runs.make_run(tmp_path / "run", *untrained_runs.SENTIMENT)
    for labels in ('{"a": 1}', "[1, 2]", NESTED, "\xff"):
        (run / "labels.json").write_bytes(labels.encode("latin-1"))
        with pytest.raises(UserError, match="not a list of labels"):
            package.load(run)
    for identity in ("../../evil", "a/b", "", "x" * 99, "a\x1b[2J"):
        (run / "wandb_id").write_text(identity)
        with pytest.raises(ValueError, match="does not contain a valid identity"):
            load_or_make_identity(run / "wandb_id", lambda: "new")
