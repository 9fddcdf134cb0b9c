"""Laws of the fork server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqtrain.distributed.fork_server import ForkServer

COMMAND = """
import atexit, os, subprocess, sys, time
def main(args):
    word, *rest = args
    if word == "raise":
        raise ValueError("a bug")
    if word == "exit":
        sys.exit("a word")
    if word == "atexit":
        atexit.register(print, "farewell")
        return None
    if word == "die":
        os.kill(os.getpid(), int(rest[0]))
    if word == "sleep":
        try:
            print("asleep", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            return 130
    if word == "orphan":
        print(subprocess.Popen(["sleep", "60"]).pid)
        return 0
    if word == "called":
        import counts_calls
        return len(counts_calls.calls)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    (folder / "commands_of_a_test.py").write_text(COMMAND)
    (folder / "counts_calls.py").write_text("calls = []\ndef call(): calls.append(1)")
    return folder


@pytest.fixture
def surroundings(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parents[2])])}


@pytest.fixture
def small(surroundings: dict[str, str]) -> Iterator[ForkServer]:
    with ForkServer(["counts_calls", "no_such_module"], target="commands_of_a_test:main", env=surroundings) as server:
        yield server


def _gone(pid: int, seconds: float = 5.0) -> bool:
    """Whether the process ends in time (a zombie has ended)."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        stat = Path(f"/proc/{pid}/stat")
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def _until_asleep(child) -> None:
    until = time.monotonic() + 10
    while "asleep" not in child.stdout and time.monotonic() < until:
        time.sleep(0.01)
    assert "asleep" in child.stdout


def test_a_function_of_the_server_is_called_once_before_the_first_command(surroundings: dict[str, str]) -> None:
    with ForkServer(["counts_calls:call"], target="commands_of_a_test:main", env=surroundings) as server:
        assert [server.run(["called"]).rc for _ in range(2)] == [1, 1]


def test_exit_status_is_that_of_a_process_of_its_own(small: ForkServer) -> None:
    crashed = small.run(["raise"])
    assert (crashed.rc, crashed.stderr.splitlines()[-1]) == (1, "ValueError: a bug")
    left = small.run(["exit"])
    assert (left.rc, left.stderr) == (1, "a word\n")
    assert (small.run(["atexit"]).rc, small.run(["atexit"]).stdout) == (0, "farewell\n")
    assert [small.run(["die", str(number)]).rc for number in (9, 11, 15)] == [-9, -11, -15]


def test_signals_reach_the_command_alone(small: ForkServer) -> None:
    other, child = small.popen(["sleep"]), small.popen(["sleep"])
    for each in (other, child):
        _until_asleep(each)
    child.kill(signal.SIGINT)
    assert child.wait(10) == 130
    assert other.poll() is None
    other.kill()
    assert other.wait(10) == -signal.SIGKILL


def test_what_a_command_leaves_behind_ends_with_it(small: ForkServer) -> None:
    result = small.run(["orphan"])
    assert _gone(int(result.stdout))


def test_when_the_server_dies_its_commands_die(small: ForkServer) -> None:
    child = small.popen(["sleep"])
    _until_asleep(child)
    assert small._process is not None
    small._process.kill()
    with pytest.raises(RuntimeError, match="the fork server and its commands died"):
        child.wait(10)
    assert _gone(child.pid)


def test_when_the_client_dies_everything_dies(surroundings: dict[str, str]) -> None:
    script = (
        "import os, sys; from seqtrain.distributed.fork_server import ForkServer\n"
        "server = ForkServer(target='commands_of_a_test:main').start()\n"
        "print(server._process.pid, server.popen(['sleep']).pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    client = subprocess.run([sys.executable, "-c", script], env=surroundings, capture_output=True, text=True)
    assert client.returncode == -9
    assert all(_gone(int(pid)) for pid in client.stdout.split())


def test_a_server_that_cannot_begin_is_an_error_not_a_hang() -> None:
    with pytest.raises(RuntimeError, match="ended during start-up with status 1"):
        ForkServer(env={"PYTHONHOME": "/nowhere"}).start()


def _threads(server: ForkServer) -> list[str]:
    assert server._process is not None
    tasks = Path(f"/proc/{server._process.pid}/task").iterdir()
    names = [(task / "comm").read_text().strip() for task in tasks]
    return [name for name in names if not name.startswith("jemalloc")]  # Arrow's allocator restarts its own


def test_the_preloaded_server_has_started_no_pool_of_threads(server: ForkServer) -> None:
    assert len(_threads(server)) == 1


def test_numpy_starts_no_pool_of_threads_in_the_server(surroundings: dict[str, str]) -> None:
    bare = {name: value for name, value in surroundings.items() if not name.endswith("_NUM_THREADS")}
    with ForkServer(["numpy"], env=bare) as server:
        assert len(_threads(server)) == 1
