"""seqtrain: recurrent networks and Transformers side by side, trained exactly."""

from seqtrain.api import Trained, compare, gradients, load, memory, profile, scale, sweep, train
from seqtrain.errors import UserError

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
