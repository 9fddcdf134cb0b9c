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
from seqtrain.cli import predict
from seqtrain.config.ranges import ANSWER_RANGES, check_answer_options
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.translation import Translation
from tests.support import fake_runs, untrained_runs

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


def test_a_number_out_of_its_range_is_refused_in_python_and_on_the_command_line() -> None:
    for name, value in ((name, value) for name, values in OUTSIDE.items() for value in values):
        with pytest.raises(UserError, match=rf"^{name}=.*: expected {ANSWER_RANGES[name].words().split(' from')[0]}"):
            check_answer_options(**{name: value})
        if isinstance(value, str | bool):
            continue
        with pytest.raises(UserError, match=f"--{name.replace('_', '-')}: .* is not a"):
            predict._parser().parse_intermixed_args(["run", f"--{name.replace('_', '-')}={value}"])


def test_numbers_within_their_ranges_are_taken_and_each_out_of_it_is_one_line() -> None:
    check_answer_options(length=np.int64(3), temperature=0, top_k=1, top_p=np.float32(0.5), seed=0, beam=100)
    with pytest.raises(UserError) as told:
        check_answer_options(beam=0, top_p=2)
    assert told.value.lines == (
        "beam=0: expected a whole number from 1 to 100",
        "top_p=2: expected a number above 0, up to 1",
    )


USES: list[tuple[Callable[[Trained], Any], str]] = [
    (lambda run: run.continue_texts("abc", length=2), "expected a list of texts, not one text"),
    (lambda run: run.continue_texts(["a", 3], length=2), "text 2: expected a str, not a value of type int"),
    (lambda run: run.continue_texts(["\udcff"], length=2), "text 1: contains half of a surrogate pair"),
    (lambda run: run.embed(["a", "\udcff"]), "text 2: contains half of a surrogate pair"),
    (lambda run: run.continue_texts(["a"], length=0), "length=0: expected a whole number from 1"),
    (lambda run: run.predict(["a"], greedy=1), "greedy=1: expected true or false, like its default False"),
]


def test_a_use_in_python_refuses_in_one_line(language: Trained) -> None:
    for use, told in USES:
        with pytest.raises(UserError) as found:
            use(language)
        (line,) = found.value.lines
        assert line.startswith(told)
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


def test_a_run_opened_for_use_says_what_it_is_and_what_it_reached(tmp_path: Path) -> None:
    path = untrained_runs.make_run(tmp_path / "run", *untrained_runs.NEXT_TOKEN)
    trained = seqtrain.load(path, checkpoint="last")
    assert repr(trained).startswith(f"Trained({path}: training status unknown, GPT on next_token, ")
    Run(path).update_summary(status="finished", steps=1200, metrics={"validation": {"loss": 1.5, "<b>": 2.0}})
    assert repr(trained).splitlines()[1:] == ["  validation: 1.5000 loss after 1,200 steps"]
    shown = trained._repr_html_()
    assert "<td>validation</td><td>1.5000</td><td>2.0000</td>" in shown
    assert "<b>" not in shown


def test_a_run_says_its_status_also_where_its_summary_is_damaged(tmp_path: Path) -> None:
    path = fake_runs.run(tmp_path / "run")
    assert repr(Run(path)) == f"Run({path}, status: finished)"
    (path / "summary.json").write_text("{")
    assert repr(Run(path)) == f"Run({path}, status: cannot be read)"
    assert repr(Run(tmp_path / "none")) == f"Run({tmp_path / 'none'}, status: unknown)"
