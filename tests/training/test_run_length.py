"""How long a training is: the limit that is met first counts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from seqtrain.config.check import compose
from seqtrain.training.session import max_steps
from seqtrain.training.trainer import trainer_options


@pytest.mark.long
@pytest.mark.parametrize(
    ("steps", "epochs", "expected"),
    [(10, None, 10), (10, 2, 10), (15, 2, 14), (14, 2, 14), (None, 2, 14), (1, 5, 1)],
)
def test_the_smaller_of_max_steps_and_max_epochs_ends_a_training(
    steps: int | None, epochs: int | None, expected: int
) -> None:
    options = replace(trainer_options(compose([]).config), max_steps=steps, max_epochs=epochs)
    plan: Any = SimpleNamespace(steps=7)  # of an epoch
    assert max_steps(options, plan) == expected
