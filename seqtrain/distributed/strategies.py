"""Lightning strategies for several processes, full copies (DDP) or shards (FSDP2), and its bf16 precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from pytorch_lightning.plugins.environments import ClusterEnvironment
from pytorch_lightning.plugins.precision import MixedPrecision
from pytorch_lightning.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch import nn

from seqtrain.distributed.ranks import RankInfo

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class ConnectedProcesses(ClusterEnvironment):
    """Cluster environment of processes that have already met: Lightning starts none and detects none."""

    def __init__(self, rank_info: RankInfo) -> None:
        super().__init__()
        self.rank_info = rank_info

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        raise NotImplementedError("the processes have met before Lightning begins")

    @property
    def main_port(self) -> int:
        raise NotImplementedError("the processes have met before Lightning begins")

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self.rank_info.world

    def set_world_size(self, size: int) -> None:
        pass

    def global_rank(self) -> int:
        return self.rank_info.rank

    def set_global_rank(self, rank: int) -> None:
        pass

    def local_rank(self) -> int:
        return self.rank_info.local_rank

    def node_rank(self) -> int:
        return self.rank_info.node

    def teardown(self) -> None:
        """Do nothing: the processes still communicate afterwards."""


def strategy(rank_info: RankInfo, kind: Literal["auto", "ddp", "fsdp"]) -> Strategy | str:
    """Return Lightning's strategy for this rank. It averages gradients over processes, which the learner undoes."""
    if rank_info.world == 1:
        return "auto"
    if kind == "fsdp":
        return Sharded(data_parallel_size=rank_info.world, tensor_parallel_size=1, save_distributed_checkpoint=False)
    return DDPStrategy(broadcast_buffers=False, gradient_as_bucket_view=True)


class Sharded(ModelParallelStrategy):
    """FSDP2 whose checkpoints load for any optimizer, also one without state for a weight, such as SGD."""

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Load weights and optimizer with the checkpoint plugin, because Lightning itself only reads torch's files."""
        from torch.distributed.checkpoint import state_dict as states
        from torch.distributed.fsdp import FullyShardedDataParallel, OptimStateKeyType

        assert self.model is not None
        checkpoint = self.checkpoint_io.load_checkpoint(checkpoint_path)
        whole = states.StateDictOptions(full_state_dict=True)
        states.set_model_state_dict(self.model, checkpoint.pop("state_dict"), options=whole)
        (optimizer,), (saved,) = self.optimizers, checkpoint["optimizer_states"]
        if saved["state"]:  # SGD keeps none
            if isinstance(next(iter(saved["state"])), int):  # written by one process, or by DDP
                by_name = OptimStateKeyType.PARAM_NAME
                saved = FullyShardedDataParallel.rekey_optim_state_dict(saved, by_name, self.model)
            from_first = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
            states.set_optimizer_state_dict(self.model, optimizer, optim_state_dict=saved, options=from_first)
        for group, other in zip(optimizer.param_groups, saved["param_groups"], strict=True):
            group.update({**other, "params": group["params"]})  # torch makes lists of pairs
        return checkpoint


def shard(learner: nn.Module, mesh: DeviceMesh) -> None:
    """Shard weights, gradients and moments. A step gathers the weights once for all its forward passes."""
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    for module in learner.modules():
        if isinstance(module, nn.RNNBase):  # keeps references to its weights, which sharding replaces
            module.register_forward_pre_hook(_refresh)
    # Ranks may need different numbers of forward passes, so nothing is gathered between these.
    fully_shard(cast(Any, learner), mesh=mesh["data_parallel"], reshard_after_forward=False)
    register_fsdp_forward_method(learner, "training_step")


def gather(learner: nn.Module) -> None:
    """Gather the weights on every process; the next step or checkpoint shards them again."""
    if hasattr(learner, "unshard"):
        cast(Any, learner).unshard()


def _refresh(core: nn.Module, inputs: Any) -> None:
    names = cast(list[str], core._flat_weights_names)
    core._flat_weights = [getattr(core, name) for name in names]  # type: ignore[assignment]


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself, gathered if each process has a shard of it."""
    return cast(Any, tensor).full_tensor() if hasattr(tensor, "full_tensor") else tensor


class CachedPrecision(MixedPrecision):
    """Autocast that keeps each weight's bf16 copy until the step ends; Lightning's casts it at each use.

    A recurrence uses its weights again at every token.
    """

    def autocast_context_manager(self) -> torch.autocast:
        return torch.autocast(self.device, torch.bfloat16)
