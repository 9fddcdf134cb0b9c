"""The only LightningModule, with automatic optimisation.

`training_step` reads one micro-batch of one process: a chunk of some lanes, or some examples.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Literal

import torch
from pytorch_lightning import LightningModule
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from seqtrain.data.batching.plan import deal
from seqtrain.data.sources.base import Split
from seqtrain.distributed.ranks import all_gather
from seqtrain.distributed.strategies import gather, shard, whole
from seqtrain.errors import NonFinite, UserError
from seqtrain.models.base import SequenceModel
from seqtrain.tasks.base import Facts, LossTerms, Reduced, Task
from seqtrain.training.accumulators import LOSS, Accumulators, merged, on_cpu
from seqtrain.training.carried_state import CarriedState, join_slices, read_batch
from seqtrain.training.clipping import Clipping
from seqtrain.training.compiled import as_compiled
from seqtrain.training.optim.groups import parameter_groups

MAX_SKIPPED_IN_A_ROW = 100  # the run stops when so many updates in a row were skipped


@dataclass
class Progress:
    """Values that change at every step. They are kept outside the module, whose attributes are slow to set."""

    tokens: int = 0  # tokens trained on by all processes, at the last reduction
    own: int = 0  # tokens trained on by this process
    fingerprint: int = 0  # checksum of all batches so far, the same on every process
    gradient_norm: Tensor | None = None  # of the last update, before clipping
    skipped: int = 0  # updates skipped because loss or gradient was not finite
    skipped_in_a_row: int = 0  # number of updates skipped since the last applied one


class Learner(LightningModule):
    """Model and task with loss, carried state, optimizer and randomness. The learner writes and prints nothing."""

    def __init__(
        self,
        *,
        model: SequenceModel,
        task: Task,
        carry: bool,
        lanes: int,
        facts: dict[str, Facts],
        seed: int,
        optimizer: Callable[[list[dict[str, Any]]], Optimizer] | None = None,
        schedule: Callable[..., Any] | None = None,
        max_steps: int = 0,
        layer_decay: float = 1.0,
        on_nonfinite: Literal["stop", "skip"] = "stop",
        compiled: bool = False,
        recompute: int | None = None,
        eval_precision: Literal["full", "training"] = "full",
    ) -> None:
        super().__init__()
        self.model = model
        self.task = task
        self.carry = carry
        self.lanes = lanes
        self.facts = facts
        self.seed = seed
        self.make_optimizer = optimizer
        self.schedule = schedule
        self.max_steps = max_steps
        self.layer_decay = layer_decay
        self.on_nonfinite = on_nonfinite
        self.compiled = compiled  # by `compile_blocks`; only training reads with what torch has compiled
        self.recompute = recompute  # tokens per piece of a step; evaluation uses the same pieces
        self.eval_precision = eval_precision
        self.split: Split = "validation"  # the split that evaluation reads
        self.carried = CarriedState()  # of training; plain attributes, because DDP would overwrite buffers
        self.eval_carried = CarriedState()
        self.sums = Accumulators()  # sums of training since the last record
        self.terms_before = self.sums.terms  # loss terms of training before this step
        self.sums_of_clipping = Clipping()  # of training, since the last record
        self.clipped_parameters: list[Tensor] = []  # collected once, because collecting takes 2 % of a small step
        self.eval_sums = Accumulators()
        self.totals: Reduced = {}  # of the last evaluation
        self.metrics: dict[str, float] = {}  # of the last evaluation
        self.progress = Progress()
        self.plateau: ReduceLROnPlateau | None = None  # stepped by a callback: Lightning would not resume it correctly
        self.run_identity: dict[str, Any] = {}  # determines its results (`runs.identity`); stored
        self.surroundings: dict[str, Any] = {}  # limits, versions, machine; may change on resume; stored
        self.restored: dict[str, Any] = {}
        self.started = False  # True once this attempt trains, after everything is restored

    def configure_model(self) -> None:
        """Shard the weights if the strategy does. Lightning may call this more than once."""
        if self.device_mesh is not None and not hasattr(self, "unshard"):
            shard(self, self.device_mesh)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Move the batch to its device; a copy to a GPU does not block."""
        if device.type == "cuda":
            return batch.to(device, non_blocking=True)
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    # -- one step ------------------------------------------------------------------------------------------------

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Seed from (seed, rank, batch), so that a resumed run draws the same random numbers."""
        seed = zlib.crc32(f"{self.seed} {self.global_rank} {batch_idx}".encode())
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        with as_compiled() if self.compiled else nullcontext():
            terms = self._read(batch, self.carried)
        if batch_idx % self.trainer.accumulate_grad_batches == 0:
            self.terms_before = dict(self.sums.terms)
            self.progress.fingerprint = chained(batch.fingerprint, self.progress.fingerprint)
        self.sums.add(terms)
        # A single process that does not skip can stop here; several processes must all reach the reduction first.
        stops_here = self.trainer.world_size == 1 and self.on_nonfinite == "stop"
        if stops_here and not self.sums.finite():
            raise NonFinite(f"the loss is {self.sums.terms[LOSS][0]} at step {self.global_step + 1}")
        self.progress.own += batch.count
        # `totals` counts the targets of all micro-batches of all ranks, so sum / total is this process's part of the
        # mean. Lightning divides by the micro-batches and DDP by the ranks; this undoes both.
        micro_batches = self.trainer.accumulate_grad_batches * self.trainer.world_size
        means = [terms[name][0] * (micro_batches / batch.totals[name]) for name in self.task.differentiated]
        loss = reduce(torch.add, means)
        if stops_here:
            return loss
        return _nan_if_any_term_is_not_finite(loss, terms)

    def reduce_sums(self) -> Reduced:
        """Return sums and counts since the last record over all processes; every process calls it at the same steps."""
        return self._reduced_over_processes(self.sums)

    def _reduced_over_processes(self, sums: Accumulators) -> Reduced:
        terms_by_rank, tokens_by_rank = zip(*all_gather((on_cpu(sums.terms), self.progress.own)), strict=True)
        self.progress.tokens = sum(tokens_by_rank)
        return merged(terms_by_rank).read()

    def _read(self, batch: Any, carried: CarriedState) -> LossTerms:
        """Return the loss terms of a batch, read from the carried state; update the carried state."""
        terms, _ = read_batch(self.model, self.task, batch, carried if self.carry else None, self.recompute)
        return terms

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        with as_compiled() if self.compiled else nullcontext():  # recomputed pieces run here
            super().backward(loss, *args, **kwargs)

    # -- evaluation ----------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        gather(self)  # from here on each process reads its own share independently
        self.eval_carried, self.eval_sums = CarriedState(), Accumulators()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        # Autocast of training is active here. With bf16, rounding depends on the number of lanes per batch.
        with torch.autocast(self.device.type, enabled=False) if self.eval_precision == "full" else nullcontext():
            self.eval_sums.add(self._read(batch, self.eval_carried))

    def on_train_end(self) -> None:
        gather(self)  # for callbacks that use the model after training

    def on_validation_epoch_end(self) -> None:
        self.eval_carried = CarriedState()
        self.totals = self._reduced_over_processes(self.eval_sums)
        self.metrics = self.task.measure(self.totals, self.facts[self.split])
        for name, value in self.metrics.items():
            self.log(f"validation/{name}", value, logger=False)  # for EarlyStopping and similar callbacks

    # -- optimisation --------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        assert self.make_optimizer is not None
        optimizer = self.make_optimizer(parameter_groups(self.model, self.task, self.layer_decay))
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] = group["lr"] * group["lr_scale"]
        if not isinstance(self.schedule, partial):
            return optimizer  # seqtrain's own: a function of the step
        scheduler = self.schedule(optimizer)  # torch's: a partial that takes the optimizer
        if isinstance(scheduler, ReduceLROnPlateau):
            self.plateau = scheduler
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Set the learning rate of this step. It is a function of the step, so a resumed run needs no saved state."""
        if self.schedule is not None and not isinstance(self.schedule, partial):
            factor = self.schedule(self.global_step, self.max_steps)
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor

    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clip to the norm `gradient_clip_val` and store it. If it is not finite, stop the run or skip the update.

        After the reduction the norm is the same on all processes, and so are the decisions that follow from it. On a
        GPU only skipping waits for the norm; otherwise the loss of the next record, or the weights of the next
        checkpoint, reveal the fault. In fp16 a gradient that is too large is not a fault: the scaler skips the update
        and lowers its scale.
        """
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            scaler.unscale_(optimizer)  # a fused optimizer would unscale in its step, after the clipping
        if not self.clipped_parameters:
            self.clipped_parameters = list(self.parameters())
        norm = whole(torch.nn.utils.clip_grad_norm_(self.clipped_parameters, gradient_clip_val or float("inf")))
        waits = self.on_nonfinite == "skip" or (norm.device.type == "cpu" and scaler is None)
        if not waits or math.isfinite(norm.item()):
            self.progress.gradient_norm, self.progress.skipped_in_a_row = norm, 0
            self.sums_of_clipping.add(norm, gradient_clip_val)
        elif self.on_nonfinite == "skip":
            self._skip(norm.item())
        else:
            raise NonFinite(f"the gradient's norm is {norm.item()} at step {self.global_step + 1}")

    def _skip(self, norm: float) -> None:
        """Skip this update: without a gradient no weight, moment or decay changes, and the record excludes it."""
        self.zero_grad(set_to_none=True)
        self.sums.terms = self.terms_before
        self.carried.reset_nonfinite()
        self.progress.gradient_norm = None  # not that of an earlier update, which a resumed run would not have
        self.progress.skipped += 1
        self.progress.skipped_in_a_row += 1
        if self.progress.skipped_in_a_row == MAX_SKIPPED_IN_A_ROW:
            step = self.global_step + 1
            raise NonFinite(
                f"the gradient's norm is {norm} at step {step}, the {MAX_SKIPPED_IN_A_ROW}th in a row to be skipped"
            )

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        by_rank = all_gather((self.carried.on_cpu(), on_cpu(self.sums.terms), self.progress.own))
        slices, sums, tokens = zip(*by_rank, strict=True)
        checkpoint["seqtrain"] = {
            "carried": join_slices(slices),
            "sums": list(sums),  # one per process: adding them in another order would change the last bits
            "tokens": sum(tokens),
            "fingerprint": self.progress.fingerprint,
            "skipped": (self.progress.skipped, self.progress.skipped_in_a_row),
            "clipping": self.sums_of_clipping.plain(),
            "run": self.run_identity,
            "where": self.surroundings,
            "plateau": None if self.plateau is None else self.plateau.state_dict(),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.restored = checkpoint["seqtrain"]
        if self.trainer.strategy.restore_checkpoint_after_setup:  # checkpoints are restored after on_fit_start
            self._restore()

    def on_fit_start(self) -> None:
        if self.restored:
            self._restore()

    def on_train_start(self) -> None:
        self.started = True

    def _restore(self) -> None:
        """Restore the state of a checkpoint once device and optimizer exist, even if no step is left."""
        rank, world = self.global_rank, self.trainer.world_size
        sums = self.restored["sums"]
        if len(sums) == world:
            self.sums.terms = sums[rank]
        elif rank == 0:  # a different number of processes: the first takes all sums
            self.sums.terms = merged(sums).terms
        self.progress.tokens = self.restored["tokens"]
        # The sum over processes must count the tokens of earlier attempts only once.
        if rank == 0:
            self.progress.own = self.progress.tokens
        self.progress.fingerprint = self.restored["fingerprint"]
        self.progress.skipped, self.progress.skipped_in_a_row = self.restored["skipped"]
        self.sums_of_clipping = Clipping.from_plain(self.restored.get("clipping"))  # an older run has none
        state = self.restored["carried"]
        for value in state.values():
            if len(value) != self.lanes:
                raise UserError(f"data.batch_size={self.lanes}: the checkpoint carries {len(value)} lanes; use as many")
        micro = self.trainer.accumulate_grad_batches
        slices = [deal(self.lanes, world * micro, rank * micro + batch) for batch in range(micro)]
        self.carried.spread(state, slices, self.device)
        if self.plateau is not None:
            self.plateau.load_state_dict(self.restored["plateau"])
        self.restored = {}


def chained(fingerprint: int, before: int) -> int:
    """Return a checksum of what a step reads, chained to that of the steps before it."""
    return zlib.crc32(fingerprint.to_bytes(4, "little"), before)


def _nan_if_any_term_is_not_finite(loss: Tensor, terms: LossTerms) -> Tensor:
    """Return the loss. If a term is not finite, its gradient is nan everywhere, so that every process notices."""
    finite = torch.stack([total.isfinite().all() for total, _ in terms.values()]).all()
    return loss * torch.where(finite, 1.0, float("nan"))
