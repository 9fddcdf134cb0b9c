"""`seqtrain profile`: the cost of models by formula, as counted by torch, and as measured."""

from __future__ import annotations

from seqtrain.analysis.profile_report import DIMS, LENGTHS, REPEATS, SIZE, THREADS, measured
from seqtrain.cli.arguments import Parser, bounded, measure, several


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "profile",
        "Measure the cost of models: parameters by part, operations by formula and as counted by torch, sequential\n"
        "steps and the longest path; then time and memory by length and width, with exponents next to the theory.\n"
        "OVERRIDE as for `seqtrain train`. -m measures several models in turn: -m model=rnn,lstm,cnn,gpt",
        "seqtrain profile -m model=rnn,lstm,cnn,gpt",
    )
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    parser.add_argument("-m", "--multirun", action="store_true", help="profile every combination of the values given")
    parser.add_config_dir()
    parser.add_argument(
        "--lengths", type=several(SIZE), default=LENGTHS, metavar="T,T,T", help="default: 256,512,1024,2048"
    )
    parser.add_argument("--dims", type=several(SIZE), default=DIMS, metavar="D,D,D", help="default: 384,512,768,1024")
    parser.add_argument(
        "--at-dim",
        type=bounded(SIZE),
        metavar="D",
        help="width for all lengths (default: model.dim if given, else 128)",
    )
    parser.add_argument(
        "--at-length", type=bounded(SIZE), default=16, metavar="T", help="length for all widths (default: 16)"
    )
    parser.add_argument("--repeats", type=bounded(REPEATS), default=5, metavar="N")
    parser.add_argument("--threads", type=bounded(THREADS), default=1, metavar="N")
    parser.add_out("outputs/profile")
    options = parser.parse_intermixed_args(argv)
    return measure(measured, "overrides", options)
