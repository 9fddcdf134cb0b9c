"""A pronoun that a later word decides: models that read both ways against models that read from left to right."""

from __future__ import annotations

from collections.abc import Sequence

from seqtrain import Trained
from shared import Bench, Numbers, Result, dots, fmean, grid, main, new_figure

CLAIM = "What a later word decides, a model that reads both ways learns; one that reads from left to right guesses."
LSTM, LONG = "model=lstm", ("trainer.max_steps=1000", "trainer.validate_every=1000")  # Transformers need fewer steps
SHORT = ("trainer.max_steps=250", "trainer.validate_every=250", "optimizer.lr=0.003")
CAUSAL: dict[str, Sequence[str]] = {
    "LSTM, left to right": (LSTM, *LONG, "model.num_layers=2"),
    "decoder (gpt)": ("model=gpt", *SHORT, "model.num_layers=2"),
}
# What is said of both sides by one layer is only added up; a layer above can weigh one by the other.
ONE_LAYER: dict[str, Sequence[str]] = {"LSTM, both ways, 1 layer": (LSTM, *LONG, "model.bidirectional=true")}
BOTH_WAYS: dict[str, Sequence[str]] = {
    "LSTM, both ways": (LSTM, *LONG, "model.num_layers=2", "model.bidirectional=true"),
    "encoder (bert)": ("model=bert", *SHORT),
}
COMMON = ("task=tag", "data=pronoun", "model.dim=64")
CHANCE = 0.5  # of two nouns
LEARNT = 0.99


def run(bench: Bench) -> Result:
    """Train each model on the sentences, and measure how many pronouns it reads right."""
    rows, accuracy = grid(bench, CAUSAL | ONE_LAYER | BOTH_WAYS, (*COMMON, "callbacks=none"), measure)
    figure = new_figure(7, 2.6)
    axes = figure.subplots()
    dots(axes, accuracy)
    axes.axvline(CHANCE, linestyle=":", color="black")
    axes.set(
        xlim=(0.4, 1.02), xlabel="pronouns read right (dotted: a guess)", title="The word behind the pronoun decides"
    )
    return Result(rows, *judge(accuracy), figure)


def measure(run: Trained) -> float:
    """Return the accuracy of a run on validation, where each sentence stands beside its twin."""
    return run.metrics["validation"]["accuracy"]


def judge(accuracy: Numbers) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether the claim holds; None if a model that could has not learnt it."""
    causal = [value for name in CAUSAL for value in accuracy[name]]
    both = [value for name in BOTH_WAYS for value in accuracy[name]]
    words = ", ".join(f"{name} {fmean(values):.3f}" for name, values in accuracy.items())
    verdict = f"pronouns read right, mean over {len(causal) // len(CAUSAL)} seeds: {words}; a guess: {CHANCE}"
    if any(value != CHANCE for value in causal):
        return f"{verdict}. A causal model is not exactly at chance, against theory", False
    return verdict, True if min(both) >= LEARNT else None


if __name__ == "__main__":
    main("both-ways", CLAIM, run)
