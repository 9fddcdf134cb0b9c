"""Exponential smoothing (Hyndman et al. 2002) and the Theta method (Assimakopoulos & Nikolopoulos 2000) as baselines.

Both are those of statsforecast, an optional dependency, and are fitted to each window and channel. AICc selects the
error and the trend of ETS. A season is always additive, because AICc would leave it out for a short window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from seqtrain.data.batching.values import Windows
from seqtrain.tasks.base import Baseline

KNOWN = {
    "ets": Baseline("exponential smoothing, its form chosen for each window", "exponential smoothing"),
    "theta": Baseline("the Theta method, fitted to each window", "the Theta method"),
}
MAX_FITS = {"ets": 3_000, "theta": 60_000}  # one for each window and channel: about a minute


def models(windows: Windows, season: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the models of statsforecast by name; none if it is not installed.

    Args:
        windows: The windows of the measured split.
        season: Steps of a season. Windows shorter than two seasons are fitted without a season.
        say: Receives a message on each model that is left out.
    """
    try:
        from statsforecast.models import AutoETS, Theta  # pyright: ignore[reportMissingImports]
    except ImportError:
        say("baselines ets and theta are left out: they need statsforecast (pip install 'seqtrain[ets]')")
        return {}
    length = season if windows.history >= 2 * season else 1
    count = len(windows.lengths) * windows.reading.series.values.shape[1]
    found = {
        "ets": AutoETS(season_length=length, model="ZZA" if length > 1 else "ZZN"),
        "theta": Theta(season_length=length, decomposition_type="additive"),  # scaled values are about 0
    }
    for name, most in MAX_FITS.items():
        if count > most:
            say(f"{name} is left out: fitting {count:,} windows and channels takes minutes")
            del found[name]
    return found


def forecast(model: Any, values: Float[np.ndarray, "N K C"], horizon: int) -> Float[np.ndarray, "N {horizon} C"]:
    """Fit a model to each channel of each window, and forecast; a window that it cannot fit repeats its last value."""
    known = np.nan_to_num(values)  # 0 is the mean of train, used where no value came before
    found = np.repeat(known[:, -1:], horizon, 1)
    for number, channel in np.ndindex(len(known), known.shape[2]):
        window = known[number, :, channel]
        if np.ptp(window) == 0:  # a constant window has nothing to fit
            continue
        try:
            found[number, :, channel] = model.forecast(y=window, h=horizon)["mean"]
        except Exception:  # any error of the library, such as for a window that is too short
            continue
    return found
