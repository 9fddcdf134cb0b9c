"""Copies of a data set of the UCR archive of which values are missing: python -m benchmarks.missing_values FOLDER OUT.

A share of the values is taken out completely at random, from train and test alike. OUT/NAME30 and OUT/NAME70 have `?`
there; in OUT/NAME30filled and OUT/NAME70filled the last value that was seen in the channel stands instead.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float

from seqtrain.data.sources.ucr import Table, read_table

SHARES = (30, 70)  # percent
SEED = 0


def filled(values: Float[np.ndarray, "T C"]) -> Float[np.ndarray, "T C"]:
    """Return values with the last one that was seen where one is missing; before the first one they stay missing."""
    time = np.arange(len(values))[:, None]
    last = np.maximum.accumulate(np.where(np.isnan(values), -1, time))
    return np.where(last < 0, np.nan, np.take_along_axis(values, np.maximum(last, 0), 0))


def write(path: Path, table: Table, series: list[Float[np.ndarray, "T C"]]) -> None:
    """Write series with the labels of `table` as a .ts file."""
    lines = [f"@classLabel true {' '.join(sorted(set(table.labels)))}", "@data"]
    for values, label in zip(series, table.labels, strict=True):
        channels = (",".join("?" if np.isnan(x) else repr(float(x)) for x in each) for each in values.T)
        lines.append(":".join([*channels, label]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Write the copies of a data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    generator = np.random.default_rng(SEED)
    for split in ("TRAIN", "TEST"):
        table = read_table(options.folder / f"{options.folder.name}_{split}.ts")
        whole = [table.series.values[begin:end] for begin, end in pairwise(table.series.offsets)]
        for share in SHARES:
            series = []
            for values in whole:
                is_missing = generator.random(values.shape) < share / 100
                is_missing[0, 0] &= not is_missing.all()  # a series keeps one value
                series.append(np.where(is_missing, np.nan, values))
            for suffix, found in (("", series), ("filled", [filled(values) for values in series])):
                name = f"{options.folder.name}{share}{suffix}"
                write(options.out / name / f"{name}_{split}.ts", table, found)


if __name__ == "__main__":
    main()
