"""The page on which maps of attention are explored: one file, no network."""

from __future__ import annotations

from html import escape
from importlib import resources
from string import Template


def page(title: str, note: str, data: str) -> str:
    """The page as text; `data` is JSON in which no `<` stands."""
    template = (resources.files("seqtrain.inference") / "assets" / "attention.html").read_text("utf-8")
    return Template(template).substitute(title=escape(title), note=escape(note), data=data)
