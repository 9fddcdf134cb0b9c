"""Split conformal intervals of point forecasts: their widths are quantiles of the errors on validation, by step ahead.

The coverage is guaranteed if errors on validation and on later rows are exchangeable (Vovk et al. 2005). Windows
overlap and series change, so the coverage is measured as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int

from seqtrain.data.batching.values import WindowBatch, Windows
from seqtrain.errors import UserError
from seqtrain.experiment.data import open_with_data
from seqtrain.tasks.forecast_heads import SHOWN_SHARES, ForecastDistribution

if TYPE_CHECKING:
    from seqtrain.data.preprocess import Rows
    from seqtrain.inference.opened import Opened
    from seqtrain.tasks.base import Say

TOGETHER = 256  # windows per batch

Widths = dict[float, Float[np.ndarray, "H C"]]
"""Half the width of the interval for each coverage, by step ahead and channel, in scaled values."""


@runtime_checkable
class ForecastsWindows(Protocol):
    """A task whose forecast of a window has parameters of a distribution."""

    streams: bool
    distribution: ForecastDistribution

    def params(self, model: Any, batch: WindowBatch, state: Any) -> tuple[torch.Tensor, Any]:
        """Return the scaled parameters of the forecasts of a batch, and the state after it."""
        ...


def intervals_of(path: str, checkpoint: str, say: Say) -> Widths:
    """Return the conformal intervals of a run, computed from its validation split.

    Raises:
        UserError: If the run does not make point forecasts from windows, or validation has too few origins.
    """
    opened, data = open_with_data(path, "validation", checkpoint, note=lambda line: None)
    found = np.abs(np.concatenate([error for error, _ in _errors(opened, data.rows["validation"])]))
    widths = {}
    for share in SHOWN_SHARES:
        width = _quantile(found, share)
        if width is not None:
            widths[share] = width
    if not widths:
        raise UserError(f"--intervals: validation has {len(found):,} origins, too few for any interval; enlarge it")
    shares = ", ".join(f"{share:.0%}" for share in widths)
    say(f"intervals of {shares}: conformal, from {len(found):,} origins of validation")
    return widths


def covered(opened: Opened, rows: Rows, widths: Widths) -> dict[str, dict[str, Any]]:
    """Measure intervals on a split.

    Returns:
        For each nominal coverage in percent, such as `80`: the measured `coverage`, `by_step` the coverage at each step
        ahead, and `width`, the mean width of the interval in units of the data.
    """
    parts = list(_errors(opened, rows))
    errors, std = (np.concatenate(each) for each in zip(*parts, strict=True))
    seen, found = ~np.isnan(errors), {}
    for share, width in widths.items():
        inside = (np.abs(errors) <= width) & seen
        found[f"{100 * share:.0f}"] = {
            "coverage": float(inside.sum() / seen.sum()),
            "by_step": (inside.sum((0, 2)) / np.maximum(seen.sum((0, 2)), 1)).tolist(),
            "width": float((2 * width * std[:, None]).mean()),
        }
    return found


def _quantile(errors: Float[np.ndarray, "N H C"], share: float) -> Float[np.ndarray, "H C"] | None:
    """Return the ceil((n + 1) share)-th smallest error of n by step and channel; None if any has too few errors."""
    counts = (~np.isnan(errors)).sum(0)
    ranks = np.ceil((counts + 1) * share - 1e-9).astype(np.int64)
    if (ranks > counts).any():
        return None
    # NaNs are sorted to the end, after every rank.
    return np.take_along_axis(np.sort(errors, axis=0), ranks[None] - 1, axis=0)[0]


@torch.no_grad()
def _errors(opened: Opened, rows: Rows) -> Iterator[tuple[Float[np.ndarray, "n H C"], Float[np.ndarray, "n C"]]]:
    """Yield the scaled errors of a split's windows, NaN where a value is missing, and the unit of each window."""
    task, config = opened.task, opened.config
    if not isinstance(task, ForecastsWindows) or task.streams:
        raise UserError("--intervals: works only for task=forecast without tbptt.carry; leave it out")
    if task.distribution.is_probabilistic:
        name = config.task.distribution
        raise UserError(f"--intervals: task.distribution={name} has its own intervals; leave it out")
    windows = opened.task.examples(  # type: ignore[attr-defined]
        rows, opened.preprocessor, max_length=config.data.max_length, seed=config.seed
    )
    assert isinstance(windows, Windows)
    for begin in range(0, len(windows.lengths), TOGETHER):
        index: Int[np.ndarray, " n"] = np.arange(begin, min(begin + TOGETHER, len(windows.lengths)))
        batch = windows.collate(index, 0, {})
        params, _ = task.params(opened.model, batch, None)
        errors = batch.targets.double() - task.distribution.median(params.double())
        yield errors[:, 0].numpy(), windows.reading.std[batch.series[:, 0].numpy()]
