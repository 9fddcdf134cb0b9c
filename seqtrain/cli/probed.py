"""Steps of `seqtrain probe` after its options are parsed: file, run, measurement, output."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from seqtrain.api import Trained, load
from seqtrain.data import leaks
from seqtrain.data.leaks import Sketch
from seqtrain.data.sources.base import Row
from seqtrain.data.sources.labelled import Labelled
from seqtrain.data.sources.parallel import Parallel
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import exists, plain_json
from seqtrain.inference import probing
from seqtrain.runs.leaks import MIN_SAID, SKETCH, in_words, place_of_kept


def measure(options: argparse.Namespace) -> int:
    """Measure and print what the options request; return the exit code."""
    way = "pairs" if options.labels is None else "labels"
    # The file is checked first: loading the model takes seconds.
    path: str = getattr(options, way)
    rows = _rows(_source(options, way, path), way, path)

    from seqtrain.inference import probes
    from seqtrain.inference.embedding import check_pool, pool_of

    probing.check_installed()  # before the model is loaded, which takes seconds
    trained = load(options.run, trust=options.trust, checkpoint=options.checkpoint)
    if trained.opened.preprocessor.series is not None:
        raise UserError(f"run {options.run} reads series of values, so it has no text vectors")
    options.pool = options.pool or pool_of(trained.task)
    check_pool(trained.model, options.pool)
    fields = ("source", "target") if way == "pairs" else ("text",)
    kept = _readable(trained, rows, fields, path)
    columns = {field: [row[field] for row in kept] for field in kept[0]}
    leak = _leak(trained, [columns[field] for field in fields], path)
    with _as_flags(way):
        if way == "pairs":
            found = probes.probe_pairs(trained, columns["source"], columns["target"], pool=options.pool)
        else:
            found = _probe_labels(trained, columns, options)
    about = {
        "run": str(options.run),
        "checkpoint": options.checkpoint,
        "step": trained.opened.step,
        "file": str(path),
        "left_out": len(rows) - len(kept),
        "pool": options.pool,
        "dim": trained.model.dim,
        "leak": leak,
    }
    if options.json:
        print(plain_json(about | found))
    else:
        words = of_pairs if way == "pairs" else of_labels
        print("\n".join(words(about, found)))
    return 0


def _source(options: argparse.Namespace, way: str, path: str) -> Labelled | Parallel:
    with _as_flags(way):
        if way == "pairs":
            return Parallel(
                path=path,
                source_column=_place(options.source_column),
                target_column=_place(options.target_column),
                validation_fraction=0.0,
            )
        source = Labelled(
            path=path,
            column=_place(options.column),
            label_column=_place(options.label_column),
            validation_fraction=0.0,
        )
        if options.numbers:
            source.expect_numbers()
        return source


def _place(column: str) -> str | int:
    """Return a column's name, or its number in a file without a header."""
    return int(column) if column.isdecimal() else column


def _rows(source: Labelled | Parallel, way: str, path: str) -> list[Row]:
    with _as_flags(way):
        source.check()
        rows = list(source.rows("train"))
        for line in source.notes():
            say(line)
    if not rows:
        raise UserError(f"--{way} {path}: has no rows; give a file with rows")
    return rows


def _readable(trained: Trained, rows: Sequence[Row], fields: Sequence[str], path: str) -> list[Row]:
    """Return the rows whose texts the run can read; print how many are left out, and the reason for the first."""
    kept: list[Row] = []
    first = ""
    # All methods get the same rows: TF-IDF could read the others, but goes without them, too.
    for number, row in enumerate(rows, 1):
        reasons = filter(None, (trained.opened.text_reader.reason(row[field]) for field in fields))
        reason = next(reasons, None)
        if reason is None:
            kept.append(row)
        elif not first:
            first = f"row {number} {reason}"
    if not kept:
        raise UserError(f"{path}: no row can be embedded: {first}")
    if first:
        count = len(rows) - len(kept)
        say(f"{path}: {count:,} of {len(rows):,} rows left out, the first because {first}")
    return kept


def _leak(trained: Trained, columns: Sequence[Sequence[str]], path: str) -> dict[str, Any] | None:
    """Return the share of the texts that is in the run's train split; print it if it is not small."""
    sketch = trained.directory / SKETCH
    if not exists(sketch):
        say(f"{path}: unknown whether the run was trained on it: {SKETCH} is missing")
        return None
    # Every run keeps a sketch of its train split, so its data need not exist any more.
    asked = [Sketch.of(texts) for texts in columns]
    leak = leaks.find_leak(asked, Sketch.load(sketch))
    if leak is None:
        say(f"{path}: unknown whether the run was trained on it: too few of its texts can be looked up")
        return None
    if leak.share >= MIN_SAID:
        has_parent = trained.opened.run.config.get("init_from") is not None
        say(f"{in_words(path, place_of_kept(has_parent), leak)}, so the probe of this run is optimistic")
    return leak._asdict()


def _probe_labels(trained: Trained, columns: dict[str, list[str]], options: argparse.Namespace) -> dict[str, Any]:
    from seqtrain.inference import probes

    labels: Sequence[Any] = columns["label"]
    kind: Literal["names", "numbers"] = "names"
    if options.numbers:
        labels, kind = [float(label) for label in labels], "numbers"
    texts, pool = columns["text"], options.pool
    return probes.probe_labels(trained, texts, labels, kind=kind, pool=pool, folds=options.folds, seed=options.seed)


@contextmanager
def _as_flags(way: str) -> Iterator[None]:
    """Replace training options by flags of this command in the messages of sources."""
    names = {"data.path=": f"--{way} ", "data.folds=": "--folds ", "data.label_column": "--label-column"}
    names |= {"data.source_column": "--source-column", "data.target_column": "--target-column"}
    names |= {"data.column": "--column", "labels: ": f"--{way}: ", "pairs: ": f"--{way}: "}
    try:
        yield
    except UserError as error:
        lines = []
        for line in error.lines:
            for key, flag in names.items():
                line = line.replace(key, flag)
            lines.append(line)
        raise type(error)(*lines) from None


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
        yield f"{repeated['texts']:,} texts occur more than once ({repeated['rows']:,} rows); each is in one fold only"
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
        yield f"{unfinished} fits did not converge; their results may be slightly too low"
    if "neighbours" in found:
        yield ""
        yield from _ranks("nearest with the same label", found["neighbours"])


def of_pairs(about: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines about a probe of pairs."""
    yield from _head(about, f"{found['pairs']:,} pairs")
    yield "a target is read alone, in the same way as a source"
    for side in ("source", "target"):
        count = found[f"repeated_{side}s"]
        if count:
            yield f"{count:,} {side}s repeat an earlier one; the partner of an equal text counts as correct, too"
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
    # Folds are counted without a significance test: they share training rows, so its p-value would be too small.
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
