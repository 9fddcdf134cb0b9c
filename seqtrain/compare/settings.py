"""The settings of a run: the part of its config, and of its summary, that changes the resulting numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seqtrain.compare.folds import KEYS as FOLD_KEYS
from seqtrain.config.groups import GROUPS, option_name
from seqtrain.runs.identity import SHOWING
from seqtrain.runs.summary import Summary

if TYPE_CHECKING:
    from seqtrain.compare.entries import Entry

# What of a config changes no number: runs that differ in nothing else are the same variant.
NO_SETTINGS = {
    *("logger", "run_dir", "run", "dry_run", "data.workers", "data.eval_batch_size"),
    *("trainer.check_ranks_every", "trainer.checkpoint_every", "trainer.keep_last", "trainer.keep_best"),
    *("trainer.log_every", "trainer.profile"),
}
# How a training is laid out over a machine: it changes seconds, and of other numbers no more than their rounding.
LAYOUT = (
    *("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy", "trainer.accumulate"),
    *("trainer.threads", "data.workers"),
)
# Schedules whose rates do not depend on how long a run is planned: of these an extended run equals a longer one.
STEADY = ("constant", "inverse_sqrt", "plateau")
AUTO = "auto"  # the setting of an option that follows from the data
# The setting that says that the limits of a run were changed after it had begun.
EXTENDED = "extended"


def flattened(config: Mapping[str, Any], summary: Summary) -> dict[str, Any]:
    """Return the config by dotted key, without keys that change no number; `model` and its like are the options chosen.

    An option that followed from the data is AUTO, whatever number it became.
    """
    settings: dict[str, Any] = {}
    for key, value in config.items():
        if key == "callbacks" and isinstance(value, dict):
            # These only show what happens; others may end the training or change it.
            value = {name: node for name, node in value.items() if not _only_shows(node)}
        _flatten(str(key), value, settings)
    # Folds differ by a row, and so by a step: asked for was the same. A limit that was changed later stays a number.
    for key, followed in summary.from_data.items():
        if settings.get(key) == followed:
            settings[key] = AUTO
    # Older runs wrote the tokenizer that was configured, while `init_from` had brought another one.
    if settings.get("init_from") is not None and summary.lineage is None:
        for key in list(settings):
            if key.partition(".")[0] == "tokenizer":
                del settings[key]
    return settings


def deciding(entry: Entry, layout: Sequence[str] = ()) -> dict[str, Any]:
    """Return the settings that identify a run's variant: all but seed, fold, paths of data, and the layout.

    Args:
        entry: the run.
        layout: keys of LAYOUT, or `seed`, that count all the same.
    """
    found: dict[str, Any] = {}
    for key, value in entry.settings.items():
        if key in layout or not (key == "seed" or key in FOLD_KEYS or key in LAYOUT or is_path(key)):
            found[key] = value
    if found.get("init_from") is not None and entry.summary.parent is not None:
        # Whose weights, by their hash: a run that was moved has the same ones, one that was trained anew has others.
        found["init_from"] = entry.summary.parent
    if is_extended(entry):
        found[EXTENDED] = tuple(map(str, entry.summary.extended))
    return found


def is_extended(entry: Entry) -> bool:
    """Return True if limits of a run were changed on the way, so that no other run has its learning rates."""
    return bool(entry.summary.extended) and entry.settings.get("schedule") not in STEADY


def differing_keys(all_settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys in which these settings differ.

    A key that some settings lack differs, unless they cannot have it, such as an option of another model.
    """
    found = []
    keys: dict[str, None] = {}  # each once, in the order of the runs
    for settings in all_settings:
        keys |= dict.fromkeys(settings)
    for key in keys:
        values, having, lacking = set(), [], []
        for settings in all_settings:
            if key in settings:
                having.append(settings)
                values.add(repr(settings[key]))
            else:
                lacking.append(settings)
        if len(values) > 1 or _lacked_alike(key, having, lacking):
            found.append(key)
    return found


def is_path(key: str) -> bool:
    """Return True if a key is a path of data; the data itself is compared by its hash."""
    return key.startswith("data.") and (key.endswith("path") or key.startswith("data.test_paths"))


def last_word(key: str) -> str:
    """Return the part of a key behind its last dot."""
    return key.rpartition(".")[2]


def _lacked_alike(key: str, having: Sequence[Mapping[str, Any]], lacking: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if some settings lack a key although their option of its group has it."""
    group, *path = key.split(".")
    if group not in GROUPS:
        return bool(lacking)
    if path[:1] == ["options"]:  # of a mixer, which the others may not have: model.mixers says so
        mixer = f"{group}.options.{path[1]}"
        lacking = [settings for settings in lacking if mixer in settings]
    options = {str(settings.get(group)) for settings in having}
    return any(str(settings.get(group)) in options for settings in lacking)


def _flatten(key: str, value: Any, settings: dict[str, Any]) -> None:
    """Add a node of a config, and all below it, to the settings by dotted key."""
    group, _, word = key.rpartition(".")
    # What a YAML recommends has become a value of its own; whether a target is partial follows from the target.
    if key in NO_SETTINGS or word in ("_recommend_", "_partial_"):
        return
    if isinstance(value, Mapping):
        for below, inner in value.items():
            _flatten(f"{key}.{below}", inner, settings)
    elif word == "_target_" and group in GROUPS:
        settings[group] = option_name(str(value))
    else:
        settings[key] = _number_alike(value)


def _number_alike(value: Any) -> Any:
    """Return the value with whole numbers as int: `dropout=0` and `dropout=0.0` are one setting."""
    if isinstance(value, list):
        return [_number_alike(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _only_shows(callback: Any) -> bool:
    """Return True if a callback is switched off or changes no number."""
    return not isinstance(callback, dict) or str(callback.get("_target_")).startswith(SHOWING)
