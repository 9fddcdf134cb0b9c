"""What the interface promises, kept by every shipped model: each law of the contract, model by model."""

from __future__ import annotations

import pytest
import torch

from seqtrain.models.base import Capability, reset
from seqtrain.models.contract import LAWS, judge
from tests.support.model_cases import MODELS, VARIANTS, Case, cases, mixtures_long


@pytest.mark.parametrize("case", mixtures_long(cases()), ids=str)
def test_a_shipped_model_keeps_every_law_that_it_promises(case: Case) -> None:
    verdicts = list(judge(case.subject()))
    assert [(law.name, counterexample) for law, _, counterexample in verdicts if counterexample] == []
    assert "holds" in {verdict.status for verdict in verdicts}


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
