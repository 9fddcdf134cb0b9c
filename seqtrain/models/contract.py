"""The contract of a model, as laws. Each law reads a small model in float64 and describes the first counterexample.

`judge` checks every law of one model; `seqtrain contract` prints the verdicts, and the tests run the same laws on every
shipped model. A law is checked only if the model has the capability that it depends on (`Law.promise`).
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqtrain.models.laws import capabilities, reading, state
from seqtrain.models.laws.agreement import Broken
from seqtrain.models.laws.subject import SPECIALS, VOCAB_SIZE, Law, Subject, prepare

__all__ = ["LAWS", "LEAST_LENGTH", "SMALL", "SPECIALS", "VOCAB_SIZE", "Broken", "Law", "Subject", "judge", "prepare"]

SMALL = {"dim": 8, "num_layers": 2, "num_heads": 2, "attention_window": 3}
"""Options that make a model small, where it has them."""

_HERE, _TASKS = Path(__file__), Path(__file__).parents[1] / "tasks"
NOT_THE_AUTHORS = {_HERE, _HERE.parent / "laws", _TASKS / "contract.py"}
"""Files and folders of the laws. A counterexample names no line of these, only a line of the model or task."""

LEAST_LENGTH = 16  # tokens since a reset that every model must be able to read

# Listed here instead of being registered by the modules, so that the order does not depend on the order of imports.
LAWS: list[Law] = [
    reading.one_direction,
    reading.shape_of_hidden_states,
    reading.nothing_read,
    reading.encoding_is_reading,
    reading.last_is_the_last,
    reading.nothing_kept,
    state.state_is_flat,
    state.state_keeps_its_shape,
    state.state_is_left_alone,
    state.chunks_equal_the_whole,
    reading.long_texts_are_read,
    state.gradients_flow_through_the_state,
    reading.gradient_reaches_the_first_input,
    reading.no_token_sees_a_later_one,
    reading.every_token_sees_every_other,
    capabilities.directions_are_halves,
    capabilities.directions_see_one_side,
    capabilities.directions_without_padding,
    capabilities.directions_reach_every_weight,
    reading.lanes_are_independent,
    reading.padding_changes_nothing,
    state.state_is_that_after_lengths,
    state.empty_lanes_leave_the_state,
    state.reset_is_of_one_lane,
    state.reset_survives_nan,
    capabilities.source_is_a_prefix,
    capabilities.source_matters,
    capabilities.source_is_read_by_its_length,
    reading.every_weight_takes_part,
    reading.first_weights_follow_the_seed,
    reading.chance_acts_in_training_only,
    state.state_keeps_its_precision,
]
"""All laws, in the order of checking: first those on which others depend."""


class Verdict(NamedTuple):
    """The result of one law."""

    law: Law
    status: Literal["holds", "does not hold", "not promised"]
    counterexample: str | None


def judge(subject: Subject) -> Iterator[Verdict]:
    """Check each law in turn and yield its verdict.

    Args:
        subject: the model.

    Yields:
        The verdicts, in the order of `LAWS`. A law does not hold if the model raises an error.
    """
    promised = subject.make().capabilities
    for law in LAWS:
        if law.promise in promised:
            yield verdict_of(law, subject)
        else:
            yield Verdict(law, "not promised", None)


def verdict_of(law: Law, subject: Any) -> Verdict:
    """Check one promised law and return the verdict; the law does not hold if the subject's code raises an error."""
    try:
        law.check(subject)
    except Broken as broken:
        return Verdict(law, "does not hold", str(broken))
    # SystemExit too: third-party code that exits would otherwise end the check as if all laws held.
    except (Exception, SystemExit) as error:
        return Verdict(law, "does not hold", _describe(error))
    return Verdict(law, "holds", None)


def _describe(error: BaseException) -> str:
    """Describe an error in one line, with the place in the model's code where it was raised."""
    words = f"raises {type(error).__name__}: {' '.join(str(error).split())}"
    # The innermost frame is usually in torch, the outermost in a law. The author of the model needs one in between.
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if "torch" not in path.parts and NOT_THE_AUTHORS.isdisjoint((path, path.parent)):
            return f"{words} ({path.name}, line {frame.lineno})"
    return words
