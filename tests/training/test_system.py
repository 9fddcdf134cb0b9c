"""Laws of what a run says that it takes of its machine: of its own processes alone, cheaply, and never a guess."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from seqtrain.training.callbacks import record
from seqtrain.training.callbacks.record import SystemUsage

CPU = torch.device("cpu")
SPIN = "import time\nend = time.monotonic() + 60\nprint(flush=True)\nwhile time.monotonic() < end: pass"
HELD = 200  # MB


def _burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_busy_process_is_told_from_one_that_waits() -> None:
    usage = SystemUsage()
    usage.start()
    time.sleep(0.3)
    idle = usage.read(CPU)["system/cpu_percent"]
    usage.start()
    _burn(0.3)
    busy = usage.read(CPU)["system/cpu_percent"]
    assert idle < busy / 2


def test_memory_is_what_is_held_now() -> None:
    usage = SystemUsage()
    before = usage.read(CPU)["system/memory_mb"]
    # From the system itself: an allocator may serve it from what earlier tests gave back, and nothing grows.
    with mmap.mmap(-1, HELD * 1_000_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        usage.start()
        assert usage.read(CPU)["system/memory_mb"] - before == pytest.approx(HELD, rel=0.25)


@pytest.mark.long
def test_a_worker_counts_and_a_process_of_somebody_else_does_not() -> None:
    usage = SystemUsage()
    with subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) as worker:
        assert worker.stdout
        worker.stdout.readline()
        try:
            usage.start()
            time.sleep(0.5)
            with_worker = usage.read(CPU)["system/cpu_percent"]
            stranger = SystemUsage()
            stranger.start()
            stranger._processes = lambda: [os.getpid()]  # as where the spinning one is not a child of ours
            time.sleep(0.5)
            alone = stranger.read(CPU)["system/cpu_percent"]
        finally:
            worker.kill()
    assert alone < with_worker / 2


def test_between_two_readings_lies_a_time_however_short_a_step_is(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SystemUsage()
    assert usage.read(CPU), "a run that is over at once has one reading"
    assert usage.read(CPU) == {}
    monkeypatch.setattr(record, "MIN_SECONDS", 0.0)
    assert usage.read(CPU)


def test_what_the_machine_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(record, "PROC", tmp_path)
    usage = SystemUsage()
    usage.start()
    assert usage.read(CPU).keys() == {"system/cpu_percent"}


def test_a_gpu_tells_its_memory_and_is_asked_for_its_clock_once_where_it_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def utilization(device: torch.device) -> int:
        asked.append(device)
        raise ModuleNotFoundError("no pynvml")

    monkeypatch.setattr(record, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3_000_000)
    monkeypatch.setattr(torch.cuda, "utilization", utilization)
    usage = SystemUsage()
    found = [usage.read(torch.device("cuda", 0)) for _ in range(2)]
    assert [each["system/gpu_memory_mb"] for each in found] == [3.0, 3.0]
    assert len(asked) == 1
    assert not any("system/gpu_percent" in each for each in found)
