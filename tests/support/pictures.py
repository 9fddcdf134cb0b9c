"""The smallest picture that is one, and the figures that a test has written."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415478da63f8cfc00000030101"
    "00c9fe92ef0000000049454e44ae426082"
)


def saved_figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved from here on."""
    found: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: Any, **options: Any) -> None:
        save(figure, *args, **options)
        found.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)
    return found
