"""What the interface promises, kept by every shipped model: each law of the contract, model by model."""

from __future__ import annotations

import pytest
import torch

from seqtrain.models.base import Capability, reset
from seqtrain.models.contract import LAWS, Law
from tests.support.model_cases import MODELS, VARIANTS, Case, cases

PAIRS = [
    pytest.param(law, case, id=f"{law.name}-{case}", marks=pytest.mark.long if case.is_mixture else ())
    for law in LAWS
    for case in cases(law.promise)
]


@pytest.mark.parametrize(("law", "case"), PAIRS)
def test_a_shipped_model_keeps_the_law(law: Law, case: Case) -> None:
    law.check(case.subject())


def test_every_law_is_owed_by_some_shipped_model_and_every_promise_has_a_law_of_its_own() -> None:
    assert [law.name for law in LAWS if not cases(law.promise)] == []
    assert {law.promise for law in LAWS} >= {
        Capability.CAUSAL,
        Capability.BIDIRECTIONAL,
        Capability.STATEFUL,
        Capability.CONDITIONAL,
        Capability.SEPARABLE,
    }


def test_every_model_file_is_picked_up() -> None:
    files = {path.stem for path in MODELS.glob("*.yaml")}
    assert {case.name for case in cases()} == files - {name for name in files if name.endswith("_model")}
    assert set(VARIANTS) <= files


def test_a_reset_survives_nan_and_keeps_every_kind_of_tensor() -> None:
    state = {"a": torch.full((2, 3, 4), torch.nan), "filled": torch.tensor([5, 6])}
    after = reset(state, torch.tensor([True, False]))
    assert not after["a"][0].any()
    assert after["a"][1].isnan().all()
    assert after["filled"].tolist() == [0, 6]
    assert after["filled"].dtype == torch.long
