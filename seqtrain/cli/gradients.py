"""`seqtrain gradients`: measure how far back the gradient of a loss reaches, by layer, trained and untrained."""

from __future__ import annotations

from seqtrain.analysis.gradients_report import DISTANCE, SAMPLES, measured
from seqtrain.cli.arguments import Parser, bounded, measure


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "gradients",
        "Measure the norm of d loss_t / d x_(t-j) over the distance j on validation data, read as in training, with\n"
        "its chunks, warm-up and resets. A run is measured trained and with new initial weights; overrides\n"
        "(model=rnn tbptt.k2=20) are measured untrained.",
        "seqtrain gradients model=rnn tbptt.k2=20",
    )
    parser.add_argument("of", nargs="+", metavar="RUN|OVERRIDE")
    parser.add_argument("--checkpoint", choices=("best", "last"), help="checkpoint of a run (default: best)")
    parser.add_argument(
        "--whole", action="store_true", help="without the truncation of training: how far back the model could learn"
    )
    parser.add_argument(
        "--distance",
        type=bounded(DISTANCE),
        metavar="TOKENS",
        help="the largest distance (default: beyond k2)",
    )
    parser.add_argument(
        "--samples",
        type=bounded(SAMPLES),
        default=32,
        metavar="N",
        help="losses per lane or example (default: 32)",
    )
    parser.add_config_dir()
    parser.add_out("outputs/gradients")
    options = parser.parse_intermixed_args(argv)
    return measure(measured, "of", options)
