"""A run before its training: the reference for an effect of training."""

from __future__ import annotations

from seqtrain.inference.opened import Opened
from seqtrain.training.model_and_task import make_pair


def untrained(opened: Opened) -> Opened:
    """Return the model and the task of a run with the initial weights of its seed, at step 0."""
    model, task = make_pair(opened.config, opened.preprocessor)
    return Opened(opened.run, opened.config, opened.preprocessor, model.eval(), task.eval(), 0)
