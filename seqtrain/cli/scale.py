"""`seqtrain scale`: train a ladder of budgets, fit a scaling law, and test it on a larger budget."""

from __future__ import annotations

from seqtrain.analysis.scale_report import FLOPS, LADDER, RATIO, SEEDS, TOKENS_PER_PARAMETER, measured
from seqtrain.cli.arguments import Parser, bounded, measure, several


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "scale",
        "Train a series of budgets, fit L(C) = a C^-b + c to it, predict a larger budget, train that, and print the\n"
        "error of the prediction. A budget of C FLOPs gives a model of sqrt(C / (6 R)) parameters, and about R tokens\n"
        "for each parameter.\n"
        "OVERRIDE as for `seqtrain train`. Runs are kept in FOLDER/runs, where a second call reuses them.",
        "seqtrain scale model=lstm,gpt tokenizer=byte --seeds 2",
    )
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    parser.add_argument(
        "--flops", type=several(FLOPS), default=LADDER, metavar="C,C,...", help="default: 1e11,2e11,4e11,8e11,1.6e12"
    )
    parser.add_argument("--hold-back", type=bounded(FLOPS), metavar="C", help="default: 4 times the largest of --flops")
    parser.add_argument("--seeds", type=bounded(SEEDS), default=2, metavar="N", help="default: 2")
    parser.add_argument(
        "--tokens-per-parameter",
        type=bounded(RATIO),
        default=TOKENS_PER_PARAMETER,
        metavar="R",
        help=f"default: {TOKENS_PER_PARAMETER}",
    )
    parser.add_out("outputs/scale")
    options = parser.parse_intermixed_args(argv)
    return measure(measured, "overrides", options)
