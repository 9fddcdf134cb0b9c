"""The groups of a configuration: their contents, and their options that no target takes."""

from __future__ import annotations

import re

from seqtrain.config.options import AdapterOptions, Batching, FrontEndOptions, Labels, RunOptions, TrainerOptions
from seqtrain.config.signatures import Option, signature

# Groups that are one target, which says what was chosen.
GROUPS = ("task", "data", "model", "tokenizer", "tbptt", "optimizer", "schedule")

# Groups that hold any number of named targets, or null.
ENTRIES = ("logger", "callbacks")

# Groups whose files set values anywhere. The last one wins, as conf/train.yaml lists them.
GLOBAL = ("experiment", "debug")

# The names of options: MinGRU and AdamW are written min_gru and adamw.
WORD_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z]\w)|(?<=[A-Z])(?=[A-Z][a-z])")

# Options of a group that no target takes.
OWN = {
    **{"": RunOptions, "trainer": TrainerOptions, "data": Batching, "model": FrontEndOptions},
    **{"run": Labels, "adapter": AdapterOptions},
}

# Groups that a run may lack: older ones do, and of adapters most.
OPTIONAL = ("run", "adapter")

# Keys that are no options: Hydra's, and what a model recommends.
RESERVED = re.compile(r"_(target|partial|convert|recursive)_$|_recommend_")


# Names of classes that are not written as the others are.
CALLED = {"DLinear": "dlinear", "ELMo": "elmo", "GRUD": "gru_d", "NoText": "none"}


def option_name(target: str) -> str:
    """Return the name by which a target is chosen: a.b.MinGRU is min_gru, torch.optim.AdamW adamw."""
    name = target.rpartition(".")[2]
    return CALLED.get(name) or WORD_ENDS.sub("_", name).lower()


def own_options(group: str) -> dict[str, Option]:
    """Return the options of a group ("": the top level) that no target takes, by name."""
    if group not in OWN:
        return {}
    taken = signature(f"seqtrain.config.options.{OWN[group].__name__}")
    assert taken is not None  # it is a class of ours, whose source is there
    return taken.options
