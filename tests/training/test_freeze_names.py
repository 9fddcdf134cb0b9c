"""What `freeze` names: whole parts of the model, never others whose names begin alike."""

from __future__ import annotations

import pytest

from seqtrain.errors import UserError
from seqtrain.training.transfer import freeze
from tests.support.model_cases import Case


def test_a_layers_number_is_not_the_beginning_of_another() -> None:
    model = Case("gpt", ()).make(num_layers=12)
    count = freeze(model, ["blocks.1"])
    frozen = {name for name, value in model.named_parameters() if not value.requires_grad}
    assert frozen == {name for name, _ in model.named_parameters() if name.startswith("blocks.1.")}
    assert count == sum(value.numel() for name, value in model.named_parameters() if name in frozen) > 0


def test_the_beginning_of_a_name_is_no_part() -> None:
    with pytest.raises(UserError, match="freeze=block: the model has no such part"):
        freeze(Case("gpt", ()).make(), ["block"])
