"""The only LightningModule: one chunk of all lanes is one training step of automatic optimisation."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import torch
from pytorch_lightning import LightningModule
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from seqtrain.data.plan import deal
from seqtrain.data.source import Split
from seqtrain.faults import Fault, NonFinite
from seqtrain.interface import SequenceModel, State, detach, reset, select
from seqtrain.layers.front_ends import TokenEmbedding
from seqtrain.runs import Run
from seqtrain.task import Facts, Parts, Task, Totals


class Sums:
    """Running sums and counts of named parts, in float64; on a GPU, and where they are tables, they stay tensors."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[Tensor | float, int]] = {}

    def add(self, parts: Parts) -> None:
        for name, (total, count) in parts.items():
            plain = total.dim() == 0 and total.device.type == "cpu"
            more = total.item() if plain else total.detach().double()
            before, counted = self.parts.get(name, (0.0, 0))
            self.parts[name] = before + more, counted + count

    def finite(self) -> bool:
        """Whether all sums are numbers still, as far as that can be told without waiting for a GPU."""
        return all(math.isfinite(total) for total, _ in self.parts.values() if isinstance(total, float))

    def read(self) -> Totals:
        """Sum and count of each part, as numbers, or as nested lists of them."""
        return {
            name: (total.tolist() if isinstance(total, Tensor) else float(total), float(count))
            for name, (total, count) in self.parts.items()
        }


@dataclass
class Progress:
    """What moves at every step; apart from the module, whose attributes are slow to set."""

    tokens: int = 0  # targets trained on
    gradient_norm: Tensor | None = None  # of the newest step, before clipping


class Carried:
    """The state that one stage carries from chunk to chunk, by slice of the global lanes."""

    def __init__(self) -> None:
        self.slices: dict[tuple[int, int], State] = {}

    def take(self, lanes: slice) -> State | None:
        """The state of these lanes, or None where nothing is carried yet."""
        return self.slices.get((lanes.start, lanes.stop))

    def put(self, lanes: slice, state: State) -> None:
        self.slices[lanes.start, lanes.stop] = detach(state)

    def whole(self) -> State:
        """The state of all lanes in order, whatever slices they were read in."""
        parts = [self.slices[key] for key in sorted(self.slices)]
        return {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]} if parts else {}

    def spread(self, state: State, slices: list[slice], device: torch.device) -> None:
        """Takes a whole state apart into the slices of this layout."""
        self.slices = {}
        for lanes in slices if state else ():
            self.slices[lanes.start, lanes.stop] = {
                name: value.to(device) for name, value in select(state, lanes).items()
            }


class Learner(LightningModule):
    """Joins a model and a task: loss, carried state, optimizer, randomness; it writes nothing and prints nothing."""

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
        run: Run | None = None,
        layer_decay: float = 1.0,
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
        self.run = run
        self.layer_decay = layer_decay
        self.split: Split = "validation"  # what evaluation reads
        self.carried = Carried()  # training's; plain attributes, because DDP would overwrite buffers
        self.eval_carried = Carried()
        self.sums = Sums()  # training's since the last record
        self.eval_sums = Sums()
        self.totals: Totals = {}  # of the newest evaluation
        self.metrics: dict[str, float] = {}  # of it too
        self.progress = Progress()
        self.plateau: ReduceLROnPlateau | None = None  # stepped by a callback: Lightning would not resume it right
        self.restored: dict[str, Any] = {}

    # -- one step ------------------------------------------------------------------------------------------------

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Randomness is a function of (seed, rank, batch), so that a resumed run draws what it would have drawn."""
        seed = zlib.crc32(f"{self.seed} {self.global_rank} {batch_idx}".encode())
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        parts = self._read(batch, self.carried)
        self.sums.add(parts)
        if not self.sums.finite():
            raise NonFinite(f"the loss is {self.sums.parts['loss'][0]} at step {self.global_step + 1}")
        self.progress.tokens += batch.count
        # Totals count all micro-batches of all ranks; Lightning and DDP would divide by their numbers once more.
        shares = self.trainer.accumulate_grad_batches * self.trainer.world_size
        means = [parts[name][0] * (shares / batch.totals[name]) for name in self.task.differentiated]
        return reduce(torch.add, means)

    def _read(self, batch: Any, carried: Carried) -> Parts:
        state = None
        if self.carry:
            state = carried.take(batch.lanes)
            if state is None:
                state = self.model.initial(len(batch.tokens))
            elif batch.starts is not None:
                state = reset(state, batch.starts)
        parts, state = self.task.evaluate(self.model, batch, state)
        if self.carry:
            carried.put(batch.lanes, state)
        return parts

    # -- evaluation ----------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        self.eval_carried, self.eval_sums = Carried(), Sums()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        # In the parameters' own precision: what bf16 rounds away would depend on how many lanes are read at a time.
        with torch.autocast(self.device.type, enabled=False):
            self.eval_sums.add(self._read(batch, self.eval_carried))

    def on_validation_epoch_end(self) -> None:
        self.eval_carried = Carried()
        self.totals = self.eval_sums.read()
        self.metrics = self.task.measure(self.totals, self.facts[self.split])
        for name, value in self.metrics.items():
            self.log(f"validation/{name}", value, logger=False)  # for EarlyStopping and its like

    # -- optimisation --------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        assert self.make_optimizer is not None
        optimizer = self.make_optimizer(parameter_groups(self.model, self.task, self.layer_decay))
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] = group["lr"] * group["lr_scale"]
        if not isinstance(self.schedule, partial):
            return optimizer  # one of ours: a function of the step
        scheduler = self.schedule(optimizer)  # one of torch's, that waited for its optimizer
        if isinstance(scheduler, ReduceLROnPlateau):
            self.plateau = scheduler
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Sets the learning rate of this step; nothing of it is kept, so a resumed run needs nothing back."""
        if self.schedule is not None and not isinstance(self.schedule, partial):
            factor = self.schedule(self.global_step, self.max_steps)
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor

    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Clips to the norm `gradient_clip_val` and keeps the norm; a norm that is no number stops the run."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val or float("inf"))
        self.progress.gradient_norm = norm
        if norm.device.type == "cpu" and not math.isfinite(norm.item()):
            raise NonFinite(f"the gradient's norm is {norm.item()} at step {self.global_step + 1}")

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["seqtrain"] = {
            "carried": self.carried.whole(),
            "sums": self.sums.parts,
            "tokens": self.progress.tokens,
            "plateau": None if self.plateau is None else self.plateau.state_dict(),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.restored = checkpoint["seqtrain"]

    def on_fit_start(self) -> None:
        """Puts back what a checkpoint held, now that device and optimizer are there; also where no step is left."""
        if not self.restored:
            return
        carried, self.sums.parts, self.progress.tokens = (self.restored[key] for key in ("carried", "sums", "tokens"))
        found = {len(value) for value in carried.values()}
        if found and found != {self.lanes}:
            raise Fault(f"data.lanes={self.lanes}: the checkpoint carries {found.pop()} lanes; use as many")
        shares = self.trainer.accumulate_grad_batches
        self.carried.spread(carried, [deal(self.lanes, shares, share) for share in range(shares)], self.device)
        if self.plateau is not None:
            self.plateau.load_state_dict(self.restored["plateau"])
        self.restored = {}


def parameter_groups(model: SequenceModel, task: Task, layer_decay: float = 1.0) -> list[dict[str, Any]]:
    """Groups by role: `hidden` matrices of the model, `other` matrices, and `vectors`, which do not decay.

    With `layer_decay` each layer has groups of its own, with `lr_scale` = layer_decay ** (layers above it), the task's
    head on top and the embeddings below (Howard & Ruder 2018). Weights that are frozen are in none.
    """
    fronts = [part for part in model.modules() if isinstance(part, TokenEmbedding | torch.nn.Embedding)]
    outside = {id(parameter) for part in (model.embed, *fronts) for parameter in part.parameters()}
    numbered = [(value, _layer(name)) for name, value in model.named_parameters() if id(value) not in outside]
    # Layers are counted by their matrices: a last norm may have a number of its own.
    top = max((layer for value, layer in numbered if layer and value.dim() > 1), default=1) + 1
    depths = {id(value): min(layer or top, top - 1) for value, layer in numbered}
    found: dict[tuple[str, int], list[Tensor]] = {}
    for owner in (model, task):
        tables = {id(part.weight) for part in owner.modules() if isinstance(part, torch.nn.Embedding)}
        for parameter in filter(lambda parameter: parameter.requires_grad, owner.parameters()):
            inside = owner is model and id(parameter) not in outside | tables
            role = "vectors" if parameter.dim() < 2 else "hidden" if inside and parameter.dim() == 2 else "other"
            depth = top if owner is task else depths.get(id(parameter), 0)
            found.setdefault((role, depth if layer_decay != 1 else top), []).append(parameter)
    if not found:
        raise Fault("freeze: nothing is left to train; leave some part out")
    roles = ("hidden", "other", "vectors")
    return [
        {"params": parameters, "role": role, "lr_scale": layer_decay ** (top - depth)}
        | ({"weight_decay": 0.0} if role == "vectors" else {})
        for (role, depth), parameters in sorted(found.items(), key=lambda item: (roles.index(item[0][0]), item[0][1]))
    ]


def _layer(name: str) -> int | None:
    """The layer that a weight of the model belongs to, from 1; None where it belongs to none, as the last norm does."""
    numbers = re.findall(r"(?:\.|_l)(\d+)", name)
    return int(numbers[0]) + 1 if numbers else None
