"""A learner, without Lightning's loops, over a small random stream."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor

from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.data.batching.stream import Stream
from seqtrain.tasks.base import Facts
from seqtrain.training.learner import Learner
from tests.support.model_cases import START, VOCABULARY, Case, next_token

LANES, TIME = 3, 17


class Setting:
    """A learner over a random stream of LANES lanes of `time` tokens, or of documents."""

    def __init__(
        self,
        case: Case,
        k2: int,
        *,
        k1: int | None = None,
        carry: bool = True,
        accumulate: int = 1,
        time: int = TIME,
        lengths: Sequence[int] = (),
        **cut: Any,
    ) -> None:
        """`lengths`: of the documents; `cut`: further options of TBPTT."""
        self.documents = np.cumsum([0, *lengths] if lengths else [0, LANES * time])
        self.tokens = np.random.default_rng(0).integers(0, VOCABULARY, self.documents[-1])
        self.tbptt = TBPTT(**{"k1": k1 or k2, "k2": k2, "carry": carry, "reset": "never"} | cut)
        self.plan = StreamPlan(documents=self.documents, lanes=LANES, tbptt=self.tbptt, seed=0, shuffle=False)
        stream = Stream(self.tokens, self.documents, START)
        self.batches = iter(TrainLoader(stream, self.plan, accumulate=accumulate))
        self.model = case.make()
        self.learner = Learner(
            model=self.model,
            task=next_token(self.model, tied=False),
            carry=carry,
            lanes=LANES,
            facts={"train": Facts(bytes_per_token=1.0, words_per_token=None)},
            seed=0,
        ).double()
        self.trainer = SimpleNamespace(accumulate_grad_batches=accumulate, world_size=1)  # the learner refers weakly
        self.learner.trainer = self.trainer  # type: ignore[assignment]
        self.accumulate = accumulate

    def step(self) -> list[Tensor]:
        """The gradient of one optimiser step, as Lightning adds it up."""
        self.learner.zero_grad()
        for number, batch in enumerate(islice(self.batches, self.accumulate)):
            (self.learner.training_step(batch, number) / self.accumulate).backward()
        return [weight.grad.clone() for weight in self.learner.parameters() if weight.grad is not None]
