"""The command line: `seqtrain COMMAND ...`; imports nothing heavy before it knows what is wanted."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback

from seqtrain.callbacks.signals import Interrupted, Signals
from seqtrain.faults import Fault, did_you_mean
from seqtrain.processes import place

COMMANDS = {
    "train": "train a model: seqtrain train model=gpt trainer.max_steps=500",
    "resume": "go on with a run that was interrupted, or extend a finished one",
    "evaluate": "measure a run on its validation or test split",
    "predict": "let a run continue text, fill in words, classify, translate, or score",
    "embed": "turn texts into vectors with a run",
    "search": "find the texts that are nearest to another, by a run's vectors",
    "export": "write a run's weights as safetensors, with what is needed to use them",
    "compare": "compare runs and sweeps: a table, a verdict, a page",
    "serve": "serve that page, live while runs go on: seqtrain serve outputs",
    "sync": "send what runs have recorded to W&B, MLflow or TensorBoard",
    "matrix": "show which models do which tasks",
    "verify-resume": "prove that a run that is killed and resumed ends with the same bits",
}
HIDDEN = ("trial",)  # launchers call it
USAGE = "\n".join(
    [
        "usage: seqtrain COMMAND ...",
        "",
        "Recurrent networks and Transformers side by side, from one command line.",
        "",
        *(f"  {name:15}{words}" for name, words in COMMANDS.items()),
        "",
        "`seqtrain COMMAND --help` says more. Example: seqtrain train model=lstm model.dim=256",
    ]
)


def main(argv: list[str] | None = None) -> int:
    """Runs one command; gives its exit code (0 done, 1 failed, 2 the user can mend it, 128 + signal interrupted)."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    try:
        with Signals():
            return _run(argv[0], argv[1:])
    except Interrupted as interrupted:
        return 128 + interrupted.number
    except Fault as fault:
        if os.environ.get("SEQTRAIN_DEBUG"):
            traceback.print_exc()
        for line in fault.lines if place().first else ():
            print(f"error: {' '.join(line.split())}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has gone, which is no fault of anybody's
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # which any look at any path may raise
            raise
        print(f"error: {error.filename}: the path is too long for this system; give a shorter one", file=sys.stderr)
        return 2


def _run(command: str, rest: list[str]) -> int:
    if command == "--version":
        from importlib.metadata import version

        print(f"seqtrain {version('seqtrain')}")
        return 0
    if command not in COMMANDS and command not in HIDDEN:
        raise Fault(f"{command}: no such command{did_you_mean(command, COMMANDS)}")
    return importlib.import_module(f"seqtrain.commands.{command.replace('-', '_')}").main(rest)


if __name__ == "__main__":
    sys.exit(main())
