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

# Keys that change no result: runs that differ only in these are the same variant.
NO_SETTINGS = {
    *("logger", "run_dir", "run", "dry_run", "data.workers", "data.eval_batch_size"),
    *("trainer.check_ranks_every", "trainer.checkpoint_every", "trainer.keep_last", "trainer.keep_best"),
    *("trainer.log_every", "trainer.profile"),
}
# Layout of a training on the machine: it changes seconds, and other numbers only by rounding.
LAYOUT = (
    *("trainer.accelerator", "trainer.devices", "trainer.num_nodes", "trainer.strategy", "trainer.accumulate"),
    *("trainer.threads", "data.workers"),
)
# Schedules whose rates do not depend on the planned length: with these, an extended run equals a longer one.
STEADY = ("constant", "inverse_sqrt", "plateau")
AUTO = "auto"  # value of an option that follows from the data
# The setting of runs whose limits were changed after they had begun.
EXTENDED = "extended"


def flattened(config: Mapping[str, Any], summary: Summary) -> dict[str, Any]:
    """Return the config by dotted key, without keys that change no result; a group is the name of its chosen option.

    An option that followed from the data is AUTO, whatever its resolved value.
    """
    settings: dict[str, Any] = {}
    for key, value in config.items():
        if key == "callbacks" and isinstance(value, dict):
            # Callbacks that only show things are dropped; others may end or change the training.
            value = {name: node for name, node in value.items() if not _only_shows(node)}
        _flatten(str(key), value, settings)
    # Folds may differ by a row, and so by a step, for the same request. A limit that was changed later stays a number.
    for key, followed in summary.from_data.items():
        if settings.get(key) == followed:
            settings[key] = AUTO
    # Older runs recorded the configured tokenizer, although `init_from` had replaced it.
    if settings.get("init_from") is not None and summary.lineage is None:
        for key in list(settings):
            if key.partition(".")[0] == "tokenizer":
                del settings[key]
    return settings


def deciding(entry: Entry, layout: Sequence[str] = ()) -> dict[str, Any]:
    """Return the settings that identify a run's variant: all but seed, fold, paths of data, and the layout.

    Args:
        entry: the run.
        layout: keys of LAYOUT, or `seed`, to include anyway.
    """
    found: dict[str, Any] = {}
    for key, value in entry.settings.items():
        if key in layout or not (key == "seed" or key in FOLD_KEYS or key in LAYOUT or is_path(key)):
            found[key] = value
    if found.get("init_from") is not None and entry.summary.parent is not None:
        # The parent's hash instead of its path: it stays when the run is moved, and changes when it is trained again.
        found["init_from"] = entry.summary.parent
    if is_extended(entry):
        found[EXTENDED] = tuple(map(str, entry.summary.extended))
    return found


def is_extended(entry: Entry) -> bool:
    """Return True if limits of a run were changed during training, so its learning rates match no other run's."""
    return bool(entry.summary.extended) and entry.settings.get("schedule") not in STEADY


def differing_keys(all_settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys in which these settings differ.

    A key that some settings lack counts as different, unless they cannot have it, like an option of another model.
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
    """Return the part of a key after its last dot."""
    return key.rpartition(".")[2]


def _lacked_alike(key: str, having: Sequence[Mapping[str, Any]], lacking: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if some settings lack a key that others with the same option of its group have."""
    group, *path = key.split(".")
    if group not in GROUPS:
        return bool(lacking)
    if path[:1] == ["options"]:  # of a mixer: settings without this mixer cannot have the key
        mixer = f"{group}.options.{path[1]}"
        lacking = [settings for settings in lacking if mixer in settings]
    options = {str(settings.get(group)) for settings in having}
    return any(str(settings.get(group)) in options for settings in lacking)


def _flatten(key: str, value: Any, settings: dict[str, Any]) -> None:
    """Add a config node, and all nodes below it, to the settings by dotted key."""
    group, _, word = key.rpartition(".")
    # A recommended value is already in its own key, and `_partial_` follows from the target.
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
    """Return True if a callback is switched off or changes no result."""
    return not isinstance(callback, dict) or str(callback.get("_target_")).startswith(SHOWING)
