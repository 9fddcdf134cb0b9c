"""Texts that can be read again, as the baselines take them."""

from __future__ import annotations

from seqtrain.data.corpus import text_hash
from seqtrain.tasks.baselines.counts import Text


def text_of(documents: list[str]) -> Text:
    """The text of these documents."""
    return Text(text_hash(documents), sum(len(document.encode()) for document in documents), lambda: iter(documents))
