"""A fork server: heavy imports are paid once, then each command runs in a forked process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from seqtrain.distributed import fork_program
from seqtrain.distributed.fork_program import MAX_MESSAGE_BYTES

TARGET = "seqtrain.cli.main:main"


@dataclass(frozen=True)
class Result:
    """How a command ended: exit status (-9 where signal 9 ended it), what it printed, seconds it took."""

    rc: int
    stdout: str
    stderr: str
    seconds: float


class ForkServer:
    """Runs commands in processes forked from one that has imported `modules`; thread-safe.

    `module:function` is called once it is imported: what it leaves in memory every command finds there.

    Each command is a process and a group of its own, may be killed, and dies with the server, as the server dies with
    this process. What a library reads from the environment while it is imported, such as OMP_NUM_THREADS or HF_HOME,
    it takes from `env`, the server's; everything later, from the command's.
    """

    def __init__(
        self,
        modules: Sequence[str] = (),
        *,
        target: str = TARGET,
        env: dict[str, str] | None = None,
        begin: Literal["spawn", "fork"] = "spawn",
    ) -> None:
        """`begin`: as a new Python, or forked from this process, which then has nothing heavy, and no thread, yet."""
        self._modules = list(modules)
        self._target = target
        self._env = env
        self._begin = begin
        self._process: subprocess.Popen[bytes] | None = None
        self._forked: int | None = None
        self._control: socket.socket | None = None
        self._lock = threading.Lock()

    def start(self) -> ForkServer:
        """Starts the server and waits until it has imported everything; RuntimeError when it cannot begin."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {"OPENBLAS_NUM_THREADS": "1", **(self._env or os.environ)}  # it would start its threads when imported
        if self._begin == "fork":
            self._forked = fork_program.fork(theirs, ours, self._target, self._modules, env)
        else:
            server = [
                sys.executable,
                "-P",
                "-m",
                "seqtrain.distributed.fork_program",
            ]  # -P: nothing from the working folder
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(
                [*server, str(theirs.fileno()), self._target, *self._modules],
                env=env,
                stdin=quiet,
                stdout=quiet,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()
        self._control = ours
        if not ours.recv(MAX_MESSAGE_BYTES):
            raise RuntimeError(f"the fork server ended at once with status {self._ended()}")
        return self

    def popen(self, args: Sequence[str], *, cwd: Path | str | None = None, env: dict[str, str] | None = None) -> Child:
        """Starts the command `seqtrain ARGS` in `cwd` with the whole environment `env` (default: this process's)."""
        if self._control is None:
            raise RuntimeError("the fork server was not started")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        child = Child(ours)
        request = {"args": list(args), "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        handles = [theirs.fileno(), child.out.fileno(), child.err.fileno()]
        with self._lock:
            socket.send_fds(self._control, [json.dumps(request).encode()], handles)
        theirs.close()
        child.begun()
        return child

    def run(
        self,
        args: Sequence[str],
        *,
        cwd: Path | str | None = None,
        env: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Runs a command to its end; subprocess.TimeoutExpired, and everything it started killed, after `timeout` s."""
        child = self.popen(args, cwd=cwd, env=env)
        try:
            child.wait(timeout)
            return child.result()
        finally:
            child.kill_group()
            child.close()

    def close(self) -> None:
        """Ends the server and every command that still runs."""
        if self._control is not None:
            self._control.close()
            self._control = None
        self._ended()

    def _ended(self) -> int:
        """Waits for the server's end; gives its exit status."""
        code = 0
        if self._process is not None:
            code = self._process.wait()
        elif self._forked is not None:
            code = os.waitstatus_to_exitcode(os.waitpid(self._forked, 0)[1])
        self._process = self._forked = None
        return code

    def __enter__(self) -> ForkServer:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()


class Child:
    """A command that the server runs; `out` and `err` are the files that it writes."""

    def __init__(self, line: socket.socket) -> None:
        self.pid = 0
        self.out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - until `close`
        self.err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._line = line
        self._rc: int | None = None
        self._started = time.monotonic()
        self._seconds = 0.0

    def fileno(self) -> int:
        """What `select` finds readable once the command has ended."""
        return self._line.fileno()

    def begun(self) -> None:
        """Waits for the process to exist."""
        self.pid = self._read()["pid"]

    @property
    def stdout(self) -> str:
        """What the command has printed so far."""
        return _content(self.out)

    @property
    def stderr(self) -> str:
        """What the command has printed to standard error so far."""
        return _content(self.err)

    def poll(self) -> int | None:
        """The exit status, or None while the command runs."""
        if self._rc is None and select.select([self._line], [], [], 0)[0]:
            self._rc = self._read()["rc"]
            self._seconds = time.monotonic() - self._started
        return self._rc

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, -9 where signal 9 ended it; subprocess.TimeoutExpired after `timeout` seconds."""
        if self._rc is None and not select.select([self._line], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("seqtrain", timeout or 0.0, _bytes(self.out), _bytes(self.err))
        rc = self.poll()
        assert rc is not None
        return rc

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal to the process, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill_group(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal to the process and everything that it started, as Ctrl-C in a terminal does."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def result(self) -> Result:
        """How the command ended; waits for it."""
        rc = self.wait()
        return Result(rc, self.stdout, self.stderr, self._seconds)

    def close(self) -> None:
        """Gives back the files."""
        for file in (self._line, self.out, self.err):
            file.close()

    def _read(self) -> dict[str, Any]:
        message = self._line.recv(64)
        if not message:
            raise RuntimeError("the fork server died, and its commands with it")
        return json.loads(message)


def _bytes(file: IO[bytes]) -> bytes:
    """The whole file by `pread`: the command writes at the offset that a read would move."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def _content(file: IO[bytes]) -> str:
    return _bytes(file).decode("utf-8", "replace")
