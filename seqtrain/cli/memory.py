"""`seqtrain memory`: measure how much context a run uses, what its carried state adds, and if k2 is long enough."""

from __future__ import annotations

from seqtrain.analysis.memory_report import CONTEXT, TARGETS, TOLERANCE, measured
from seqtrain.cli.arguments import Parser, bounded, measure


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "memory",
        "Measure how much context a run uses, what its carried state adds, and if k2 is long enough.\n"
        "The same tokens are predicted from 1, 2, 4, ... tokens before them. Then the text is read as in evaluation,\n"
        "with the state carried from chunk to chunk, and with each chunk begun from nothing. Takes task=next_token.",
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
        help="tokens that are predicted from each context (default: 2000)",
    )
    parser.add_argument(
        "--tolerance",
        type=bounded(TOLERANCE),
        default=0.01,
        metavar="NATS",
        help="losses this close count as one (default: 0.01)",
    )
    parser.add_out("outputs/memory")
    options = parser.parse_args(argv)
    return measure(measured, "run", options)
