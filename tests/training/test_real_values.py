"""Series of real values go through the plan, the batches, the carried state and the learner that tokens go through."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import EvalLoader, Stream, StreamBatch
from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.layers.front_ends import ValueProjection
from seqtrain.tasks.base import Facts, LossTerms, Reduced, Sample, Task
from seqtrain.training.learner import Learner
from tests.support.model_cases import Case, assert_near
from tests.training.test_learner import everything, make_trainer

NUM_FEATURES = 3
LENGTHS = [60, 3, 1, 90, 31, 200]  # of the series
FACTS = Facts(bytes_per_token=1.0, words_per_token=None)
CAUSAL = pytest.mark.parametrize("name", ["rnn", "gru", "lstm", "min_gru", "cnn", "mlp", "gpt", "ar", "dlinear"])


class NextValue(Task):
    """The mean squared error of the next values."""

    requires = Capability.CAUSAL

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.head = nn.Linear(dim, NUM_FEATURES)

    def logits(self, model: SequenceModel, hidden: Any) -> Any:
        return self.head(hidden)

    def evaluate(self, model: SequenceModel, batch: StreamBatch, state: State | None) -> tuple[LossTerms, State]:
        hidden, after = model(batch.tokens, state)
        real = ~batch.targets.isnan().any(-1)  # chosen first: a gradient of zero times NaN would be NaN
        errors = self.head(hidden[real]) - batch.targets[real]
        return {"loss": ((errors**2).sum(), batch.count)}, after

    def measure(self, totals: Reduced, facts: Facts) -> dict[str, float]:
        total, count = totals["loss"]
        return {"loss": total / count}

    def head_flops(self) -> float:
        return 0.0

    def samples(self, *given: Any) -> list[Sample]:
        return []


def series(seed: int = 0) -> Stream:
    documents = np.concatenate([[0], np.cumsum(LENGTHS)])
    values = np.random.default_rng(seed).normal(size=(documents[-1], NUM_FEATURES)).astype(np.float32)
    return Stream(values, documents, 0.0, np.float64)


def pair(name: str) -> tuple[SequenceModel, NextValue]:
    model = Case(name, (("dropout", 0.0),)).make().double().train()
    torch.manual_seed(1)
    model.embed = ValueProjection(num_features=NUM_FEATURES, dim=model.dim).double()
    return model, NextValue(model.dim).double()


def plan(stream: Stream, tbptt: TBPTT, lanes: int = 4) -> StreamPlan:
    return StreamPlan(documents=stream.documents, lanes=lanes, tbptt=tbptt, seed=0, shuffle=False)


def test_a_series_begins_from_the_start_value_and_padding_is_no_number() -> None:
    stream = series()
    (batch,) = EvalLoader(stream, plan(stream, TBPTT(k1=400, k2=400, carry=False, reset="never")), batch_size=None)
    assert batch.tokens.shape == batch.targets.shape == (4, batch.tokens.shape[1], NUM_FEATURES)
    real = ~batch.targets.isnan().any(-1)
    assert int(real.sum()) == batch.count == sum(LENGTHS)
    values = torch.from_numpy(stream.tokens.astype(np.float64))
    assert torch.equal(batch.targets[real], values)
    first = torch.zeros(len(values), dtype=torch.bool)
    first[stream.documents[:-1]] = True
    read = batch.tokens[real]
    assert torch.equal(read[first], torch.zeros(len(LENGTHS), NUM_FEATURES, dtype=torch.float64))
    assert torch.equal(read[1:][~first[1:]], values[:-1][~first[1:]])


@CAUSAL
def test_chunks_of_values_with_carried_state_equal_the_whole(name: str) -> None:
    model, task = pair(name)
    stream = series()
    losses = []
    for length in (400, 7):
        total, state = 0.0, model.initial(4)
        for batch in EvalLoader(
            stream, plan(stream, TBPTT(k1=length, k2=length, carry=True, reset="never"), lanes=4), batch_size=None
        ):
            terms, state = task.evaluate(model, batch, state)
            total += terms["loss"][0].item()
        losses.append(total)
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)


@CAUSAL
@pytest.mark.parametrize("accumulate", [2, 4])
def test_micro_batches_of_values_change_no_number(name: str, accumulate: int, tmp_path: Path) -> None:
    def fit(accumulate: int) -> Learner:
        stream = series()
        layout = plan(stream, TBPTT(k1=16, k2=32, carry=True, reset="document"))
        model, task = pair(name)
        learner = Learner(
            model=model,
            task=task,
            carry=True,
            lanes=layout.lanes,
            facts={"train": FACTS, "validation": FACTS},
            seed=3,
            optimizer=partial(torch.optim.AdamW, lr=0.01),
        )
        trainer = make_trainer(tmp_path, accumulate=accumulate)
        trainer.fit(learner, TrainLoader(stream, layout, accumulate=accumulate))
        return learner

    whole, parts = fit(1), fit(accumulate)
    assert whole.global_step == 10
    # What a padded lane carries depends on how wide its slice was, and it is reset before it is read.
    for kept in ("weights", "optimizer", "sums", "tokens"):
        assert_near(everything(parts)[kept], everything(whole)[kept], 1e-9)
