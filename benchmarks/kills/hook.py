"""Processes that die at the N-th file event below a folder: the command, for a fork server, or any piece of work.

A file event is a call that makes, opens for writing, renames, links or removes something, or a commit of a database,
of whose files Python sees nothing. The process dies just before it. Processes forked from it count on.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

try:
    from sqlalchemy import event as database_events
    from sqlalchemy.engine import Engine
except ImportError:  # without optuna nothing has a database
    Engine = None  # type: ignore[assignment,misc]

LOG = "KILLS_LOG"  # a file of SIZE bytes: how many events there were, then the one at which it died
BELOW = "KILLS_BELOW"  # the folder whose events count
AT = "KILLS_AT"  # the event to die at; 0: none
WHOM = "KILLS_WHOM"  # `all` processes of the command, or `one`: the one whose event it is
SIZE = 4096
COUNT = struct.Struct("q")

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
PATHS = {
    # event: where its arguments hold a path, and the folder that this path is relative to
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.truncate": ((0, 99),),
    "sqlite3.connect": ((0, 99),),
}


def main(argv: list[str]) -> int:
    """The command, armed where the environment says so."""
    from seqtrain.cli.main import main as command

    if LOG in os.environ:
        variant(os.environ)
    return command(argv)


def variant(env: Mapping[str, str]) -> None:
    """Counts file events from here on, in this process and those forked from it, and dies at the one asked for."""
    at, whole, first = int(env[AT]), env[WHOM] == "all", os.getpid()
    with open(env[LOG], "r+b") as file:
        log = mmap.mmap(file.fileno(), SIZE)  # shared by all processes

    def act(what: str) -> None:
        if _counted(log) == at:
            words = what.encode()[: SIZE - COUNT.size - 1]
            log[COUNT.size : COUNT.size + len(words)] = words
            if whole:
                os.kill(first, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    watch(Path(env[BELOW]), act)


def run_forked(work: Callable[[], object], *, below: Path, at: int = 0) -> tuple[bool, int]:
    """Does the work in a forked process that dies at the file event `at` below a folder, from 1; 0: none.

    Gives whether it died there, and how many events it had. RuntimeError where the work fails in itself.
    """
    log = mmap.mmap(-1, SIZE)
    pid = os.fork()
    if not pid:
        try:
            watch(below, lambda what: os.kill(os.getpid(), signal.SIGKILL) if _counted(log) == at else None)
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"the work ended with {code}: see its standard error")
    return code != 0, COUNT.unpack_from(log)[0]


def killed_before(number: int, work: Callable[[], object], *, below: Path) -> bool:
    """Whether the work, in a forked process, dies before its file event `number`, from 0: whether it has so many."""
    return run_forked(work, below=below, at=number + 1)[0]


def watch(below: Path, act: Callable[[str], None]) -> None:
    """Has `act` told of each file event below a folder, in this process and those forked from it; for good."""
    root = os.path.abspath(below)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" or event in PATHS:
            path = _touched(event, args, root)
            if path is not None:
                act(f"{event} {os.path.relpath(path, root)}")

    sys.addaudithook(hook)
    if Engine is not None:
        database_events.listen(Engine, "commit", lambda connection: act("commit"))


def _counted(log: mmap.mmap) -> int:
    """Counts one event more; how many there were."""
    count = COUNT.unpack_from(log)[0] + 1
    COUNT.pack_into(log, 0, count)
    return count


def read_log(path: Path) -> tuple[int, str]:
    """How many file events there were, and which one was the last of a command that died there."""
    content = path.read_bytes()
    return COUNT.unpack_from(content)[0], content[COUNT.size :].rstrip(b"\0").decode()


def _touched(event: str, args: Sequence[Any], below: str) -> str | None:
    """The path below the folder that the event changes, or None."""
    if event == "open":
        path, _, flags = args
        return _inside(path, None, below) if (flags or 0) & WRITING else None
    for place, relative_to in PATHS[event]:
        folder = args[relative_to] if relative_to < len(args) else None
        found = _inside(args[place], folder, below)
        if found is not None:
            return found
    return None


def _inside(path: Any, folder: Any, below: str) -> str | None:
    if isinstance(path, int) or path is None:
        return None
    text = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0 and not os.path.isabs(text):
        text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
    text = os.path.abspath(text)
    return text if text == below or text.startswith(f"{below}/") else None
