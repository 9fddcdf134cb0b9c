"""An option that no trial could have is refused once, before a folder is made; one that some trial has is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqtrain.config.conf_files import ConfFiles
from seqtrain.errors import UserError
from seqtrain.sweeps.shared import refuse_unknown
from tests.conftest import Seqtrain


def refused(*words: str) -> tuple[str, ...]:
    """The lines with which a sweep of these words is refused; none where it may begin."""
    try:
        refuse_unknown(words, ConfFiles(), [])
    except UserError as fault:
        return fault.lines
    return ()


@pytest.mark.parametrize(
    "more", [(), ("sweep=optuna", "hydra.sweeper.n_trials=2"), ("hydra/launcher=joblib",)], ids=str
)
def test_an_option_that_does_not_exist_is_one_line_and_no_folder(
    more: tuple[str, ...], seqtrain: Seqtrain, tmp_path: Path
) -> None:
    answer = seqtrain("train", "-m", "model=lstm,gru", "seed=1,2", "nonsense=1", *more, cwd=tmp_path)
    assert answer.rc == 2, answer.err
    assert answer.err.startswith("error: nonsense=1: no such option; known: budget, callbacks, ")
    assert answer.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (("model=lstm,gru", "model.nonsense=1"), "model.nonsense=1: model=lstm has no option nonsense"),
        (("seed=1,2", "nonsense.deep=1"), "nonsense.deep=1: no such option"),
        (("nonsense=1,2",), "nonsense=1: no such option"),
        (("optimizer.lr=interval(0.1,1)", "trainer.nonsense=1"), "trainer.nonsense=1: trainer=auto has no option"),
        (("seed=1,2", "model=nonsense"), "model=nonsense: no such model"),
        (("seed=1,2", "nonsense"), "nonsense: not of the form key=value"),
        # The fold is swept by us: what was typed is what is answered.
        (("task=sentiment", "data.folds=3", "data.fold=0,1,2"), "data.folds=3: data=word_order has no option"),
    ],
    ids=lambda words: words[-1] if isinstance(words, tuple) else "",
)
def test_what_is_unknown_under_every_choice_is_refused(words: tuple[str, ...], begins: str) -> None:
    (line,) = refused(*words)
    assert line.startswith(begins)


@pytest.mark.parametrize(
    "words",
    [
        ("model=lstm,gpt", "model.num_heads=2"),  # only gpt has heads
        ("model=gpt,lstm", "model.num_heads=2"),
        ("model=lstm,nonsense",),  # the first trial may run
        ("optimizer.lr=-1,0.1",),
        ("model=gpt", "model.dim=12", "model.num_heads=5,3"),
        ("optimizer._target_=torch.optim.AdamW,torch.optim.SGD", "+optimizer.momentum=0.9"),
    ],
    ids=str,
)
def test_what_a_trial_could_have_is_left_to_the_trials(words: tuple[str, ...]) -> None:
    assert refused(*words) == ()
