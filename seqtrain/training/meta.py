"""Models made only to inspect them: on the meta device, where nothing is computed and no memory taken."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class _WithoutDraws(TorchFunctionMode):
    """Mode that skips drawing normal numbers into tensors on the meta device."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        # To draw nothing, torch would import its compiler first: a second and 69 MiB of each start. That of nn.init
        # comes here as a function of its own, with names, and what it calls does not.
        if func in (torch.Tensor.normal_, nn.init.normal_):
            drawn = args[0] if args else kwargs["tensor"]
            if drawn.is_meta:
                return drawn
        return func(*args, **kwargs)


@contextlib.contextmanager
def on_meta() -> Iterator[None]:
    """Make everything in this block on the meta device."""
    with torch.device("meta"), _WithoutDraws():
        yield
