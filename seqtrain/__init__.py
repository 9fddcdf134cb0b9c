"""seqtrain: recurrent networks and Transformers side by side, trained exactly."""

from seqtrain.api import Trained, load, train
from seqtrain.faults import Fault

__all__ = ["Fault", "Trained", "load", "train"]
