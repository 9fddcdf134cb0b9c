"""Start of the processes of a run on this machine. Signals are forwarded to all, and all end together."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, cast

from seqtrain.distributed.ranks import CAUGHT, ENDING, die_with_parent


@dataclass(frozen=True)
class Outcome:
    """Result of a group of processes."""

    # 0 done, 1 failed, 2 an error that the user can fix, 75 something is missing now (UNAVAILABLE), 128 + signal
    code: int
    lines: tuple[str, ...] = ()  # error messages, each once


def start(count: int, work: Callable[..., int], *args: Any, gpu: bool) -> Outcome:
    """Run `work(tell, *args)` in `count` processes of this machine and wait for them.

    They end with this process. If one fails or is killed, the others are ended too. Signals to this process are
    forwarded to all of them. CPU processes are forked, so this process must not have used torch's threads.

    Args:
        count: Number of processes.
        work: Importable function that returns an exit code.
        args: Its arguments after `tell`.
        gpu: Spawn the processes instead of forking them.
    """
    context: Any = multiprocessing.get_context("spawn" if gpu else "fork")
    with tempfile.TemporaryDirectory(prefix="seqtrain-") as folder:
        given = (os.getpid(), folder, work, args)
        members = [context.Process(target=_member, args=(rank, count, *given)) for rank in range(count)]
        with _forwarding() as living:
            signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)  # delay signals until all processes can receive them
            for rank, worker in enumerate(members):
                worker.start()
                living[cast(int, worker.pid)] = rank
            signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)
            first = _watch(members, living)
        lines = [line for path in sorted(Path(folder).glob("rank-*.json")) for line in json.loads(path.read_text())]
    return _outcome(first, members[first].exitcode or 0, lines)


@contextmanager
def _forwarding() -> Iterator[dict[int, int]]:
    """Yield a map from process id to rank, and forward the signals that end a run to the processes in it."""
    living: dict[int, int] = {}

    def forward(number: int, frame: FrameType | None) -> None:
        _send(living, number)

    caught = CAUGHT if threading.current_thread() is threading.main_thread() else ()  # Python's rule for handlers
    former = {number: signal.signal(number, forward) for number in caught}
    try:
        yield living
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _send(living: dict[int, int], number: int) -> None:
    for pid in list(living):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _watch(members: list[Any], living: dict[int, int]) -> int:
    """Wait until all have ended; return the rank of the first that failed, or 0. After a failure, end the others."""
    failed: int | None = None
    limit = float("inf")
    while living:
        wait([members[rank].sentinel for rank in living.values()], timeout=0.5)
        codes = {rank: members[rank].exitcode for rank in living.values()}  # read once: a process may end at any moment
        # If several have ended, the one that was killed is the cause.
        ended = sorted((code, rank) for rank, code in codes.items() if code is not None)
        for pid in [pid for pid, rank in living.items() if codes[rank] is not None]:
            del living[pid]
        for code, rank in ended:
            if code and failed is None:
                failed, limit = rank, time.monotonic() + ENDING
                _send(living, signal.SIGTERM)
        if time.monotonic() > limit:
            _send(living, signal.SIGKILL)
    return failed or 0


def _outcome(rank: int, code: int, lines: list[str]) -> Outcome:
    """Return the outcome of the group. `rank` and `code`: the process that failed first, if any, and its exit code."""
    if -code in CAUGHT:  # killed before its handler was installed
        return Outcome(128 - code)
    if code < 0:
        memory = " (the machine may have run out of memory)" if -code == signal.SIGKILL else ""
        lines = [*lines, f"process {rank} was killed by {signal.Signals(-code).name}{memory}"]
    return Outcome(1 if code < 0 else code, tuple(dict.fromkeys(lines)))


def _member(
    rank: int, count: int, parent: int, folder: str, work: Callable[..., int], args: tuple[Any, ...]
) -> NoReturn:
    """Run one process of the group. It dies with its parent and writes its messages to a file."""
    for number in CAUGHT:
        signal.signal(number, signal.SIG_DFL)  # a forked process inherits its parent's handlers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)
    die_with_parent(parent)
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "GROUP_RANK": 0}
    os.environ.update({name: str(value) for name, value in names.items()}, SEQTRAIN_MEET=f"{folder}/meet")
    lines: list[str] = []
    code = work(lines.append, *args)
    if lines:
        (Path(folder) / f"rank-{rank}.json").write_text(json.dumps(lines))
    sys.exit(code)
