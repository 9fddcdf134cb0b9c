"""Rules for renaming and rearranging weights. Each is invertible, so one table both reads and writes a family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Shaped
from torch import Tensor

Weights = dict[str, Shaped[Tensor, "..."]]


class How(NamedTuple):
    """A rearrangement of weights and its inverse."""

    ours: Callable[[Sequence[Tensor]], Tensor]
    theirs: Callable[[Tensor], Sequence[Tensor]]


SAME = How(lambda parts: parts[0], lambda weight: [weight])
TRANSPOSED = How(lambda parts: _transposed(parts[0]), lambda weight: [_transposed(weight)])


def stacked(*rows: int) -> How:
    """Return the rearrangement that stacks several maps of one input; `rows`: the number of outputs of each."""
    return How(lambda parts: torch.cat(list(parts)), lambda weight: weight.split(rows))


def by_heads(num_heads: int) -> How:
    """Return the rearrangement of queries, keys and values that are stored together per head: (H, 3, K) rows."""
    return How(
        lambda parts: parts[0].unflatten(0, (num_heads, 3, -1)).transpose(0, 1).flatten(0, 2),
        lambda weight: [weight.unflatten(0, (3, num_heads, -1)).transpose(0, 1).flatten(0, 2)],
    )


def in_order(order: Sequence[int], zeros: int = 0) -> How:
    """Return the rearrangement of rows; `order`: the folder's row for each of ours, followed by `zeros` zero rows."""
    index = torch.tensor(order)

    def ours(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([parts[0][index], parts[0].new_zeros(zeros, *parts[0].shape[1:])])

    def theirs(weight: Tensor) -> Sequence[Tensor]:
        kept = weight[: len(index)]
        return [torch.empty_like(kept).index_copy(0, index, kept)]

    return How(ours, theirs)


def columns(order: Sequence[int]) -> How:
    """Return the rearrangement of the columns of a map; `order`: the folder's column for each of ours."""
    index = torch.tensor(order)
    back = index.argsort()
    return How(lambda parts: _columns(parts[0], index), lambda weight: [_columns(weight, back)])


def then(first: How, second: How) -> How:
    """Return the composition of two rearrangements; `first` is applied to the folder's weights."""
    return How(lambda parts: second.ours([first.ours(parts)]), lambda weight: first.theirs(second.theirs(weight)[0]))


def without_first(count: int) -> How:
    """Return the rearrangement that drops `count` unused first rows; on writing they are zero."""
    return How(
        lambda parts: parts[0][count:],
        lambda weight: [torch.cat([weight.new_zeros(count, *weight.shape[1:]), weight])],
    )


def _columns(weight: Tensor, index: Tensor) -> Tensor:
    return weight[:, index] if weight.dim() == 2 else weight


def _transposed(weight: Tensor) -> Tensor:
    return weight.T if weight.dim() == 2 else weight


@dataclass(frozen=True)
class Rule:
    """Names of a module's weight and bias in the folder. `{}` in names is the number of a block.

    Args:
        ours: Name of our module.
        theirs: Names in the folder; several are stacked.
        how: Rearrangement.
    """

    ours: str
    theirs: tuple[str, ...]
    how: How = SAME

    def at(self, block: int) -> Rule:
        """Return the rule of one block."""
        return Rule(self.ours.format(block), tuple(name.format(block) for name in self.theirs), self.how)


def expanded(rules: Sequence[Rule], num_blocks: int) -> list[Rule]:
    """Return the rules, with each rule that contains `{}` replaced by one per block."""
    found: list[Rule] = []
    for rule in rules:
        found += [rule.at(block) for block in range(num_blocks)] if "{}" in rule.ours else [rule]
    return found


def with_vocabulary(rules: Sequence[Rule], order: Sequence[int], zeros: int = 0) -> list[Rule]:
    """Return the rules with the rows of embeddings in our order; `zeros`: rows that only ours has."""
    rows = in_order(order, zeros)
    embeddings = ("embed", "target_embed")
    return [Rule(rule.ours, rule.theirs, then(rows, rule.how)) if rule.ours in embeddings else rule for rule in rules]


def read(rules: Sequence[Rule], theirs: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> tuple[Weights, set[str]]:
    """Return our weights from theirs.

    Args:
        rules: Rules, expanded.
        theirs: Weights under the names of the folder.
        like: Our weights, which give names and shapes.

    Returns:
        Weights under our names, and the names in the folder that were used. A bias or table that the folder lacks is
        zero.

    Raises:
        KeyError: The name of a missing weight.
        ValueError: A weight has another shape than the model's.
    """
    found: Weights = {}
    used: set[str] = set()
    for rule in rules:
        for kind in ("weight", "bias"):
            name = f"{rule.ours}.{kind}"
            names = [f"{each}.{kind}" for each in rule.theirs]
            here = [each for each in names if each in theirs]
            if name not in like:
                if here:
                    raise ValueError(f"{here[0]} has no counterpart in the model")
                continue
            if not here and (kind == "bias" or not names):
                found[name] = torch.zeros_like(like[name])
                continue
            parts = _parts(names, theirs, kind)
            found[name] = rule.how.ours(parts)
            used.update(here)
            if found[name].shape != like[name].shape:
                shapes = (tuple(found[name].shape), tuple(like[name].shape))
                raise ValueError(f"{here[0]} gives {name} {shapes[0]}, but config.json asks for {shapes[1]}")
    return found, used


def _parts(names: Sequence[str], theirs: Mapping[str, Tensor], kind: str) -> list[Tensor]:
    """Return the weights of these names. A missing bias is zero."""
    parts = []
    for name in names:
        if name in theirs:
            parts.append(theirs[name])
        elif kind == "bias":
            weight = theirs[name.removesuffix("bias") + "weight"]
            parts.append(weight.new_zeros(len(weight)))
        else:
            raise KeyError(name)
    return parts


def write(rules: Sequence[Rule], ours: Mapping[str, Tensor]) -> Weights:
    """Return weights under the names of the folder. This inverts `read` bit for bit."""
    found: Weights = {}
    for rule in rules:
        for kind in ("weight", "bias"):
            name = f"{rule.ours}.{kind}"
            if name in ours and rule.theirs:
                parts = rule.how.theirs(ours[name])
                found |= {f"{each}.{kind}": part.contiguous() for each, part in zip(rule.theirs, parts, strict=True)}
    return found
