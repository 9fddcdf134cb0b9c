"""A task with a few examples of its data: as its contract asks it, and before a training whose task is of others."""

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
from seqtrain.tasks.contract import BEFORE_TRAINING
from seqtrain.tasks.hooks import is_of_others
from seqtrain.tasks.laws import TaskSubject
from seqtrain.tasks.predictors import Loaded

if TYPE_CHECKING:
    from seqtrain.training.session import Session
    from seqtrain.training.splits import Data

EXAMPLES = 4  # that are read at a time: an even number, since laws halve them
MAX_LANES = 2  # of a stream
MAX_SHOWN = 4  # tokens that a sample goes on by: to see that it can is enough
TEXTS = 3  # that predictors are asked
MAX_TEXT_CHARACTERS = 200  # of each


def rehearse(session: Session) -> None:
    """Asks a task of others, on copies and a few examples, what it would else be asked after hours of training.

    No number of the training depends on it. What the task's own code raises is raised.

    Args:
        session: all that is to be trained with.

    Raises:
        UserError: names the task and the first law that does not hold.
    """
    learner = session.learner
    if not is_of_others(learner.task):
        return
    with torch.random.fork_rng(devices=()):
        subject = subject_of(session.data, learner.model, learner.task, _sample_options(session))
        for law in BEFORE_TRAINING:
            try:
                law.check(subject)
            except Broken as broken:
                raise UserError(
                    f"task={learner.task.name()}: {broken}; mend it, `seqtrain contract task=...` checks all it owes"
                ) from None


def subject_of(data: Data, model: SequenceModel, task: Task, options: SampleOptions | None) -> TaskSubject:
    """The task as laws ask it.

    Args:
        data: its splits; a few examples are read.
        model: is copied, as the task is.
        task: the one that is asked.
        options: what samples are asked for; None where none are shown.
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
    """A batch of training, the same examples in two halves, and a batch of evaluation."""
    if data.task.streams:
        plan = data.plan("train")
        # All lanes: the targets of a step are counted over them, whoever reads which.
        train = data.batcher("train").batch(plan.chunk(0, 0), slice(0, plan.lanes))
        plan = data.eval_plan("validation")
        lanes = slice(0, min(plan.lanes, MAX_LANES))
        return train, None, data.batcher("validation").batch(plan.chunk(0, 0), lanes)
    train = data.sample("train", EXAMPLES)
    examples: Any = data.batcher("train")
    index = train.index.numpy()
    middle = len(index) // 2
    halves = None
    if middle:  # of a single example there is no half
        first, second = index[:middle], index[middle:]
        halves = (
            examples.collate(first, 0, examples.totals(first, 0)),
            examples.collate(second, 0, examples.totals(second, 0)),
        )
    return train, halves, data.sample("validation", EXAMPLES)


def _sample_options(session: Session) -> SampleOptions | None:
    """What the run's samples are asked for; None where it shows none."""
    from seqtrain.training.callbacks.samples import Samples

    for callback in session.trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, Samples):
            return callback.options
    return None


def _texts(data: Data, task: Task) -> tuple[str, ...]:
    """A few texts of validation, and one as the task says that it may be asked."""
    texts = [task.example_text.strip("'")]
    for row in itertools.islice(data.rows["validation"].read(), TEXTS):
        texts.append(next(iter(row.values()))[:MAX_TEXT_CHARACTERS])
    return tuple(texts)
