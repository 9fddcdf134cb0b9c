"""Guards of training: report what failed, and where."""

from __future__ import annotations

import errno
import resource
import time
from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from torch import Tensor
from torch.optim import Optimizer

from seqtrain.data.batching.examples import ExampleBatch
from seqtrain.distributed.ranks import all_gather
from seqtrain.errors import RunFailed
from seqtrain.terminal import tell
from seqtrain.training.callbacks.record import step_done
from seqtrain.training.learner import Learner

SECONDS_WATCHED = 5.0  # of training, before `Crowded` decides
MAX_INTERRUPTIONS = 100  # per second of processor time: a training has 2 to 35 alone, and 230 to 290 beside others
MAX_SAID = 3  # skipped updates that are reported individually
ELSEWHERE = "while the model was built or the data read; lower model.dim, or read less"


class Skips(Callback):
    """Report the first skipped updates; later ones are only counted."""

    def __init__(self) -> None:
        self.known = 0

    def on_train_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        self.known = pl_module.progress.skipped

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: Learner, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        skipped = pl_module.progress.skipped
        if skipped == self.known or not step_done(trainer, batch_idx):
            return
        self.known = skipped
        if skipped <= MAX_SAID and trainer.is_global_zero:
            rest = "; more are counted only: `skipped` in metrics.jsonl" if skipped == MAX_SAID else ""
            tell(f"step {trainer.global_step}: loss or gradient is not finite, so the update was skipped{rest}")


class Crowded(Callback):
    """Say once that other processes use the cores of this training, which slows several threads far more than one.

    torch's threads wait for each other in a loop. If one of them is interrupted, the others keep their cores busy until
    it runs again.
    """

    def __init__(self) -> None:
        self.since: tuple[float, float, int] | None = None  # usage at the start; None once the decision is made

    def on_train_start(self, trainer: Trainer, pl_module: Learner) -> None:  # type: ignore[override]
        if trainer.is_global_zero and pl_module.device.type == "cpu" and torch.get_num_threads() > 1:
            self.since = _usage()

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: Trainer, pl_module: Learner, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.since is None or time.monotonic() - self.since[0] < SECONDS_WATCHED:
            return
        _, seconds, interruptions = (now - then for now, then in zip(_usage(), self.since, strict=True))
        self.since = None
        if interruptions > MAX_INTERRUPTIONS * seconds:
            tell("other processes use the cores of this training; beside them trainer.threads=1 may be much faster")


def _usage() -> tuple[float, float, int]:
    """Return the time, and this process's seconds of processor time and number of interruptions by other processes."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.monotonic(), used.ru_utime + used.ru_stime, used.ru_nivcsw


class Memory(Callback):
    """Add a note to an out-of-memory error: the batch, and options that make it smaller."""

    def __init__(self) -> None:
        self.reading = ""

    def on_train_batch_start(self, trainer: Trainer, pl_module: Learner, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        keys = "data.batch_size or tbptt.k2"
        if isinstance(batch, ExampleBatch):
            keys = "data.batch_tokens, or data.batch_size"
        step = trainer.global_step + 1
        self.reading = (
            f"at step {step}, training on {_shape(batch)}; "
            f"in a new run set trainer.accumulate={2 * trainer.accumulate_grad_batches}, which changes no loss, or "
            f"lower {keys}"
        )

    def on_validation_batch_start(  # type: ignore[override]
        self, trainer: Trainer, pl_module: Learner, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self.reading = (
            f"at step {trainer.global_step}, evaluating {_shape(batch)}; "
            "resume with a lower data.eval_batch_size, which changes no result"
        )

    def on_exception(self, trainer: Trainer, pl_module: Learner, exception: BaseException) -> None:  # type: ignore[override]
        if is_out_of_memory(exception) and self.reading:
            exception.add_note(self.reading)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if this error means that memory ran out, on a GPU or elsewhere."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    # torch has no exception class for errors of its CPU allocator or of a driver.
    words = ("can't allocate memory", "Cannot allocate memory", "bad_alloc", "out of memory")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def out_of_memory_words(error: BaseException) -> str:
    """Return one line: when and where memory ran out, and what to do."""
    return f"out of memory {next(iter(getattr(error, '__notes__', [])), ELSEWHERE)}"


def _shape(batch: Any) -> str:
    size, length = batch.tokens.shape[:2]
    side_by_side = "examples" if isinstance(batch, ExampleBatch) else "lanes"
    return f"a batch of {size:,} {side_by_side} x {length:,} tokens"


WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class SameRanks(Callback):
    """Compare gradients and weights over processes every `every` steps; raise RunFailed if they differ.

    Processes are compared before the update, when gradients are reduced.
    """

    def __init__(self, *, every: int) -> None:
        self.every = every

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: Learner, optimizer: Optimizer) -> None:  # type: ignore[override]
        if trainer.global_step % self.every:
            return
        weights = list(chain.from_iterable(group["params"] for group in optimizer.param_groups))
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        # Gradients first: a different gradient makes weights differ, and the message should name the cause.
        for name, tensors in (("gradients", gradients), ("weights", weights)):
            checksums = all_gather(checksum(tensors))
            for rank, other in enumerate(checksums):
                if other != checksums[0]:
                    raise RunFailed(
                        f"step {trainer.global_step + 1}: the {name} of process {rank} differ from those of process 0; "
                        "the cause is a fault of the machine or of the model's code"
                    )


def checksum(tensors: Iterable[Tensor]) -> int:
    """Return a number that depends on every bit of the tensors and on their order; equal bits give equal numbers."""
    sums = []
    for tensor in tensors:
        # As integers: sums of floats would lose small differences, and hide -0 and kinds of nan.
        bits = tensor.detach().contiguous().view(WIDTHS[tensor.element_size()])
        sums.append(bits.sum(dtype=torch.int64))
    if not sums:
        return 0
    # Transferred together, to wait for the GPU once instead of once per tensor.
    return sum(place * value for place, value in enumerate(torch.stack(sums).tolist(), start=1))
