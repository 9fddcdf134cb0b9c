"""`seqtrain probe`: what a run's vectors are good for, on texts with labels or on pairs of texts."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from seqtrain.api import Trained, load
from seqtrain.cli import probe_words
from seqtrain.cli.arguments import Parser, say
from seqtrain.cli.embed import POOL_HELP, POOLS
from seqtrain.data import leaks
from seqtrain.data.sketch import Sketch
from seqtrain.data.sources.base import Row, Source
from seqtrain.data.sources.labelled import Labelled
from seqtrain.data.sources.parallel import Parallel
from seqtrain.errors import UserError
from seqtrain.files.atomic import exists
from seqtrain.runs.leaks import MIN_SAID, SKETCH, in_words, place_of_kept

OF_LABELS: dict[str, Any] = {"column": "auto", "label_column": "auto", "numbers": False, "folds": 5, "seed": 0}
OF_PAIRS: dict[str, Any] = {"source_column": "source", "target_column": "target"}
MIN_FOLDS, MAX_FOLDS = 3, 100
MAX_SEED = 2**31


def main(argv: list[str]) -> int:
    """The command."""
    options = _parser().parse_args(argv)
    way = "pairs" if options.labels is None else "labels"
    _refuse_idle(options, way)
    # All that can be wrong with the file comes first: to load the model takes seconds.
    path: str = getattr(options, way)
    rows = _rows(_source(options, way, path), way, path)

    from seqtrain.inference import probes, probing
    from seqtrain.inference.embedding import check_pool

    probing.check_installed()
    trained = load(options.run, trust=options.trust, checkpoint=options.checkpoint)
    if trained.opened.preprocessor.series is not None:
        raise UserError(f"run {options.run} reads values in time; it has no vector of a text")
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
        print(json.dumps(about | found, ensure_ascii=False))
    else:
        words = probe_words.of_pairs if way == "pairs" else probe_words.of_labels
        print("\n".join(words(about, found)))
    return 0


def _parser() -> Parser:
    parser = Parser(
        "probe",
        "What a run's vectors are good for, beside the vectors of the same model untrained, TF-IDF, and nothing.\n"
        "--labels: logistic regression (or, with --numbers, ridge regression) on the vectors, by cross-validation.\n"
        "--pairs: how early the nearest target of a source is its own, and the other way round.",
        "seqtrain probe outputs/2026-11-21_02-04-00_masked_lm_bert --labels reviews.tsv --folds 10",
    )
    parser.add_argument("run", metavar="RUN")
    ways = parser.add_mutually_exclusive_group(required=True)
    ways.add_argument("--labels", metavar="FILE", help="texts with labels, in any form that data=labelled reads")
    ways.add_argument("--pairs", metavar="FILE", help="pairs of texts: jsonl, csv, tsv or parquet")
    parser.add_argument("--column", metavar="NAME", help="of the text: a name, or a number from 1 (default: found)")
    parser.add_argument("--label-column", metavar="NAME", help="of the label, in the same way")
    parser.add_argument("--numbers", action="store_true", default=None, help="labels are numbers, not names")
    parser.add_argument("--folds", type=_count(MIN_FOLDS, MAX_FOLDS), metavar="N", help="default: 5")
    parser.add_argument("--seed", type=_count(0, MAX_SEED), metavar="N", help="deals rows to folds (default: 0)")
    parser.add_argument("--source-column", metavar="NAME", help="of pairs (default: source)")
    parser.add_argument("--target-column", metavar="NAME", help="of pairs (default: target)")
    parser.add_argument("--pool", default="mean", choices=POOLS, help=POOL_HELP)
    parser.add_argument("--checkpoint", default="best", choices=("best", "last"))
    return parser


def _count(low: int, high: int) -> Any:
    from seqtrain.cli.arguments import bounded
    from seqtrain.config.ranges import Range

    return bounded(Range(low, high, whole=True))


def _refuse_idle(options: argparse.Namespace, way: str) -> None:
    """UserError for options of the other way; those that are not given get their defaults."""
    for of, defaults in (("labels", OF_LABELS), ("pairs", OF_PAIRS)):
        for name, default in defaults.items():
            flag = f"--{name.replace('_', '-')}"
            if getattr(options, name) is None:
                setattr(options, name, default)
            elif of != way:
                raise UserError(f"{flag}: is of --{of}, and --{way} is given; leave it out")


def _source(options: argparse.Namespace, way: str, path: str) -> Source:
    with _as_flags(way):
        if way == "pairs":
            return Parallel(
                path=path,
                source_column=options.source_column,
                target_column=options.target_column,
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
    """A column's name, or its number in a file without a header."""
    return int(column) if column.isdecimal() else column


def _rows(source: Source, way: str, path: str) -> list[Row]:
    with _as_flags(way):
        source.check()
        rows = list(source.rows("train"))
        for line in source.notes():
            say(line.replace("data.", "--"))
    if not rows:
        raise UserError(f"--{way} {path}: holds no rows; give a file with some")
    return rows


def _readable(trained: Trained, rows: Sequence[Row], fields: Sequence[str], path: str) -> list[Row]:
    """The rows whose texts the run can read; says how many are left out, and why the first of them is."""
    kept: list[Row] = []
    first = ""
    for number, row in enumerate(rows, 1):
        reasons = filter(None, (trained.opened.text_reader.reason(row[field]) for field in fields))
        reason = next(reasons, None)
        if reason is None:
            kept.append(row)
        elif not first:
            first = f"row {number} {reason}"
    if not kept:
        raise UserError(f"{path}: holds no row that can be embedded: {first}")
    if first:
        count = len(rows) - len(kept)
        say(f"{path}: {count:,} of {len(rows):,} rows left out, of which the first: {first}")
    return kept


def _leak(trained: Trained, columns: Sequence[Sequence[str]], path: str) -> dict[str, Any] | None:
    """How much of the texts stood in the run's own train, said where it is more than little."""
    sketch = trained.directory / SKETCH
    if not exists(sketch):
        say(f"{path}: whether it stands in train of this run is not known: {SKETCH} is missing")
        return None
    asked = [Sketch.of(texts, lines=False) for texts in columns]
    leak = leaks.find_leak(asked, Sketch.load(sketch))
    if leak is None:
        say(f"{path}: whether it stands in train of this run is not known: too few of its texts can be looked for")
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
    """Faults of sources name options of a training; here they are flags."""
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
