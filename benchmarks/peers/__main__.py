"""`make bench-peers`: seqtrain beside others, in training and in writing text."""

from __future__ import annotations

import argparse
import os
import sys
import warnings

import torch

from benchmarks.bench import machine
from benchmarks.peers import decoding, training
from benchmarks.peers.cases import CASES
from seqtrain.errors import RunFailed, UserError
from seqtrain.training.trainer import quiet_lightning

GENERATE = "generate"  # decoding beside Hugging Face's generate, which is a table of its own


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__)
    parser.add_argument("--peer", choices=[*CASES, GENERATE], action="append", help="this one alone; may be repeated")
    parser.add_argument("--precision", default="float32,auto", help="of training, with commas: float32, auto, bf16")
    parser.add_argument("--repeats", type=int, default=7, help="pairs of turns")
    parser.add_argument("--only", default="", help="of generate: cases whose name has this in it")
    options = parser.parse_args()
    precisions = options.precision.split(",")
    for precision in precisions:
        if precision not in ("float32", "auto", "bf16"):
            parser.error(f"--precision {precision}: expected float32, auto or bf16")
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: must be at least 1")
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded: weights and texts are drawn
    warnings.filterwarnings("ignore")
    quiet_lightning()
    torch.set_num_threads(1)
    peers = options.peer or [*CASES, GENERATE]
    print(f"{machine('make bench-peers')}; medians of {options.repeats} pairs of turns\n")
    trained = [peer for peer in peers if peer != GENERATE]
    if trained:
        print(training.HEAD)
    failed = False
    for peer in trained:
        try:
            for row in training.rows(peer, precisions=precisions, repeats=options.repeats):
                print(row, flush=True)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except RunFailed as error:
            # The other peers have nothing to do with it.
            print(f"error: {error}", file=sys.stderr)
            failed = True
    if GENERATE in peers:
        print()
        decoding.table(options.repeats, options.only)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
