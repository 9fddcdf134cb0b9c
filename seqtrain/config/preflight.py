"""Checks of machine, folders and data for a configuration that `check.compose` accepts, before torch is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from omegaconf import DictConfig, OmegaConf

from seqtrain.config.groups import own_options
from seqtrain.config.options import origins
from seqtrain.config.signatures import class_attribute
from seqtrain.config.targets import resolve
from seqtrain.data.batching.plan import TBPTT
from seqtrain.data.sources.base import Source
from seqtrain.distributed.ranks import check_world
from seqtrain.errors import Unavailable, UserError, did_you_mean, merged
from seqtrain.files.atomic import exists, listed
from seqtrain.files.folders import vacant
from seqtrain.files.untrusted import check_entries, is_foreign, read_export
from seqtrain.terminal import pasted

# Where torch's data workers pass batches to the training process on Linux.
SHARED_MEMORY = Path("/dev/shm")

MIN_FREE_BYTES = 1 << 16


@runtime_checkable
class ExpectsNumbers(Protocol):
    """A source that can accept labels that are stored as numbers."""

    def expect_numbers(self) -> None:
        """Accept numeric labels. Called before anything is read.

        Labels remain text in a row: a number is stored as its decimal text.
        """
        ...


def check_machine_and_data(config: DictConfig, *, begins: bool = True) -> None:
    """Raise UserError with a line for each obstacle to a run of this (checked) configuration.

    Args:
        config: The configuration.
        begins: True if the run has no checkpoint yet, so that it needs the weights of `init_from`.
    """
    values = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    faults = [
        *_devices(values["trainer"], values["optimizer"]),
        *_time(values["tbptt"], values["schedule"]),
        *_place(values["run_dir"]),
        *_origins(values["init_from"] if begins else None),
        *_source(values["data"], values["task"]),
        *_workers(values["data"]["workers"]),
    ]
    if faults:
        raise merged(faults)


def has_origins(config: DictConfig) -> bool:
    """Return True if `init_from` names runs that exist. Missing ones are reported with all other faults."""
    return config.init_from is not None and not list(_origins(config.init_from))


def has_gpu() -> bool:
    """Return True if there may be a GPU. Makes no driver call: a process that forks later must not have used CUDA."""
    if sys.platform == "darwin":
        return os.uname().machine == "arm64"  # torch supports the GPUs of Apple silicon
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    if os.name == "nt":  # no device files to look for; torch reports a missing GPU later
        return True
    drivers = ("/dev/kfd", "/dev/dxg")  # AMD; Windows' subsystem for Linux
    return any(map(os.path.exists, drivers)) or any(Path("/dev").glob("nvidia[0-9]*"))


def _devices(trainer: dict[str, Any], optimizer: dict[str, Any]) -> Iterator[UserError]:
    accelerator, devices = trainer["accelerator"], trainer["devices"]
    gpu = has_gpu()
    without_gpu = accelerator == "cpu" or not gpu
    # Unavailable: a sweep may retry the trial on a machine with a GPU; with accelerator=cpu that cannot help.
    kind = UserError if accelerator == "cpu" else Unavailable
    if accelerator == "gpu" and not gpu:
        yield Unavailable("trainer.accelerator=gpu: no GPU found; use trainer.accelerator=cpu or auto")
    elif trainer["precision"] == "16-mixed" and without_gpu:
        yield kind("trainer.precision=16-mixed: needs a GPU; on the CPU use trainer.precision=bf16-mixed or 32-true")
    if devices == "all" and without_gpu:
        yield kind(
            "trainer.devices=all: needs GPUs; on the CPU give the number of processes, such as trainer.devices=2"
        )
    if optimizer.get("lr") == "auto" and ("lr_rest" in optimizer or not devices == trainer["num_nodes"] == 1):
        yield UserError("optimizer.lr=auto: works with one process and one rate; with several, or muon, give numbers")
    if trainer["strategy"] == "fsdp":
        if devices == 1 and trainer["num_nodes"] == 1:
            yield UserError(
                "trainer.strategy=fsdp: needs several processes to shard over; use trainer.devices=2 or more"
            )
        if trainer["precision"] == "16-mixed":
            yield UserError(
                "trainer.strategy=fsdp: precision 16-mixed needs unsharded gradients for its scaler; "
                "use trainer.precision=bf16-mixed or 32-true, or trainer=ddp"
            )
        if optimizer["_target_"].endswith(".Muon"):
            yield UserError(
                "trainer.strategy=fsdp: optimizer=muon needs unsharded matrices; use optimizer=adamw, or trainer=ddp"
            )
    try:
        check_world(devices, trainer["num_nodes"])
    except UserError as fault:
        yield fault


def _workers(workers: int) -> Iterator[UserError]:
    """Yield a fault if data workers have no usable shared memory for passing batches."""
    if not workers or sys.platform != "linux":
        return
    if not SHARED_MEMORY.is_dir():
        problem = "does not exist; mount it"
    elif not os.access(SHARED_MEMORY, os.W_OK | os.X_OK):
        problem = "is not writable; make it writable"
    elif is_full(SHARED_MEMORY):
        problem = "is full; make room"
    else:
        return
    yield Unavailable(
        f"data.workers={workers}: workers pass batches through {SHARED_MEMORY}, which {problem}, or use data.workers=0"
    )


def is_full(folder: Path) -> bool:
    """Return True if a folder has almost no free space."""
    try:
        room = os.statvfs(folder)
    except OSError:  # unknown: do not block the run
        return False
    return room.f_bavail * room.f_frsize < MIN_FREE_BYTES


def _time(tbptt: dict[str, Any], schedule: dict[str, Any]) -> Iterator[UserError]:
    try:
        TBPTT(**_options(tbptt))
    except UserError as fault:
        yield fault
    # A schedule built with the optimizer sets the rate in it, which would undo the scaling by chunk length.
    if tbptt["jitter"] != "none" and schedule.get("_partial_"):
        name = schedule["_target_"].rpartition(".")[2]
        yield UserError(
            f"tbptt.jitter={tbptt['jitter']}: scales the learning rate at each step, but {name} overwrites it; "
            "use a schedule that is a function of the step, such as schedule=constant"
        )


def _place(run_dir: str | None) -> Iterator[UserError]:
    """Yield a fault if a new run cannot be made at the path that the user gave."""
    if run_dir is None:
        return
    path = Path(run_dir)
    if path.is_dir() and not vacant(path):
        remedy = "it is not empty"
        if exists(path / "config.yaml"):
            remedy = f"`{pasted('seqtrain', 'resume', path)}` continues it"
        yield UserError(f"run_dir={run_dir} exists already: {remedy}; give another run_dir to start a new run")
        return
    # Missing parents are created with run_dir, so check the nearest folder that exists.
    nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        yield UserError(f"run_dir={run_dir}: {nearest} is a file; give another run_dir")
    elif not os.access(nearest, os.W_OK | os.X_OK):
        yield Unavailable(f"run_dir={run_dir}: {nearest} is not writable; give another run_dir")


def _origins(init_from: str | Sequence[str] | None) -> Iterator[UserError]:
    return chain.from_iterable(map(_origin, origins(init_from)))


def _origin(init_from: str) -> Iterator[UserError]:
    """Yield a fault if there is no run to start from."""
    if is_foreign(init_from):
        return  # checked where it is read
    path = Path(init_from)
    if any((path / name).is_file() for name in ("config.yaml", "config.json")):
        try:
            check_entries(path)
            if not (path / "config.yaml").is_file():
                read_export(path / "config.json")
        except UserError as fault:
            yield UserError(*(f"init_from={init_from}: {line}" for line in fault.lines))
        return
    remedy = "give the directory of a run of seqtrain"
    inside = next((folder for folder in path.parents if (folder / "config.yaml").is_file()), None)
    if inside is not None:
        remedy = f"give the run itself: init_from={inside}"
    else:
        near = [folder.name for folder in listed(path.parent) if (folder / "config.yaml").is_file()]
        remedy += did_you_mean(path.name, near)
    hub = ""
    if not path.exists() and init_from.count("/") < 2 and not init_from.startswith("."):  # as owner/name
        hub = f" (init_from=hub:{init_from} takes it from the Hugging Face hub)"
    yield Unavailable(f"init_from={init_from}: no run directory{hub}; {remedy}")


def _source(data: dict[str, Any], task: dict[str, Any]) -> Iterator[UserError]:
    """Yield the faults that the source finds in its own data."""
    try:
        make = resolve(data["_target_"], path="data")
        source: Source = make(**_options(data, leave_out=own_options("data")))
        if not source.has("validation"):
            yield UserError(
                "data.validation_fraction=0: there is no validation data; set it above 0, or name a validation file"
            )
        # Read from the task's source file: importing the task would import torch, which is slow.
        if class_attribute(task["_target_"], "label_kind") == "number" and isinstance(source, ExpectsNumbers):
            source.expect_numbers()
        source.check()
    except UserError as fault:
        yield fault
    except ValueError as error:
        yield UserError(f"data: {error}")


def _options(node: dict[str, Any], leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Return the options that a node gives its target, without Hydra's keys."""
    return {key: value for key, value in node.items() if key not in leave_out and not key.startswith("_")}
