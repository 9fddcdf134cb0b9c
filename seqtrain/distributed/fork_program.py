"""Server process of `ForkServer`, which forks its commands; a program of its own, or forked from its client."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import traceback
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from seqtrain.distributed.ranks import CAUGHT, die_with_parent
from seqtrain.terminal import leave

MAX_MESSAGE_BYTES = 1 << 20  # of one request


def _serve(control: socket.socket, modules: Sequence[str]) -> list[str] | None:
    """Run the server's loop. Return in a forked command, with its arguments, or with None once the client is gone."""
    for name in modules:
        module, _, function = name.partition(":")
        try:
            imported = importlib.import_module(module)
            if function:
                getattr(imported, function)()
        except Exception as error:  # left to the command that needs it, where the error belongs
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


def fork(
    theirs: socket.socket, ours: socket.socket, target: str, modules: Sequence[str], env: Mapping[str, str]
) -> int:
    """Fork a server from this process; return its process id. It ends with this process.

    The server does not share modules that are imported later, or threads that are started later.

    Args:
        theirs: Socket on which the server listens.
        ours: The client's end, closed in the server.
        target: `module:function` that runs a command.
        modules: Modules to import first.
        env: Environment variables to set in the server.
    """
    client = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with_parent(client)
        os.setsid()
        ours.close()  # or the end of the client would go unnoticed
        for number in CAUGHT:
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.environ.update(env)
        args = _serve(theirs, modules)
        if args is not None:
            leave(_call(target, args))
    except BaseException:
        traceback.print_exc()
    os._exit(0)


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
