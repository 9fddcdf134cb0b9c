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

from seqtrain import train
from seqtrain.runs.directory import Run
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
    monkeypatch.setattr(record, "POWERCAP", tmp_path)
    (tmp_path / "intel-rapl:0").mkdir()  # without a counter that this user may read
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


def powercap(folder: Path, **microjoules: int) -> None:
    """Write counters as Linux has them: of two processors, and of a part of the first one, which counts in it."""
    for name, now in microjoules.items():
        zone = folder / f"intel-rapl:{name.removeprefix('zone').replace('_', ':')}"
        zone.mkdir(parents=True, exist_ok=True)
        (zone / "energy_uj").write_text(f"{now}\n")
        (zone / "max_energy_range_uj").write_text("9999999\n")


def test_energy_is_that_of_all_processors_since_the_last_reading_also_where_a_counter_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(record, "POWERCAP", tmp_path)
    usage = SystemUsage()
    powercap(tmp_path, zone0=1_000_000, zone0_1=500_000, zone1=9_000_000)
    usage.start()
    powercap(tmp_path, zone0=3_000_000, zone0_1=900_000, zone1=500_000)  # the second after 9,999,999
    assert usage.read(CPU)["system/joules"] == pytest.approx(2.0 + 1.5)
    powercap(tmp_path, zone0=3_250_000)
    assert usage.read(CPU)["system/joules"] == pytest.approx(0.25)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "utilization", lambda device: 50)
    monkeypatch.setattr(torch.cuda, "power_draw", lambda device: 200_000)  # milliwatts
    begin = time.monotonic()
    usage.start()
    time.sleep(0.05)
    joules = usage.read(torch.device("cuda", 0))["system/joules"]
    assert 200 * 0.05 <= joules <= 200 * (time.monotonic() - begin)


@pytest.mark.long
def test_the_joules_of_a_run_are_those_of_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = iter(range(0, 10**9, 500_000))

    def content(path: Path) -> bytes:
        return str(next(counted) if path.name == "energy_uj" else 10**12).encode()

    monkeypatch.chdir(tmp_path)
    (tmp_path / "power" / "intel-rapl:0").mkdir(parents=True)
    monkeypatch.setattr(record, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(record, "POWERCAP", tmp_path / "power")
    monkeypatch.setattr(record, "_content", content)
    monkeypatch.setattr(SystemUsage, "_processes", lambda self: [])
    train(
        *("task=tag", "model=gru", "model.dim=8", "data=person_or_place", "data.size=100", "trainer.max_steps=4"),
        *("trainer.log_every=1", "logger=none", "callbacks=none", "trainer.accelerator=cpu", "run_dir=run"),
    )
    run = Run(tmp_path / "run")
    found = [each["system/joules"] for each in run.metrics() if "system/joules" in each]
    assert len(found) == 4
    assert run.summary.joules == pytest.approx(sum(found)) == 2.0
