"""A plugin for pytest (`-p tests.support.shape_checks`): calls of models and of batching are held to their shapes.

It must be loaded before they are imported, so it stands for a run of its own: tests/models/test_shapes.py starts one.
Tasks are left out: beartype cannot read `Self` where methods are decorated one by one, as the hook does.
"""

from __future__ import annotations

from jaxtyping import install_import_hook

install_import_hook(["seqtrain.models", "seqtrain.data.batching"], "beartype.beartype")
