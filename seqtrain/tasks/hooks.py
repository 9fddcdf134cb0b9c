"""Descriptions of errors in third-party tasks: the hook that failed, and whether a task is a third-party one."""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from seqtrain.data.batching.examples import Examples
from seqtrain.errors import NonFinite, UserError
from seqtrain.tasks.base import Task
from seqtrain.tasks.predictors import Predictor, TextReader

OURS = Path(__file__).parents[1]
TORCH = Path(torch.__file__).parent


def is_of_others(task: Task) -> bool:
    """Return True if the task's class is defined outside seqtrain; our tests have not checked its contract."""
    return type(task).__module__.partition(".")[0] != OURS.name


def failed_hook(error: BaseException) -> str | None:
    """Return the method of a third-party task that raised an error, and its location in the file.

    Args:
        error: any exception that was caught.

    Returns:
        A line without remedy; None if no code of a third-party task was running.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    # The outermost frame is the hook that seqtrain called; the frames below belong to its author.
    for frame, _ in frames:
        owner = _owner(frame)
        if owner is not None:
            words = " ".join(str(error).split())
            return f"{owner}: its `{frame.f_code.co_name}` failed: {type(error).__name__}: {words}{_place(frames)}"
    return None


def _owner(frame: FrameType) -> str | None:
    """Return the owner of the method in a frame, as text; None if it is not of a third-party task."""
    if not _is_of_others(frame) or not frame.f_code.co_varnames:
        return None
    first: Any = frame.f_locals.get(frame.f_code.co_varnames[0])  # `self`, or `cls` of a class method
    if isinstance(first, Task) or (isinstance(first, type) and issubclass(first, Task)):
        return f"task={first.name()}"
    if isinstance(first, TextReader):
        return f"task={first.task.name()}, {type(first).__name__}"
    if isinstance(first, Examples):
        return f"examples {type(first).__name__}"
    return None


def _is_of_others(frame: FrameType) -> bool:
    path = Path(frame.f_code.co_filename)
    return not path.is_relative_to(OURS) and not path.is_relative_to(TORCH)


def _place(frames: Sequence[tuple[FrameType, int]]) -> str:
    """Return the innermost line that the author of the task can fix: frames of torch and of seqtrain are skipped."""
    for frame, line in reversed(frames):
        if _is_of_others(frame):
            return f" ({Path(frame.f_code.co_filename).name}, line {line})"
    return ""


def check_answers(predictor: Predictor[Any], texts: Sequence[Any], answers: Any) -> None:
    """Raise UserError unless a predictor gave a list with one dict for each text, and NonFinite if one contains nan.

    Args:
        predictor: predictor of a task, possibly third-party.
        texts: its inputs.
        answers: the result of its `predict`.
    """
    wrong = None
    if not isinstance(answers, list):
        wrong = f"{type(answers).__name__}, not a list of answers"
    elif len(answers) != len(texts):
        wrong = f"a list of length {len(answers)} instead of {len(texts)}"
    else:
        for answer in answers:
            if not isinstance(answer, dict):
                wrong = f"{type(answer).__name__} as an answer, not a dict"
    if wrong is not None:
        who = f"task={predictor.task.name()}: the predictor {type(predictor).__name__}"
        raise UserError(f"{who} returned {wrong}; fix its `predict`")
    try:
        json.dumps(answers, allow_nan=False, default=str)
    except ValueError:  # otherwise every text would get the same answer, such as the first label
        raise NonFinite("an answer contains nan or inf: a weight is nan or inf, or the model overflows") from None
