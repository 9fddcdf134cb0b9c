"""The loss against k2, the tokens that a gradient reaches back, with the state carried and begun anew."""

from __future__ import annotations

from shared import COLORS, Bench, Numbers, Result, fmean, grid, main, new_figure, paired

CLAIM = "With the state carried a short k2 is enough; without it each doubling of k2 helps."
LENGTHS = (4, 16, 64)
TOKENS = 1024  # that a step reads, whatever k2: so steps, tokens and updates are equal
CUTS = ("carry", "windows")
COMMON = (
    *("task=next_token", "tokenizer=byte", "model=lstm", "model.dim=96", "optimizer.lr=0.006"),
    *("trainer.max_steps=400", "trainer.validate_every=400", "callbacks=none"),
)


def run(bench: Bench) -> Result:
    """Train with each k2, with the state carried from chunk to chunk, and with windows that begin from nothing."""
    variants = {
        f"{cut} {k2}": (f"tbptt={cut}", f"tbptt.k2={k2}", f"data.batch_size={TOKENS // k2}")
        for cut in CUTS
        for k2 in LENGTHS
    }
    rows, bits = grid(bench, variants, COMMON, lambda run: run.metrics["validation"]["bits_per_byte"])
    figure = new_figure(6, 3.6)
    axes = figure.subplots()
    for color, cut in zip(COLORS, CUTS, strict=False):
        axes.semilogx(LENGTHS, [fmean(bits[f"{cut} {k2}"]) for k2 in LENGTHS], "-", color=color, label=cut, base=2)
        for k2 in LENGTHS:
            values = bits[f"{cut} {k2}"]
            axes.plot([k2] * len(values), values, "o", color=color, alpha=0.6)
    axes.set(xlabel="k2 in bytes", ylabel="bits per byte", title="Loss against k2, at equal tokens and updates")
    axes.legend(fontsize=8)
    return Result(rows, *judge(bits), figure)


def judge(bits: Numbers) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether the claim holds: carried, the shortest k2 loses less than windows do."""
    told = "; ".join(
        f"{cut}: " + ", ".join(f"{fmean(bits[f'{cut} {k2}']):.3f} at k2={k2}" for k2 in LENGTHS) for cut in CUTS
    )
    shortest, longest = LENGTHS[0], LENGTHS[-1]
    carried = paired(bits[f"windows {shortest}"], bits[f"carry {shortest}"], comparisons=3)
    gains = {cut: paired(bits[f"{cut} {shortest}"], bits[f"{cut} {longest}"], comparisons=3) for cut in CUTS}
    verdict = (
        f"bits per byte: {told}. Carrying the state at k2={shortest} gains {carried.words()}. "
        f"k2={longest} instead of {shortest} gains {gains['windows'].words()} in windows, "
        f"and {gains['carry'].words()} with the state carried"
    )
    if carried.sign is None or gains["windows"].sign is None:
        return verdict, None
    return verdict, carried.sign > 0 and gains["windows"].sign > 0 and gains["carry"].mean < gains["windows"].mean


if __name__ == "__main__":
    main("truncation", CLAIM, run)
