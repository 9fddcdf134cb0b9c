"""What is done to checkpoints: tensors of other shapes, kinds and numbers, and values of any kind, saved again."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

from benchmarks.fuzz.damage import ODD, Damage, changed
from seqtrain.runs.checkpoint import load
from tests.support.checkpoints import save_any

TENSORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "empty": lambda value: value.new_zeros(0),
    "scalar": lambda value: value.new_zeros(()),
    "one more": lambda value: torch.cat([value.reshape(-1), value.new_zeros(1)]),
    "flat": lambda value: value.reshape(-1),
    "transposed": lambda value: value.T.contiguous() if value.dim() == 2 else value.flip(0) if value.dim() else value,
    "batch of one": lambda value: value[None],
    "nan": lambda value: torch.full_like(value, float("nan")) if value.is_floating_point() else value,
    "infinite": lambda value: torch.full_like(value, float("inf")) if value.is_floating_point() else value,
    "huge": lambda value: torch.full_like(value, 1e38) if value.is_floating_point() else torch.full_like(value, 2**40),
    "negative": lambda value: -value - 1,
    "float64": lambda value: value.double(),
    "float16": lambda value: value.half(),
    "bool": lambda value: value.bool(),
    "whole": lambda value: value.nan_to_num().long(),
    "complex": lambda value: value.to(torch.complex64),
    "a list": lambda value: value.tolist(),
    "a view": lambda value: torch.zeros(1).expand(10**9),
    "text": lambda value: "text",
    "none": lambda value: None,
    "itself in a list": lambda value: [value],
}
PLAIN = tuple(value for value in ODD if not isinstance(value, str) or len(value) < 1000)


def tensors(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every tensor in a tree of maps and lists, as what holds it and its key there."""
    entries = list(tree.items() if isinstance(tree, dict) else enumerate(tree))
    for key, value in entries:
        if isinstance(value, torch.Tensor):
            yield tree, key
        elif isinstance(value, dict | list):
            yield from tensors(value)


def _state(run: Path, chance: random.Random) -> str:
    """A value of the newest checkpoint, which is saved again, and is the best one too."""
    path = max(run.glob("checkpoints/step-*.ckpt"))
    content = load(path)

    def odd(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return TENSORS[chance.choice(list(TENSORS))](value)
        return chance.choice([*PLAIN, torch.zeros(3), torch.tensor(float("nan"))])

    parts = {name: value for name, value in content.items() if isinstance(value, dict | list) and value}
    name = chance.choice(["", *parts])
    within = parts.get(name, content)
    numbers = list(tensors(within))
    if numbers and chance.random() < 0.5:
        holder, key = chance.choice(numbers)
        kind = chance.choice(list(TENSORS))
        holder[key] = TENSORS[kind](holder[key])
        what = f" {key} made {kind}"
    else:
        what = changed(within, chance, odd)
    path.unlink()
    save_any(content, path)
    best = path.with_name("best.ckpt")
    best.unlink(missing_ok=True)
    shutil.copyfile(path, best)
    return f"{name}{what}"


def of_checkpoints() -> st.SearchStrategy[Damage]:
    """Damage to what checkpoints hold."""
    return st.integers(0, 2**32).map(lambda seed: Damage("state", _state, seed))
