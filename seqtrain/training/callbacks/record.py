"""Record of a run: every record is written to metrics.jsonl first, then to the loggers."""

from __future__ import annotations

import math
import os
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer

from seqtrain.data.batching.loader import Plan, fingerprint_of
from seqtrain.distributed.ranks import all_gather, all_max, rank_info
from seqtrain.errors import NonFinite, RunFailed
from seqtrain.runs.directory import Run
from seqtrain.training.accumulators import LOSS
from seqtrain.training.clipping import Clipping
from seqtrain.training.learner import Learner, chained

CHECKED_STEPS = 1000  # steps before a resume whose batches are recomputed from the plan


def step_done(trainer: Trainer, batch_idx: int) -> bool:
    """Return True if this micro-batch was the last of its optimiser step."""
    return (batch_idx + 1) % trainer.accumulate_grad_batches == 0


def point(record: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a record, for the loggers."""
    return {name: value for name, value in record.items() if name != "read"}


class Recorder(Callback):
    """Write training metrics every `every` steps and every evaluation; keep the clock of training.

    The clock stops during validation and after training, so validating more often does not change the measured speed.
    """

    def __init__(self, *, run: Run, every: int, plan: Plan) -> None:
        self.run = run
        self.every = every
        self.plan = plan
        self.recorded: dict[int, str] = {}  # the checksum of what was read, by step, in earlier attempts of this run
        self.newest: dict[str, float] = {}  # values for the progress bar
        self.validated = -1  # the step of the newest evaluation
        self.trained = 0  # the step of the newest training record
        self.seconds = 0.0  # of training until the clock was last stopped, including earlier attempts of this run
        self._started_at: float | None = None  # by the machine's clock; None while the training clock is stopped
        self._last_record = (0, 0.0)  # tokens and seconds at the last training record, to compute speed
        self._system = SystemUsage()
        self._num_records: int | None = None  # in metrics.jsonl, once there is one of this attempt

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.elapsed(), "validated": self.validated}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seconds, self.validated = state_dict["seconds"], state_dict["validated"]

    def elapsed(self) -> float:
        """Return the seconds of training in all attempts."""
        if self._started_at is None:
            return self.seconds
        return self.seconds + (time.monotonic() - self._started_at)

    def stop(self) -> None:
        """Stop the clock until the next training batch."""
        self.seconds, self._started_at = self.elapsed(), None

    def on_train_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self._started_at = time.monotonic()
        self._last_record = (pl_module.progress.tokens, self.elapsed())
        self.recorded = {record["step"]: record["read"] for record in self.run.records() if "read" in record}
        fingerprint = self._planned(trainer.global_step)
        self._check_read(trainer.global_step, fingerprint, pl_module.progress.fingerprint)
        self._system.start()

    def _planned(self, step: int) -> int:
        """Return the checksum of all batches up to this step, computed from the plan.

        The checkpoint's own checksum cannot detect that the data has changed since. In a long run the computation
        starts at the checksum of a recorded step, at least CHECKED_STEPS earlier, so that resuming late takes no
        longer.
        """
        known = max((recorded for recorded in self.recorded if recorded <= step - CHECKED_STEPS), default=0)
        fingerprint = int(self.recorded[known], 16) if known else 0
        for earlier in range(known, step):
            fingerprint = chained(fingerprint_of(self.plan.chunk(*divmod(earlier, self.plan.steps))), fingerprint)
        return fingerprint

    def _check_read(self, step: int, *fingerprints: int) -> None:
        """Raise RunFailed unless all checksums of the batches up to this step, also the recorded one, are equal."""
        distinct = {f"{fingerprint:08x}" for fingerprint in fingerprints}
        if step in self.recorded:
            distinct.add(self.recorded[step])
        if len(distinct) > 1:
            raise RunFailed(
                f"run {self.run.path}: step {step} does not continue with the batches of this run; the data, "
                "its layout or numpy's random numbers have changed: start a new run"
            )

    def on_train_batch_start(self, trainer: Trainer, pl_module: Learner, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        if self._started_at is None:  # after a validation and its callbacks
            self._started_at = time.monotonic()

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: Learner, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not step_done(trainer, batch_idx) or trainer.global_step % self.every:
            return
        totals, metrics = pl_module.reduce_sums(), {}
        if totals:  # otherwise all updates since the last record were skipped
            metrics = pl_module.task.measure(totals, pl_module.facts["train"])
        if not math.isfinite(metrics.get(LOSS, 0.0)):
            raise NonFinite(f"the loss is {metrics[LOSS]} at step {trainer.global_step}")
        pl_module.sums.terms = {}
        progress = pl_module.progress
        self._check_read(trainer.global_step, progress.fingerprint)
        record: dict[str, Any] = {f"train/{name}": value for name, value in metrics.items()}
        record["read"] = f"{progress.fingerprint:08x}"
        record["lr"] = trainer.optimizers[0].param_groups[0]["lr"]
        if pl_module.on_nonfinite == "skip":
            record["skipped"] = progress.skipped
        norm = math.nan if progress.gradient_norm is None else float(progress.gradient_norm)
        if math.isfinite(norm):  # in fp16 the norm of a skipped update may be infinite
            record["gradient_norm"] = norm
        record |= pl_module.sums_of_clipping.measures()
        pl_module.sums_of_clipping = Clipping()
        tokens, seconds = self._last_record
        self._last_record = (progress.tokens, self.elapsed())
        record["tokens_per_second"] = (progress.tokens - tokens) / max(self._last_record[1] - seconds, 1e-9)
        if self.run.writes:
            # After the speed is computed, so that this measurement is not included.
            record |= self._system.read(pl_module.device)
        self.trained = trainer.global_step
        self._write(trainer, pl_module, record)

    def on_validation_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.stop()

    def on_train_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.stop()

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.validated = trainer.global_step
        values = {f"validation/{name}": value for name, value in pl_module.metrics.items()}
        # No checkpoint follows the end of training, so a process killed before may already have written this record.
        if trainer.state.fn == "fit" or not self._is_validated(trainer.global_step):
            self._write(trainer, pl_module, values)
        self._last_record = (pl_module.progress.tokens, self.elapsed())

    def _is_validated(self, step: int) -> bool:
        """Return True if metrics.jsonl contains a validation of this step."""
        return any(record["step"] == step and f"validation/{LOSS}" in record for record in self.run.metrics())

    def _write(self, trainer: Trainer, learner: Learner, values: dict[str, Any]) -> None:
        step = trainer.global_step
        record = {
            "step": step,
            "epoch": round(step / self.plan.steps, 4),
            "tokens": learner.progress.tokens,
            "seconds": round(self.elapsed(), 3),
            "time": round(time.time(), 3),
            **values,
        }
        if self._num_records is None:
            self._num_records = sum(1 for _ in self.run.records())
        self._num_records += 1
        self.newest.update(record)
        self.run.append(record)  # first: loggers can be rebuilt from the file, but not the file from loggers
        for logger in trainer.loggers:
            logger.log_metrics({**point(record), "record": self._num_records}, step)


MICRO = 1e6  # processes exchange integers


class Deadline(Callback):
    """End training at the first step after `seconds` of training in all attempts, excluding validations.

    After each step the schedule gets the number of steps that the time allows, so that the learning rate has fully
    decayed when time is up. It precedes the callback that saves checkpoints, which checks whether a step is the last
    one.
    """

    def __init__(self, *, recorder: Recorder, seconds: float) -> None:
        self.recorder = recorder
        self.seconds = seconds
        self.met = False

    def on_train_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.limit = trainer.max_steps
        self._look(trainer, pl_module)

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: Learner, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if step_done(trainer, batch_idx):
            self._look(trainer, pl_module)

    def _look(self, trainer: Trainer, learner: Learner) -> None:
        """Read the clock of the first process, which is the recorded one, so that all processes decide the same."""
        microseconds = round(self.recorder.elapsed() * MICRO) if rank_info().first else 0
        step, spent = trainer.global_step, all_max(microseconds) / MICRO
        if not step:
            return  # the speed is not known yet
        self.met = spent >= self.seconds
        if self.met:
            self.recorder.stop()  # later saving and measuring is not training time
            learner.max_steps = trainer.fit_loop.epoch_loop.max_steps = step
        else:
            learner.max_steps = min(self.limit, max(step + 1, round(step * self.seconds / spent)))


PREFIX = "system/"  # of the names in metrics.jsonl
MIN_SECONDS = 1.0  # between two readings: their cost is then negligible, also for short steps
PROC = Path("/proc")
POWERCAP = Path("/sys/class/powercap")
PROCESSOR, RESIDENT = slice(11, 15), 1  # fields of /proc/PID/stat behind the name, and of /proc/PID/statm


@dataclass
class SystemUsage:
    """Resource usage of a run's processes on this machine: those that train, and the workers that read data.

    Other processes of the machine, such as another trial or a logger's service, are not counted.
    """

    pids: tuple[int, ...] = ()  # of the processes that train here, including this one
    _read_at: float | None = None  # by the clock of the machine; None before the first reading
    _since: float = field(default_factory=time.monotonic)
    _seconds_before: float = field(default_factory=lambda: _processor_seconds(os.getpid()))  # at the last reading
    _has_gpu_clock: bool = True  # until a reading fails
    _energy: dict[Path, int] = field(default_factory=dict)  # of each counter at the last reading, in microjoules

    def start(self) -> None:
        """Start counting. Every process calls it, so that the first one knows the others."""
        here = (socket.gethostname(), os.getpid())
        self.pids = tuple(pid for host, pid in all_gather(here) if host == here[0])
        self._read_at, self._since = None, time.monotonic()
        self._joules()
        self._seconds_before = sum(map(_processor_seconds, self._processes()))

    def read(self, device: torch.device) -> dict[str, float]:
        """Return the current usage; empty if the last reading is less than MIN_SECONDS ago.

        Args:
            device: Device on which this process trains.

        Returns:
            `system/cpu_percent` since the last reading (100: one core is busy), `system/memory_mb` resident (10^6
            bytes; memory that workers share with their process counts in each of them), `system/joules` since the
            last reading, of all processors of this machine (Linux' RAPL) and of this GPU; on a GPU also
            `system/gpu_percent` and `system/gpu_watts` (if torch can read them, by nvidia-ml-py) and
            `system/gpu_memory_mb` (reserved by torch). Values that this machine does not provide are left out.
        """
        now = time.monotonic()
        if self._read_at is not None and now - self._read_at < MIN_SECONDS:
            return {}
        self._read_at = now
        processes = self._processes()
        seconds = sum(map(_processor_seconds, processes))
        # A worker that ends between two measurements still counts among the children of its process.
        busy = (seconds - self._seconds_before) / max(now - self._since, 1e-9)
        found = {f"{PREFIX}cpu_percent": round(100 * max(busy, 0.0), 1)}
        resident = sum(map(_resident_bytes, processes))
        if resident:
            found[f"{PREFIX}memory_mb"] = round(resident / 1e6, 1)
        if device.type == "cuda":
            found |= self._gpu(device)
        joules = self._joules() + found.get(f"{PREFIX}gpu_watts", 0.0) * (now - self._since)
        if joules:
            found[f"{PREFIX}joules"] = round(joules, 3)
        self._since, self._seconds_before = now, seconds
        return found

    def _joules(self) -> float:
        """Return the energy used by the machine's processors since the last measurement; 0 if unavailable."""
        joules = 0.0
        for zone in POWERCAP.glob("intel-rapl:[0-9]"):  # a zone below one, such as intel-rapl:0:1, is part of it
            largest, now = (int(_content(zone / name) or 0) for name in ("max_energy_range_uj", "energy_uj"))
            joules += (now - self._energy.get(zone, now)) % (largest + 1) / 1e6  # the counter wraps around
            self._energy[zone] = now
        return joules

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
                found[f"{PREFIX}gpu_watts"] = torch.cuda.power_draw(device) / 1000
            except Exception:  # no nvidia-ml-py, or a driver without this value: not worth a message
                self._has_gpu_clock = False
        return found


def _processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process and its ended children; for this process, finer than kernel ticks."""
    if pid == os.getpid():
        times = os.times()
        return time.process_time() + times.children_user + times.children_system
    stat = _content(PROC / str(pid) / "stat")
    ticks = stat.rpartition(b")")[2].split()[PROCESSOR]  # a name may contain any bytes
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
