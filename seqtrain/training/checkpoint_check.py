"""Check a checkpoint, entry by entry, against the run that is to resume from it, before any of it is used.

The expected names, shapes and types come from a learner, an optimizer and callbacks that were just made from the run's
config; every number must be finite. A fused optimizer would write beyond memory of another shape.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.runs.identity import shown
from seqtrain.training.accumulators import LOSS
from seqtrain.training.optim.groups import parameter_groups

if TYPE_CHECKING:
    from pytorch_lightning import Trainer

    from seqtrain.training.learner import Learner


class Mismatch(ValueError):
    """An entry of a checkpoint differs from what the run would have written; says which, and how."""


def alike(found: Any, expected: Any, place: str) -> None:
    """Raise Mismatch unless both have equal names, lengths, types and shapes. Where None is expected, all is accepted.

    Args:
        found: Value read from the file.
        expected: Value as this run would have written it.
        place: Name of the entry, for the message.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        odd = sorted(map(str, found.keys() ^ expected.keys()))
        if odd:
            raise Mismatch(f"{place}: {odd[0]} is {'missing' if odd[0] in map(str, expected) else 'unknown'}")
        for key, below in expected.items():
            alike(found[key], below, f"{place}: {key}")
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        if len(found) != len(expected):
            raise Mismatch(f"{place}: {len(found)} entries, and this run has {len(expected)}")
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            alike(one, other, f"{place}: {number}")
    elif isinstance(expected, Tensor) and isinstance(found, Tensor):
        if (found.shape, found.dtype) != (expected.shape, expected.dtype):
            raise Mismatch(f"{place} is {_kind(found)}, and this run has {_kind(expected)}")
        # Fused optimizers ignore strides: they read a tensor as contiguous memory.
        if not found.is_contiguous() and found.stride() != expected.stride():
            raise Mismatch(f"{place} does not lie in memory as it does in this run")
    elif expected is not None and _kind(found) != _kind(expected):
        raise Mismatch(f"{place} is {_kind(found)}, and this run has {_kind(expected)}")


def finite(found: Any, place: str) -> None:
    """Raise Mismatch unless every number in `found` is finite, at any depth."""
    if isinstance(found, dict):
        for key, below in found.items():
            finite(below, f"{place}[{key!r}]")
    elif isinstance(found, list | tuple | set):
        for number, below in enumerate(found):
            finite(below, f"{place}[{number}]")
    elif not (bool(torch.isfinite(found).all()) if isinstance(found, Tensor) else _is_finite(found)):
        raise Mismatch(f"{place} holds what is no number (nan or infinite)")


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of {'x'.join(map(str, value.shape)) or 'one number'}"
    return "a number" if type(value) in (int, float) else type(value).__name__


def in_range(value: Any, low: float, high: float, place: str) -> None:
    """Raise Mismatch unless the value is an int from `low` to `high`.

    Args:
        value: Value read from the file.
        low: The least value.
        high: The largest value.
        place: Name of the entry, for the message.
    """
    if type(value) is not int or not low <= value <= high:
        raise Mismatch(f"{place} is {shown(value)}, and this run can have {low:.0f} to {high:.0f}")


LOOPS = ("fit_loop", "validate_loop", "test_loop", "predict_loop")


def check(saved: Any, path: Path, learner: Learner, trainer: Trainer, *, max_steps: int, max_read: int) -> None:
    """Raise UserError, in one line, unless this run could have written the contents of the checkpoint.

    Args:
        saved: The contents of the file, on the CPU.
        path: The file, for the message.
        learner: Learner of the run.
        trainer: Trainer of the run.
        max_steps: The most steps that the whole training can have.
        max_read: The most tokens that a lane can have read since its state was last reset.
    """
    try:
        if (step := saved["global_step"]) > max_steps:
            raise UserError(
                f"trainer.max_steps, trainer.max_epochs, trainer.max_seconds: allow {max_steps} steps, and checkpoint "
                f"{path} is already at step {step}; raise the limit"
            )
        _check(saved, learner, trainer, max_read)
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # values of unexpected types raise these
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
        raise UserError(
            f"checkpoint {path}: this run cannot go on from it: {reason}; put the run's own file back, or move it "
            "elsewhere to go on from the one before"
        ) from None


def check_weights(saved: Any, expected: dict[str, Tensor], place: str = "state_dict") -> None:
    """Raise Mismatch unless weights have the expected names, shapes and types and are finite."""
    alike(saved, expected, place)
    finite(saved, place)


def _check(saved: Any, learner: Learner, trainer: Trainer, max_read: int) -> None:
    step = saved["global_step"]
    in_range(step, 0, math.inf, "global_step")
    check_weights(saved["state_dict"], learner.state_dict())
    _check_average(saved, learner, trainer, step)
    _check_loops(saved["loops"], trainer, step, saved["epoch"])
    _check_callbacks(saved["callbacks"], trainer, step, learner.task.monitor)
    _check_entry(saved["seqtrain"], learner, step, max_read)
    optimizer = learner.configure_optimizers()  # Lightning makes its own: only the structure of this one counts
    schedulers, moving = [], ("lr",)
    if isinstance(optimizer, dict):
        schedulers, moving = [optimizer["lr_scheduler"]["scheduler"].state_dict()], SCHEDULED
        optimizer = optimizer["optimizer"]
    updates = step - saved["seqtrain"]["skipped"][0]
    check_optimizer(saved["optimizer_states"], optimizer, learner, moving, updates)
    alike(saved["lr_schedulers"], schedulers, "lr_schedulers")
    for scheduler in saved["lr_schedulers"]:
        finite(scheduler, "lr_schedulers")
        in_range(scheduler.get("last_epoch", 0), 0, step, "lr_schedulers: last_epoch")
    _check_plateau(saved["seqtrain"]["plateau"], learner)
    finite(saved.get("MixedPrecision", {}), "MixedPrecision")


def _check_average(saved: Any, learner: Learner, trainer: Trainer, step: int) -> None:
    """Check the weights of the last step, where those of `state_dict` are an average."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    if any(hasattr(callback, "_average_model") for callback in callbacks):  # Lightning's WeightAveraging
        check_weights(saved["current_model_state"], learner.state_dict(), "current_model_state")
        alike(saved["averaging_state"], {"n_averaged": torch.tensor(0)}, "averaging_state")
        in_range(int(saved["averaging_state"]["n_averaged"]), 0, step, "averaging_state: n_averaged")


def _check_plateau(saved: Any, learner: Learner) -> None:
    """Check the state of a schedule that waits for the validation loss, if the run has one."""
    # As lists of zero or one entry: `alike` accepts anything where None is expected.
    one_or_none = [] if saved is None else [saved]
    expected = [] if learner.plateau is None else [learner.plateau.state_dict()]
    alike(one_or_none, expected, "seqtrain: plateau")


# -- what Lightning keeps ----------------------------------------------------------------------------------------


def _check_loops(saved: dict[str, Any], trainer: Trainer, step: int, epoch: int) -> None:
    """Check the counters of Lightning's loops, which decide what it reads next and when it ends."""
    expected = {name: getattr(trainer, name).state_dict() for name in LOOPS}
    alike(saved, expected, "loops")
    _check_counts(saved, "loops")
    fit, micro = saved["fit_loop"], step * trainer.accumulate_grad_batches
    batches = fit["epoch_loop.batch_progress"]
    steps = fit["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]["step"]

    def refuse_unless(value: Any, allowed: Sequence[int], name: str) -> None:
        if value not in allowed:
            raise Mismatch(f"loops: {name} is {value} at step {step}")

    refuse_unless(epoch, [0], "epoch")  # the whole training is one
    for span in ("total", "current"):
        refuse_unless(fit["epoch_progress"][span]["completed"], [0], f"{span} epochs")
    for span in ("total", "current"):
        for name in ("ready", "started", "processed"):
            refuse_unless(batches[span][name], [micro], f"{span} batches {name}")
        # After a step, the checkpoint is saved before Lightning counts its last batch as completed.
        refuse_unless(batches[span]["completed"], [micro - 1, micro], f"{span} batches completed")
    for span in ("total", "current"):
        refuse_unless(steps[span]["completed"], [step], f"{span} steps")
    stepped = fit["epoch_loop.state_dict"]["_batches_that_stepped"]
    refuse_unless(stepped, range(step + 1), "batches that stepped")


def _check_counts(saved: Any, place: str) -> None:
    """Check that every number at any depth is a count: not negative, and exact as a float."""
    for key, below in saved.items():
        if isinstance(below, dict):
            _check_counts(below, f"{place}: {key}")
        elif not isinstance(below, bool):
            in_range(below, 0, 2**53, f"{place}: {key}")


def _check_callbacks(saved: dict[str, Any], trainer: Trainer, step: int, monitor: str) -> None:
    """Check the state of each callback. For a user's own callback only its presence is checked: its state may grow."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    may_stop = any(map(_may_stop, callbacks))
    for callback in callbacks:
        expected = callback.state_dict()
        if not expected:
            continue
        state, place = saved[callback.state_key], f"callbacks: {type(callback).__name__}"
        if not type(callback).__module__.startswith(("seqtrain.", "pytorch_lightning.")):
            continue
        if state.get("stopped") is True and not may_stop:
            raise Mismatch(f"{place}: stopped, in a run that nothing stops before its end")
        # The ranking of validations starts empty and grows: it has a check of its own.
        alike({**state, "ranked": []}, {**expected, "ranked": []}, place)
        _check_ranked(state.get("ranked", []), step, {LOSS, monitor}, f"{place}: ranked")
        _check_callback_numbers(state, expected, place)


def _check_callback_numbers(state: dict[str, Any], expected: dict[str, Any], place: str) -> None:
    """Check that patience is as configured, and that clocks and counters are in range."""
    if "patience" in expected and state["patience"] != expected["patience"]:
        raise Mismatch(f"{place}: patience is {state['patience']}, and this run has {expected['patience']}")
    # -1: before the first validation.
    for key, low in {
        "seconds": 0,
        "validated": -1,
        "wait_count": 0,
        "stopped_epoch": 0,
        "latest_update_step": 0,
    }.items():
        if not low <= state.get(key, low) < math.inf:
            raise Mismatch(f"{place}: {key} is {state[key]}")


def _check_ranked(saved: Any, step: int, names: set[str], place: str) -> None:
    """Check the ranked validations: each has a step in the past and numbers or nan as metrics, `names` among them."""
    for validation in saved:
        in_range(validation.get("step"), 0, step, f"{place}: step")
        if not names <= validation.keys() or not all(map(_is_number, validation.values())):
            raise Mismatch(f"{place}: a validation without {' or '.join(sorted(names))}, or with other than numbers")


def _may_stop(callback: Any) -> bool:
    """Return True if a callback may end a training before its last step. Of seqtrain's own only Deadline does."""
    return not type(callback).__module__.startswith("seqtrain.") or type(callback).__name__ == "Deadline"


def _is_number(value: Any) -> bool:
    """Return True if the value is a float, or an int that a float holds exactly."""
    return type(value) is float or (type(value) is int and abs(value) <= 2**53)


# -- what the learner keeps --------------------------------------------------------------------------------------------


def _check_entry(saved: dict[str, Any], learner: Learner, step: int, max_read: int) -> None:
    """Check carried state, sums since the last record, tokens, checksum and skipped updates."""
    if not isinstance(saved["where"], dict):
        raise Mismatch("seqtrain: where is no mapping")
    lanes = learner.lanes if learner.carry else 0
    _check_carried(saved["carried"], learner.model, lanes, max_read)
    _check_sums(saved["sums"], learner.task.differentiated)
    in_range(saved["tokens"], 0, 2**62, "seqtrain: tokens")
    in_range(saved["fingerprint"], 0, 2**32 - 1, "seqtrain: fingerprint")
    skipped, in_a_row = saved["skipped"]
    in_range(skipped, 0, step, "seqtrain: skipped")
    in_range(in_a_row, 0, skipped, "seqtrain: skipped in a row")
    _check_clipping(saved.get("clipping"), step)


def _check_clipping(saved: Any, step: int) -> None:
    """Check the sums of clipping since the last record. A run that began before they were kept has none."""
    if saved is None:
        return
    updates, clipped, excess = saved
    in_range(updates, 0, step, "seqtrain: clipping: updates")
    # Comparisons with nan are false, so that it is refused too.
    if not 0 <= clipped <= updates or not clipped <= excess < math.inf:
        raise Mismatch("seqtrain: clipping is out of range")


def _check_carried(saved: Any, model: SequenceModel, lanes: int, max_read: int) -> None:
    """Check the state of all lanes against the model's initial state; its integers count tokens that were read."""
    place = "seqtrain: carried"
    alike(saved, model.initial(lanes) if lanes else {}, place)
    finite(saved, place)
    most = max_read if model.max_length is None else min(max_read, model.max_length)
    for name, value in saved.items():
        # Models index by these counts: a forged one would read beyond their tables.
        if not value.is_floating_point() and bool(((value < 0) | (value > most)).any()):
            raise Mismatch(f"{place}: {name} counts {int(value.min())} to {int(value.max())} tokens, not 0 to {most}")


def _check_sums(saved: Any, names: Sequence[str]) -> None:
    """Check sum and count of each part of the loss, for each process; training keeps no tables."""
    if not saved:
        raise Mismatch("seqtrain: sums is empty")
    for name, (total, count) in itertools.chain.from_iterable(map(dict.items, saved)):
        place = f"seqtrain: sums: {shown(name)}"
        if name not in names:
            raise Mismatch(f"{place} is unknown")
        if type(total) is not float:
            alike(total, torch.zeros((), dtype=torch.float64), place)  # kept on a GPU
        finite(total, place)
        in_range(count, 0, 2**62, f"{place}: the count")


SCHEDULED = ("lr", "momentum", "betas", "min_lr", "max_lr", "base_momentum", "max_momentum")
"""Entries of an optimizer's group that schedules of torch change as they go."""


def check_optimizer(saved: Any, optimizer: Optimizer, learner: Learner, moving: Sequence[str], updates: int) -> None:
    """Raise Mismatch unless this optimizer, with these hyperparameters, could have written what was saved.

    Args:
        saved: The list of optimizer states of a checkpoint.
        optimizer: The run's own optimizer, just made.
        learner: Learner that holds the weights and makes the optimizer.
        moving: Hyperparameters that schedules change.
        updates: Steps without those that were skipped.
    """
    place = "optimizer_states"
    if len(saved) != 1 or not isinstance(saved[0], dict):
        raise Mismatch(f"{place} is not that of one optimizer")
    finite(saved, place)
    groups, states = saved[0]["param_groups"], saved[0]["state"]
    # Only the number of weights is compared: FSDP numbers or names them differently.
    found, expected = (list(map(_counted, each)) for each in (groups, optimizer.param_groups))
    alike(found, expected, f"{place}: param_groups")
    for number, (group, own) in enumerate(zip(found, expected, strict=True)):
        for key in own.keys() - set(moving):
            if group[key] != own[key]:
                raise Mismatch(f"{place}: group {number}: {key} is {shown(group[key])}, and this run has {own[key]}")
    keys = itertools.chain.from_iterable(group["params"] for group in groups)
    names = {id(weight): name for name, weight in learner.named_parameters()}
    moments: dict[Any, dict[str, Any]] = {}  # made once for all weights of a group that are alike
    for number, group in enumerate(parameter_groups(learner.model, learner.task, learner.layer_decay)):
        for weight, key in zip(group["params"], keys, strict=False):
            kind = number, weight.shape, weight.dtype
            if kind not in moments:
                moments[kind] = _moments(learner, group, weight)
            if key in states:  # a weight that no gradient has reached has none
                alike(states[key], moments[kind], f"{place}: {names[id(weight)]}")
    if not states and updates > 0 and any(moments.values()):
        raise Mismatch(f"{place}: holds no moments, after {updates} updates")


def _counted(group: dict[str, Any]) -> dict[str, Any]:
    """Return a group with the number of its weights; tuples as lists, as FSDP keeps them after loading."""
    counted = {key: list(value) if isinstance(value, tuple) else value for key, value in group.items()}
    return {**counted, "params": len(group["params"])}


def _moments(learner: Learner, group: dict[str, Any], weight: Tensor) -> dict[str, Any]:
    """Return the state that the optimizer keeps for such a weight, from a step on zeros."""
    assert learner.make_optimizer is not None
    zeros = torch.nn.Parameter(torch.zeros(weight.shape, dtype=weight.dtype))
    zeros.grad = torch.zeros_like(zeros)
    optimizer = learner.make_optimizer([{**group, "params": [zeros]}])
    optimizer.step(lambda: torch.zeros(()))  # type: ignore[arg-type]
    return dict(optimizer.state[zeros])
