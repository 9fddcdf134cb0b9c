"""A fork server: heavy imports are paid once, then each command runs in a forked process of its own."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

TARGET = "seqtrain.commands.cli:main"
LONGEST = 1 << 20  # bytes of one message
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Result:
    """How a command ended: exit status (-9 where signal 9 ended it), what it printed, seconds it took."""

    rc: int
    stdout: str
    stderr: str
    seconds: float


class ForkServer:
    """Runs commands in processes forked from one that has imported `modules`; thread-safe.

    Each command is a process and a group of its own, may be killed, and dies with the server, as the server dies with
    this process. What a library reads from the environment while it is imported, such as OMP_NUM_THREADS or HF_HOME,
    it takes from `env`, the server's; everything later, from the command's.
    """

    def __init__(self, modules: Sequence[str] = (), *, target: str = TARGET, env: dict[str, str] | None = None) -> None:
        self._modules = list(modules)
        self._target = target
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lock = threading.Lock()

    def start(self) -> ForkServer:
        """Starts the server and waits until it has imported everything; RuntimeError when it cannot begin."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "seqtrain.launch", str(theirs.fileno()), self._target, *self._modules]
        quiet = subprocess.DEVNULL
        env = {"OPENBLAS_NUM_THREADS": "1", **(self._env or os.environ)}  # it would start its threads when imported
        self._process = subprocess.Popen(
            command, env=env, stdin=quiet, stdout=quiet, pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()
        self._control = ours
        if not ours.recv(LONGEST):
            raise RuntimeError(f"the fork server ended at once with status {self._process.wait()}")
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
        if self._process is not None:
            self._process.wait()
            self._process = None

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


def _serve(control: socket.socket, modules: Sequence[str]) -> list[str]:
    """The server's loop; comes back only in a forked command, with its arguments."""
    sys.path.pop(0)  # the folder that the server was started in: no command would have it
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # left to the command that needs it, where the error belongs
            print(f"fork server: {module} cannot be imported: {error!r}", file=sys.stderr)
    gc.collect()
    gc.freeze()  # keeps the collector of each command off the shared pages
    wake, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    selector.register(wake, selectors.EVENT_READ)
    lines: dict[int, socket.socket] = {}
    control.send(b"ready")
    while True:
        for key, _ in selector.select():
            if key.fileobj is wake:
                wake.recv(4096)
                _reap(lines)
                continue
            message, handles, _, _ = socket.recv_fds(control, LONGEST, 3)
            if not message:
                os._exit(0)  # the client is gone; the kernel ends the commands
            line, out, err = socket.socket(fileno=handles[0]), *handles[1:]
            server, pid = os.getpid(), os.fork()
            if pid == 0:
                selector.close()
                for inherited in (control, wake, waker, line, *lines.values()):
                    inherited.close()
                return _become(json.loads(message), server, out, err)
            os.close(out)
            os.close(err)
            lines[pid] = line
            _tell(line, {"pid": pid})


def _reap(lines: dict[int, socket.socket]) -> None:
    """Reports the commands that ended and kills what they left in their groups: an orphan would hold the output."""
    while lines and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(ended.si_pid, signal.SIGKILL)  # not yet waited for, so that the number is still its own
        _, status = os.waitpid(ended.si_pid, 0)
        line = lines.pop(ended.si_pid)
        _tell(line, {"rc": os.waitstatus_to_exitcode(status)})
        line.close()


def _tell(line: socket.socket, message: dict[str, int]) -> None:
    with contextlib.suppress(OSError):  # nobody waits any more
        line.send(json.dumps(message).encode())


def _become(request: dict[str, Any], server: int, out: int, err: int) -> list[str]:
    """Turns this forked process into the command: signals, session, files, environment, arguments."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for handle, number in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    paths = request["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    tempfile.tempdir = None  # may differ in this environment
    sys.argv = ["seqtrain", *request["args"]]
    return request["args"]


def _main(handle: str, target: str, *modules: str) -> None:
    args = _serve(socket.socket(fileno=int(handle)), modules)
    try:
        module, _, name = target.partition(":")
        code = getattr(importlib.import_module(module), name)(args)
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)  # taking hundreds of shared modules apart would cost half a second


if __name__ == "__main__":
    _main(*sys.argv[1:])
