"""Synthetic series with a daily and a weekly season, a trend, noise, and stretches of missing values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from seqtrain.data.sources.series import SeriesSource
from seqtrain.data.values.series import Clock, Series

HOUR = 3600  # seconds
START = 1704067200  # the first hour of 2024
DAY, WEEK = 24, 168  # hours
KEPT = 0.8  # fraction of the previous hour's noise that is carried over
LONGEST_GAP = 24  # hours


@dataclass(kw_only=True, eq=False)
class Seasonal(SeriesSource):
    """Hourly series of one column each, drawn from a seed; each has its own seasons, trend and noise.

    The noise is autocorrelated from hour to hour, so the newest values help to predict the next ones.

    Attributes:
        size: Number of series.
        length: Hours of each series.
        noise: Standard deviation of the noise; the daily season has an amplitude of 1.
        missing_share: Approximate fraction of the hours without a value, in stretches of up to a day.
        seed: Seed of all random choices.
    """

    size: int = 4
    length: int = 2000
    noise: float = 0.3
    missing_share: float = 0.05
    seed: int = 0

    def describe(self) -> dict[str, Any]:
        return {"source": "seasonal", "seed": self.seed, "series": self.size, "length": self.length}

    def read(self) -> Series:
        hours = np.arange(self.length)
        values = []
        for number in range(self.size):
            # A generator for each series: a larger size does not change the first series.
            values.append(self._draw(np.random.Generator(np.random.PCG64([self.seed, number])), hours))
        return Series(
            values=np.concatenate(values)[:, None],
            known=np.zeros((self.size * self.length, 0)),
            times=np.tile(START + HOUR * hours, self.size),
            offsets=np.arange(self.size + 1) * self.length,
            names=tuple(f"series {number}" for number in range(self.size)),
            columns=("value",),
            clock=Clock(None, "%Y-%m-%d %H:%M:%S"),
        )

    def _draw(self, generator: np.random.Generator, hours: np.ndarray) -> np.ndarray:
        """Return the values (length,) of one series."""
        # Phases differ; otherwise the time alone would determine the season of every series.
        phase = generator.uniform(0, 2 * np.pi, 2)
        daily = np.sin(2 * np.pi * hours / DAY + phase[0])
        weekly = 0.5 * np.sin(2 * np.pi * hours / WEEK + phase[1])
        trend = generator.uniform(-0.5, 0.5) * hours / self.length
        values = daily + weekly + trend + generator.uniform(9, 11)
        # With this factor the standard deviation of the autocorrelated noise is `noise`.
        draws = generator.standard_normal(self.length) * self.noise * np.sqrt(1 - KEPT**2)
        noise = 0.0
        for hour, draw in enumerate(draws):
            noise = KEPT * noise + draw
            values[hour] += noise
        to_remove = int(self.missing_share * self.length)
        while to_remove > 0:
            gap = min(int(generator.integers(1, LONGEST_GAP + 1)), to_remove)
            # Gaps may overlap, so the share is approximate. The first hour always has a value.
            begin = int(generator.integers(1, max(self.length - gap, 2)))
            values[begin : begin + gap] = np.nan
            to_remove -= gap
        return values
