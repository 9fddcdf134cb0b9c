"""Laws of a resume that is refused for what its checkpoint holds: one line, and the run stands as it stood."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.errors import UserError
from seqtrain.experiment.resume import resume
from seqtrain.models.gpt import GPT
from seqtrain.runs.checkpoint import load, save, step_name
from seqtrain.training.checkpoint_check import Mismatch, _check_carried
from tests.support import tiny
from tests.training.test_checkpoint_check import STEP, moments, trained

LATER = 99_999_999_999  # a step that nobody reaches


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps."""
    return trained(tiny.corpus(tmp_path_factory.mktemp("probed"), lines=60))


def contents(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.glob("*.*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "step", "limits", "says"),
    [
        (lambda s: moments(s).update(exp_avg=torch.zeros(1)), STEP, ["trainer.max_steps=6"], "exp_avg is float32 of 1"),
        (
            lambda s: s.update(global_step=LATER),
            LATER,
            ["trainer.max_steps=null", "trainer.max_seconds=60"],
            f"allow 6000000 steps, and checkpoint .* is already at step {LATER}",
        ),
    ],
    ids=["a moment of another shape", "a step beyond what the clock allows"],
)
def test_a_refused_checkpoint_leaves_config_summary_and_records_as_they_were(
    whole: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any], step: int, limits: list[str], says: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    saved = load(run / "checkpoints" / step_name(STEP))
    change(saved)
    save(saved, run / "checkpoints" / step_name(step))
    before = contents(run)
    with pytest.raises(UserError, match=says) as fault:
        resume(str(run), limits, ("seqtrain", "resume"))
    assert len(fault.value.lines) == 1
    assert contents(run) == before


@pytest.mark.parametrize(("max_length", "most"), [(None, 24), (16, 16)])
def test_no_lane_has_read_more_tokens_than_its_epoch_gave_it_or_than_the_model_has_places_for(
    max_length: int | None, most: int
) -> None:
    model = GPT(
        **{
            "embed": nn.Embedding(5, 8),
            "dim": 8,
            "num_layers": 1,
            "num_heads": 1,
            "dropout": 0.0,
            "attention_window": 4,
        },
        **{"positions": "learned" if max_length else "none", "norm": "pre", "bias": True},
        max_length=max_length,
    )
    state = model.initial(2)
    for count in (0, most):
        state["filled"].fill_(count)
        _check_carried(state, model, 2, 24)
    for count in (-1, most + 1, 1 << 62):
        state["filled"][1] = count
        with pytest.raises(Mismatch, match=f"filled counts .* tokens, not 0 to {most}"):
            _check_carried(state, model, 2, 24)


def test_the_most_that_a_lane_has_read_is_counted_from_the_begin_of_the_epoch() -> None:
    cut = TBPTT(k2=4, k1=4, carry=True, reset="never")
    plan = StreamPlan(documents=torch.tensor([0, 20]).numpy(), lanes=2, tbptt=cut, seed=1, shuffle=False)
    assert plan.steps == 3
    assert [plan.most_read(step) for step in range(1, 8)] == [4, 8, 10, 4, 8, 10, 4]
