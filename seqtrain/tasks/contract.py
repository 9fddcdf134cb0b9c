"""The contract of a task as laws; `seqtrain contract task=...` prints them, and a training run checks some of them.

The laws: the task's descriptions exist, its loss terms are sums and counts, and its texts match its examples.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqtrain.data.batching.examples import ExampleBatch
from seqtrain.data.preprocess import Preprocessor
from seqtrain.models.base import SequenceModel, read_warmup
from seqtrain.models.contract import Law, Verdict, verdict_of
from seqtrain.models.laws.agreement import Broken
from seqtrain.models.laws.subject import law
from seqtrain.tasks.base import Baseline, Facts, LossTerms, Reduced, SampleOptions, Task
from seqtrain.tasks.hooks import check_answers
from seqtrain.tasks.predictors import Loaded, Predictor

LOSS = "loss"
TOLERANCE = 1e-6  # relative, for sums added in another order; training may be in float32


@dataclass(frozen=True)
class TaskSubject:
    """A task that laws check, with a model and some of its data; each law gets its own copy of both."""

    pair: tuple[SequenceModel, Task]
    train: Any  # a training batch: all examples of one step
    halves: tuple[Any, Any] | None  # the same examples in two batches; None for a stream
    validation: Any  # an evaluation batch
    shown: Any  # input of `samples`: some examples, or None for a stream
    preprocessor: Preprocessor
    facts: Facts
    options: SampleOptions | None  # options of the samples; None if the task shows none
    baselines: Callable[[], dict[str, dict[str, float]]]  # baselines of validation
    loaded: Callable[[SequenceModel], Loaded]
    texts: tuple[str, ...] = ()  # inputs of predictors

    def make(self) -> tuple[SequenceModel, Task]:
        """Copy model and task; the caller may change the copy."""
        return copy.deepcopy(self.pair)


@law("`metrics` has `monitor` and `compared_by`, each metric once; `known_baselines` holds Baselines.")
def metrics_are_named(subject: TaskSubject) -> None:
    """Raise Broken if a metric is named twice or used but not named, or if a known baseline has the wrong type."""
    task = subject.pair[1]
    names = [metric.name for metric in task.metrics]
    if len(set(names)) < len(names):
        raise Broken(f"`metrics` contains {', '.join(names)}: one of them twice")
    asked = [("monitor", task.monitor)]
    if task.compared_by is not None:
        asked.append(("compared_by", task.compared_by))
    for attribute, name in asked:
        # Otherwise its direction would be guessed, and the worst weights might be kept as the best.
        if name not in names:
            raise Broken(f"`{attribute}` names {name}, but `metrics` has {', '.join(names) or 'none'}")
    for name, baseline in task.known_baselines.items():
        if not isinstance(baseline, Baseline):
            raise Broken(f"`known_baselines` has {type(baseline).__name__} for {name}, not a Baseline")


@law("The options in `trained_by` and the classes in `predictors` exist.")
def options_are_there(subject: TaskSubject) -> None:
    """Raise Broken if an option in `trained_by` does not exist, or if a predictor or its `takes` has the wrong type."""
    task = subject.pair[1]
    known = inspect.signature(type(task)).parameters
    for name in task.trained_by:
        if name not in known:
            raise Broken(f"`trained_by` names {name}, but the constructor takes {', '.join(known)}")
    for name, predictor in task.predictors.items():
        if not (isinstance(predictor, type) and issubclass(predictor, Predictor)):
            raise Broken(f"`predictors` has {predictor!r} for {name}, not a class of Predictor")
        if not isinstance(predictor.takes, Mapping):
            raise Broken(f"`takes` of {predictor.__name__} is of type {type(predictor.takes).__name__}, not a mapping")


@law("Each loss term of a batch is a finite sum and the count of its targets; one of them is `loss`.")
def parts_are_sums_and_counts(subject: TaskSubject) -> None:
    """Raise Broken unless `evaluate` gives `loss` and each term is a finite sum with a whole count of at least 0."""
    for words, terms in _both_ways(subject):
        if LOSS not in terms:
            raise Broken(f"{words}: `evaluate` gives {', '.join(terms) or 'nothing'}, but no `loss`")
        for name, (total, count) in terms.items():
            if not isinstance(total, Tensor) or not bool(total.isfinite().all()):
                raise Broken(f"{words}: the sum of `{name}` is {_shown(total)}")
            # A count as a tensor would wait for the GPU at every step. A bool is an int in Python, but not a count.
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                raise Broken(f"{words}: the count of `{name}` is {_shown(count)}, not a whole number")


@law("In training each term in `differentiated` exists, is counted by the batch, and has a gradient.")
def descended_parts_are_there(subject: TaskSubject) -> None:
    """Raise Broken if a differentiated term is missing, has no gradient, or disagrees with the batch's totals."""
    model, task = subject.make()
    batch = subject.train
    terms = evaluated(model, task.train(), batch)
    for name in task.differentiated:
        for who, known in (("`evaluate` gives", terms), ("the batch counts", batch.totals)):
            if name not in known:
                raise Broken(f"`differentiated` names {name}, but in training {who} {', '.join(known) or 'nothing'}")
        total, count = terms[name]
        if not total.requires_grad:
            raise Broken(f"the sum of `{name}` has no gradient in training")
        # The mean over the whole step divides by the batch's totals, whichever process reads the examples.
        if count != batch.totals[name]:
            raise Broken(f"`{name}` has {count} targets by `evaluate`, but {batch.totals[name]} by the batch's totals")


@law("Each trainable weight of the task gets a gradient from the loss.")
def weights_take_part(subject: TaskSubject) -> None:
    """Raise Broken if a trainable weight of the task receives no gradient."""
    model, task = subject.make()
    terms = evaluated(model, task.train(), subject.train)
    torch.stack([terms[name][0] for name in task.differentiated]).sum().backward()
    for name, weight in task.named_parameters():
        if weight.requires_grad and weight.grad is None:
            raise Broken(f"{name} has no gradient")


@law("The loss terms of two batches add up to those of both together.")
def parts_add_up(subject: TaskSubject) -> None:
    """Raise Broken if the sums of two halves, or the counts of differentiated terms, do not add up to the whole."""
    if subject.halves is None:  # the lanes of a stream are not split here
        return
    model, task = subject.make()
    whole = evaluated(model, task, subject.train)
    first, second = (evaluated(model, task, half) for half in subject.halves)
    for name, (total, count) in whole.items():
        if name not in first or name not in second:
            raise Broken(f"`{name}` is computed for all examples together, but not for half of them")
        # The count of a term that is not differentiated, such as a table, may have no meaning.
        if name in task.differentiated and first[name][1] + second[name][1] != count:
            raise Broken(f"`{name}` has {count} targets, but {first[name][1]} and {second[name][1]} in the two halves")
        added = first[name][0] + second[name][0]
        if not torch.allclose(added.double(), total.double(), rtol=TOLERANCE, atol=TOLERANCE):
            raise Broken(f"`{name}` sums to {_shown(total)}, but to {_shown(added)} in two halves")


@law("Examples without a target add nothing to the loss terms.")
def nothing_without_targets(subject: TaskSubject) -> None:
    """Raise Broken if a batch without targets has a sum or a count other than 0."""
    if not isinstance(subject.train, ExampleBatch):
        return
    model, task = subject.make()
    # A process without an example in a step gets such a batch, because it must still take part in the gradient
    # reduction.
    for name, (total, count) in evaluated(model, task.train(), subject.train.without_targets()).items():
        if count or bool((total != 0).any()):
            raise Broken(f"`{name}` is {_shown(total)} over {count} targets, but no example has a target")


@law("Evaluation gives the same numbers twice, and changes no weight and no buffer.")
def evaluation_is_repeated(subject: TaskSubject) -> None:
    """Raise Broken if a second evaluation gives other terms, or if evaluation changes the state of the task."""
    model, task = subject.make()
    before = copy.deepcopy(task.state_dict())
    first = evaluated(model, task, subject.validation)
    second = evaluated(model, task, subject.validation)
    for name, (total, count) in first.items():
        if name not in second or second[name][1] != count or not torch.equal(total, second[name][0]):
            raise Broken(f"`{name}` is {_shown(total)} at first, then {_shown(second.get(name))}")
    for name, value in task.state_dict().items():
        if not torch.equal(value, before[name]):
            raise Broken(f"{name} of the task has changed")


@law("`measure` gives finite numbers: the loss, the monitor, the metric of comparison, and only metrics in `metrics`.")
def measures_what_it_names(subject: TaskSubject) -> None:
    """Raise Broken if `measure` lacks a required metric, or gives one that is unnamed or not finite."""
    task = subject.pair[1]
    names = [metric.name for metric in task.metrics]
    for words, terms in _both_ways(subject):
        measured = task.measure(reduced(terms), subject.facts)
        wanted = [LOSS]  # in training too: a run stops if it is not finite
        if words == EVALUATION:
            wanted += [task.monitor, task.comparison()]
        for name in wanted:
            if name not in measured:
                raise Broken(f"{words}: `measure` gives {', '.join(measured) or 'nothing'}, but no {name}")
        _check_figures(f"{words}: `measure` gives", measured, names)


@law("Its baselines are in `known_baselines`, and their numbers are metrics in `metrics`.")
def baselines_are_named(subject: TaskSubject) -> None:
    """Raise Broken if a baseline is not in `known_baselines`, or if one of its metrics is unnamed or not finite."""
    task = subject.pair[1]
    names = [metric.name for metric in task.metrics]
    for baseline, figures in subject.baselines().items():
        if baseline not in task.known_baselines:
            known = ", ".join(task.known_baselines) or "none"
            raise Broken(f"`baselines` gives {baseline}, but `known_baselines` has {known}")
        _check_figures(f"the baseline {baseline} gives", figures, names)


@law("It shows a text for each example.")
def shows_each_example(subject: TaskSubject) -> None:
    """Raise Broken unless `samples` gives one text for each example, or one for a stream."""
    if subject.options is None:
        return
    model, task = subject.make()
    with torch.no_grad():
        samples = task.samples(model, subject.shown, subject.preprocessor, subject.options)
    expected = 1 if subject.shown is None else len(subject.shown.tokens)
    if len(samples) != expected:
        raise Broken(f"`samples` gives a list of length {len(samples)} instead of {expected}")
    for sample in samples:
        if not isinstance(sample.text, str):
            raise Broken(f"`samples` gives {type(sample.text).__name__} for an example, not a string")


@law("Its predictors give each text an answer that JSON can hold, and a line to print.")
def predictors_answer(subject: TaskSubject) -> None:
    """Raise Broken if an answer of a predictor is not JSON, or if its `words` gives no text."""
    model, task = subject.make()
    for name, kind in task.predictors.items():
        predictor = kind(task, subject.loaded(model))
        texts = [text for text in subject.texts if predictor.reason(text) is None]
        answers = predictor.predict(texts, first=0, **predictor.takes)
        check_answers(predictor, texts, answers)
        for answer in answers:
            try:
                json.dumps(answer)
            except (TypeError, ValueError) as error:
                raise Broken(f"{name}: {error}") from None
            if not isinstance(predictor.words(answer), str):
                raise Broken(f"{name}: `words` does not return a string")


@law("`head_flops` is a finite number of at least 0.")
def head_has_a_cost(subject: TaskSubject) -> None:
    """Raise Broken unless `head_flops` is a finite number of at least 0."""
    flops = subject.pair[1].head_flops()
    if not isinstance(flops, int | float) or not 0 <= flops < math.inf:
        raise Broken(f"`head_flops` is {_shown(flops)}")


TRAINING, EVALUATION = "in training", "in evaluation"


def _both_ways(subject: TaskSubject) -> Iterator[tuple[str, LossTerms]]:
    """Yield the loss terms of a batch in training and those of one in evaluation, each after the name of its mode."""
    model, task = subject.make()
    yield TRAINING, evaluated(model, task.train(), subject.train)
    with torch.no_grad():
        yield EVALUATION, evaluated(model, task.eval(), subject.validation)


def evaluated(model: SequenceModel, task: Task, batch: Any) -> LossTerms:
    """Evaluate one batch without an earlier state; raise Broken unless `evaluate` gives loss terms and a state."""
    state = read_warmup(model, batch.warmup_chunks, None)[-1]
    given = task.evaluate(model, batch, state)
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], dict):
        raise Broken(f"`evaluate` gives {_shown(given)}, not loss terms and a state")
    for name, part in given[0].items():
        if not isinstance(part, tuple) or len(part) != 2:
            raise Broken(f"`evaluate` gives {_shown(part)} as `{name}`, not a sum and a count")
    return given[0]


def reduced(terms: LossTerms) -> Reduced:
    """Convert loss terms into numbers and lists, the form that `measure` takes."""
    return {name: (total.detach().double().tolist(), float(count)) for name, (total, count) in terms.items()}


def _check_figures(words: str, figures: Mapping[str, Any], names: list[str]) -> None:
    """Raise Broken if a figure has no metric of its name or is not a finite number."""
    for name, value in figures.items():
        if name not in names:
            raise Broken(f"{words} {name}, but `metrics` has {', '.join(names) or 'none'}")
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise Broken(f"{words} {name}={_shown(value)}, which is not finite")


def _shown(value: Any) -> str:
    """Format a value in at most about 60 characters."""
    if isinstance(value, Tensor) and value.dim() == 0:
        return f"{value.item():.6g}"
    if isinstance(value, Tensor):
        return f"a table of shape {tuple(value.shape)}"
    words = " ".join(repr(value).split())
    return words if len(words) <= 60 else f"{words[:60]}..."


LAWS: list[Law] = [
    metrics_are_named,
    options_are_there,
    parts_are_sums_and_counts,
    descended_parts_are_there,
    weights_take_part,
    parts_add_up,
    nothing_without_targets,
    evaluation_is_repeated,
    measures_what_it_names,
    baselines_are_named,
    shows_each_example,
    predictors_answer,
    head_has_a_cost,
]
"""All laws, in the order of checking: first those on which others depend."""

BEFORE_TRAINING = (
    metrics_are_named,
    parts_are_sums_and_counts,
    descended_parts_are_there,
    measures_what_it_names,
    baselines_are_named,
    shows_each_example,
)
"""Laws checked before a training, which would otherwise fail at its first step, or only at its last."""


OF_EXAMPLES = (parts_add_up, nothing_without_targets)
"""Laws that are not checked for a task on a stream: its lanes are not divided here."""


def judge(subject: TaskSubject) -> Iterator[Verdict]:
    """Check each law in the order of `LAWS` and yield its verdict."""
    for each in LAWS:
        if each in OF_EXAMPLES and subject.pair[1].streams:
            yield Verdict(each, "not promised", None)
        else:
            yield verdict_of(each, subject)
