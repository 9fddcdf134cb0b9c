"""seqtrain: recurrent networks and Transformers side by side, trained exactly."""

from seqtrain.api import Trained, compare, load, sweep, train
from seqtrain.errors import UserError
from seqtrain.measures import gradients, memory, profile, scale

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
