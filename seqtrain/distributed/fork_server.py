"""Fork server: heavy imports run once, then each command runs in its own forked process."""

from __future__ import annotations

import atexit
import contextlib
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
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from seqtrain.distributed.ranks import die_with_parent
from seqtrain.terminal import leave

TARGET = "seqtrain.cli.main:main"
MAX_MESSAGE_BYTES = 1 << 20  # of one request


@dataclass(frozen=True)
class Result:
    """Result of a command: exit status (-9 if signal 9 ended it), output, and seconds."""

    rc: int
    stdout: str
    stderr: str
    seconds: float


class ForkServer:
    """Server that runs commands in processes forked from one that has imported `modules`; thread-safe.

    If `modules` contains `module:function`, the function is called after the import; commands inherit its effects.

    Measured over three interleaved pairs: a training of two steps takes 0.27 of the time of one that imports all.

    Each command is a separate process and process group. It can be killed; it ends with the server, and the server ends
    with this process. Variables that a library reads at import, such as OMP_NUM_THREADS or HF_HOME, come from `env`,
    the server's environment; all others from the command's environment.
    """

    def __init__(
        self,
        modules: Sequence[str] = (),
        *,
        target: str = TARGET,
        env: dict[str, str] | None = None,
    ) -> None:
        self._modules = list(modules)
        self._target = target
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._lock = threading.Lock()

    def start(self) -> ForkServer:
        """Start the server and wait until its imports are done. Raise RuntimeError if it cannot start."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {"OPENBLAS_NUM_THREADS": "1", **(self._env or os.environ)}  # OpenBLAS starts its threads at import
        program = [sys.executable, "-P", "-m", __name__, str(theirs.fileno())]  # -P: nothing from the working folder
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            [*program, self._target, *self._modules],
            env=env,
            stdin=quiet,
            stdout=quiet,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._control = ours
        if not ours.recv(MAX_MESSAGE_BYTES):
            raise RuntimeError(f"the fork server ended during start-up with status {self._ended()}")
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
            cwd: Working folder of the command. None: that of this process.
            env: Whole environment of the command. None: that of this process.
            timeout: Seconds after which the command is killed with everything that it started. None: no limit.

        Raises:
            subprocess.TimeoutExpired: The command ran longer than `timeout`.
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
        process, self._process = self._process, None
        return 0 if process is None else process.wait()

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
        """Return the exit status (-9 for signal 9). Raise subprocess.TimeoutExpired after `timeout` seconds."""
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

    def kill_group(self) -> None:
        """Kill the process and everything that it started."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

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
            raise RuntimeError("the fork server and its commands died")
        return json.loads(message)


def _bytes(file: IO[bytes]) -> bytes:
    """Return the whole file by `pread`: a normal read would move the offset at which the command writes."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def _content(file: IO[bytes]) -> str:
    return _bytes(file).decode("utf-8", "replace")


# -- the server's own process --------------------------------------------------------------------------------------


def _serve(control: socket.socket, modules: Sequence[str]) -> list[str] | None:
    """Run the server's loop. Return the arguments in a forked command, and None in the server once the client ends."""
    for name in modules:
        module, _, function = name.partition(":")
        try:
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
        except Exception as error:  # a command that needs the module will raise the error
            print(f"fork server: {name} cannot be imported: {error!r}", file=sys.stderr)
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
            try:
                message, handles, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, 3)
            except ConnectionError:  # the client ended without closing
                return None
            if not message:
                return None
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
    """Report commands that ended and kill the rest of their process groups: an orphan would keep the output open."""
    while lines and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(ended.si_pid, signal.SIGKILL)  # not yet waited for, so the id is still its own
        _, status = os.waitpid(ended.si_pid, 0)
        line = lines.pop(ended.si_pid)
        _tell(line, {"rc": os.waitstatus_to_exitcode(status)})
        line.close()


def _tell(line: socket.socket, message: dict[str, int]) -> None:
    with contextlib.suppress(OSError):  # the client has stopped waiting
        line.send(json.dumps(message).encode())


def _become(request: dict[str, Any], server: int, out: int, err: int) -> list[str]:
    """Turn this forked process into the command: set signals, session, files and environment; return its arguments."""
    die_with_parent(server)
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
    _disown()
    return request["args"]


def _disown() -> None:
    """Unregister exit handlers of the server's modules, such as removing a temporary folder: the server runs them."""
    atexit._clear()
    for inherited in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        inherited.atexit = False
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined] - so that a new one registers again


def _main(handle: str, target: str, *modules: str) -> None:
    args = _serve(socket.socket(fileno=int(handle)), modules)
    leave(0 if args is None else _call(target, args))


def _call(target: str, args: list[str]) -> int:
    """Return the exit status that `target` would have as the main program."""
    module, _, name = target.partition(":")
    try:
        code = getattr(importlib.import_module(module), name)(args)
    except SystemExit as leaving:
        code = leaving.code
    except BaseException:
        traceback.print_exc()
        return 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        return 1
    return code or 0


if __name__ == "__main__":
    _main(*sys.argv[1:])
