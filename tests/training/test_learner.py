"""Laws of training under Lightning: layout, validation and bad luck change nothing that they should not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback, Trainer
from torch import Tensor
from torch.nn import functional as F

from seqtrain.config.options import TrainerOptions
from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import EvalLoader, Stream
from seqtrain.errors import NonFinite, UserError
from seqtrain.models.base import SequenceModel, State
from seqtrain.tasks.base import Facts
from seqtrain.training import trainer as trainers
from seqtrain.training.accumulators import Accumulators, merged
from seqtrain.training.carried_state import CarriedState, join_slices
from seqtrain.training.learner import Learner
from tests.support.model_cases import START, VOCABULARY, Case, assert_near, next_token

Reset = Literal["never", "document"]

TRAINER: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "num_nodes": 1,
    "strategy": "auto",
    "check_ranks_every": 100,
    "precision": "64-true",
    "deterministic": False,
    "compile": "none",
    "threads": None,
    "max_steps": 10,
    "max_epochs": None,
    "max_seconds": None,
    "accumulate": 1,
    "grad_clip": 0.5,
    "validate_every": 1000,
    "checkpoint_every": 1000,
    "keep_last": 2,
    "keep_best": 1,
    "on_nonfinite": "stop",
    "log_every": 1000,
}
ADAMW = partial(torch.optim.AdamW, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
FACTS = Facts(bytes_per_token=2.0, words_per_token=None)
BOTH = pytest.mark.parametrize("name", ["lstm", "gpt"])
LENGTHS = [60, 3, 1, 90, 2, 31, 1, 200, 45]  # far apart, so that lanes end at different steps


@dataclass(frozen=True)
class Text:
    """Random tokens in documents."""

    seed: int = 0

    def stream(self) -> Stream:
        documents = np.concatenate([[0], np.cumsum(LENGTHS)])
        tokens = np.random.default_rng(self.seed).integers(0, VOCABULARY, documents[-1])
        return Stream(tokens, documents, START)

    def plan(self, lanes: int, *, reset: Reset = "never", carry: bool = True) -> StreamPlan:
        tbptt = TBPTT(k1=16, k2=16, carry=carry, reset=reset)
        return StreamPlan(documents=self.stream().documents, lanes=lanes, tbptt=tbptt, seed=0, shuffle=False)


def make_learner(model: SequenceModel, plan: StreamPlan) -> Learner:
    return Learner(
        model=model,
        task=next_token(model),
        carry=plan.carry,
        lanes=plan.lanes,
        facts={"train": FACTS, "validation": FACTS},
        seed=3,
        optimizer=ADAMW,
    )


def make_trainer(folder: Path, *callbacks: Callback, **options: Any) -> Trainer:
    chosen = TrainerOptions(**TRAINER | options)
    return trainers.make_trainer(chosen, 10, list(callbacks), [], folder)


def fit(
    model: SequenceModel, folder: Path, *callbacks: Callback, reset: Reset = "never", carry: bool = True, **options: Any
) -> Learner:
    """Ten steps on eight lanes: into the third epoch."""
    plan = Text().plan(8, reset=reset, carry=carry)
    learner = make_learner(model.train(), plan)
    trainer = make_trainer(folder, *callbacks, **options)
    validation = EvalLoader(Text(1).stream(), Text(1).plan(3, reset=reset, carry=carry), batch_size=None)
    trainer.fit(learner, TrainLoader(Text().stream(), plan, accumulate=trainer.accumulate_grad_batches), validation)
    assert trainer.global_step == 10
    return learner


def everything(learner: Learner) -> dict[str, Any]:
    """All that training has come to."""
    return {
        "weights": dict(learner.state_dict()),
        "optimizer": learner.trainer.optimizers[0].state_dict()["state"],
        "carried": join_slices([learner.carried.on_cpu()]),
        "sums": learner.sums.read(),
        "tokens": learner.progress.own,
    }


class Noise(Callback):
    """A validation that draws from the global generator."""

    def __init__(self) -> None:
        self.count = 0

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        torch.rand(7)
        self.count += 1


@BOTH
@pytest.mark.parametrize("reset", ["never", "document"])
def test_validation_in_the_middle_leaves_training_bitwise_unchanged(name: str, reset: Reset, tmp_path: Path) -> None:
    case, noise = Case(name, (("dropout", 0.2),)), Noise()
    quiet = fit(case.make(), tmp_path, reset=reset, precision="32-true")
    noisy = fit(case.make(), tmp_path, noise, reset=reset, precision="32-true", validate_every=3)
    assert noise.count == 3
    assert noisy.training
    assert_near(everything(noisy), everything(quiet), 0)


@BOTH
@pytest.mark.parametrize(("reset", "accumulate"), [("never", 4), ("document", 8)])  # of 8 each lane is a slice
def test_accumulating_changes_no_number(name: str, reset: Reset, accumulate: int, tmp_path: Path) -> None:
    case = Case(name, ())
    whole = fit(case.make(), tmp_path, reset=reset)
    parts = fit(case.make(), tmp_path, reset=reset, accumulate=accumulate)
    # What a padded lane carries depends on how wide its slice was, and it is reset before it is read.
    found, expected = everything(parts), everything(whole)
    for name in ("weights", "optimizer", "sums", "tokens"):
        assert_near(found[name], expected[name])
    assert_near(parts.progress.gradient_norm, whole.progress.gradient_norm)


# -- evaluation --------------------------------------------------------------------------------------------------


def validate(model: SequenceModel, folder: Path, plan: StreamPlan, batch_size: int | None) -> dict[str, float]:
    learner = make_learner(model, plan)
    trainer = make_trainer(folder, precision="32-true")
    trainer.validate(learner, EvalLoader(Text().stream(), plan, batch_size=batch_size), verbose=False)
    return learner.metrics


@BOTH
@pytest.mark.parametrize(("reset", "carry"), [("never", True), ("document", True), ("document", False)])
def test_metrics_are_the_same_for_evaluation_batches_of_1_3_and_8(
    name: str, reset: Reset, carry: bool, tmp_path: Path
) -> None:
    model, plan = Case(name, ()).make().float(), Text().plan(8, reset=reset, carry=carry)
    whole = validate(model, tmp_path, plan, None)
    for batch_size in (1, 3, 8):
        found = validate(model, tmp_path, plan, batch_size)
        assert found.keys() == {"loss", "perplexity", "bits_per_byte", "accuracy"}
        assert found["loss"] == pytest.approx(whole["loss"], rel=0, abs=1e-6)
        assert found["accuracy"] == whole["accuracy"]


@BOTH
def test_evaluation_is_the_mean_over_all_tokens_read_lane_by_lane(name: str, tmp_path: Path) -> None:
    model, plan, stream = Case(name, ()).make(), Text().plan(5), Text().stream()
    found = validate(model, tmp_path, plan, 2)
    begins = set(stream.documents.tolist())
    losses: list[Tensor] = []
    for lane in range(5):
        span = range(plan.num_tokens * lane // 5, plan.num_tokens * (lane + 1) // 5)
        tokens = [START if place in begins else int(stream.tokens[place - 1]) for place in span]
        scores = next_token(model).logits(model, model.double()(torch.tensor([tokens]))[0][0])
        losses.append(F.cross_entropy(scores, torch.from_numpy(stream.tokens[np.array(span)]), reduction="none"))
    assert found["loss"] == pytest.approx(torch.cat(losses).mean().item(), abs=1e-6)
    assert found["bits_per_byte"] == pytest.approx(found["loss"] / np.log(2) / 2)


# -- randomness, guards, state -----------------------------------------------------------------------------------


def test_randomness_is_a_function_of_seed_and_batch() -> None:
    learner = make_learner(Case("lstm", ()).make(), Text().plan(8))
    batch: Any = None

    def drawn(index: int) -> list[float]:
        learner.on_train_batch_start(batch, index)
        return torch.rand(4).tolist()

    first = drawn(5)
    torch.rand(100)
    assert drawn(6) != first
    assert drawn(5) == first
    learner.seed = 4
    assert drawn(5) != first


def test_gradients_are_clipped_to_the_norm_and_a_norm_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    learner = make_learner(Case("rnn", ()).make(), Text().plan(8))
    learner.task = next_token(learner.model, tied=False)  # so that there is a head to clip
    learner.trainer = make_trainer(tmp_path)
    optimizer = ADAMW(learner.parameters())
    for value, limit, norm in ((3.0, 0.5, 0.5), (1e-4, 0.5, None), (3.0, None, None)):
        for weight in learner.parameters():
            weight.grad = torch.full_like(weight, value)
        size = value * np.sqrt(sum(weight.numel() for weight in learner.parameters()))
        learner.configure_gradient_clipping(optimizer, limit)
        assert learner.progress.gradient_norm is not None
        assert learner.progress.gradient_norm.item() == pytest.approx(size)
        after = torch.cat([weight.grad.flatten() for weight in learner.parameters() if weight.grad is not None]).norm()
        assert float(after) == pytest.approx(norm or size, rel=1e-5)
    next(learner.parameters()).grad = torch.full_like(next(learner.parameters()), torch.nan)
    with pytest.raises(NonFinite, match="gradient's norm is nan"):
        learner.configure_gradient_clipping(optimizer, 0.5)


def some_state(lanes: int) -> State:
    return {"hidden": torch.arange(lanes * 6.0).view(lanes, 2, 3), "filled": torch.arange(lanes)}


def test_carried_state_lies_in_memory_as_that_of_a_resumed_run() -> None:
    carried, lanes = CarriedState(), slice(2, 5)
    carried.put(lanes, {"hidden": torch.randn(2, 3, 5).transpose(0, 1)})  # as nn.GRU leaves it
    live = carried.take(lanes)
    carried.spread({"hidden": torch.randn(7, 2, 5)}, [lanes], torch.device("cpu"))
    resumed = carried.take(lanes)
    assert live is not None
    assert resumed is not None
    assert live["hidden"].stride() == resumed["hidden"].stride() == (10, 5, 1)
    assert live["hidden"].data_ptr() % 64 == resumed["hidden"].data_ptr() % 64 == 0


def test_a_checkpoint_of_other_lanes_is_refused(tmp_path: Path) -> None:
    learner = make_learner(Case("lstm", ()).make(), Text().plan(8))
    learner.trainer = make_trainer(tmp_path)
    saved = {"carried": some_state(4), "sums": [{}], "tokens": 0, "fingerprint": 0, "skipped": (0, 0), "plateau": None}
    learner.on_load_checkpoint({"seqtrain": saved})
    with pytest.raises(UserError, match=r"data\.batch_size=8: the checkpoint carries 4 lanes; use as many"):
        learner.on_fit_start()


def test_sums_add_up_in_float64_and_keep_parts_apart() -> None:
    sums = Accumulators()
    for _ in range(3000):
        table = torch.tensor([0.1, 16.0], requires_grad=True)
        sums.add({"loss": (table[0], 3), "accuracy": (torch.tensor(2), 3), "table": (table, 1)})
    found, exact = sums.read(), 3000 * float(np.float32(0.1))  # a sum in float32 is off by 1e-5
    assert found["loss"] == (pytest.approx(exact, rel=1e-12), 9000)
    assert found["accuracy"] == (6000, 9000)
    assert found["table"] == (pytest.approx([exact, 48000.0], rel=1e-12), 3000)


def test_one_sum_that_is_no_number_among_sound_ones_is_seen() -> None:
    sums = Accumulators()
    sums.add({"loss": (torch.tensor(1.0), 1)})
    assert sums.finite()
    sums.add({"other": (torch.tensor(float("nan")), 1)})
    assert not sums.finite()


def test_sums_of_processes_are_added_part_by_part_also_where_one_has_none() -> None:
    everyone = []
    for rank in range(3):
        own = Accumulators()
        own.add({"loss": (torch.tensor(float(rank)), rank + 1)})
        if rank:
            own.add({"table": (torch.tensor([1.0, rank]), 2)})
        everyone.append(own.terms)
    found = merged([{}, *everyone]).read()
    assert found == {"loss": (3.0, 6.0), "table": ([2.0, 3.0], 4.0)}
