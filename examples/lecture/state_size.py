"""What a state of fixed size can hold: letters said again from the encoder's last state, for states of 8 to 64."""

from __future__ import annotations

from last_state import CHANCE, LENGTHS, SETTINGS, accuracy_by_length, written
from shared import COLORS, Bench, Result, Row, fmean, main, new_figure, paired, spread

CLAIM = "A state of fixed size holds only so many letters: a larger state holds more, and none holds all."
DIMS = (8, 16, 32, 64)
NUM_PER_LENGTH = 30  # sources of validation
STEPS = ("trainer.max_steps=500", "trainer.validate_every=500", "model.attention=none")


def run(bench: Bench) -> Result:
    """Train encoder-decoders without attention whose states differ in size; count the letters that they can repeat."""
    files, validation = written(bench, NUM_PER_LENGTH)
    held: dict[int, list[float]] = {dim: [] for dim in DIMS}
    rows: list[Row] = []
    figure = new_figure(6.5, 4)
    axes = figure.subplots()
    for color, dim in zip(COLORS, DIMS, strict=False):
        for seed in range(1, bench.seeds + 1):
            trained = bench.train(f"{dim}-{seed}", *SETTINGS, *files, *STEPS, f"model.dim={dim}", f"seed={seed}")
            curve = accuracy_by_length(trained, validation)
            letters = {length: length * max(0.0, (right - CHANCE) / (1 - CHANCE)) for length, right in curve.items()}
            held[dim].append(max(letters.values()))
            axes.plot(LENGTHS, list(letters.values()), color=color, label=f"state of {dim}" if seed == 1 else None)
        rows.append({"state": str(dim), "letters_held": spread(held[dim])})
    axes.plot(LENGTHS, LENGTHS, ":", color="black", label="all")
    axes.set(xlabel="letters of the source", ylabel="letters held", title="Letters right, less those of a guess")
    axes.legend(fontsize=8)
    return Result(rows, *judge(held), figure)


def judge(held: dict[int, list[float]]) -> tuple[str, bool | None]:
    """Return a verdict in words, and whether the largest state holds more than the smallest, and none holds all."""
    told = ", ".join(f"{dim} numbers {spread(values)}" for dim, values in held.items())
    judged = paired(held[DIMS[-1]], held[DIMS[0]])
    verdict = (
        f"letters held at the best length, less those that a guess would get, of at most {LENGTHS[-1]}: {told}. "
        f"State of {DIMS[-1]} minus state of {DIMS[0]}: {judged.words()}"
    )
    if max(fmean(values) for values in held.values()) > 0.95 * LENGTHS[-1]:
        return f"{verdict}; the largest state holds all, so longer sources are needed", None
    return verdict, None if judged.sign is None else judged.sign > 0


if __name__ == "__main__":
    main("state-size", CLAIM, run)
