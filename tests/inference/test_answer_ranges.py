"""Laws of what a trained run can be asked for: the same ranges in Python as on the command line, one line each."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqtrain
from seqtrain.api import Trained
from seqtrain.cli import evaluate, predict, search
from seqtrain.config.ranges import ANSWER_RANGES, check_answer_options
from seqtrain.errors import UserError
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.translation import Translation
from tests.support import untrained_runs

OUTSIDE: dict[str, tuple[Any, ...]] = {
    "length": (0, -1, 1.5, 10**6 + 1, True, "3"),
    "temperature": (-1, math.nan, math.inf, 1e-9),
    "top_k": (0, -1, 2.0, 2**31),
    "top_p": (0, -0.1, 2, math.nan),
    "seed": (-1, 2**32),
    "num_samples": (0, 1001, 1.5),
    "repetition_penalty": (0, -1, math.nan, 1e4),
    "beam": (0, 101),
    "length_penalty": (-1, 101, math.nan),
}


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return seqtrain.load(
        untrained_runs.make_run(tmp_path_factory.mktemp("runs") / "next_token", *untrained_runs.NEXT_TOKEN)
    )


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_number_out_of_its_range_is_refused_in_python_and_on_the_command_line(name: str) -> None:
    for value in OUTSIDE[name]:
        with pytest.raises(UserError, match=rf"^{name}=.*: expected {ANSWER_RANGES[name].words().split(' from')[0]}"):
            check_answer_options(**{name: value})
        if isinstance(value, str | bool):
            continue
        with pytest.raises(UserError, match=f"--{name.replace('_', '-')}: .* is not a"):
            predict._parser().parse_intermixed_args(["run", f"--{name.replace('_', '-')}={value}"])


def test_numbers_within_their_ranges_are_taken_those_of_numpy_too() -> None:
    check_answer_options(length=np.int64(3), temperature=0, top_k=1, top_p=np.float32(0.5), seed=0, beam=100)


def test_each_option_out_of_range_is_one_line() -> None:
    with pytest.raises(UserError) as told:
        check_answer_options(beam=0, top_p=2)
    assert told.value.lines == (
        "beam=0: expected a whole number from 1 to 100",
        "top_p=2: expected a number above 0, up to 1",
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (search, ["run", "text", "--corpus", "x", f"--top-k={2**31}"]),
        (evaluate, ["run", f"--batch-size={2**31}"]),
    ],
)
def test_a_count_that_no_machine_has_a_use_for_is_refused(command: Any, words: list[str]) -> None:
    with pytest.raises(UserError, match=f"{2**31} is not a whole number from 1 to"):
        command.main(words)


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda run: run.continue_texts("abc", length=2), "expected a list of texts, not one text"),
        (lambda run: run.continue_texts(["a", 3], length=2), "text 2: expected a text, not a value of type int"),
        (lambda run: run.continue_texts(["\udcff"], length=2), "text 1: holds half of a surrogate pair"),
        (lambda run: run.embed(["a", "\udcff"]), "text 2: holds half of a surrogate pair"),
        (lambda run: run.continue_texts(["a"], length=0), "length=0: expected a whole number from 1"),
        (lambda run: run.continue_texts(["a"], temperature=-1), "temperature=-1: expected a number from"),
        (lambda run: run.predict(["a"], greedy=1), "greedy=1: expected true or false, as its default False"),
        (lambda run: run.continue_texts(["a"], top_k=0), "top_k=0: expected a whole number from 1"),
        (lambda run: run.continue_texts(["a"], top_p=2), "top_p=2: expected a number above 0, up to 1"),
    ],
)
def test_a_use_in_python_refuses_in_one_line(use: Callable[[Trained], Any], told: str, language: Trained) -> None:
    with pytest.raises(UserError) as found:
        use(language)
    (line,) = found.value.lines
    assert line.startswith(told)


def test_of_no_prompts_there_are_no_continuations(language: Trained) -> None:
    assert language.continue_texts([]) == []


def test_filling_and_translating_look_at_their_options(language: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    every = {**MaskedLM.predictors, **Translation.predictors}
    monkeypatch.setattr(type(language.task), "predictors", every)
    with pytest.raises(UserError, match="top_k=-1: expected"):
        language.fill(["[MASK]"], top_k=-1)
    with pytest.raises(UserError, match="beam=1000000: expected"):
        language.translate(["a"], beam=10**6)
    with pytest.raises(UserError, match="length_penalty=-1: expected"):
        language.translate(["a"], length_penalty=-1)


def test_one_word_where_a_list_is_meant_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^trust='pkg': expected a list; write trust=\['pkg'\]$"):
        seqtrain.load(tmp_path, trust="pkg")
    with pytest.raises(UserError, match=r"^trust='pkg': expected a list"):
        seqtrain.train(trust="pkg")
    with pytest.raises(UserError, match=r"^config_dirs='conf': expected a list"):
        seqtrain.train(config_dirs="conf")
    with pytest.raises(UserError, match=r"^config_dirs='conf': expected a list"):
        seqtrain.train(config_dirs=Path("conf"))  # type: ignore[arg-type]
