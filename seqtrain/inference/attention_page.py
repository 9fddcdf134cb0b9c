"""Pages on which attention, or gates, are explored: one file each, no network."""

from __future__ import annotations

import json
from html import escape
from importlib import resources
from string import Template
from typing import Any


def page(title: str, note: str, data: str, template: str = "attention.html") -> str:
    """The page as text; `data` is JSON in which no `<` stands, as `as_data` gives it."""
    text = (resources.files("seqtrain.inference") / "assets" / template).read_text("utf-8")
    return Template(text).substitute(title=escape(title), note=escape(note), data=data)


def as_data(content: Any) -> str:
    """Plain values as JSON that may stand in a page."""
    # A "</script>" in a text must not end the script that holds it.
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
