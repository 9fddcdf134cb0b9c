"""Output of `seqtrain probe`: tables of the run's vectors and the baselines, and which is better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

NAMES = {
    "run": "this run",
    "untrained": "the same model untrained",
    "tfidf": "TF-IDF",
    "most_frequent": "most frequent label",
    "mean": "the mean of the others",
    "chance": "chance",
}
MEASURES = {"accuracy": "accuracy", "macro_f1": "macro F1", "mse": "squared error", "mae": "absolute error"}
SMALLER_IS_BETTER = ("mse", "mae")
WIDTH = max(map(len, NAMES.values())) + 2


def of_labels(about: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about a probe of labels."""
    kind = "ridge regression"
    if found["kind"] == "names":
        kind = f"{len(found['labels'])} labels, logistic regression"
    yield from _head(about, f"{found['rows']:,} texts, {kind}, {found['folds']} folds")
    repeated = found["repeated"]
    if repeated["texts"]:
        yield f"{repeated['texts']:,} texts stand there more than once ({repeated['rows']:,} rows), each in one fold"
    results = found["results"]
    measures = list(results["run"])[:2]
    yield ""
    yield f"{'mean over folds ± their spread':{WIDTH}}" + "".join(f"{MEASURES[name]:>20}" for name in measures)
    for name, result in results.items():
        cells = [f"{_figure(result[measure]['mean'])} ± {_figure(result[measure]['std'])}" for measure in measures]
        yield f"{NAMES[name]:{WIDTH}}" + "".join(f"{cell:>20}" for cell in cells)
    yield ""
    for other in list(results)[1:]:
        yield _against(measures[0], results["run"], results[other], other)
    unfinished = sum(result.get("unfinished", 0) for result in results.values())
    if unfinished:
        yield f"{unfinished} fits had not converged; their figures may be a little low"
    if "neighbours" in found:
        yield ""
        yield from _ranks("nearest with the same label", found["neighbours"])


def of_pairs(about: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about a probe of pairs."""
    yield from _head(about, f"{found['pairs']:,} pairs")
    yield "a target is read as a source is, by itself"
    for side in ("source", "target"):
        count = found[f"repeated_{side}s"]
        if count:
            yield f"{count:,} {side}s stand there before already; what stands beside an equal text is right, too"
    if found["equal_sides"]:
        yield f"{found['equal_sides']:,} pairs have equal sides, which every vector finds"
    for title, key in (("target of a source", "source_to_target"), ("source of a target", "target_to_source")):
        yield ""
        yield from _ranks(title, found[key])


def _head(about: Mapping[str, Any], what: str) -> Iterator[str]:
    yield f"{about['file']}: {what}"
    yield (
        f"vectors of {about['dim']:,} numbers, pool={about['pool']}, of {about['run']} at step {about['step']:,} "
        f"({about['checkpoint']} checkpoint)"
    )


def _against(measure: str, run: Mapping[str, Any], other: Mapping[str, Any], name: str) -> str:
    """Return a line with the difference between the run and a baseline, and in how many folds the run is better."""
    ours, theirs = run[measure], other[measure]
    sign = -1 if measure in SMALLER_IS_BETTER else 1
    # Folds are counted, and no test is made: they share what they learn from, so that its p-value would be too small.
    ahead = behind = 0
    for one, two in zip(ours["folds"], theirs["folds"], strict=True):
        ahead += sign * one > sign * two
        behind += sign * one < sign * two
    words = f"this run against {NAMES[name]}: {MEASURES[measure]} {ours['mean'] - theirs['mean']:+.4g}"
    return f"{words}; better in {ahead} of {len(ours['folds'])} folds, worse in {behind}"


def _ranks(title: str, by_name: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    columns: Sequence[str] = list(by_name["run"])
    yield f"{title:{WIDTH}}" + "".join(f"{column:>12}" for column in columns)
    for name, figures in by_name.items():
        yield f"{NAMES[name]:{WIDTH}}" + "".join(f"{_figure(figures[column]):>12}" for column in columns)


def _figure(value: float) -> str:
    """Format a number with four decimals, or with four significant digits if it is large or very small."""
    return f"{value:.4f}" if 0.001 <= abs(value) < 100 or value == 0 else f"{value:.4g}"
