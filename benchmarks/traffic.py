"""Memory traffic and calls of one training step at a GPU's sizes, counted without a GPU.

    python -m benchmarks.traffic

The step runs on fake tensors: shapes and types of a CPU, no memory and no arithmetic. Each operator that computes is a
call; its bytes are those that it reads and writes. Views are free. One call of a fused optimizer, or of an LSTM's layer
and direction, counts once, whatever it launches. What the CPU alone computes in another way is switched off.

The inferred seconds are those of the products at 60 % of an H100's 989 TFLOP/s (bf16), and of all other bytes at 80 %
of its 3.35 TB/s, one after another: a bound to hold a measurement against, not a measurement.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.bench_gpu import GPT_2, Sizes, bare_step, made_up_tokens
from seqtrain.config import check
from seqtrain.data.batching.loader import TrainLoader
from seqtrain.models.layers import attention
from seqtrain.tasks import output
from seqtrain.training.data import make_data
from seqtrain.training.model_and_task import make_pair
from seqtrain.training.session import cost_of

PRODUCTS = ("mm", "addmm", "bmm", "attention", "rnn")  # parts of the names of operators that multiply matrices
FLOPS_A_SECOND = 0.6 * 989e12
BYTES_A_SECOND = 0.8 * 3.35e12


@dataclass
class Traffic:
    """What a step reads and writes.

    Attributes:
        calls: Calls of operators that compute.
        bytes: Bytes by operator.
        logits: Bytes of operators on tensors with an entry for each logit, products apart.
        masks: Largest boolean tensor, in bytes.
        flops: Operations of the step.
    """

    calls: int = 0
    bytes: Counter[str] = field(default_factory=Counter)
    logits: int = 0
    masks: int = 0
    flops: int = 0

    @property
    def seconds(self) -> float:
        """Inferred seconds of the step on an H100."""
        rest = sum(count for name, count in self.bytes.items() if not any(part in name for part in PRODUCTS))
        return self.flops / FLOPS_A_SECOND + rest / BYTES_A_SECOND


class Count(TorchDispatchMode):
    """Counts the traffic of the operators within."""

    def __init__(self, traffic: Traffic, vocab_size: int) -> None:
        super().__init__()
        self.traffic = traffic
        self.vocab_size = vocab_size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        returns = func._schema.returns
        view = any(each.alias_info is not None and not each.alias_info.is_write for each in returns)
        if view or name in ("empty", "empty_like", "empty_strided", "_unsafe_view", "detach", "set_", "device"):
            return result
        read = args[1:] if name in ("copy_", "zero_", "fill_") else args  # what is only written is no input
        inputs = [each for each in tree_leaves(read) if isinstance(each, Tensor)]
        outputs = [each for each in tree_leaves(result) if isinstance(each, Tensor)]
        sizes = [_bytes(each) for each in (*inputs, *outputs)]
        self.traffic.calls += 1
        self.traffic.bytes[name] += sum(sizes)
        self.traffic.masks = max(0, self.traffic.masks, *(_bytes(each) for each in outputs if each.dtype == torch.bool))
        if not any(part in name for part in PRODUCTS):
            of_logits = [each for each in (*inputs, *outputs) if each.dim() == 2 and each.shape[1] == self.vocab_size]
            self.traffic.logits += sum(map(_bytes, of_logits))
        return result


def _bytes(tensor: Tensor) -> int:
    # Expanded dimensions are read once.
    entries = math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return int(entries) * tensor.element_size() if tensor.numel() else 0


def compiled_turn(scores: Tensor, offset: Any, targets: Tensor, *rest: Any) -> tuple[Tensor, Any]:
    """Stand for the compiled loss: scores are read three times and written once (tests/tasks/test_output.py)."""
    losses = scores.amax(1) + scores.amax(1)
    scores.mul_(1)
    return losses.float(), None if offset is None else scores.new_empty(len(offset))


@contextlib.contextmanager
def as_on_a_card(compiled: bool) -> Iterator[None]:
    """Take the ways of a GPU where the device is a CPU."""
    with (
        patch.object(output, "BLOCK", output.GPU_BLOCK),
        patch.object(attention, "MOST_KEYS_BY_HAND", 0),
        patch.object(attention, "LEAST", 0),
        patch.object(output, "_compiled_turn", lambda: compiled_turn),
        patch.object(Tensor, "nonzero", lambda mask: mask.new_empty(1, mask.dim(), dtype=torch.long)),  # of no data
        output.compiled_loss() if compiled else contextlib.nullcontext(),
    ):
        yield


def count_step(words: tuple[str, ...], folder: Path, sizes: Sizes, *, compiled: bool) -> tuple[Traffic, int]:
    """Return the traffic of a step of a training, and its tokens."""
    made_up = (f"data.path={made_up_tokens(folder, sizes)}", f"data.vocab_size={sizes.vocab_size}")
    config = check.compose([*words, "data=nanogpt", *made_up, "trainer.precision=bf16-mixed", "logger=none"]).config
    data = make_data(config, ("train", "validation"), lambda line: None)
    plan = data.plan("train")
    batch = next(iter(TrainLoader(data.batcher("train"), plan, accumulate=1)))
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    traffic = Traffic()
    with mode, as_on_a_card(compiled):
        model, task = make_pair(config, data.preprocessor, data.label_counts)
        step = bare_step(model, task, data.tbptt.carry, "bf16-mixed", torch.device("cpu"))
        step(batch)  # makes the moments
        with Count(traffic, sizes.vocab_size):
            step(batch)
    tokens = plan.num_tokens // plan.steps
    traffic.flops = round(cost_of(config, data).flops_per_token * tokens)
    return traffic, tokens


def main() -> None:
    """Print a table in Markdown."""
    sizes = Sizes(tokens=2_000_000)
    steps = {
        "GPT-2 124M, windows of 1,024": (*GPT_2, "model.max_length=1024", *sizes.gpt.split()),
        "the same with carried keys": ("model=gpt", *sizes.gpt.split(), "model.attention_window=1024"),
        "LSTM 2x1500": ("model=lstm", *sizes.lstm.split()),
    }
    print("| step | loss | calls | GB | of logits | largest mask, MB | TFLOP | inferred ms | tokens/s |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for title, words in steps.items():
            for compiled in (False, True):
                found, tokens = count_step(words, Path(folder), sizes, compiled=compiled)
                print(
                    f"| {title} | {'compiled' if compiled else 'as written'} | {found.calls:,} | "
                    f"{sum(found.bytes.values()) / 1e9:.1f} | {found.logits / 1e9:.1f} | {found.masks / 1e6:.1f} | "
                    f"{found.flops / 1e12:.1f} | {found.seconds * 1e3:.1f} | {tokens / found.seconds:,.0f} |"
                )


if __name__ == "__main__":
    main()
