"""Laws of training and evaluation on examples: the layout of micro-batches and batches changes no number."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from rich.console import Console

from seqtrain.config import check
from seqtrain.data.batching.example_plan import ExamplePlan
from seqtrain.data.batching.examples import ExampleBatch, Examples, padded
from seqtrain.data.batching.plan import ExampleChunk, deal
from seqtrain.data.batching.stream import IGNORED
from seqtrain.experiment.start import Request, check_all
from seqtrain.experiment.written_config import config_text
from seqtrain.runs.directory import Run
from seqtrain.training.callbacks.signals import Signals
from seqtrain.training.data import make_data
from seqtrain.training.session import Session, make_session
from tests.support.examples import files, options
from tests.support.model_cases import assert_near

SETTINGS = {
    "sentiment": ("sentiment", "task.class_weights=balanced", "task.dropout=0"),
    "sentiment of padded lanes": (
        "sentiment",
        "model=gru",
        "model.bidirectional=true",
        "task.pool=max",
        "task.dropout=0",
    ),
    "sentiment cut in time": ("sentiment", "tbptt.k2=5", "task.pool=mean", "task.dropout=0"),
    "masked_lm": ("masked_lm",),
    "masked_lm with pairs": ("masked_lm", "task.next_sentence=true", "task.transform=false"),
    "translation": ("translation", "task.max_ratio=1"),
    "translation of two vocabularies": ("translation", "task.shared_vocab=false", "model=rnn_encoder_decoder"),
}
EACH = pytest.mark.parametrize("name", SETTINGS)
STEPS = 10


@pytest.fixture(autouse=True)
def _at_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path_factory.getbasetemp() / "examples"
    if not base.exists():
        base.mkdir()
        files(base)
    monkeypatch.setenv("SEQTRAIN_CACHE", str(base / "cache"))
    monkeypatch.chdir(base)


def session(name: str, folder: Path, *more: str) -> Session:
    """Everything of a run in float64 without dropout; steps of at most six examples."""
    task, *own = SETTINGS[name]
    exact = ("trainer.precision=64-true", "model.dropout=0", f"trainer.max_steps={STEPS}", "data.batch_size=6")
    chosen = [
        word for word in options(task) if not (word.startswith("model") and any("model=" in each for each in own))
    ]
    given = [*chosen, *exact, "model.dim=8", "trainer.validate_every=1000", "optimizer.lr=0.01", *own, *more]
    config = check.compose(given).config
    check_all(config, Request())
    data = make_data(config, ("train", "validation"), lambda line: None)
    run = Run.create(folder / str(len(list(folder.iterdir()))))
    run.write_config(config_text(config))
    return make_session(config, data, run, Signals(), Console(quiet=True), logged_config={})


def trained(name: str, folder: Path, *more: str) -> dict[str, Any]:
    made = session(name, folder, *more)
    made.fit(None)
    assert made.trainer.global_step == STEPS
    return {
        "weights": dict(made.learner.state_dict()),
        "moments": made.learner.trainer.optimizers[0].state_dict()["state"],
        "losses": [record["train/loss"] for record in made.recorder.run.metrics() if "train/loss" in record],
        "tokens": made.learner.progress.tokens,
        "norm": made.learner.progress.gradient_norm,
        "metrics": made.learner.metrics,
    }


@pytest.mark.long
@EACH
def test_accumulating_over_uneven_shares_changes_no_number(name: str, tmp_path: Path) -> None:
    plan = session(name, tmp_path).plan
    sizes = {plan.chunk(*divmod(step, plan.steps)).lanes for step in range(STEPS)}
    accumulate = next(shares for shares in (5, 4) if min(sizes) < shares <= max(sizes))  # of which some are silent
    assert_near(trained(name, tmp_path, f"trainer.accumulate={accumulate}"), trained(name, tmp_path))


@pytest.mark.long
@EACH
def test_metrics_are_the_same_for_evaluation_batches_of_1_3_and_8(name: str, tmp_path: Path) -> None:
    made = session(name, tmp_path)
    found = []
    for size in (None, 1, 3, 8):
        loader = made.data.eval_loader("validation", size)
        made.trainer.validate(made.learner, loader, verbose=False)
        found.append(made.learner.metrics)
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=0, abs=1e-9)
    assert found[0].keys() >= {"loss", "accuracy"}


class Numbers(Examples):
    """Example i holds the token i as often as it is long."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = np.array(lengths)[:, None]

    def totals(self, index: np.ndarray, epoch: int) -> dict[str, int]:
        return {"loss": int(index.sum()), "other": epoch}

    def collate(self, index: np.ndarray, epoch: int, totals: dict[str, int]) -> ExampleBatch:
        tokens, lengths = padded([np.full(self.lengths[i, 0], i) for i in index])
        return ExampleBatch(
            tokens=tokens,
            lengths=lengths,
            targets=torch.from_numpy(index),
            index=torch.from_numpy(index),
            count=int(lengths.sum()),
            totals=totals,
        )


def test_shares_hold_every_example_once_and_know_the_totals_of_all() -> None:
    examples = Numbers([3, 1, 4, 1, 5])
    for size in (1, 2, 3, 5):
        plan = ExamplePlan(lengths=examples.lengths, batch_tokens=None, batch_size=size, seed=0, shuffle=True)
        for step, shares in ((step, shares) for step in range(plan.steps) for shares in (1, 2, 4)):
            picked = plan.chunk(3, step)
            batches = [examples.batch(picked, deal(picked.lanes, shares, share)) for share in range(shares)]
            told = [target for batch in batches for target in batch.targets.tolist() if target != IGNORED]
            assert told == picked.examples.tolist()
            assert all(batch.totals == {"loss": sum(told), "other": 3} for batch in batches)
            assert sum(batch.count for batch in batches) == examples.lengths[picked.examples].sum()
            assert all(len(batch.tokens) > 0 for batch in batches)


def test_a_batch_moves_with_all_its_tensors() -> None:
    batch = Numbers([2, 1]).batch(ExampleChunk(np.array([0, 1]), 0), slice(0, 2)).to(torch.device("meta"))
    assert all(cast(torch.Tensor, part).is_meta for part in (batch.tokens, batch.lengths, batch.targets, batch.index))
    assert batch.count == 3
