"""`seqtrain memory`: measure how much context a run uses, what its carried state adds, and if k2 is long enough."""

from __future__ import annotations

from seqtrain.analysis.memory_report import CONTEXT, TARGETS, TOLERANCE, measured
from seqtrain.cli.arguments import Parser, bounded, measure


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "memory",
        "Measure how much context a run uses, what its carried state adds, and if k2 is long enough.\n"
        "Predicts the same tokens from contexts of 1, 2, 4, ... tokens. Then reads the text as in evaluation, once\n"
        "with the state carried from chunk to chunk, once with an empty state for each chunk. Needs task=next_token.",
        "seqtrain memory outputs/2026-11-21_02-04-00_next_token_lstm --context 512",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--split", default="validation", choices=("train", "validation", "test"))
    parser.add_argument("--checkpoint", default="best", choices=("best", "last"))
    parser.add_argument(
        "--context",
        type=bounded(CONTEXT),
        metavar="N",
        help="the longest context, in tokens (default: 4 times k2, from 128 to 1024)",
    )
    parser.add_argument(
        "--targets",
        type=bounded(TARGETS),
        default=2000,
        metavar="N",
        help="tokens to predict from each context (default: 2000)",
    )
    parser.add_argument(
        "--tolerance",
        type=bounded(TOLERANCE),
        default=0.01,
        metavar="NATS",
        help="losses that differ by less count as equal (default: 0.01)",
    )
    parser.add_out("outputs/memory")
    options = parser.parse_args(argv)
    return measure(measured, "run", options)
