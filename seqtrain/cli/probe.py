"""`seqtrain probe`: measure the quality of a run's vectors, on labelled texts or on pairs of texts."""

from __future__ import annotations

import argparse
from typing import Any

from seqtrain.cli.arguments import Parser, bounded
from seqtrain.cli.embed import POOL_HELP, POOLS
from seqtrain.config.ranges import Range
from seqtrain.errors import UserError

OF_LABELS: dict[str, Any] = {"column": "auto", "label_column": "auto", "numbers": False, "folds": 5, "seed": 0}
OF_PAIRS: dict[str, Any] = {"source_column": "source", "target_column": "target"}
FOLDS = Range(3, 100, whole=True)  # from probing.MIN_FOLDS on
SEEDS = Range(0, 2**31, whole=True)


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    _refuse_idle(options, "pairs" if options.labels is None else "labels")
    from seqtrain.cli.probed import measure

    return measure(options)


def _parser() -> Parser:
    parser = Parser(
        "probe",
        "Measure a run's vectors on labels or pairs, compared with the untrained model, TF-IDF and chance.\n"
        "--labels: logistic regression (or, with --numbers, ridge regression) on the vectors, by cross-validation.\n"
        "--pairs: the rank of each source's own target among its nearest targets, and vice versa.",
        "seqtrain probe outputs/2026-11-21_02-04-00_masked_lm_bert --labels reviews.tsv --folds 10",
    )
    parser.add_argument("run", metavar="RUN")
    ways = parser.add_mutually_exclusive_group(required=True)
    ways.add_argument("--labels", metavar="FILE", help="texts with labels, in any format that data=labelled reads")
    ways.add_argument("--pairs", metavar="FILE", help="pairs of texts: jsonl, csv, tsv or parquet")
    parser.add_argument(
        "--column", metavar="NAME", help="column of the text: a name, or a number from 1 (default: detected)"
    )
    parser.add_argument("--label-column", metavar="NAME", help="column of the label, in the same way")
    parser.add_argument("--numbers", action="store_true", default=None, help="labels are numbers, not names")
    parser.add_argument("--folds", type=bounded(FOLDS), metavar="N", help="default: 5")
    parser.add_argument(
        "--seed", type=bounded(SEEDS), metavar="N", help="seed for the assignment of rows to folds (default: 0)"
    )
    parser.add_argument("--source-column", metavar="NAME", help="first column of pairs (default: source)")
    parser.add_argument("--target-column", metavar="NAME", help="second column of pairs (default: target)")
    parser.add_argument("--pool", choices=POOLS, help=POOL_HELP)
    parser.add_argument("--checkpoint", default="best", choices=("best", "last"))
    return parser


def _refuse_idle(options: argparse.Namespace, way: str) -> None:
    """Set the defaults of options that are not given; raise UserError for options of the other kind of probe."""
    # Silently ignoring an option would mislead its user.
    for of, defaults in (("labels", OF_LABELS), ("pairs", OF_PAIRS)):
        for name, default in defaults.items():
            flag = f"--{name.replace('_', '-')}"
            if getattr(options, name) is None:
                setattr(options, name, default)
            elif of != way:
                raise UserError(f"{flag}: applies to --{of}, not to --{way}; leave it out")
