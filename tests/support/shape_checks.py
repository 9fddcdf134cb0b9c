"""A plugin for pytest (`-p tests.support.shape_checks`): calls of models, batching and tasks are held to their shapes.

It must be loaded before they are imported, so it stands for a run of its own: tests/models/test_shapes.py starts one.
"""

from __future__ import annotations

from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number stands for a float

install_import_hook(
    ["seqtrain.models", "seqtrain.data.batching", "seqtrain.tasks"], "tests.support.shape_checks.checked"
)
