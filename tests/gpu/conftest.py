"""The device that a law is asked of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pytest
import torch

DEVICES = [pytest.param("cpu", marks=pytest.mark.long), pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """The CPU in `make test-long`, a card in `make test-gpu`; settings of torch that a run makes end with the test."""
    yield torch.device(request.param)
    torch.use_deterministic_algorithms(False)


def asked(names: str, cases: Iterable[Any], *, cpu: Collection[Any]) -> pytest.MarkDecorator:
    """A card is asked every case, the CPU some: of its own numbers other laws speak, and here it tries the bodies."""
    found = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        found.append(pytest.param("cuda", *values, marks=pytest.mark.gpu))
        if case in cpu:
            found.append(pytest.param("cpu", *values, marks=pytest.mark.long))
    return pytest.mark.parametrize(f"device,{names}", found, indirect=["device"])


def accelerator(device: torch.device) -> str:
    """The value of trainer.accelerator that trains on it."""
    return "gpu" if device.type == "cuda" else "cpu"
