"""seqtrain: recurrent networks and Transformers side by side, trained exactly."""

import sys

from seqtrain.api import Trained, compare, load, sweep, train
from seqtrain.errors import UserError
from seqtrain.measures import demo, gradients, memory, profile, scale
from seqtrain.runs.working_folder import shield_matplotlib

if sys.flags.safe_path:  # in a process that one of ours has started: where no module is taken from, no settings are
    shield_matplotlib()

__all__ = [
    "Trained",
    "UserError",
    "compare",
    "demo",
    "gradients",
    "load",
    "memory",
    "profile",
    "scale",
    "sweep",
    "train",
]
