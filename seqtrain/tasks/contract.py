"""The contract of a task as laws; `seqtrain contract task=...` prints them, a training of others' tasks asks some."""

from __future__ import annotations

from collections.abc import Iterator

from seqtrain.models.contract import Law, Verdict, verdict_of
from seqtrain.tasks import laws
from seqtrain.tasks.laws import TaskSubject

LAWS: list[Law] = [
    laws.metrics_are_named,
    laws.options_are_there,
    laws.parts_are_sums_and_counts,
    laws.descended_parts_are_there,
    laws.weights_take_part,
    laws.parts_add_up,
    laws.nothing_without_targets,
    laws.evaluation_is_repeated,
    laws.measures_what_it_names,
    laws.baselines_are_named,
    laws.shows_each_example,
    laws.predictors_answer,
    laws.head_has_a_cost,
]
"""All laws, in the order in which they are told: what the others rest on comes first."""

BEFORE_TRAINING = (
    laws.metrics_are_named,
    laws.parts_are_sums_and_counts,
    laws.descended_parts_are_there,
    laws.measures_what_it_names,
    laws.baselines_are_named,
    laws.shows_each_example,
)
"""Those whose fault would end a training, at its first step or only at its last."""


OF_EXAMPLES = (laws.parts_add_up, laws.nothing_without_targets)
"""Those that a task which reads a stream is not asked: its lanes are not cut apart here."""


def judge(subject: TaskSubject) -> Iterator[Verdict]:
    """Check each law in the order of `LAWS` and yield its verdict."""
    for law in LAWS:
        if law in OF_EXAMPLES and subject.pair[1].streams:
            yield Verdict(law, "not promised", None)
        else:
            yield verdict_of(law, subject)
