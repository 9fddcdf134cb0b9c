"""Lightning's Trainer, and its options resolved for this machine."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from omegaconf import DictConfig

from seqtrain.config.instantiate import plain
from seqtrain.config.options import TrainerOptions
from seqtrain.config.signatures import class_attribute
from seqtrain.distributed import ranks
from seqtrain.runs.identity import LIMITS
from seqtrain.tasks.base import Say
from seqtrain.training.speedups import keep_freed_memory

if TYPE_CHECKING:
    from pytorch_lightning import Trainer


def trainer_options(config: DictConfig) -> TrainerOptions:
    """Return the options of `config.trainer`."""
    return TrainerOptions(**plain(config.trainer))


def on_gpu(config: DictConfig) -> bool:
    """Return True if a run of this config uses GPUs here."""
    return _uses_gpu(config.trainer.accelerator)


def _uses_gpu(accelerator: str) -> bool:
    return accelerator != "cpu" and torch.cuda.is_available()


def resolve_auto(config: DictConfig, say: Say) -> None:
    """Replace precision=auto and devices=all by values for this machine, so that a resumed run keeps them."""
    gpu = on_gpu(config)
    if config.trainer.devices == "all":
        config.trainer.devices = torch.cuda.device_count() if gpu else 1
        say(f"devices {config.trainer.devices}: all GPUs of this machine")
    if config.trainer.precision == "auto":
        device = "GPU" if gpu else "CPU"
        if not has_bf16_units("cuda" if gpu else "cpu"):
            precision, reason = "32-true", f"the {device} has no bf16 units"
        elif not gpu and class_attribute(config.optimizer._target_, "float32_on_cpu"):
            precision, reason = "32-true", "with this optimizer bf16 learned less (docs/benchmarks.md)"
        else:
            precision, reason = "bf16-mixed", f"the {device} has bf16 units"
        config.trainer.precision = precision
        say(f"precision {precision}: {reason}")


def make_trainer(
    options: TrainerOptions, steps: int, callbacks: list[Any], loggers: list[Any], directory: Path
) -> Trainer:
    """Return Lightning's Trainer, without the features that seqtrain implements itself.

    Args:
        options: Options of the config, `precision` and `devices` resolved.
        steps: Optimiser steps of the whole training.
        callbacks: Callbacks in the order in which Lightning calls them.
        loggers: Loggers of records.
        directory: Run directory.
    """
    from pytorch_lightning import Trainer
    from pytorch_lightning.plugins.precision import DoublePrecision

    from seqtrain.distributed.strategies import CachedPrecision, ConnectedProcesses, strategy
    from seqtrain.training.callbacks.checkpoints import AtomicCheckpointIO

    here = ranks.rank_info()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    elif here.local_world > 1:  # otherwise each process would start one thread per core
        torch.set_num_threads(max(torch.get_num_threads() // here.local_world, 1))
    keep_freed_memory()
    quiet_lightning()
    # torch's default would let cuDNN round float32 to ten bits in recurrences and convolutions, also in evaluation.
    torch.backends.cudnn.allow_tf32 = False
    plugins: list[Any] = [AtomicCheckpointIO(), ConnectedProcesses(here)]
    every = options.validate_every
    if every == "auto":  # only in evaluation; for training `from_data.resolve_length` has set it
        every = steps
    precision = cast(Any, options.precision)  # `resolve_auto` has made `auto` one of Lightning's
    if options.strategy == "fsdp" and precision == "64-true":
        # Lightning refuses double precision with FSDP by name, but accepts it as a plugin.
        precision = None
        plugins.append(DoublePrecision())
    elif options.strategy != "fsdp" and precision == "bf16-mixed":
        precision = None
        plugins.append(CachedPrecision("bf16-mixed", "cuda" if _uses_gpu(options.accelerator) else "cpu"))
    trainer = Trainer(
        accelerator=options.accelerator,
        devices=here.local_world,
        num_nodes=here.world // here.local_world,
        strategy=strategy(here, options.strategy),
        precision=precision,
        deterministic=options.deterministic,
        max_steps=steps,
        max_epochs=-1,  # for Lightning the training is one epoch; our loader iterates over epochs
        accumulate_grad_batches=options.accumulate,
        gradient_clip_val=options.grad_clip,
        val_check_interval=every * options.accumulate,
        check_val_every_n_epoch=None,
        callbacks=callbacks,
        logger=loggers or False,
        plugins=plugins,
        default_root_dir=directory,
        num_sanity_val_steps=0,  # otherwise recorded as a validation at step 0
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=2**40,  # our recorder logs
    )
    if options.deterministic:
        # Read when cuBLAS is first used. Lightning's own value suits matrices, but not cuDNN's recurrences.
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    return trainer


def surroundings(config: DictConfig, trainer: Trainer, cpu: str | None) -> dict[str, Any]:
    """Return a checkpoint's description of its surroundings: limits of training, and what affects its last bits.

    Args:
        config: Config of the run.
        trainer: Its trainer.
        cpu: Name of the processor.
    """
    machine = torch.cuda.get_device_name() if trainer.strategy.root_device.type == "cuda" else cpu
    return {f"trainer.{name}": config.trainer[name] for name in LIMITS} | {
        "torch": str(torch.__version__),
        "machine": machine,
        "threads": torch.get_num_threads(),
        "processes": ranks.rank_info().world,
    }


def quiet_lightning() -> None:
    """Silence warnings that do not apply: our loaders shard, resume and size themselves."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    for message in (
        ".*isinstance.treespec, LeafSpec.*",
        ".*dataloader is not resumable.*",
        ".*does not have many workers.*",
        ".*GPU available but not used.*",
        ".*srun. command is available.*",
        ".*sync_dist=True.*",  # our logged values are already reduced
        ".*broadcast_buffers. is deprecated.*",  # its successor came after torch 2.11
    ):
        warnings.filterwarnings("ignore", message)


@functools.cache
def has_bf16_units(device_type: str) -> bool:
    """Return True if bf16 products are faster than float32 on this machine's `device_type`, `cpu` or `cuda`."""
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # In the supported releases, torch has this only under private names.
    with contextlib.suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text("utf-8").split()
        return "amx_bf16" in flags or "avx512_bf16" in flags
    return False
