"""Seconds of a step by its parts, over some steps, and a trace of a few more by torch.profiler."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from torch.profiler import profile

from seqtrain.distributed.ranks import say
from seqtrain.files.atomic import atomic, plain_json
from seqtrain.runs.directory import Run
from seqtrain.training.callbacks.record import step_done
from seqtrain.training.learner import Learner

SKIPPED, TIMED, TRACED = 3, 20, 3  # steps of this attempt: the first ones allocate memory
PARTS = ("data", "forward", "backward", "optimizer", "rest")


class StepProfile(Callback):
    """Time the parts of some steps, then trace some later ones, because tracing takes time. Evaluations are excluded.

    This callback comes last, so the time of all other callbacks is counted as `rest`.
    """

    def __init__(self, *, run: Run) -> None:
        self.folder = run.path / "profile"
        self.seconds: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.steps = 0  # steps done in this attempt
        self.on_gpu = False
        self._since: float | None = None  # when the last part ended; None while nothing is timed
        self._trace: profile | None = None

    def on_train_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.on_gpu = pl_module.device.type == "cuda"
        # That of an earlier attempt: this one may be too short to write its own.
        (self.folder / "trace.json").unlink(missing_ok=True)
        trainer.optimizers[0].register_step_post_hook(lambda *_: self._end("optimizer"))

    def on_train_batch_start(self, trainer: Trainer, pl_module: Learner, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        self._end("data")

    def on_before_backward(self, trainer: Trainer, pl_module: Learner, loss: torch.Tensor) -> None:  # type: ignore[override]
        self._end("forward")

    def on_after_backward(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self._end("backward")

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: Learner, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._end("rest")
        if not step_done(trainer, batch_idx):
            return
        self.steps += 1
        if self.steps == SKIPPED:
            self._since = time.perf_counter()
        elif self.steps == SKIPPED + TIMED:
            self._since = None
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's tracer would print lines of its own
            self._trace = profile()
            self._trace.start()
        elif self.steps == SKIPPED + TIMED + TRACED:
            self._write()

    def on_validation_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self._end("rest")

    def on_validation_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if self._since is not None:
            self._since = time.perf_counter()

    def on_train_end(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if self.steps < SKIPPED + TIMED + TRACED:
            self._write()

    def _end(self, part: str) -> None:
        """Add the time since the last part ended to this part."""
        if self._since is None:
            return
        if self.on_gpu:
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[part] += now - self._since
        self._since = now

    def _write(self) -> None:
        """Write the seconds of a step and the trace; log what was measured."""
        self._since, count = None, min(self.steps - SKIPPED, TIMED)
        if count < 1:
            say(f"profile: nothing was timed; the first {SKIPPED} steps are skipped; set trainer.max_steps higher")
            return
        by_step = {part: seconds / count for part, seconds in self.seconds.items()}
        whole = sum(by_step.values())
        self.folder.mkdir(exist_ok=True)
        with atomic(self.folder / "steps.json") as file:
            file.write(plain_json({"steps": count, "seconds": by_step}).encode())
        parts = ", ".join(f"{part} {seconds / whole:.0%}" for part, seconds in by_step.items())
        say(f"profile: a step takes {1000 * whole:.3g} ms, the mean of {count}: {parts}")
        if self._trace is not None:
            self._trace.stop()
            path = self.folder / "trace.json"
            self._trace.export_chrome_trace(str(path))
            say(f"profile: {path} is a trace of {TRACED} steps, for https://ui.perfetto.dev")
