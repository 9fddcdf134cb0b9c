"""Runs with what they showed at validations: translations, predictions and confusion counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from seqtrain.data.values.fan import Fan, by_steps
from seqtrain.runs.directory import Run
from seqtrain.runs.shown import Confusion, write_confusion, write_samples
from tests.support import fake_runs

SENTENCES = {
    "die Katze saß auf der Matte .": "the cat sat on the mat .",
    "ich hätte gern eine Tasse Tee , bitte .": "i would like a cup of tea , please .",
    "wo ist der Bahnhof ?": "where is the station ?",
}
TRANSLATIONS = {
    "gru": ("the cat sat on mat .", "i want a cup of tea please .", "where is the train station ?"),
    "lstm": ("the dog sat on the mat .", "tea tea tea tea", ""),
}
LABELS = ("negative", "positive", "neutral")
COUNTS = ((40, 5, 1), (3, 60, 2), (0, 0, 0))


def sampled(run: Path, step: int, columns: Sequence[Mapping[str, str | float | bool]]) -> Path:
    """Adds samples of a step to a run; gives the run."""
    (run / "samples").mkdir(exist_ok=True)
    write_samples(Run(run), step, "as text", columns)
    return run


def confused(run: Path, step: int, labels: Sequence[str], counts: Sequence[Sequence[int]]) -> Path:
    """Adds confusion counts of a step to a run; gives the run."""
    (run / "plots").mkdir(exist_ok=True)
    write_confusion(Run(run), step, Confusion(tuple(labels), tuple(map(tuple, counts))))
    return run


def translations(folder: Path) -> Path:
    """Two translation runs, gru and lstm, with samples of steps 50 and 100; gives their folder."""
    for place, (model, written) in enumerate(TRANSLATIONS.items()):
        changes = fake_runs.TRANSLATION | {"model.dim": 64 * (place + 1), "model.heads": [1, 2][: place + 1]}
        run = fake_runs.run(folder / model, 20.0 + place, metric="bleu", model=model, config=changes)
        for step in (50, 100):
            rows = []
            for (source, reference), text in zip(SENTENCES.items(), written, strict=True):
                rows.append({"source": source, "reference": reference, "model": text if step == 100 else "early"})
            sampled(run, step, rows)
    return folder


def sentiments(folder: Path, seeds: int = 3) -> Path:
    """Sentiment runs with predictions and confusion counts; gives their folder."""
    task = {"task": {"_target_": "seqtrain.tasks.sentiment.Sentiment"}}
    for seed in range(1, seeds + 1):
        run = fake_runs.run(folder / str(seed), 0.8 + seed / 100, metric="accuracy", seed=seed, config=task)
        rows = []
        for text, label in (("a film as good as it gets", "positive"), ("a film as bad as it gets", "negative")):
            predicted = "positive" if seed == 2 else label
            right = predicted == label
            rows.append({"text": text, "label": label, "predicted": predicted, "probability": 0.93, "right": right})
        sampled(run, 50, rows)
        confused(run, 50, LABELS, COUNTS)
    return folder


def fan(middle: float, *, share: float | None = 0.8, title: str = "row 9: load") -> Fan:
    """A forecast of three steps around a value, after five values of which one is missing."""
    median = np.full(3, middle)
    bands = {}
    if share is not None:
        bands = {share: (median - 2, median + 2), share / 2: (median - 1, median + 1)}
    history = np.array([1.0, 2.0, np.nan, 3.0, 4.0])
    return by_steps(history, median, bands=bands, truth=np.array([5.0, np.nan, 23.0]), title=title)


def forecasts(folder: Path) -> Path:
    """Two runs that forecast, gru with intervals and lstm without; gives their folder."""
    for name, drawn in (("gru", fan(-0.8)), ("lstm", fan(20.0, share=None))):
        run = fake_runs.run(folder / name, 0.5, metric="mse", model=name)
        (run / "samples").mkdir(exist_ok=True)
        write_samples(Run(run), 50, "as text", [{"text": "row 9", "reference": "5", "forecast": "7"}], [drawn])
    return folder
