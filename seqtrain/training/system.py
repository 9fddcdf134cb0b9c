"""Resources that a training uses on its machine: processor time, memory, and the GPU if there is one."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from seqtrain.distributed.ranks import all_gather

PREFIX = "system/"  # of the names in metrics.jsonl
MIN_SECONDS = 1.0  # between two readings: their cost is then negligible, also for short steps
PROC = Path("/proc")
PROCESSOR, RESIDENT = slice(11, 15), 1  # fields of /proc/PID/stat behind the name, and of /proc/PID/statm


@dataclass
class SystemUsage:
    """Usage of the processes of a run on this machine: those that train, and the workers that read data.

    Other processes of the machine do not count, such as another trial or a logger's own service.
    """

    pids: tuple[int, ...] = ()  # of the processes that train here, this one among them
    _read_at: float | None = None  # by the clock of the machine; None before the first reading
    _since: float = field(default_factory=time.monotonic)
    _seconds_before: float = field(default_factory=lambda: _processor_seconds(os.getpid()))  # at the last reading
    _has_gpu_clock: bool = True  # until a reading fails

    def start(self) -> None:
        """Start counting. Every process calls it, so that the first one knows the others."""
        here = (socket.gethostname(), os.getpid())
        self.pids = tuple(pid for host, pid in all_gather(here) if host == here[0])
        self._read_at, self._since = None, time.monotonic()
        self._seconds_before = sum(map(_processor_seconds, self._processes()))

    def read(self, device: torch.device) -> dict[str, float]:
        """Return the current usage; empty if the last reading is less than MIN_SECONDS ago.

        Args:
            device: Device on which this process trains.

        Returns:
            `system/cpu_percent` since the last reading (100: one core is busy), `system/memory_mb` resident (10^6
            bytes; memory that workers share with their process counts in each of them); on a GPU also
            `system/gpu_percent` (if torch can read it, by nvidia-ml-py) and `system/gpu_memory_mb` (reserved by
            torch). Values that this machine does not provide are left out.
        """
        now = time.monotonic()
        if self._read_at is not None and now - self._read_at < MIN_SECONDS:
            return {}
        self._read_at = now
        processes = self._processes()
        seconds = sum(map(_processor_seconds, processes))
        # A worker that ends between two readings still counts among the children of its process.
        busy = (seconds - self._seconds_before) / max(now - self._since, 1e-9)
        self._since, self._seconds_before = now, seconds
        found = {f"{PREFIX}cpu_percent": round(100 * max(busy, 0.0), 1)}
        resident = sum(map(_resident_bytes, processes))
        if resident:
            found[f"{PREFIX}memory_mb"] = round(resident / 1e6, 1)
        if device.type == "cuda":
            found |= self._gpu(device)
        return found

    def _processes(self) -> list[int]:
        """Return the processes that train, and their workers."""
        found = list(self.pids) or [os.getpid()]
        for pid in tuple(found):
            children = _content(PROC / str(pid) / "task" / str(pid) / "children")
            found += map(int, children.split())
        return found

    def _gpu(self, device: torch.device) -> dict[str, float]:
        found = {f"{PREFIX}gpu_memory_mb": round(torch.cuda.memory_reserved(device) / 1e6, 1)}
        if self._has_gpu_clock:
            try:
                found[f"{PREFIX}gpu_percent"] = float(torch.cuda.utilization(device))
            except Exception:  # no nvidia-ml-py, or a driver without this value: not worth a line
                self._has_gpu_clock = False
        return found


def _processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process and its ended children; for this process, finer than kernel ticks."""
    if pid == os.getpid():
        times = os.times()
        return time.process_time() + times.children_user + times.children_system
    stat = _content(PROC / str(pid) / "stat")
    ticks = stat.rpartition(b")")[2].split()[PROCESSOR]  # a name may hold anything
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    pages = _content(PROC / str(pid) / "statm").split()
    if not pages:
        return 0
    return int(pages[RESIDENT]) * os.sysconf("SC_PAGE_SIZE")


def _content(path: Path) -> bytes:
    """Return the file's content; empty for a process that has ended, or on another system."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
