"""A pronoun that a later word decides: models that read both ways against models that read from left to right."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seqtrain import Trained
from seqtrain.training.data import make_source
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
SENTENCES = 200  # of validation: half to choose a head, half to measure it


def run(bench: Bench) -> Result:
    """Train each model on the sentences, and measure how many pronouns it reads right."""
    looks: list[float] = []

    def measure(run: Trained) -> float:
        if "model=bert" in run.summary["command"]:
            looks.append(look(run))
        return run.metrics["validation"]["accuracy"]  # where each sentence stands beside its twin

    rows, accuracy = grid(bench, CAUSAL | ONE_LAYER | BOTH_WAYS, (*COMMON, "callbacks=none"), measure)
    figure = new_figure(7, 2.6)
    axes = figure.subplots()
    dots(axes, accuracy)
    axes.axvline(CHANCE, linestyle=":", color="black")
    axes.set(
        xlim=(0.4, 1.02), xlabel="pronouns read right (dotted: a guess)", title="The word behind the pronoun decides"
    )
    verdict, holds = judge(accuracy)
    found = ", ".join(f"{share:.0%}" for share in looks)
    verdict += f". Sentences in which the encoder's best head looks from the pronoun at the word that decides: {found}"
    return Result(rows, verdict, holds, figure)


def look(run: Trained) -> float:
    """Return how often the best head looks most at the deciding word, on other sentences than it was chosen on."""
    begin = len(run.task.edges(run.tokenizer)[0])  # tokens before a text
    found = []
    for row in list(make_source(run.opened.config).rows("validation"))[:SENTENCES]:
        words = row["text"].split()
        weights = torch.stack([layer.weights for layer in run.attention(row["text"])])[:, :, begin + words.index("it")]
        found.append(weights.argmax(-1).flatten() == begin + words.index("too") + 1)  # of each head of each layer
    chosen_on, measured_on = torch.stack(found).double().chunk(2)
    return measured_on[:, chosen_on.mean(0).argmax()].mean().item()


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
