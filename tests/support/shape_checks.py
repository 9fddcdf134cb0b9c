"""A plugin for pytest (`-p tests.support.shape_checks`): calls of models are held to the shapes that they declare.

It must be loaded before they are imported, so it stands for a run of its own: tests/models/test_shapes.py starts one.
Tasks and batching are left out: beartype cannot read `Self` where methods are decorated one by one, as the hook does.
"""

from __future__ import annotations

from jaxtyping import install_import_hook

install_import_hook("seqtrain.models", "beartype.beartype")
