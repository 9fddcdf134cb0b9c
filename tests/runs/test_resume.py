"""Laws of resuming: a run that was killed anywhere and resumed ends with the bits of its uninterrupted twin."""

from __future__ import annotations

import itertools
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from seqtrain.distributed.fork_server import Child
from seqtrain.runs.checkpoint import step_name
from seqtrain.runs.directory import Run
from tests.conftest import Seqtrain
from tests.support.examples import files
from tests.support.examples import options as example_options
from tests.support.quick import some_long
from tests.support.tiny import GPT, OPTIONS, PATIENCE, assert_twins, corpus, newest_step, wait_until

STEPS, OFTEN, STOPPED = 60, 8, 32
MODELS = {
    "rnn that carries": ("model=rnn",),
    "lstm with dropout": ("model=lstm", "model.num_layers=2", "model.dropout=0.3"),
    "gpt with memory": (*GPT, "model.dropout=0.1"),
    "gpt in windows": (*GPT, "tbptt=windows"),
}
AT_THE_END, IN_THE_MIDDLE = ("trainer.validate_every=1000",), (f"trainer.validate_every={OFTEN}",)
PLATEAU = ("schedule=plateau", "schedule.patience=0", "schedule.threshold=0.5", "schedule.factor=0.7")
STOPPING = (
    *("callbacks=early_stopping", "callbacks.samples.length=5", "callbacks.curves=null"),
    *("callbacks.early_stopping.patience=3", "callbacks.early_stopping.min_delta=9"),
)
MUON = ("optimizer=muon",)

Moment = Callable[[Child, Path, random.Random], None]
"""Waits until it is time to kill."""


def starting(child: Child, run: Path, chance: random.Random) -> None:
    """Somewhere before the first step, or soon after it."""
    some_time(run, chance.random() * 0.6, steps=10)


def some_time(run: Path, seconds: float, *, steps: int) -> None:
    """Waits so long, but not until a fast machine is `steps` further."""
    known, limit = newest_step(run), time.monotonic() + seconds
    while time.monotonic() < limit and newest_step(run) < known + steps:
        time.sleep(0.001)


def training(child: Child, run: Path, chance: random.Random) -> None:
    """A random time after a random step that was not reached yet, with a checkpoint before it."""
    step = min(max(newest_step(run), 0) + chance.randint(5, 15), STEPS * 3 // 4)
    wait_until(lambda: newest_step(run) >= step, child, f"step {step}")
    time.sleep(chance.random() * 0.004)


def validating(child: Child, run: Path, chance: random.Random) -> None:
    """Between the last record before an evaluation and the record of it."""
    known = newest_step(run)
    wait_until(lambda: newest_step(run) > known and in_validation(run), child, "an evaluation")
    time.sleep(0.005 + chance.random() * 0.01)


def writing(child: Child, run: Path, chance: random.Random) -> None:
    """While a checkpoint is half written."""
    known = newest_step(run)
    folder = run / "checkpoints"
    wait_until(lambda: newest_step(run) > known and half_written(folder), child, "a checkpoint")


def finishing(child: Child, run: Path, chance: random.Random) -> None:
    """After the last checkpoint of the training, with an evaluation or the summary still to come."""
    last = run / "checkpoints" / step_name(STOPPED if Run(run).config["callbacks"]["early_stopping"] else STEPS)
    wait_until(last.exists, child, last.name)


def concluding(child: Child, run: Path, chance: random.Random) -> None:
    """After everything was recorded, before the summary."""
    wait_until(lambda: any(in_the_end(record) for record in Run(run).metrics()), child, "the last evaluation")


def in_the_end(record: dict[str, float]) -> bool:
    return record["step"] == STEPS and "validation/loss" in record


def in_validation(run: Path) -> bool:
    """Whether an evaluation is due, or going on, by the newest record."""
    newest = Run(run).metrics()[-1]
    every = Run(run).config["trainer"]["validate_every"]
    return "train/loss" in newest and (newest["step"] % every == 0 or newest["step"] == STEPS)


def half_written(folder: Path) -> list[Path]:
    """Checkpoints that a writer has begun and not finished."""
    return list(folder.glob(".step-*.tmp"))


def killed_at(seqtrain: Seqtrain, args: tuple[str, ...], folder: Path, moments: list[Moment], seed: int) -> list[str]:
    """Trains in folder/run, killed at each moment and resumed; gives where each kill hit."""
    chance, run, hits = random.Random(seed), folder / "run", []
    child = seqtrain.start(*args, "run_dir=run", cwd=folder)
    wait_until((run / "config.yaml").exists, child, "the run")
    for moment in moments:
        place = stopped(moment, child, run, chance)
        child.kill()
        assert child.wait(PATIENCE) == -9, child.stderr
        hits.append(f"{place} at step {newest_step(run)}")
        child = seqtrain.start("resume", "run", cwd=folder)
    assert child.wait(PATIENCE) == 0, child.stderr
    return hits


def stopped(moment: Moment, child: Child, run: Path, chance: random.Random) -> str:
    """Stops the command at such a moment, on a busy machine again until not missed; gives what it did."""
    while True:
        moment(child, run, chance)
        child.kill(signal.SIGSTOP)
        time.sleep(0.002)  # until every thread stands
        inside = half_written(run / "checkpoints")
        place = "writing" if inside else "validating" if Run(run).metrics() and in_validation(run) else "training"
        if moment not in (writing, validating) or place == moment.__name__:
            return place
        child.kill(signal.SIGCONT)


def check(
    seqtrain: Seqtrain,
    folder: Path,
    options: tuple[str, ...],
    moments: list[Moment],
    seed: int,
    base: tuple[str, ...] = (*OPTIONS, "data.validation_fraction=0.3"),
) -> list[str]:
    """The law for one run; gives where the kills hit."""
    files(corpus(folder))
    args = ("train", *base, f"trainer.max_steps={STEPS}", "trainer.checkpoint_every=4", *options)
    twin = seqtrain.start(*args, "run_dir=twin", cwd=folder)
    hits = killed_at(seqtrain, args, folder, moments, seed)
    assert twin.wait(PATIENCE) == 0, twin.stderr
    assert_twins(folder / "twin", folder / "run")
    return hits


SHORT = {
    "rnn": (*MODELS["rnn that carries"], *PLATEAU, *IN_THE_MIDDLE, "trainer.accumulate=4"),
    "lstm": (*MODELS["lstm with dropout"], *STOPPING, *IN_THE_MIDDLE),
    "gpt": (*MODELS["gpt with memory"], *MUON, *AT_THE_END, "trainer.accumulate=4"),
    "windows": (*MODELS["gpt in windows"], *IN_THE_MIDDLE, "trainer.log_every=3", "trainer.precision=64-true"),
}
KILLS: dict[str, list[Moment]] = {
    "rnn": [training, validating],
    "lstm": [training, writing, finishing],
    "gpt": [training, finishing, concluding],
    "windows": [training],
}


@pytest.mark.parametrize("name", some_long(["rnn", "lstm", "gpt", "windows"], ["lstm"]))
def test_a_killed_and_resumed_run_ends_with_the_bits_of_its_uninterrupted_twin(
    name: str, seqtrain: Seqtrain, tmp_path: Path
) -> None:
    hits = check(seqtrain, tmp_path, SHORT[name], KILLS[name], seed=sum(map(ord, name)))
    assert len(hits) == len(KILLS[name])


EXAMPLES = {
    "sentiment": ("model=gru", "task.dropout=0.2", "task.class_weights=balanced", *AT_THE_END, "trainer.accumulate=4"),
    "translation": ("model.dropout=0.1", *IN_THE_MIDDLE, "trainer.accumulate=2"),
    "masked_lm": ("model.dropout=0.1", "task.next_sentence=true", *IN_THE_MIDDLE),
}


def check_examples(task: str, seqtrain: Seqtrain, folder: Path, moments: list[Moment]) -> list[str]:
    extra = ("data.batch_size=5", *EXAMPLES[task])
    return check(seqtrain, folder, extra, moments, seed=sum(map(ord, task)), base=example_options(task))


def test_a_run_on_examples_resumes_to_the_bit(seqtrain: Seqtrain, tmp_path: Path) -> None:
    (hit,) = check_examples("sentiment", seqtrain, tmp_path, [training])
    assert "step" in hit


@pytest.mark.long
@pytest.mark.parametrize("task", EXAMPLES)
def test_a_run_on_examples_resumes_to_the_bit_wherever_it_was_killed(
    task: str, seqtrain: Seqtrain, tmp_path: Path
) -> None:
    hits = check_examples(task, seqtrain, tmp_path, [training, writing, training, finishing])
    assert any("writing" in hit for hit in hits), hits


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "accumulate", "validate"), itertools.product(MODELS, (1, 4), (AT_THE_END, IN_THE_MIDDLE))
)
def test_every_way_to_train_resumes_to_the_bit(
    model: str, accumulate: int, validate: tuple[str, ...], seqtrain: Seqtrain, tmp_path: Path
) -> None:
    seed = sum(map(ord, f"{model}{accumulate}{validate}"))
    extra = random.Random(seed).choice([(), MUON, PLATEAU, ("trainer.precision=bf16-mixed",)])
    options = (*MODELS[model], *validate, *extra, f"trainer.accumulate={accumulate}")
    moments = [starting, training, writing] if validate == AT_THE_END else [training, validating, writing]
    hits = check(seqtrain, tmp_path, options, [*moments, finishing], seed)
    assert len(set(hits)) == len(hits), f"kills that hit the same place prove little: {hits}"
    assert any("writing" in hit for hit in hits), hits
    assert any("validating" in hit for hit in hits), hits


@pytest.mark.long
@pytest.mark.parametrize("model", ["rnn that carries", "gpt with memory"])
def test_ten_kills_at_random_times_change_no_bit(model: str, seqtrain: Seqtrain, tmp_path: Path) -> None:
    def any_time(child: Child, run: Path, chance: random.Random) -> None:
        step = max(newest_step(run), 0) + chance.randint(1, 36)
        wait_until(lambda: newest_step(run) >= step, child, f"step {step}")
        time.sleep(chance.random() * 0.01)

    options = (*MODELS[model], "trainer.validate_every=20", "trainer.max_steps=600")
    hits = check(seqtrain, tmp_path, options, [any_time] * 10, seed=10)
    assert len(set(hits)) >= 5, f"kills that hit the same place prove little: {hits}"
