"""Functional ANOVA of a random forest (Hutter et al. 2014, "An Efficient Approach for Assessing Hyperparameter
Importance"), by Optuna: how much of what a forest has learnt of the trials goes with each option alone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from seqtrain.errors import Unavailable

TREES = 64  # as many as Optuna has
# Optuna lets trees grow to 64, which takes seconds of hundreds of trials; what lies deeper than 8 moves shares by 0.01.
DEPTH = 8
NEEDED = "functional ANOVA needs optuna and scikit-learn: pip install 'seqtrain[sweep]'"


class Forest(NamedTuple):
    """Option importances that a forest has learnt."""

    shares: dict[str, float]  # of the forest's variance, by option; the rest goes with several options together
    predicted: float  # of the variance of trials that a tree had not seen; 0 or less where it has learnt nothing


def learn(options: Mapping[str, Sequence[Any]], values: Sequence[float], *, seed: int) -> Forest:
    """Fit the forest and return its option importances.

    Args:
        options: the values of each option in the trials; at least two different ones.
        values: the results of the trials; not all equal.
        seed: seed of the forest, which samples trials at random.

    Raises:
        Unavailable: a package is missing.
    """
    coded = map(_coded, options.values())
    return _learn(tuple(zip(options, coded, strict=True)), tuple(values), seed)


@lru_cache(maxsize=100)
def _learn(columns: tuple[tuple[str, tuple[Any, ...]], ...], values: tuple[float, ...], seed: int) -> Forest:
    """Fit the forest on hashable arguments, so that the result is cached: a served page asks repeatedly."""
    try:
        import optuna
        from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
        from sklearn.ensemble import RandomForestRegressor
    except ImportError:
        raise Unavailable(NEEDED) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    spaces: dict[str, BaseDistribution] = {}
    axes, encoded = {}, []
    for name, column in columns:
        if isinstance(column[0], str):
            spaces[name] = CategoricalDistribution(sorted(set(column)))
            axes[name] = column
            encoded += _indicators(column)
        else:
            spaces[name] = FloatDistribution(-0.5, len(column) - 0.5)
            axes[name] = _ranks(column)
            encoded.append(axes[name])
    study = optuna.create_study()
    for place, value in enumerate(values):
        params = {name: axis[place] for name, axis in axes.items()}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=spaces, value=value))
    evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=TREES, max_depth=DEPTH, seed=seed)
    found = evaluator.evaluate(study)
    forest = RandomForestRegressor(TREES, max_depth=DEPTH, oob_score=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few trials one may be in all trees
        forest.fit(list(zip(*encoded, strict=True)), values)
    shares = dict(zip(found, map(float, found.values()), strict=True))
    return Forest(shares, float(forest.oob_score_))


def _coded(column: Sequence[Any]) -> tuple[Any, ...]:
    """Return numbers as floats; if one value is not a number (a switch, for example), return all as text."""
    for value in column:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return tuple(map(repr, column))
    return tuple(map(float, column))


def _ranks(column: Sequence[float]) -> list[float]:
    """The place of each number among all, from 0; equal ones share the middle of theirs.

    By its ranks an option is weighed as often as it was tried in a region: on its own axis most of a learning rate
    from 0.0001 to 0.1 would be what lies above 0.01.
    """
    from scipy.stats import rankdata

    return list(map(float, rankdata(column) - 1))


def _indicators(column: Sequence[str]) -> list[list[float]]:
    """A column of zeros and ones for each name."""
    columns = []
    for name in sorted(set(column)):
        columns.append([float(each == name) for each in column])
    return columns
