"""Theoretical cost of a model, computed from its layers alone, and power laws fitted to measured costs.

A matrix applied to a position costs two operations per weight, in a linear map, a recurrence or a convolution. The
products of attention cost 4 d operations per pair of query and key (Vaswani et al. 2017). The layers are found by
running the model on one short input, while each layer records its inputs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, read_blank
from seqtrain.models.layers.attention import Attention
from seqtrain.models.layers.recorder import recording
from seqtrain.models.mixers.base import Mixer

RECURRENCE = "recurrence"
CONVOLUTION = "convolution"
LINEAR = "linear maps"
ATTENTION = "attention products"
FILTERS = "filters"
MEMORY = "memories"
KINDS: dict[str, tuple[type[nn.Module], ...]] = {
    RECURRENCE: (nn.RNNBase, nn.RNNCellBase),
    CONVOLUTION: (nn.Conv1d,),
    LINEAR: (nn.Linear,),
}
EXPONENTS: dict[str, tuple[float, float]] = {
    RECURRENCE: (1, 2),
    CONVOLUTION: (1, 2),
    LINEAR: (1, 2),
    ATTENTION: (2, 1),
    FILTERS: (1, 1),
}
"""Exponents of T and of d with which the operations of each kind grow, everything else being equal."""
MIN_POINTS = 3  # any power law fits two points
CLEAR_ERROR = 0.25  # largest error of a clear exponent: two errors then stay within half a power


@dataclass(frozen=True)
class Formula:
    """Parameters and operations of a model's core by kind of layer."""

    length: int  # T, tokens read at once; with a source, the length of source and target each
    parameters: dict[str, int] = field(default_factory=dict)  # of the core; `others` are norms and vectors
    flops: dict[str, float] = field(default_factory=dict)  # of a forward pass, per token

    @property
    def total(self) -> float:
        """Operations of a forward pass, per token."""
        return sum(self.flops.values())


def formula_of(model: SequenceModel, length: int) -> Formula:
    """Return the theoretical cost of a model that reads `length` tokens at once, from an empty state.

    Args:
        model: A model on the CPU in evaluation mode; it reads one lane of blanks.
        length: T, tokens read at once.
    """
    positions: Counter[nn.Module] = Counter()

    def count(module: nn.Module, given: tuple[Tensor, ...], out: object) -> None:
        positions[module] += _positions(module, given[0])

    # An embedding look-up counts as no operation.
    core = core_of(model)
    layers = [layer for layer in core if _kind_of(layer) is not None]
    # Hooks, because a matrix may be applied to fewer positions than tokens, such as once for a whole source.
    handles = [layer.register_forward_hook(count) for layer in layers]
    try:
        with torch.no_grad(), recording() as maps:
            tokens = _read(model, length)
    finally:
        for handle in handles:
            handle.remove()
    parameters: Counter[str] = Counter()
    flops: dict[str, float] = defaultdict(float)
    for layer in layers:
        kind = str(_kind_of(layer))
        matrices = [weight for weight in layer.parameters(recurse=False) if weight.dim() > 1]
        parameters[kind] += sum(weight.numel() for weight in layer.parameters(recurse=False))
        flops[kind] += 2 * sum(weight.numel() for weight in matrices) * positions[layer]
    times = Counter(module for _, module in model.named_modules(remove_duplicate=False))  # above 1 for shared layers
    for module, weight in _bare(core):
        kind = FILTERS if weight.dim() > 1 else "others"
        parameters[kind] += weight.numel()
        if kind == FILTERS:
            flops[kind] += 2 * weight.numel() * length * times[module] / getattr(model, "num_folded", 1)
    # Each map is one layer of attention: every query with every key, masked or not.
    for seen in maps:
        queries, keys = seen.weights.shape[-2:]
        flops[ATTENTION] += 4 * attention_width(model) * queries * keys
    for part in core:
        if isinstance(part, Mixer):
            flops[MEMORY] += part.flops(length) * tokens * times[part]
    return Formula(length, dict(parameters), {kind: value / tokens for kind, value in flops.items()})


def attention_width(model: SequenceModel) -> int:
    """Return the width of all heads of a layer's attention together: `dim`, except in a model with `head_dim`."""
    widths = [part.num_heads * part.head_width for part in model.modules() if isinstance(part, Attention)]
    return widths[0] if widths else model.dim


def core_of(model: SequenceModel) -> list[nn.Module]:
    """Return all modules of a model except its front ends."""
    fronts = {model.embed, getattr(model, "target_embed", model.embed)}
    left_out = {module for front in fronts for module in front.modules()}
    return [module for module in model.modules() if module not in left_out]


def _read(model: SequenceModel, length: int) -> int:
    """Run the model on blanks; return the number of tokens read, including those of a source."""
    read_blank(model, 1, length)
    return length if Capability.UNCONDITIONAL in model.capabilities else 2 * length


def _kind_of(module: nn.Module) -> str | None:
    for kind, types in KINDS.items():
        if isinstance(module, types):
            return kind
    return None


def _positions(module: nn.Module, given: Tensor) -> int:
    """Return the number of positions that a layer was applied to."""
    if _kind_of(module) == CONVOLUTION:
        assert isinstance(module, nn.Conv1d)
        # The input is (B, D, T), and there are fewer outputs than inputs.
        return given.shape[-1] - module.dilation[0] * (module.kernel_size[0] - 1)
    # A linear map takes (..., D), and a recurrence (B, T, D) or, step by step, (B, D).
    return given[..., 0].numel()


def _bare(core: list[nn.Module]) -> list[tuple[nn.Module, Tensor]]:
    """Return the weights outside layers of a known kind: norms, vectors, filters. Embeddings cost no operation."""
    weights: list[tuple[nn.Module, Tensor]] = []
    for module in core:
        if _kind_of(module) is None and not isinstance(module, nn.Embedding):
            weights += [(module, weight) for weight in module.parameters(recurse=False)]
    return weights


@runtime_checkable
class HasPath(Protocol):
    """A model that knows the length of the path between its inputs."""

    def longest_path(self, length: int) -> int | None:
        """Return the fewest steps between the first and the last of `length` tokens.

        None if the number is unknown, or if the last hidden state does not depend on the first token.
        """
        ...


@runtime_checkable
class HasSourcePath(Protocol):
    """A model with a source that knows how far away it is."""

    def source_path(self, length: int) -> int | None:
        """Return the fewest steps from the farthest of `length` source tokens to the last of `length` target tokens."""
        ...


def longest_path(model: SequenceModel, length: int) -> int | None:
    """Return the fewest steps between the first and the last of `length` tokens; None if the model does not say."""
    return model.longest_path(length) if isinstance(model, HasPath) else None


def source_path(model: SequenceModel, length: int) -> int | None:
    """Return the fewest steps from the farthest source token to the last target token; None without a source."""
    return model.source_path(length) if isinstance(model, HasSourcePath) else None


# -- growth that was measured ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PowerLaw:
    """y = factor n^exponent, fitted by least squares of the logarithms."""

    exponent: float
    error: float  # standard error of the exponent, from the residuals
    factor: float
    points: int

    @property
    def is_clear(self) -> bool:
        """True if the points lie near enough to one line to determine its slope."""
        return self.error <= CLEAR_ERROR

    def at(self, n: float) -> float:
        """Return y at n."""
        return self.factor * n**self.exponent

    def words(self, axis: str) -> str:
        """Format the exponent with its error; if the error is too large, say first that there is no clear exponent."""
        slope = f"{axis}^{self.exponent:.2f} +- {self.error:.2f}"
        return slope if self.is_clear else f"no clear exponent ({slope})"

    def record(self) -> dict[str, Any]:
        """Return the law as JSON values."""
        return {**asdict(self), "clear": self.is_clear}


def fit_power_law(sizes: Sequence[float], values: Sequence[float]) -> PowerLaw | None:
    """Fit a power law to measurements; return None if fewer than MIN_POINTS values are above 0."""
    pairs = [(size, value) for size, value in zip(sizes, values, strict=True) if value > 0]
    if len(pairs) < MIN_POINTS:
        return None
    logs = np.log(np.array(pairs, dtype=float))
    line: Any = stats.linregress(logs[:, 0], logs[:, 1])
    return PowerLaw(float(line.slope), float(line.stderr), float(np.exp(line.intercept)), len(pairs))
