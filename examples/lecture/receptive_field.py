"""How many tokens a convolution sees, by its gradient: dilated it grows with 2^layers, plain with the layers."""

from __future__ import annotations

import seqtrain
from shared import COLORS, Bench, Result, Row, main, new_figure

CLAIM = "L layers of dilated convolutions see about 2^L tokens, so a path through T tokens takes log T layers."
KERNEL = 3
LAYERS = range(1, 7)
WORDS = ("model=cnn", "model.dim=16", "tokenizer=byte", "tbptt.k2=320", f"model.kernel_size={KERNEL}")


def run(bench: Bench) -> Result:
    """Measure how far the gradient of an untrained CNN reaches; compare with the formula."""
    rows: list[Row] = []
    for layers in LAYERS:
        formula = 1 + 2 * (KERNEL - 1) * (2**layers - 1)  # two convolutions a layer, and layer i skips 2^i tokens
        reached = 0
        for seed in range(1, bench.seeds + 1):
            words = (*WORDS, f"model.num_layers={layers}", f"seed={seed}")
            found = seqtrain.gradients(*words, whole=True, distance=formula + 20, samples=2)["models"]["untrained"]
            pairs = zip(found["distance"], found["norm"][0], strict=True)
            reached = max(reached, *(1 + distance for distance, norm in pairs if norm))  # the token itself counts, too
        rows.append({"layers": str(layers), "tokens_seen": reached, "formula": formula})
    figure = new_figure(6, 3.6)
    axes = figure.subplots()
    axes.semilogy(
        LAYERS, [float(row["tokens_seen"]) for row in rows], "o", color=COLORS[0], label="measured: gradient not 0"
    )
    axes.semilogy(
        LAYERS, [float(row["formula"]) for row in rows], "--", color=COLORS[0], label="1 + 2 (k - 1) (2^L - 1)"
    )
    plain = [1 + 2 * (KERNEL - 1) * layers for layers in LAYERS]
    axes.semilogy(LAYERS, plain, ":", color=COLORS[1], label="without dilation: 1 + 2 (k - 1) L")
    axes.set(xlabel="layers L", ylabel="tokens that one output sees", title=f"Receptive field, kernel k = {KERNEL}")
    axes.legend(fontsize=8)
    holds = all(row["tokens_seen"] == row["formula"] for row in rows)
    seen = ", ".join(str(row["tokens_seen"]) for row in rows)
    verdict = f"1 to {LAYERS[-1]} layers see {seen} tokens; by the formula " + (
        "the same" if holds else ", ".join(str(row["formula"]) for row in rows)
    )
    return Result(rows, verdict, holds, figure)


if __name__ == "__main__":
    main("receptive-field", CLAIM, run)
