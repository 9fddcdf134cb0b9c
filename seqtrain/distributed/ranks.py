"""Processes of one run: the rank of this one, how they meet, and how they communicate."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

from seqtrain.errors import RunFailed, Unavailable, UserError, merged
from seqtrain.terminal import tell

Told = TypeVar("Told")
PR_SET_PDEATHSIG = 1
ENDING = 20  # seconds between the failure of one process and the kill of the others
CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


@dataclass(frozen=True)
class RankInfo:
    """Rank of this process among those of a run."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0  # on its node
    local_world: int = 1
    node: int = 0

    @property
    def first(self) -> bool:
        """True if this is the process that writes and prints."""
        return self.rank == 0


class PeerLost(RunFailed):
    """Another process of the run was lost, so this one cannot continue."""


def rank_info() -> RankInfo:
    """Return the rank set by torchrun, `srun` or `start`; without a valid one, that of a single process."""
    try:
        return _given()
    except (KeyError, ValueError):  # `check_place` raises the error
        return RankInfo()


def say(line: str) -> None:
    """Print a line on standard error, once for all processes of a run."""
    # To standard error: standard output holds only results, which may be piped.
    if rank_info().first:
        tell(line)


def check_place() -> None:
    """Raise UserError if the environment contains an invalid rank."""
    try:
        _given()
    except (KeyError, ValueError):
        env = os.environ
        names = [name for name in ("RANK", "WORLD_SIZE") if name in env] or ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"]
        words = ", ".join(f"{name}={env.get(name, '')}" for name in names)
        raise UserError(
            f"{words}: not a valid rank; start the processes with torchrun or srun, or unset the variables"
        ) from None


def _given() -> RankInfo:
    """Return the rank in the environment. Raise KeyError or ValueError if it is invalid."""
    found, env = RankInfo(), os.environ
    if "RANK" in env and "WORLD_SIZE" in env:
        rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
        local_world = int(env.get("LOCAL_WORLD_SIZE", world))
        found = RankInfo(rank, world, int(env.get("LOCAL_RANK", rank)), local_world, int(env.get("GROUP_RANK", 0)))
    # In the batch script itself, outside `srun`, there is one process; SLURM_NTASKS does not apply.
    elif "SLURM_STEP_ID" in env and "SLURM_PROCID" in env and int(env.get("SLURM_STEP_NUM_TASKS", 1)) > 1:
        world, nodes = int(env["SLURM_STEP_NUM_TASKS"]), int(env.get("SLURM_STEP_NUM_NODES", 1))
        rank, node = int(env["SLURM_PROCID"]), int(env.get("SLURM_NODEID", 0))
        found = RankInfo(rank, world, int(env["SLURM_LOCALID"]), world // max(nodes, 1), node)
    if not (0 <= found.rank < found.world and found.local_rank >= 0 and found.local_world >= 1 and found.node >= 0):
        raise ValueError
    return found


def check_world(devices: int | str, num_nodes: int) -> None:
    """Raise UserError unless the number of started processes matches the options of the run.

    Args:
        devices: Processes on each node; `all`: as many as were started.
        num_nodes: Number of nodes.
    """
    here = rank_info()
    devices = here.local_world if devices == "all" else int(devices)
    if here.world == 1 and num_nodes > 1:
        raise UserError(
            f"trainer.num_nodes={num_nodes}: start the processes of several nodes with torchrun or SLURM: "
            "`srun seqtrain train ...`, or `torchrun --nnodes ... --no-python seqtrain train ...`"
        )
    if here.world > 1 and here.world != devices * num_nodes:
        raise UserError(
            f"trainer.devices={devices}, trainer.num_nodes={num_nodes}: {here.world} processes were started; "
            f"use trainer.devices={here.local_world} and trainer.num_nodes={here.world // here.local_world}"
        )


@contextmanager
def process_group() -> Iterator[RankInfo]:
    """Join the other processes of the run, if there are any. Inside another `process_group`, do nothing."""
    here = rank_info()
    if here.world == 1 or _met():
        yield here
        return
    import torch
    import torch.distributed as dist

    meet = os.environ.get("SEQTRAIN_MEET")  # set by `start`: a file needs no free port
    meets = {"MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys() or "SLURM_JOB_ID" in os.environ
    if meet is None and not meets:
        raise UserError(
            f"RANK={here.rank}, WORLD_SIZE={here.world}: set in the environment, but not MASTER_ADDR and MASTER_PORT, "
            "where the processes meet; start them with torchrun, or unset RANK and WORLD_SIZE"
        )
    if meet is None:
        _rendezvous(os.environ)
        _check_address(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
    with losing_peers():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
            init_method="env://" if meet is None else f"file://{meet}",
            rank=here.rank,
            world_size=here.world,
            timeout=timedelta(minutes=30),  # of each collective operation
        )
    try:
        yield here
    finally:
        dist.destroy_process_group()


def _rendezvous(env: dict[str, str] | os._Environ[str]) -> None:
    """Set where processes started by `srun` meet: the first node, and a port derived from the job."""
    if "MASTER_ADDR" not in env:
        one = env.get("SLURM_STEP_NUM_NODES", "1") == "1"  # a single node needs no host name
        env["MASTER_ADDR"] = "127.0.0.1" if one else first_host(env["SLURM_STEP_NODELIST"])
    if "MASTER_PORT" not in env:
        job, step = int(env["SLURM_JOB_ID"]), int(env.get("SLURM_STEP_ID", 0))
        env["MASTER_PORT"] = str(15_000 + (job * 7 + step) % 17_000)  # below the system's ephemeral ports


def _check_address(host: str, port: str) -> None:
    """Raise UserError for an unknown host, which torch would retry until its time limit, or an invalid port."""
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise UserError(f"MASTER_PORT={port}: not a port; give a number from 1 to 65535")
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"MASTER_ADDR={host}: no such host ({error}); give the name of the first machine") from None


def first_host(nodes: str) -> str:
    """Return the first host of SLURM's list of nodes: a3 for `a[3-5,7],b`."""
    name, bracket, rest = nodes.partition("[")
    if "," in name or not bracket:
        return nodes.partition(",")[0]
    return name + rest.partition("]")[0].partition(",")[0].partition("-")[0]


@contextmanager
def losing_peers() -> Iterator[None]:
    """Convert torch's errors about a broken connection into PeerLost."""
    try:
        yield
    except RuntimeError as error:
        if not is_loss(error):
            raise
        raise PeerLost("lost another process of the run") from error


def is_loss(error: BaseException) -> bool:
    """Return True if this error is about the connection to another process."""
    import torch.distributed as dist

    return isinstance(error, PeerLost | dist.DistError) or "gloo" in str(error) or "Connection closed" in str(error)


def all_gather(value: Told) -> list[Told]:
    """Return the values of all processes, by rank, on every process. Tensors must be on the CPU."""
    here = rank_info()
    if here.world == 1 or not _met():
        return [value]
    import torch.distributed as dist

    found: list[Any] = [None] * here.world
    with losing_peers():
        dist.all_gather_object(found, value)
    return found


def run_on_all(work: Callable[[], Told]) -> Told:
    """Return the result of `work`. A UserError in one process is raised in all, so that none waits forever."""
    result, fault = None, None
    try:
        result = work()
    except UserError as error:
        fault = (type(error), error.lines)
    faults = [kind(*lines) for kind, lines in filter(None, all_gather(fault))]
    if faults:
        raise merged(faults)
    return cast(Told, result)


def broadcast(value: Told) -> Told:
    """Return the first process's value on every process."""
    return all_gather(value)[0]


def all_max(number: int) -> int:
    """Return the maximum of a number over processes; cheap enough for every step."""
    if not _met():
        return number
    import torch
    import torch.distributed as dist

    tensor = torch.tensor(number)
    with losing_peers():
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return int(tensor)


def _met() -> bool:
    distributed = sys.modules.get("torch.distributed")  # not imported here, which would take a second
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def die_with_parent(parent: int | None = None) -> None:
    """Have Linux kill this process when its parent ends; exit at once if the parent is no longer `parent`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent is not None and os.getppid() != parent:
            os._exit(1)
