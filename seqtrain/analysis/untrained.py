"""A run as it was before its training: what an effect of training is measured against."""

from __future__ import annotations

from seqtrain.inference.opened import Opened
from seqtrain.training.model_and_task import make_pair


def untrained(opened: Opened) -> Opened:
    """The model and the task of a run with the weights that its seed draws, at step 0."""
    model, task = make_pair(opened.config, opened.preprocessor)
    return Opened(opened.run, opened.config, opened.preprocessor, model.eval(), task.eval(), 0)
