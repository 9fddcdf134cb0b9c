"""Fork server: heavy imports run once, then each command runs in its own forked process."""

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
    """Result of a command: exit status (-9 if signal 9 ended it), output, and seconds."""

    rc: int
    stdout: str
    stderr: str
    seconds: float


class ForkServer:
    """Server that runs commands in processes forked from one that has imported `modules`; thread-safe.

    A `module:function` among them is called after the import; every command inherits its effects in memory.

    Each command is its own process and process group. It can be killed, and ends with the server, as the server ends
    with this process. Variables that a library reads at import, such as OMP_NUM_THREADS or HF_HOME, come from `env`,
    the server's; later ones from the command's environment.
    """

    def __init__(
        self,
        modules: Sequence[str] = (),
        *,
        target: str = TARGET,
        env: dict[str, str] | None = None,
        begin: Literal["spawn", "fork"] = "spawn",
    ) -> None:
        """Store the options. `begin`: a new Python, or a fork of this process, without heavy modules or threads yet."""
        self._modules = list(modules)
        self._target = target
        self._env = env
        self._begin = begin
        self._process: subprocess.Popen[bytes] | None = None
        self._forked: int | None = None
        self._control: socket.socket | None = None
        self._lock = threading.Lock()

    def start(self) -> ForkServer:
        """Start the server and wait until its imports are done. Raises RuntimeError if it cannot start."""
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
        """Start the command `seqtrain ARGS` in `cwd` with the whole environment `env` (default: this process's)."""
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
        """Run a command to its end.

        Args:
            args: Arguments of `seqtrain`.
            cwd: Its working folder. None: that of this process.
            env: Its whole environment. None: that of this process.
            timeout: Seconds after which it is killed with everything it started. None: no limit.

        Raises:
            subprocess.TimeoutExpired: It ran longer than `timeout`.
        """
        child = self.popen(args, cwd=cwd, env=env)
        try:
            child.wait(timeout)
            return child.result()
        finally:
            child.kill_group()
            child.close()

    def close(self) -> None:
        """End the server and every command that still runs."""
        if self._control is not None:
            self._control.close()
            self._control = None
        self._ended()

    def _ended(self) -> int:
        """Wait for the server's end; return its exit status."""
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
        """Return the descriptor that `select` reports as readable once the command has ended."""
        return self._line.fileno()

    def begun(self) -> None:
        """Wait until the process exists."""
        self.pid = self._read()["pid"]

    @property
    def stdout(self) -> str:
        """Output of the command so far."""
        return _content(self.out)

    @property
    def stderr(self) -> str:
        """Standard error of the command so far."""
        return _content(self.err)

    def poll(self) -> int | None:
        """Return the exit status, or None while the command runs."""
        if self._rc is None and select.select([self._line], [], [], 0)[0]:
            self._rc = self._read()["rc"]
            self._seconds = time.monotonic() - self._started
        return self._rc

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, -9 if signal 9 ended it. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        if self._rc is None and not select.select([self._line], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("seqtrain", timeout or 0.0, _bytes(self.out), _bytes(self.err))
        rc = self.poll()
        assert rc is not None
        return rc

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill_group(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process and everything that it started, as Ctrl-C in a terminal does."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def result(self) -> Result:
        """Wait for the command and return its result."""
        rc = self.wait()
        return Result(rc, self.stdout, self.stderr, self._seconds)

    def close(self) -> None:
        """Close the files."""
        for file in (self._line, self.out, self.err):
            file.close()

    def _read(self) -> dict[str, Any]:
        message = self._line.recv(64)
        if not message:
            raise RuntimeError("the fork server died, and its commands with it")
        return json.loads(message)


def _bytes(file: IO[bytes]) -> bytes:
    """Return the whole file by `pread`: a normal read would move the offset at which the command writes."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def _content(file: IO[bytes]) -> str:
    return _bytes(file).decode("utf-8", "replace")
