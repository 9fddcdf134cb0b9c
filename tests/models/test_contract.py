"""What the interface promises, kept by every shipped model: each law of the contract, model by model."""

from __future__ import annotations

import pytest

from seqtrain.models.base import Capability
from seqtrain.models.contract import LAWS, judge
from tests.support.model_cases import MODELS, VARIANTS, Case, cases, unmixed

MIXERS = [pytest.param(case, marks=pytest.mark.long) for case in cases() if case.is_mixture and case.name == "stack"]


@pytest.mark.parametrize("case", [*unmixed(), *MIXERS], ids=str)
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
