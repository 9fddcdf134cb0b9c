"""A run that was opened, written as an export: what `seqtrain export` and loggers that send models hand on."""

from __future__ import annotations

from pathlib import Path

from seqtrain.inference.opened import Opened
from seqtrain.runs import export


def write_export(opened: Opened, target: Path) -> None:
    """Write the weights, the config and the tokenizers to a new folder `target`, completely or not at all.

    Raises:
        UserError: `target` exists, or cannot be written.
    """
    # One flat file: the names of the two modules keep their parameters apart.
    weights = {}
    for name, module in (("model", opened.model), ("task", opened.task)):
        for key, value in module.state_dict().items():
            weights[f"{name}.{key}"] = value
    export.write(opened.run, opened.preprocessor, weights, opened.step, target)
