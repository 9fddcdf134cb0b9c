"""The groups of a configuration, and their options that belong to no target."""

from __future__ import annotations

import re

from seqtrain.config.options import AdapterOptions, Batching, FrontEndOptions, Labels, RunOptions, TrainerOptions
from seqtrain.config.signatures import Option, signature

# Groups that contain one target.
GROUPS = ("task", "data", "model", "tokenizer", "tbptt", "optimizer", "schedule")

# Groups that contain any number of named targets, or null.
ENTRIES = ("logger", "callbacks")

# Groups whose files set values in any group. The last one wins, in the order of conf/train.yaml.
GLOBAL = ("experiment", "debug")

# Word boundaries for option names: MinGRU becomes min_gru, and AdamW adamw.
WORD_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z]\w)|(?<=[A-Z])(?=[A-Z][a-z])")

# Classes with the options of a group that belong to no target.
OWN = {
    **{"": RunOptions, "trainer": TrainerOptions, "data": Batching, "model": FrontEndOptions},
    **{"run": Labels, "adapter": AdapterOptions},
}

# Groups that a run may lack: `run` in older runs, `adapter` in most runs.
OPTIONAL = ("run", "adapter")

# Keys that are not options: Hydra's, and a model's recommended defaults.
RESERVED = re.compile(r"_(target|partial|convert|recursive)_$|_recommend_")


# Option names that do not follow that rule, by class name.
CALLED = {"DLinear": "dlinear", "ELMo": "elmo", "GRUD": "gru_d", "NoText": "none"}


def option_name(target: str) -> str:
    """Return the option name of a target: min_gru for a.b.MinGRU, adamw for torch.optim.AdamW."""
    name = target.rpartition(".")[2]
    return CALLED.get(name) or WORD_ENDS.sub("_", name).lower()


def own_options(group: str) -> dict[str, Option]:
    """Return the options of a group ("": the top level) that belong to no target, by name."""
    if group not in OWN:
        return {}
    taken = signature(f"seqtrain.config.options.{OWN[group].__name__}")
    assert taken is not None  # our own class, with source
    return taken.options
