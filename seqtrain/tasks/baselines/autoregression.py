"""Linear autoregression by least squares: each value is a weighted sum of earlier values, fitted in closed form.

The normal equations are summed up while a series is read, so that memory does not grow with its length.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from seqtrain.errors import UserError, first_few

Block = tuple[Hashable, Float[np.ndarray, "_ C"]]
"""The id of a series and its next rows. Blocks of a series are consecutive and in the order of time."""

MAX_VALUES = 2**21  # numbers of windows in memory at once: 16 MiB in float64


def windows(blocks: Iterable[Block], length: int, *, skip: int = 0) -> Iterator[Float[np.ndarray, "_ C {length}"]]:
    """Yield all windows of `length` rows in order, several at a time. No window spans two series.

    Args:
        blocks: The series.
        length: Number of rows of a window.
        skip: Number of rows at the start of each series that are left out.
    """
    current: Hashable = object()  # equal to no id
    tail = np.empty((0, 0))
    to_skip = 0
    for series, values in blocks:
        # Rows of one series must not precede those of another in a window.
        if series != current:
            current, tail, to_skip = series, values[:0], skip
        rest = values[to_skip:]
        to_skip -= len(values) - len(rest)
        joined = np.concatenate([tail, rest])
        if len(joined) >= length:
            views = np.lib.stride_tricks.sliding_window_view(joined, length, axis=0)
            step = max(MAX_VALUES // (length * joined.shape[1]), 1)
            for begin in range(0, len(views), step):
                yield views[begin : begin + step]
        # The last rows are kept: a window may begin in them and end in the next block.
        tail = joined[max(len(joined) - length + 1, 0) :]


# Directions in which the variance of windows is below this share of the largest are left out, as in least squares of
# minimum norm: such a variance is only rounding error.
SMALLEST_VARIANCE = 1e-13


@dataclass(frozen=True)
class Autoregression:
    """The next H values as linear maps of the last K, the same for all channels."""

    weights: Float[np.ndarray, "K H"]  # the last row is that of the newest value
    bias: Float[np.ndarray, " H"]
    num_windows: int  # windows that were fitted, over all channels

    @property
    def order(self) -> int:
        """K, the number of values that are read."""
        return self.weights.shape[0]

    @property
    def horizon(self) -> int:
        """H, the number of values that are forecast."""
        return self.weights.shape[1]

    @classmethod
    def fit(cls, blocks: Iterable[Block], order: int, horizon: int) -> Autoregression:
        """Fit by least squares over all windows of train without a missing value.

        Args:
            blocks: The series, read once; channels should be of one scale.
            order: K, the number of values that are read.
            horizon: H, the number of values that are forecast, each by a separate fit.

        Raises:
            UserError: If train has no window without a missing value.
        """
        equations = NormalEquations(order, horizon)
        for block in windows(blocks, order + horizon):
            equations.update(block.reshape(-1, block.shape[-1]))
        if not equations.count:
            raise UserError(
                f"autoregression of order {order}: train has no {order + horizon} values in a row without a missing "
                "one; use a smaller order, or fill in the missing values"
            )
        return cls(*equations.solve(), equations.count)

    def predict(self, values: Float[np.ndarray, "N K *C"]) -> Float[np.ndarray, "N H *C"]:
        """Predict the next H values of each window, per channel if there is a last axis; NaN if a value is missing."""
        if values.ndim == 2:
            return self.predict(values[..., None])[..., 0]
        answers = values.transpose(2, 0, 1).astype(np.float64) @ self.weights + self.bias  # (C, N, H)
        return answers.transpose(1, 2, 0)


class NormalEquations:
    """X^T X and X^T Y around the mean of all rows, updated block by block (Chan et al. 1983).

    In sums around zero, small changes of values with a large mean would be lost to rounding.
    """

    def __init__(self, order: int, horizon: int) -> None:
        self.order = order
        self.count = 0
        self.mean = np.zeros(order + horizon)
        self.products = np.zeros((order, order + horizon))

    def update(self, rows: Float[np.ndarray, "n W"]) -> None:
        """Add windows of K + H values; those with a missing value are left out."""
        whole = np.asarray(rows, np.float64)
        missing = np.isnan(whole).any(1)
        if missing.any():
            whole = whole[~missing]
        if not len(whole):
            return
        mean = whole.mean(0)
        whole = whole - mean
        inputs = whole[:, : self.order]
        count = self.count + len(whole)
        shift = mean - self.mean
        # The distance between the two means adds this much to the products around the common mean.
        between = self.count * len(whole) / count
        self.products += inputs.T @ whole + between * np.outer(shift[: self.order], shift)
        self.mean += shift * (len(whole) / count)
        self.count = count

    def solve(self) -> tuple[Float[np.ndarray, "K H"], Float[np.ndarray, " H"]]:
        """Return weights and bias."""
        moments, crossed = self.products[:, : self.order], self.products[:, self.order :]
        variances, directions = np.linalg.eigh(moments)
        # The variance of a constant is only the rounding error of its mean.
        rounding = self.count * self.order * (np.finfo(np.float64).eps * np.abs(self.mean).max()) ** 2
        known = variances > max(SMALLEST_VARIANCE * variances[-1], rounding)
        directions = directions[:, known]
        weights = directions @ ((directions.T @ crossed) / variances[known, None])
        return weights, self.mean[self.order :] - self.mean[: self.order] @ weights


def choose_order(
    train: Iterable[Block], validation: Iterable[Block], orders: Sequence[int], horizon: int, *, context: int = 0
) -> int:
    """Fit each order to train and return the one with the smallest squared error on validation.

    Args:
        train: The series of train, read once for each order: a list, or an iterable that can be read repeatedly.
        validation: The series of validation. The first `context` rows of each precede validation and are only read.
        orders: The candidates.
        horizon: H, the number of values that are forecast.
        context: Number of rows before validation. If at least the largest order, all orders forecast the same rows.

    Raises:
        UserError: If no order has a whole window in both.
    """
    errors: dict[int, float] = {}
    for order in sorted(set(orders)):
        try:
            model = Autoregression.fit(train, order, horizon)
        except UserError:
            continue
        total, count = squared_error(model, validation, skip=max(context - order, 0))
        if count:
            errors[order] = total / count
    if not errors:
        raise UserError(
            f"autoregression: for orders {first_few(orders)} and horizon {horizon}, train or validation has no "
            "window without a missing value; use smaller orders, or fill in the missing values"
        )
    return min(errors, key=errors.__getitem__)  # the smallest of equally good orders


def squared_error(model: Autoregression, blocks: Iterable[Block], *, skip: int = 0) -> tuple[float, int]:
    """Sum the squared errors of all windows without a missing value; return the sum and the number of values."""
    total, count = 0.0, 0
    for block in windows(blocks, model.order + model.horizon, skip=skip):
        rows = block.transpose(0, 2, 1)
        errors = (model.predict(rows[:, : model.order]) - rows[:, model.order :]) ** 2
        # A window with a missing value is left out, as in the fit.
        whole = ~np.isnan(errors).any(1)
        total += float(errors.sum(1)[whole].sum())
        count += int(whole.sum()) * model.horizon
    return total, count
