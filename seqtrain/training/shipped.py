"""Files of conf/ that come with seqtrain, and the models that they make."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, cast

from omegaconf import DictConfig, OmegaConf

from seqtrain import conf  # pyright: ignore[reportAttributeAccessIssue]  # conf/ is mapped in by pyproject.toml


class Cell(NamedTuple):
    """A combination of model, task and truncation of time."""

    model: str
    task: str
    tbptt: str
    reason: str | None  # reason of a refusal; None: it works


def shipped(group: str) -> list[str]:
    """Return the options of a group that come with seqtrain."""
    return sorted(path.stem for path in Path(conf.__path__[0], group).glob("*.yaml"))


def shipped_file(group: str, name: str) -> Path:
    """Return the file of an option of a group."""
    return Path(conf.__path__[0], group, f"{name}.yaml")


def sources_hash() -> str:
    """Return the hash of seqtrain's code and of the files of conf/, as a key of caches that depend on them."""
    digest = hashlib.blake2b(digest_size=16)
    for root, files in ((Path(__file__).parents[1], "**/*.py"), (Path(conf.__path__[0]), "**/*.yaml")):
        for path in sorted(root.glob(files)):
            digest.update(f"{path.relative_to(root)} ".encode() + hashlib.blake2b(path.read_bytes()).digest())
    return digest.hexdigest()


def compose_data(name: str) -> DictConfig:
    """Return the options of a shipped data set, with a placeholder for each value that the user must set."""
    node = cast(DictConfig, OmegaConf.load(shipped_file("data", name)))
    parents = [compose_data(parent).data for parent in node.pop("defaults", [])]
    merged = cast(DictConfig, OmegaConf.merge({}, *parents, node))
    # Nested under `data` first: one option of a file may refer to another.
    composed = OmegaConf.create({"data": merged})
    for key in OmegaConf.missing_keys(composed) | ({"data.path"} if "path" in merged else set()):
        OmegaConf.update(composed, key, "x")
    return composed


OTHER_NAMES = ("classify",)  # files that give a task (sentiment) a second name


def shipped_tasks() -> list[str]:
    """Return the tasks that come with seqtrain, each by one name."""
    return [name for name in shipped("task") if name not in OTHER_NAMES]


def models() -> Iterator[str]:
    """Yield every shipped model, unchanged and with the option changed that sets the direction in which it reads."""
    for name in shipped("model"):
        yield from (name, *_with_other_direction(name))


def tasks() -> Iterator[str]:
    """Yield every shipped task, unchanged and with the option changed that decides which models can do it."""
    for name in shipped_tasks():
        yield name
        options = cast(DictConfig, OmegaConf.load(shipped_file("task", name)))
        if options.get("strategy") == "direct":
            yield f"{name} task.strategy=recursive"


def _with_other_direction(model: str) -> Iterator[str]:
    """Yield the model with the option changed that sets the direction in which it reads, if it has one."""
    options = cast(DictConfig, OmegaConf.load(shipped_file("model", model)))
    if options.get("bidirectional") is False:
        yield f"{model} model.bidirectional=true"
    if options.get("causal") is True:
        yield f"{model} model.causal=false"


def add_mixers(model: DictConfig) -> None:
    """Add the shipped file of each mixer that a model names to its `options`; values already set there win."""
    for name in model.get("mixers", ()):
        content = OmegaConf.merge(OmegaConf.load(shipped_file("mixer", name)), model.options.get(name, {}))
        OmegaConf.update(model, f"options.{name}", content, force_add=True)


def with_model(config: DictConfig, words: str) -> DictConfig:
    """Return the config with another shipped model, and its changed option."""
    name, *options = words.split()
    other = cast(DictConfig, OmegaConf.merge(config, {"model": None}))  # otherwise options of the old model would stay
    other.model = OmegaConf.load(shipped_file("model", name))
    add_mixers(cast(DictConfig, other.model))
    other.merge_with_dotlist(options)
    return other
