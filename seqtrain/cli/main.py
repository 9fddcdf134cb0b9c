"""The command line: `seqtrain COMMAND ...`. Imports nothing heavy before the command is known."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from seqtrain import terminal
from seqtrain.config.trust import trusting
from seqtrain.distributed.ranks import check_place, rank_info
from seqtrain.errors import Answered, RunFailed, UserError, did_you_mean, refuse_tilde
from seqtrain.training import speedups
from seqtrain.training.callbacks.signals import Interrupted, Signals

COMMANDS = {
    "train": "train a model: seqtrain train model=gpt trainer.max_steps=500",
    "prepare": "tokenise text once, on all cores, into a folder to train from: for text larger than memory",
    "resume": "continue an interrupted run, or extend a finished one",
    "evaluate": "measure a run on its validation or test split",
    "predict": "continue, fill in, classify, translate or score text with a run",
    "embed": "turn texts into vectors with a run",
    "search": "find the texts nearest to a query, by a run's vectors",
    "probe": "measure how well a run's vectors predict labels or find pairs",
    "memory": "measure how much context a run uses, and whether k2 is long enough",
    "inspect": "show what a Hugging Face model folder contains, and which parts are supported",
    "export": "write a run's weights as safetensors, with what is needed to use them",
    "compare": "compare runs and sweeps: a table, a verdict, a page",
    "serve": "serve that page, updated while runs train: seqtrain serve outputs",
    "sync": "send the records of runs to W&B, MLflow or TensorBoard",
    "show": "print the layers of a model, with shapes and parameters: seqtrain show model=gpt",
    "profile": "measure the cost of models, and compare it with theory",
    "gradients": "measure how far back gradients reach in a run's model, and where training cuts them",
    "scale": "fit a scaling law to a series of budgets, and predict a larger one",
    "matrix": "show which models support which tasks",
    "contract": "check each promise of a model or a task, also of your own",
    "verify-resume": "check that a run that is killed and resumed ends with the same bits",
}
COMPOSING = ("train", "prepare", "verify-resume")  # their arguments become part of the files they write
HIDDEN = ("trial",)  # launchers call it
# Remedies for system errors that any access to a path may raise.
REMEDIES = {
    errno.ENAMETOOLONG: "the path is too long for this system; give a shorter one",
    errno.EROFS: "the file system is read-only; give a path that can be written",
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "the disk quota is used up; make room",
    errno.EFBIG: "the file is larger than the limit; raise the limit (ulimit -f)",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine; stop other programs",
    errno.EIO: "the disk reports an input/output error; see the system's log",
}
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


def command() -> NoReturn:
    """Run the program `seqtrain`: run the given command and exit the process."""
    speedups.quicken_imports()
    try:
        code = main()
    except SystemExit as answered:  # a parser has answered --help
        code = int(answered.code or 0)
    terminal.leave(code)


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code: 0 done, 1 failed, 2 error of the user, 128 + signal if interrupted."""
    os.environ["PYTHONSAFEPATH"] = (
        "1"  # otherwise a child process would prefer a json.py in the working folder to Python's own
    )
    argv = sys.argv[1:] if argv is None else argv
    with terminal.guarded(), trusting(()):
        try:
            code = _run(argv)
            sys.stdout.flush()  # here, where a closed output can still be reported
            return code
        except SystemExit as leaving:
            sys.stdout.flush()
            if _is_answered(leaving):
                raise
            return _report_exit(leaving)
        except Interrupted as interrupted:
            return 128 + interrupted.number
        except Exception as error:
            if isinstance(error, terminal.OutputLost):
                terminal.drop_output()
            return _report_error(error)


def _is_answered(leaving: SystemExit) -> bool:
    """Return True if a parser, ours or Hydra's, has exited after it answered --help."""
    if isinstance(leaving, Answered):
        return True
    # Only the innermost frame: Hydra is also in the traceback of each third-party constructor that it calls.
    file = Path(traceback.extract_tb(leaving.__traceback__)[-1].filename)
    return file.name == "argparse.py" or "hydra" in file.parts


def _report_exit(leaving: SystemExit) -> int:
    """Report that third-party code has called sys.exit, which counts as a failure; return the exit code."""
    frame = traceback.extract_tb(leaving.__traceback__)[-1]
    terminal.tell(
        f"error: {frame.filename}, line {frame.lineno}: `{frame.name}` has left the process (SystemExit: "
        f"{leaving.code}); raise an error with a message instead"
    )
    return 1


def _run(argv: Sequence[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    command, *rest = argv
    if command == "--version":
        from importlib.metadata import version

        print(f"seqtrain {version('seqtrain')}")
        return 0
    if command not in COMMANDS and command not in HIDDEN:
        raise UserError(f"{command}: no such command{did_you_mean(command, COMMANDS)}")
    _check_surroundings(command, rest)
    # Only this command is imported: some imports take seconds.
    with Signals():
        return importlib.import_module(f"seqtrain.cli.{command.replace('-', '_')}").main(rest)


def _check_surroundings(command: str, words: Sequence[str]) -> None:
    """Raise UserError for errors that affect every command: a missing working folder, or a malformed argument."""
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(f"the working folder cannot be used ({error.strerror}); change to another one") from None
    check_place()
    for word in words:
        _check_word(command, word)


def _check_word(command: str, word: str) -> None:
    if "\0" in word:
        raise UserError(f"{word}: contains a NUL byte; leave it out")
    # The run's files, which are UTF-8, could not name it. Other commands do not write their arguments.
    if command in COMPOSING and not terminal.is_unicode(word):
        raise UserError(f"{word}: is not UTF-8, so no file of the run could name it; rename it")
    # An empty path would mean the working folder; predict accepts an empty text.
    if not word and command != "predict":
        _refuse_empty(command, "empty argument")
    flag, equals, value = word.partition("=")
    if not flag.startswith("--") or not equals:
        return
    if not value:
        _refuse_empty(command, f"{flag}= has no value")
    refuse_tilde(flag, value)


def _refuse_empty(command: str, what: str) -> NoReturn:
    raise UserError(f"seqtrain {command}: {what}, perhaps from an unset shell variable; leave it out")


def _report_error(error: Exception) -> int:
    """Print the reason of a failure in one line, or the traceback of an internal error; return the exit code."""
    if os.environ.get("SEQTRAIN_DEBUG"):
        _trace(error)
    lines: tuple[str, ...] = ()
    if isinstance(error, UserError):
        lines = error.lines
    elif isinstance(error, OSError):
        lines = UserError(*_system_error(error)).lines
    if lines:
        if rank_info().first:  # all processes of a run end with the same message
            for line in lines:
                terminal.tell(f"error: {line}")
        return 2
    if isinstance(error, terminal.ReaderGone):  # not an error
        return 0
    if isinstance(error, terminal.OutputLost):
        terminal.tell(f"error: standard output {error}, so the result could not be printed")
    elif isinstance(error, RunFailed):
        if rank_info().first:
            terminal.tell(f"error: {error}")
    elif (hook := _failed_hook(error)) is not None and not os.environ.get("SEQTRAIN_DEBUG"):
        terminal.tell(f"error: {hook}; SEQTRAIN_DEBUG=1 shows the traceback")
    else:
        _trace(error)
    return 1


def _failed_hook(error: Exception) -> str | None:
    """Return the hook of a third-party task that raised the error; None if there is none, or no task is imported."""
    if "seqtrain.tasks.base" not in sys.modules:  # importing it now would import torch for nothing
        return None
    from seqtrain.tasks.hooks import failed_hook

    return failed_hook(error)


def _system_error(error: OSError) -> tuple[str, ...]:
    """Return a line on a system error that the user can fix; empty if no remedy is known."""
    remedy = REMEDIES.get(error.errno or 0)
    if error.filename is not None:
        return (f"{error.filename}: {remedy or f'{error.strerror}; fix that, or give another path'}",)
    if remedy is not None:
        return (remedy,)
    return ()


def _trace(error: Exception) -> None:
    for line in "".join(traceback.format_exception(error)).splitlines():
        terminal.tell(line)
