"""Check of a task on a few examples of its data: for its contract, and for a user's own task before training."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.models.laws.agreement import Broken
from seqtrain.tasks.base import SampleOptions, Task
from seqtrain.tasks.contract import BEFORE_TRAINING, TaskSubject
from seqtrain.tasks.predictors import Loaded

if TYPE_CHECKING:
    from seqtrain.training.session import Session
    from seqtrain.training.splits import Data

EXAMPLES = 4  # read at a time; an even number, because laws halve them
MAX_LANES = 2  # of a stream
MAX_SHOWN = 4  # generated tokens of a sample: a few show that it works
TEXTS = 3  # given to predictors
MAX_TEXT_CHARACTERS = 200  # of each


def rehearse(session: Session) -> None:
    """Check a user's own task on a few examples, for faults that would otherwise appear after hours of training.

    The check uses copies, so the training does not depend on it. Exceptions of the task's own code are raised.

    Args:
        session: Session to be trained.

    Raises:
        UserError: A law does not hold. The message names the task and the first such law.
    """
    learner = session.learner
    with torch.random.fork_rng(devices=()):
        subject = subject_of(session.data, learner.model, learner.task, _sample_options(session))
        for law in BEFORE_TRAINING:
            try:
                law.check(subject)
            except Broken as broken:
                raise UserError(
                    f"task={learner.task.name()}: {broken}; correct it: `seqtrain contract task=...` checks all laws"
                ) from None


def subject_of(data: Data, model: SequenceModel, task: Task, options: SampleOptions | None) -> TaskSubject:
    """Return the task in the form that laws check.

    Args:
        data: Data from which a few examples are read.
        model: Model; a copy is used.
        task: Task to check; a copy is used.
        options: Options of samples; None if none are shown.
    """
    train, halves, validation = _batches(data)
    if options is not None:
        options = replace(options, length=min(options.length, MAX_SHOWN))
    tbptt, max_length = data.tbptt.evaluation, data.batching.max_length

    def loaded(model: SequenceModel) -> Loaded:
        return Loaded(model, data.preprocessor, max_length, tbptt)

    model, task = copy.deepcopy((model, task))
    return TaskSubject(
        pair=(model.eval(), task.eval()),
        train=train,
        halves=halves,
        validation=validation,
        shown=data.sample("validation", EXAMPLES),
        preprocessor=data.preprocessor,
        facts=data.facts()["validation"],
        options=options,
        baselines=lambda: data.baselines("validation"),
        loaded=loaded,
        texts=_texts(data, task),
    )


def _batches(data: Data) -> tuple[Any, tuple[Any, Any] | None, Any]:
    """Return a training batch, the same examples in two halves, and an evaluation batch."""
    if data.task.streams:
        plan = data.plan("train")
        # All lanes, because the targets of a step are counted over all of them.
        train = data.batcher("train").batch(plan.chunk(0, 0), slice(0, plan.lanes))
        plan = data.eval_plan("validation")
        lanes = slice(0, min(plan.lanes, MAX_LANES))
        return train, None, data.batcher("validation").batch(plan.chunk(0, 0), lanes)
    train = data.sample("train", EXAMPLES)
    examples: Any = data.batcher("train")
    index = train.index.numpy()
    middle = len(index) // 2
    halves = None
    if middle:  # a single example has no halves
        first, second = index[:middle], index[middle:]
        halves = (
            examples.collate(first, 0, examples.totals(first, 0)),
            examples.collate(second, 0, examples.totals(second, 0)),
        )
    return train, halves, data.sample("validation", EXAMPLES)


def _sample_options(session: Session) -> SampleOptions | None:
    """Return the options of the run's samples; None if it shows none."""
    from seqtrain.training.callbacks.samples import Samples

    for callback in session.trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, Samples):
            return callback.options
    return None


def _texts(data: Data, task: Task) -> tuple[str, ...]:
    """Return a few texts of validation, and the task's example text."""
    texts = [task.example_text.strip("'")]
    for row in itertools.islice(data.rows["validation"].read(), TEXTS):
        texts.append(next(iter(row.values()))[:MAX_TEXT_CHARACTERS])
    return tuple(texts)
