"""Laws of optimizer.lr=auto: the rate is found before the run, said, kept, and all that the run keeps of the search."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from seqtrain.errors import UserError
from seqtrain.experiment.learning_rate import STEPS, halfway, rate
from seqtrain.runs.directory import Run
from seqtrain.runs.resume_check import difference
from tests.conftest import Seqtrain

WORDS = (
    *("train", "task=next_token", "data=text", "data.path=corpus.txt", "data.split_by=position", "tokenizer=char"),
    *("data.batch_size=4", "data.eval_lanes=4", "tbptt.k2=8", "model=lstm", "model.dim=16", "model.dropout=0.2"),
    *("trainer.accelerator=cpu", "trainer.max_steps=12", "trainer.validate_every=6", "logger=none", "callbacks=none"),
)


def falling(noise: float = 0.0) -> list[float]:
    """Losses that fall from 3 to 1 around the middle of the test, and rise at its end."""
    draws = random.Random(1)
    falls = [1 + 2 / (1 + math.exp((step - 50) / 3)) for step in range(90)]
    return [loss + draws.gauss(0, noise) for loss in falls] + [5.0] * (STEPS - 90)


def corpus(folder: Path) -> Path:
    draws = random.Random(1)
    text = " ".join(draws.choice(["the", "cat", "dog", "sat", "on", "a", "mat"]) for _ in range(2000))
    (folder / "corpus.txt").write_text(text)
    return folder


def test_the_rate_is_where_half_of_the_fall_is_done_in_any_unit_of_the_loss() -> None:
    found = halfway(falling())
    assert rate(48) < found < rate(62)  # the smoothed loss follows some steps later
    assert halfway([100 * loss + 7 for loss in falling()]) == found
    assert rate(45) < halfway(falling(0.2)) < rate(65)


@pytest.mark.parametrize(
    "losses",
    [
        [3 + random.Random(step).gauss(0, 0.1) for step in range(STEPS)],  # never falls
        falling()[:10],  # no number any more before the rates are large enough to learn
        [],
    ],
)
def test_no_rate_is_given_where_the_loss_does_not_clearly_fall(losses: list[float]) -> None:
    with pytest.raises(
        UserError,
        match=r"^optimizer.lr=auto: the loss does not clearly fall in 100 steps of rising rates; give a number$",
    ):
        halfway(losses)


@pytest.mark.long
def test_a_run_with_the_rate_that_was_found_is_the_same_to_the_bit(tmp_path: Path, seqtrain: Seqtrain) -> None:
    corpus(tmp_path)
    more = ("optimizer=sgd", "layer_decay=0.5", "data.workers=1", "model.num_layers=2")
    answer = seqtrain(*WORDS, *more, "optimizer.lr=auto", "run_dir=auto", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    found = Run(tmp_path / "auto")
    number = found.config["optimizer"]["lr"]
    assert found.summary.from_data == {"optimizer.lr": number}
    assert answer.err.count(f"optimizer.lr {number:g}: ") == 1
    given = seqtrain(*WORDS, *more, f"optimizer.lr={number}", "run_dir=given", cwd=tmp_path)
    assert given.rc == 0, given.err
    assert difference(tmp_path / "auto", tmp_path / "given") is None
    assert found.summary.identity == Run(tmp_path / "given").summary.identity
    # It goes on with the number, and finds none again.
    resumed = seqtrain("resume", "auto", "trainer.max_steps=14", cwd=tmp_path)
    assert resumed.rc == 0, resumed.err
    assert "optimizer.lr" not in resumed.err
    assert Run(tmp_path / "auto").config["optimizer"]["lr"] == number


@pytest.mark.long
def test_a_rate_is_found_for_the_weights_that_the_run_begins_with(tmp_path: Path, seqtrain: Seqtrain) -> None:
    """New weights of this text have a loss that falls clearly; those that know it have one that does not."""
    corpus(tmp_path)
    long = ("optimizer.lr=0.05", "trainer.max_steps=300", "trainer.validate_every=300")
    parent = seqtrain(*WORDS, *long, "run_dir=parent", cwd=tmp_path)
    assert parent.rc == 0, parent.err
    child = (*(word for word in WORDS if word != "tokenizer=char"), "init_from=parent", "freeze=[embed]")
    answer = seqtrain(*child, "optimizer.lr=auto", "run_dir=auto", cwd=tmp_path)
    assert answer.rc == 2
    assert "does not clearly fall" in answer.err
    assert "freeze: " not in answer.err  # which the run itself would say, of its own model


@pytest.mark.long
def test_a_dry_run_looks_for_no_rate(tmp_path: Path, seqtrain: Seqtrain) -> None:
    answer = seqtrain(*WORDS, "optimizer.lr=auto", "dry_run=true", cwd=corpus(tmp_path))
    assert answer.rc == 0, answer.err
    assert "optimizer.lr" not in answer.err
