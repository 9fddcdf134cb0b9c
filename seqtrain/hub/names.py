"""Rules by which weights are renamed and rearranged: each works both ways, so one table reads and writes a family."""

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
    """Return the rearrangement of several maps of one input into one map; `rows`: the outputs of each."""
    return How(lambda parts: torch.cat(list(parts)), lambda weight: weight.split(rows))


def by_heads(num_heads: int) -> How:
    """Return the rearrangement of queries, keys and values that lie side by side for each head: (H, 3, K) rows."""
    return How(
        lambda parts: parts[0].unflatten(0, (num_heads, 3, -1)).transpose(0, 1).flatten(0, 2),
        lambda weight: [weight.unflatten(0, (3, num_heads, -1)).transpose(0, 1).flatten(0, 2)],
    )


def in_order(order: Sequence[int], zeros: int = 0) -> How:
    """Return the rearrangement of rows; `order`: the row in the folder of each of our rows, before `zeros` of zeros."""
    index = torch.tensor(order)

    def ours(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([parts[0][index], parts[0].new_zeros(zeros, *parts[0].shape[1:])])

    def theirs(weight: Tensor) -> Sequence[Tensor]:
        kept = weight[: len(index)]
        return [torch.empty_like(kept).index_copy(0, index, kept)]

    return How(ours, theirs)


def columns(order: Sequence[int]) -> How:
    """Return the rearrangement of the columns of a map; `order`: the column in the folder of each of ours."""
    index = torch.tensor(order)
    back = index.argsort()
    return How(lambda parts: _columns(parts[0], index), lambda weight: [_columns(weight, back)])


def then(first: How, second: How) -> How:
    """Return two rearrangements one after the other, the first one on the side of the folder."""
    return How(lambda parts: second.ours([first.ours(parts)]), lambda weight: first.theirs(second.theirs(weight)[0]))


def without_first(count: int) -> How:
    """Return the rearrangement that leaves out rows of padding, which no token reads; written, they are zero."""
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
    """Place of a module's weight and bias in the folder; `{}` in names is the number of a block.

    Args:
        ours: Name of our module.
        theirs: Names of theirs; several are stacked.
        how: Rearrangement.
    """

    ours: str
    theirs: tuple[str, ...]
    how: How = SAME

    def at(self, block: int) -> Rule:
        """Return the rule of one block."""
        return Rule(self.ours.format(block), tuple(name.format(block) for name in self.theirs), self.how)


def expanded(rules: Sequence[Rule], num_blocks: int) -> list[Rule]:
    """Return the rules with one for each block in place of each that has `{}`."""
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
        theirs: Weights by the names of the folder.
        like: Our weights: which there are, and their shapes.

    Returns:
        Weights by our names, and the names of theirs that were used. A bias or table that only ours has is
        zero.

    Raises:
        KeyError: A weight is missing; names it.
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
                    raise ValueError(f"{here[0]} has no place in the model")
                continue
            if not here and (kind == "bias" or not names):
                found[name] = torch.zeros_like(like[name])
                continue
            parts = _parts(names, theirs, kind)
            found[name] = rule.how.ours(parts)
            used.update(here)
            if found[name].shape != like[name].shape:
                shapes = (tuple(found[name].shape), tuple(like[name].shape))
                raise ValueError(f"{here[0]} gives {name} {shapes[0]}, and config.json asks for {shapes[1]}")
    return found, used


def _parts(names: Sequence[str], theirs: Mapping[str, Tensor], kind: str) -> list[Tensor]:
    """Return the weights of these names; a bias that some of them lack is zero."""
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
    """Return weights by the names of the folder; what `read` made of them is given back, bit for bit."""
    found: Weights = {}
    for rule in rules:
        for kind in ("weight", "bias"):
            name = f"{rule.ours}.{kind}"
            if name in ours and rule.theirs:
                parts = rule.how.theirs(ours[name])
                found |= {f"{each}.{kind}": part.contiguous() for each, part in zip(rule.theirs, parts, strict=True)}
    return found
