"""Colours and lines of curves and titles of axes: for the page, which imports them, and for figures in notebooks."""

from __future__ import annotations

from seqtrain.compare.entries import Axis

AXES: dict[Axis, str] = {
    "steps": "optimiser steps",
    "tokens": "training tokens",
    "seconds": "training time (s)",
    "flops": "training FLOPs",
}
PALETTES = {
    "light": ["#0072b2", "#d55e00", "#009e73", "#aa4a8a", "#56b4e9", "#b8860b"],
    "dark": ["#56b4e9", "#ff8c42", "#2cc995", "#e08fc0", "#f0e442", "#c3c9d4"],
}
DASHES = ["solid", "dash", "dot", "dashdot"]
SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star"]
MOST_STYLES = len(PALETTES["light"]) * len(DASHES)  # further variants are grey
WORDS = {
    "tokens_per_second": "tokens per second",
    "lr": "learning rate",
    "gradient_norm": "gradient norm",
    "cpu_percent": "CPU (%; 100: one core is busy)",
    "memory_mb": "memory (MB)",
    "gpu_percent": "GPU (%)",
    "gpu_memory_mb": "GPU memory (MB)",
}

# What the page is given of it.
PLAIN = {"axes": AXES, "palettes": PALETTES, "dashes": DASHES, "symbols": SYMBOLS, "words": WORDS}
