"""The shipped configuration: whole, in step with the code it names, and composable."""

from __future__ import annotations

import inspect
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from seqtrain.config import check
from seqtrain.config.groups import OPTIONAL, RESERVED
from seqtrain.config.options import Batching, Labels, RunOptions, TrainerOptions
from seqtrain.config.signatures import signature
from seqtrain.config.targets import resolve, targets
from seqtrain.errors import UserError
from tests.support.quick import some_long

CONF = Path(str(files("seqtrain.conf")))
FILES = {
    path.relative_to(CONF).with_suffix("").as_posix(): path
    for path in sorted(CONF.glob("*/*.yaml"))
    if path.parent.name != "sweep"  # of a sweep, not of a run: tests/sweeps/test_search.py
}
GIVEN = {
    "model": {"embed", "target_embed"},
    "task": {
        "dim",
        "embed_dim",
        "bptt_length",
        "carry",
        "max_length",
        "vocab_size",
        "target_vocab_size",
        "preprocessor",
        "labels",
        "label_counts",
    },
    "mixer": {"dim"},
    "optimizer": {"params"},
    "logger": {"directory", "config"},
    "callbacks": {"run", "data", "tokenizer"},
}
"""What build hands to the targets of a group: known only at run time, so in no file."""

OWN = {"seqtrain.tasks.translation.Translation": {"shared_vocab"}}
"""Options of a target that have the name of something build hands to others."""

PARTS = {"data/batching"}
"""Files that are no option by themselves."""


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text()) or {}


def nodes(*, ours: bool) -> list[tuple[str, str, dict]]:
    """Return every node with a `_target_` in the files of conf/: its place, its group, the node."""
    return [
        (f"{file}:{path}", file.partition("/")[0], node)
        for file, source in FILES.items()
        for path, node in targets(read(source))
        if node["_target_"].startswith("seqtrain.") or not ours
    ]


def composed_with(file: str) -> check.Composed:
    """The config of a command line that chooses a file of conf/, and sets what it leaves to the user."""
    group, _, name = file.partition("/")
    if group == "mixer":  # chosen in a list, by a model
        return check.compose(["model=stack", f"model.mixers=[{name}]"])
    choice = file.replace("/", "=")
    try:
        return check.compose([choice])
    except UserError as fault:
        missing = [line.partition(":")[0] for line in fault.lines if ": missing;" in line]
        return check.compose([choice, *(f"{key}=somewhere" for key in missing)])


def test_a_file_lists_every_option_of_its_target_with_the_same_default() -> None:
    for place, group, node in nodes(ours=True):
        parameters = inspect.signature(resolve(node["_target_"])).parameters
        listed = {key: value for key, value in node.items() if not RESERVED.match(key) and key != "defaults"}
        if group == "model":
            assert listed.pop("embed_dim") is None, place  # of the front end
        assert set(listed) == set(parameters) - (GIVEN.get(group, set()) - OWN.get(node["_target_"], set())), place
        for name, value in listed.items():
            default = parameters[name].default
            if default is not inspect.Parameter.empty and "${" not in str(value) and value != "???":
                assert value == (list(default) if isinstance(default, tuple) else default), (place, name)
    for file, options in (("trainer/auto", TrainerOptions), ("data/batching", Batching)):
        assert list(read(FILES[file])) == list(inspect.signature(options).parameters), file


def test_the_top_level_lists_every_option() -> None:
    top = read(CONF / "train.yaml").keys() - {"defaults", "hydra"}
    others = set(OPTIONAL) - {"adapter"}  # which stands in a file of its own
    assert top == set(inspect.signature(RunOptions).parameters) | others
    assert list(read(CONF / "train.yaml")["run"]) == list(inspect.signature(Labels).parameters)


def test_a_signature_that_is_read_equals_the_one_that_is_imported() -> None:
    for place, _, node in nodes(ours=False):
        found = signature(node["_target_"])
        assert found is not None, place
        imported = inspect.signature(resolve(node["_target_"])).parameters
        required = {name: parameter.default is inspect.Parameter.empty for name, parameter in imported.items()}
        assert {name: option.required for name, option in found.options.items()} == required, place


@pytest.mark.parametrize("group", some_long(sorted({file.partition("/")[0] for file in FILES}), ("model", "task")))
def test_every_file_is_an_option_without_a_fault(group: str) -> None:
    for file in FILES:
        if file.startswith(f"{group}/") and file not in PARTS:
            composed, option = composed_with(file), file.partition("/")[2]
            assert (composed.choices[group] == option) if group != "mixer" else option in composed.config.model.options
            assert check.signature_faults(composed.config) == [], file


def test_every_folder_of_the_source_is_shipped() -> None:
    root = Path(__file__).resolve().parents[2]
    listed = set(tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    packages = {".".join(path.parent.relative_to(root).parts) for path in (root / "seqtrain").rglob("__init__.py")}
    assert listed == packages | {"seqtrain.conf"}
