"""seqtrain: recurrent networks and Transformers side by side, trained exactly."""

import sys

from seqtrain.api import Trained, compare, load, sweep, train
from seqtrain.errors import UserError
from seqtrain.measures import gradients, memory, profile, scale
from seqtrain.runs.working_folder import shield_matplotlib

if sys.flags.safe_path:  # in a process started by seqtrain: no modules or settings from the working folder
    shield_matplotlib()

__all__ = [
    "Trained",
    "UserError",
    "compare",
    "gradients",
    "load",
    "memory",
    "profile",
    "scale",
    "sweep",
    "train",
]
