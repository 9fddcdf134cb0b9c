"""The device that a law is asked of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

DEVICES = [pytest.param("cpu", marks=pytest.mark.long), pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """The CPU in `make test-long`, a card in `make test-gpu`; settings of torch that a run makes end with the test."""
    yield torch.device(request.param)
    torch.use_deterministic_algorithms(False)


def accelerator(device: torch.device) -> str:
    """The value of trainer.accelerator that trains on it."""
    return "gpu" if device.type == "cuda" else "cpu"
