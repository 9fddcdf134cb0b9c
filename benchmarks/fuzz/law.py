"""The law of every example: one line or success, nothing else touched, 10 s of CPU, 1 GB, nothing left running."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from benchmarks.fuzz.known import KNOWN
from seqtrain.distributed.fork_server import ForkServer, Result
from seqtrain.errors import UserError
from tests.support.bad_inputs import contents

MOST_BYTES = 1 << 30  # that a process may ask for beyond what it has when it begins
CPU_SECONDS = 10
MOST_CHARACTERS = 12_000  # of an error
PATIENCE = 90.0  # seconds by the clock, on however slow a machine: only what waits for ever takes longer
PR_SET_CHILD_SUBREAPER = 36
WARNING = re.compile(r"\.py:\d+: \w*Warning")

SEED = os.environ.get("FUZZ_SEED")
FACTOR = float(os.environ.get("FUZZ_EXAMPLES", "1"))


def target(argv: list[str]) -> int:
    """`seqtrain ARGS` within the bounds: what a fork server calls."""
    from seqtrain.cli.main import main

    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + MOST_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return main(argv)


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """The bounds for what is asked in this process: TimeoutError, or MemoryError, where they are met."""

    def late(number: int, frame: Any) -> None:
        raise TimeoutError(f"took more than {CPU_SECONDS} s")

    former = signal.signal(signal.SIGPROF, late)
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + MOST_BYTES, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def in_process(work: Callable[[], object]) -> str | None:
    """What is wrong with how a piece of work ends in this process: only a UserError of printable lines may end it."""
    try:
        with bounded():
            work()
    except UserError as fault:
        return None if fault.lines and all(fault.lines) else "a fault without a word"
    except Exception as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
        return f"{type(error).__name__}: {error} ({'/'.join(where.split('/')[-3:])})"
    return None


class Law:
    """Runs commands in a folder and says what is wrong with how they end."""

    def __init__(self, server: ForkServer, env: dict[str, str]) -> None:
        self.server, self.env = server, env

    def flaw(self, *words: str, cwd: Path, untouched: tuple[Path, ...]) -> str | None:
        """What the command does that it may not, or None; nothing in `untouched` may change."""
        before, children = [contents(folder) for folder in untouched], _children()
        adopt = ctypes.CDLL(None).prctl
        adopt(PR_SET_CHILD_SUBREAPER, 1)  # so that an orphan of the command becomes our child
        try:
            answer = self.server.run(words, cwd=cwd, env=self.env, timeout=PATIENCE)
        except subprocess.TimeoutExpired as late:
            return f"hangs; it has said {(late.stderr or b'')[-300:]!r}"
        finally:
            adopt(PR_SET_CHILD_SUBREAPER, 0)
        changed = [f"{path}" for path, seen in zip(untouched, before, strict=True) if contents(path) != seen]
        if changed:
            return f"changed {', '.join(changed)}"
        return flaw(answer) or _left_behind(_children() - children)


def _left_behind(children: set[int]) -> str | None:
    """What is wrong where processes that a command began still run; they are ended."""
    left = [pid for pid in children if not _reaped(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return f"left {len(left)} processes running" if left else None


def flaw(answer: Result) -> str | None:
    """What is wrong with how a command ended: its exit code, what it printed."""
    lines = answer.stderr.rstrip("\n").split("\n")
    errors = [line for line in lines if line.startswith("error: ")]
    if answer.rc < 0:
        return f"killed by {signal.Signals(-answer.rc).name}: {lines[-1][-300:]}"
    if "Traceback" in answer.stderr + answer.stdout:
        return f"a traceback: {lines[-1][-300:]} ({_raised(answer.stderr)})"
    if answer.rc not in (0, 1, 2):
        return f"exit code {answer.rc}: {lines[-1][-300:]}"
    if answer.rc and not errors:
        return f"exit code {answer.rc} without an error: {answer.stderr[-300:]!r}"
    if long := [line for line in errors if len(line) > MOST_CHARACTERS]:
        return f"an error of {len(long[0])} characters: {long[0][:200]}"
    steering = [line for line in lines if any(unicodedata.category(char) in ("Cc", "Cs") for char in line)]
    if steering:
        return f"control characters: {steering[0][:300]!r}"
    warning = WARNING.search(answer.stderr)
    return f"a warning of Python: {answer.stderr[warning.start() : warning.start() + 200]}" if warning else None


def ask(examples: SearchStrategy[Any], question: Callable[[Any], str | None], *, count: int) -> None:
    """Asks about so many examples; AssertionError that lists, once each, the ways in which the law is broken."""
    broken: dict[str, str] = {}

    @settings(
        max_examples=max(int(count * FACTOR), 1),
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=SEED is None,
    )
    @given(examples)
    def one(example: Any) -> None:
        wrong = question(example)
        if wrong is not None and not any(re.search(pattern, f"{example}: {wrong}") for pattern in KNOWN):
            kind = re.sub(r"[0-9]+|'[^']*'", "_", wrong)[-120:]
            if kind not in broken:
                broken[kind] = f"{wrong}\n    {str(example)[:600]}"
                print(broken[kind], flush=True)

    (one if SEED is None else seed(int(SEED))(one))()
    assert not broken, "\n\n".join(broken.values())


def _raised(text: str) -> str:
    """The last place of ours in a traceback."""
    places = re.findall(r'File "[^"]*/(seqtrain/[^"]*)", line (\d+)', text)
    return ":".join(places[-1]) if places else "not in seqtrain"


def _data_bytes() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    return int(line.split()[1]) * 1024


def _children() -> set[int]:
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def _reaped(pid: int) -> bool:
    """Whether a process of ours has ended, as one that was told to end soon does."""
    for _ in range(200):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                return True
        signal.sigtimedwait([], 0.01)
    return False
