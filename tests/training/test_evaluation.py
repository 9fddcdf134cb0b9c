"""Laws of evaluation: it reads as training reads, but in full precision, and begins anew each time."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback, Trainer
from torch.nn import functional as F

from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import EvalLoader
from seqtrain.models.base import SequenceModel
from tests.support.model_cases import START, Case, outputs
from tests.training.test_learner import Text, fit, make_learner, make_trainer

CASES = pytest.mark.parametrize("case", [Case("lstm", ()), Case("gpt", ())], ids=str)


def measured(model: SequenceModel, plan: StreamPlan, folder: Path, precision: str, times: int = 1) -> dict[str, float]:
    """The metrics of the newest of some evaluations, one after the other by the same learner."""
    learner = make_learner(model, plan)
    trainer = make_trainer(folder, precision=precision)
    for _ in range(times):
        trainer.validate(learner, EvalLoader(Text().stream(), plan, batch_size=None), verbose=False)
    return learner.metrics


@CASES
def test_evaluation_never_runs_below_the_parameters_precision(case: Case, tmp_path: Path) -> None:
    model, plan = case.make().float(), Text().plan(3)
    whole = measured(model, plan, tmp_path, "32-true")
    hidden = outputs(model)
    assert measured(model, plan, tmp_path, "bf16-mixed") == whole
    assert {out.dtype for out in hidden} == {torch.float32}


def test_training_in_bf16_multiplies_in_bf16_and_its_validations_do_not(tmp_path: Path) -> None:
    model = Case("gpt", ()).make().float()
    seen: dict[bool, set[torch.dtype]] = {True: set(), False: set()}
    linear: Any = model.blocks[0].feed_forward.wide  # type: ignore[index]
    linear.register_forward_hook(lambda module, given, out: seen[module.training].add(out.dtype))
    fit(model, tmp_path, precision="bf16-mixed", validate_every=5)
    assert seen == {True: {torch.bfloat16}, False: {torch.float32}}


def test_an_evaluation_knows_nothing_of_the_one_before_it(tmp_path: Path) -> None:
    model, plan = Case("lstm", ()).make().float(), Text().plan(3)
    assert measured(model, plan, tmp_path, "32-true", times=3) == measured(model, plan, tmp_path, "32-true")


def test_a_validation_amid_training_begins_from_nothing_and_drops_nothing(tmp_path: Path) -> None:
    found: list[dict[str, float]] = []

    class Again(Callback):
        """Compares a validation with one of the same weights alone."""

        def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
            weights = {name: value.clone() for name, value in pl_module.model.state_dict().items()}
            model = Case("lstm", ()).make().float()
            model.load_state_dict(weights)
            learner = make_learner(model, Text(1).plan(3))
            loader = EvalLoader(Text(1).stream(), Text(1).plan(3), batch_size=None)
            make_trainer(tmp_path, precision="32-true").validate(learner, loader, verbose=False)
            assert pl_module.metrics == learner.metrics
            found.append(learner.metrics)

    case = Case("lstm", (("dropout", 0.5),))
    fit(case.make().float(), tmp_path, Again(), precision="32-true", validate_every=4)
    assert len(found) == 2


@pytest.mark.parametrize("carry", [True, False])
def test_evaluation_begins_each_document_from_nothing_where_training_does(carry: bool, tmp_path: Path) -> None:
    model, stream = Case("lstm", ()).make().float(), Text().stream()
    tbptt = TBPTT(k1=16, k2=16, carry=carry, reset="document").evaluation
    plan = StreamPlan(documents=stream.documents, lanes=1, tbptt=tbptt, seed=0, shuffle=False)
    learner = make_learner(model, plan)
    total = 0.0
    # Without carry a window begins from nothing too, also in the middle of a document.
    edges = set(stream.documents.tolist()) | (set() if carry else set(range(0, len(stream.tokens), 16)))
    for begin, end in pairwise(sorted(edges)):
        targets = torch.from_numpy(stream.tokens[begin:end])
        before = START if begin in stream.documents else int(stream.tokens[begin - 1])
        hidden = model(torch.cat([torch.tensor([before]), targets[:-1]])[None])[0][0]
        total += F.cross_entropy(learner.task.logits(model, hidden), targets, reduction="sum").item()  # type: ignore[operator]
    found = measured(model, plan, tmp_path, "32-true")
    assert found["loss"] == pytest.approx(total / len(stream.tokens), abs=1e-6)


def test_evaluation_cuts_time_as_training_does_but_for_what_changes_no_number() -> None:
    found = [TBPTT(k1=4, k2=8, carry=carry, reset="document").evaluation for carry in (True, False)]
    assert TBPTT(k1=8, k2=8, carry=True, reset="never", jitter="awd").evaluation.jitter == "none"
    assert found == [TBPTT(k1=k1, k2=8, carry=k1 == 8, reset="document") for k1 in (8, 4)]


def test_a_schedule_of_torchs_own_moves_at_every_step_and_not_at_a_micro_batch(tmp_path: Path) -> None:
    plan = Text().plan(8)
    learner = make_learner(Case("rnn", ()).make(), plan)
    learner.schedule = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    trainer = make_trainer(tmp_path, accumulate=2, validate_every=4)
    validation = EvalLoader(Text(1).stream(), Text(1).plan(3), batch_size=None)
    trainer.fit(learner, TrainLoader(Text().stream(), plan, accumulate=2), validation)
    assert trainer.global_step == 10
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.01 * 0.5**10)
