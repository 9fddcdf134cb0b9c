"""`seqtrain gradients`: measure how far back the gradient of a loss reaches, by layer, trained and untrained."""

from __future__ import annotations

from seqtrain.analysis.gradients_report import DISTANCE, SAMPLES, measured
from seqtrain.cli.arguments import Parser, bounded, measure


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "gradients",
        "Measure the norm of d loss_t / d x_(t-j) over the distance j on validation data, through the reading of\n"
        "training: its chunks, its warm-up, its resets. Of a run: trained, and with its first weights drawn anew. Of\n"
        "overrides (model=rnn tbptt.k2=20): untrained.",
        "seqtrain gradients model=rnn tbptt.k2=20",
    )
    parser.add_argument("of", nargs="+", metavar="RUN|OVERRIDE")
    parser.add_argument("--checkpoint", choices=("best", "last"), help="of a run (default: best)")
    parser.add_argument(
        "--whole", action="store_true", help="the model itself, without the cut of training: how far it could learn"
    )
    parser.add_argument(
        "--distance",
        type=bounded(DISTANCE),
        metavar="TOKENS",
        help="the farthest distance (default: past k2)",
    )
    parser.add_argument(
        "--samples",
        type=bounded(SAMPLES),
        default=32,
        metavar="N",
        help="losses in each lane, or example (default: 32)",
    )
    parser.add_config_dir()
    parser.add_out("outputs/gradients")
    options = parser.parse_intermixed_args(argv)
    return measure(measured, "of", options)
