"""The gradient of an LSTM reaches farther than that of a tanh RNN of equal width, trained on the copying task."""

from __future__ import annotations

import math

import seqtrain
from shared import COLORS, Bench, Result, Row, main, new_figure

CLAIM = "The gradient of a trained LSTM reaches at least three times as far as a tanh RNN's of the same width."
MODELS = {"rnn": ("model=rnn",), "lstm": ("model=lstm", "model.forget_bias=3")}  # open gates learn to hold sooner
ALPHABET = 16  # symbols, all as frequent
TRAINING = (
    *("task=tag", "data=copy", "data.size=4000", "data.validation_size=200", "data.test_size=200"),
    *("data.shortest=40", "data.longest=40", "data.symbols=3", f"data.alphabet={ALPHABET}", "data.batch_tokens=2048"),
    *("model.dim=48", "trainer.max_steps=1600", "trainer.validate_every=400"),
    *("callbacks=none", "trainer.threads=1"),
)
LAG = 43  # tokens between a symbol and its question: three symbols, forty blanks
TIMES = 3.0  # how much farther the LSTM's gradient reaches, where the claim holds
LEARNT = 0.95  # share of the symbols


def run(bench: Bench) -> Result:
    """Train both models, and measure the gradient of each answer's loss by distance, before and after training."""
    rows: list[Row] = []
    figure = new_figure(8, 4)
    axes = figure.subplots()
    for color, (name, words) in zip(COLORS, MODELS.items(), strict=False):
        for seed in range(1, bench.seeds + 1):
            trained = bench.train(f"{name}-{seed}", *TRAINING, *words, f"seed={seed}")
            for weights, found in seqtrain.gradients(trained.directory, samples=3)["models"].items():
                norms = [math.nan if norm is None else norm for norm in found["norm_with_path"][0]]
                decay = found["decay"]
                # One seed is drawn: three times four lines could not be told apart.
                if seed == 1:
                    style = "-" if weights == "trained" else "--"
                    axes.plot(found["distance"], norms, style, color=color, label=f"{name}, {weights}")
                row: Row = {"model": name, "seed": seed, "weights": weights}
                for key in ("faded", "half_life"):
                    row[key] = "none" if decay[key] is None else float(decay[key])
                # The trained LSTM's curve is a U: below half soon, above it again at the symbol: it has no half-life.
                above = [j for j, norm in zip(found["distance"], norms, strict=True) if norm >= decay["at_start"] / 2]
                row |= {"last_above_half": float(max(above)), "rate": decay["rate"], "r2": decay["r2"]}
                best = trained.summary["best"]["validation"]["accuracy"]
                rows.append(row | {"accuracy": best if weights == "trained" else "-"})
    axes.axvline(LAG, color="black", linewidth=1, linestyle=":", label=f"{LAG} tokens: the symbol that is asked for")
    axes.set(
        yscale="log",
        xlabel="distance j in tokens",
        ylabel="norm of d loss_t / d x_(t-j)",
        title="Gradients of the copying task (dashed: untrained)",
    )
    axes.legend(fontsize=8)
    return Result(rows, *judge(rows), figure)


def judge(rows: list[Row]) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether the claim holds; None if the LSTM has not learnt the task.

    The least favourable seeds count: the RNN's longest reach and the LSTM's shortest.
    """
    reach = {}
    for model, worst in (("rnn", max), ("lstm", min)):
        for weights in ("trained", "untrained"):
            own = [row["faded"] for row in rows if (row["model"], row["weights"]) == (model, weights)]
            reach[model, weights] = worst(math.inf if faded == "none" else float(faded) for faded in own)
    trained = [row for row in rows if row["weights"] == "trained"]
    halves = "; ".join(half_life(row) for row in trained if row["seed"] == 1)
    learnt = min(float(row["accuracy"]) for row in trained if row["model"] == "lstm")
    guessed = max(float(row["accuracy"]) for row in trained if row["model"] == "rnn")
    shorter, longer = reach["rnn", "trained"], reach["lstm", "trained"]
    # Untrained gradients stand beside them, since open gates hold before anything is learnt.
    verdict = (
        f"the gradient falls below a thousandth of its start after training: RNN {tokens(shorter)}, LSTM "
        f"{tokens(longer)}. Before training: RNN {tokens(reach['rnn', 'untrained'])}, LSTM "
        f"{tokens(reach['lstm', 'untrained'])}, for its gates begin open. Half-life after training: {halves}. "
        f"Asked for a symbol {LAG} tokens back, the LSTM is right in {learnt:.1%}, the RNN in "
        f"{guessed:.1%} (a guess: {1 / ALPHABET:.1%})"
    )
    return verdict, longer >= TIMES * shorter if learnt >= LEARNT and math.isfinite(shorter) else None


def half_life(row: Row) -> str:
    """Format a model's half-life, or say where its gradient is last above half of its start."""
    name = str(row["model"]).upper()
    if row["half_life"] != "none":
        return f"{name} {row['half_life']:.3g} tokens"
    return f"{name} none, its gradient is above half of its start at {row['last_above_half']:.0f} tokens"


def tokens(distance: float) -> str:
    """Format a distance in tokens, which may be infinite."""
    return "at no measured distance" if math.isinf(distance) else f"at {distance:.0f} tokens"


if __name__ == "__main__":
    main("half-life", CLAIM, run)
