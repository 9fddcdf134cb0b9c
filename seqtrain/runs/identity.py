"""Identity of a run: options that decide its numbers, options that a resume may change, and their differences."""

from __future__ import annotations

import hashlib
import json
import reprlib
from typing import Any, Literal

from seqtrain.config.nodes import flat
from seqtrain.files.atomic import plain_json
from seqtrain.runs.summary import Summary

# For each trainer option: does a change make another run, get logged by a resume, or change no result?
TRAINER: dict[str, Literal["identity", "said", "free"]] = {
    "accelerator": "said",  # by the machine's name
    "devices": "said",  # by the number of processes
    "num_nodes": "said",
    "strategy": "identity",
    "check_ranks_every": "free",
    "precision": "identity",
    "eval_precision": "identity",  # early stopping, plateaus and the best checkpoint follow validations
    "compile": "identity",  # fused operations round differently
    "recompute": "free",
    "deterministic": "identity",
    "threads": "said",
    "max_steps": "said",
    "max_epochs": "said",
    "max_seconds": "said",
    "accumulate": "identity",  # sums in another order have other bits
    "grad_clip": "identity",
    "validate_every": "identity",  # early stopping, plateaus and the best checkpoint follow validations
    "checkpoint_every": "free",
    "keep_last": "free",
    "keep_best": "free",
    "on_nonfinite": "identity",
    "log_every": "free",
    "profile": "free",
}

# Options of the data that change no result.
DATA_FREE = ("workers", "eval_batch_size")

SHORT = reprlib.Repr()
SHORT.maxlevel, SHORT.maxstring, SHORT.maxother = 2, 80, 80
LIMITS = ("max_steps", "max_epochs", "max_seconds")  # of the trainer: changing them extends a run
# Callbacks of a config in this package change no result: they are no part of the identity, and only the process that
# writes the run makes them (`training/session.py`). A callback of a config that acts on training must not be in it, so
# AveragedWeights is in `training/optim`.
SHOWING = "seqtrain.training.callbacks."
FREE = ("logger", "run_dir", "run", "dry_run", "init_from")  # init_from is checked by its hash
# Options that `resume` may change, besides loggers.
MAY_CHANGE = (
    *(f"trainer.{name}" for name, kind in TRAINER.items() if kind != "identity"),
    *(f"data.{name}" for name in DATA_FREE),
    *("run.label", "run.tags"),
)


def identity(config: dict[str, Any], summary: Summary) -> dict[str, Any]:
    """Return the identity stored in each checkpoint of a run: config by dotted key, hashes of data, hash of parent."""
    return {"config": decisive(config), "hashes": summary.hashes, "parent": summary.parent}


def decisive(config: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a config that affect results, by dotted key.

    Paths of data are left out: its hash is checked. Callbacks that only show are left out; those of users are included,
    because their effect is unknown.
    """
    kept = {name: value for name, value in config.items() if name not in FREE}
    kept |= {name: dict(_mapping(config, name)) for name in ("trainer", "data", "callbacks")}
    for name in _mapping(config, "trainer"):
        if TRAINER.get(name, "identity") != "identity":  # an unknown option may affect results
            del kept["trainer"][name]
    for name in _mapping(config, "data"):
        if name in DATA_FREE or str(name).endswith("path"):
            del kept["data"][name]
    for name, node in _mapping(config, "callbacks").items():
        if not node or str(node.get("_target_")).startswith(SHOWING):
            del kept["callbacks"][name]
    # Through JSON, as in a checkpoint: a tuple becomes a list.
    return json.loads(plain_json(dict(flat(kept))))


def digest(config: dict[str, Any]) -> str:
    """Return a hash of the options that affect results."""
    return hashlib.blake2b(plain_json(sorted(decisive(config).items())).encode(), digest_size=8).hexdigest()


def other_writer(writer: Any, run: dict[str, Any]) -> str | None:
    """Return why a checkpoint of the run `writer` does not belong to the run `run`; None if it does."""
    if not isinstance(writer, dict) or not all(isinstance(writer.get(name), dict) for name in ("config", "hashes")):
        return "it does not say which run wrote it"
    there, here = writer["config"], run["config"]
    unset = object()  # differs from every value, also from null
    other = [key for key in {**here, **there} if there.get(key, unset) != here.get(key, unset)]
    if other:
        key = other[0]
        more = ""
        if len(other) > 1:
            more = f" (and {len(other) - 1} more)"
        return f"{key} was {_of(there, key)} when it was written and is {_of(here, key)} in config.yaml{more}"
    for name, value in writer["hashes"].items():
        if run["hashes"].get(name, value) != value:
            return f"it was written by a run whose {name} differs"
    if None not in (writer.get("parent"), run["parent"]) and writer["parent"] != run["parent"]:
        return "it was written by a run that began with other weights (init_from)"
    return None


def shown(value: Any) -> str:
    """Return an untrusted value in a few words."""
    return SHORT.repr(value)


def _of(config: dict[str, Any], key: str) -> str:
    if key in config:
        return shown(config[key])
    return "absent"


def _mapping(config: dict[str, Any], name: str) -> dict[str, Any]:
    value = config.get(name)
    if isinstance(value, dict):
        return value
    return {}
