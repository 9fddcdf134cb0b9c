"""A session trains with what the configuration says: each option reaches the object that acts on it."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from seqtrain.config import check
from seqtrain.runs.directory import Run
from seqtrain.training.callbacks.signals import Signals
from seqtrain.training.data import make_data
from seqtrain.training.optim.groups import parameter_groups
from seqtrain.training.optim.schedules import Cosine
from seqtrain.training.session import Session, cost_of, make_session, max_steps
from seqtrain.training.trainer import resolve_auto, trainer_options
from tests.support.examples import DATA, files, options

Make = Callable[..., Session]
STREAM = ("task=next_token", *DATA["next_token"], "model=gpt", "model.num_layers=3", "model.num_heads=2", "model.dim=8")
QUIET = (
    "trainer.accelerator=cpu",
    "trainer.threads=1",
    "logger=none",
    "callbacks=none",
    "tokenizer=byte",
    "tbptt.k2=8",
)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes the session of a command line; nothing is trained."""
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(files(tmp_path))

    def made(*words: str, base: tuple[str, ...] = (*STREAM, *QUIET)) -> Session:
        config = check.compose([*base, *words]).config
        resolve_auto(config, lambda line: None)
        data = make_data(config, ("train", "validation"), lambda line: None)
        run = Run.create(tmp_path / "run")
        run.write_config({"data": {}})
        run.close()
        return make_session(config, data, run, Signals(), Console(file=io.StringIO()), logged_config={})

    return made


@pytest.mark.parametrize(("optimizer", "precision"), [("adamw", "bf16-mixed"), ("muon", "32-true")])
def test_auto_takes_bf16_units_unless_the_optimizer_wants_float32_on_a_cpu(
    optimizer: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqtrain.training.trainer.has_bf16_units", lambda device_type: True)
    config = check.compose(["model=gpt", f"optimizer={optimizer}"]).config
    resolve_auto(config, lambda line: None)
    assert config.trainer.precision == precision


def test_every_option_of_training_reaches_what_acts_on_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqtrain.training.session.is_searched", lambda run: True)
    session = make(
        *("seed=7", "layer_decay=0.5", "freeze=[blocks.0]", "schedule.warmup=3", "schedule.final=0.25"),
        *("trainer.max_steps=4000", "trainer.max_epochs=1", "trainer.accumulate=2", "trainer.grad_clip=0.125"),
        *("trainer.validate_every=6", "trainer.checkpoint_every=5", "trainer.keep_last=4", "trainer.keep_best=3"),
        *("trainer.log_every=9", "trainer.on_nonfinite=skip", "trainer.precision=64-true"),
        *("callbacks=early_stopping", "callbacks.samples=null", "callbacks.curves=null"),
    )
    learner, trainer = session.learner, session.trainer
    assert (session.max_steps, learner.max_steps, trainer.max_steps) == (session.plan.steps,) * 3
    assert (learner.seed, learner.layer_decay, learner.on_nonfinite, learner.carry) == (7, 0.5, "skip", True)
    assert learner.lanes == session.plan.lanes == 4
    assert (trainer.accumulate_grad_batches, trainer.gradient_clip_val) == (2, 0.125)
    assert trainer.val_check_interval == 12  # of micro-batches
    assert (trainer.num_sanity_val_steps, trainer.check_val_every_n_epoch) == (0, None)
    assert isinstance(learner.schedule, Cosine)
    assert (learner.schedule.warmup, learner.schedule.final) == (3, 0.25)
    kept = session.checkpoints
    assert (kept.every, kept.keep_last, kept.keep_best, session.recorder.every) == (5, 4, 3, 9)
    assert {weight.dtype for weight in learner.parameters()} == {torch.float64}
    frozen = {name.split(".")[1] for name, weight in learner.model.named_parameters() if not weight.requires_grad}
    assert frozen == {"0"}
    names = [type(callback).__name__ for callback in trainer.callbacks]  # type: ignore[attr-defined]
    assert {"Skips", "EarlyStopping", "Plateau", "Recorder", "Pruning"} <= set(names)
    assert names[-1] == "Checkpoints", "what it saves holds the newest state of the others, and what they decided"
    assert kept.pruning is session.pruning is not None
    assert session.pruning.first_step == 4  # the first step after the warm-up has been taken


def test_a_logger_that_is_null_is_left_out(make: Make) -> None:
    base = tuple(word for word in (*STREAM, *QUIET) if word != "logger=none")
    session = make("logger=[tensorboard,wandb]", "logger.wandb=null", base=base)
    assert [run_logger.label for run_logger in session.trainer.loggers] == ["TensorBoard"]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_each_layer_begins_with_its_share_of_the_rate_and_keeps_it_at_every_step(optimizer: str, make: Make) -> None:
    session = make("layer_decay=0.5", f"optimizer={optimizer}", "optimizer.lr=0.1", "schedule.warmup=3")
    learner: Any = session.learner
    made: torch.optim.Optimizer = learner.configure_optimizers()
    rest = {"muon": made.param_groups[-1]["lr"] / made.param_groups[-1]["lr_scale"]}.get(optimizer, 0.1)
    layers = {id(weight): name for name, weight in learner.model.named_parameters()}
    learner.trainer = session.trainer
    learner.on_before_optimizer_step(made)  # step 0 of a warm-up of 3
    for group in made.param_groups:
        whole = 0.1 if group["role"] == "hidden" else rest
        for weight in group["params"]:
            name = layers.get(id(weight), "head")
            above = (
                3 - int(name.split(".")[1]) if name.startswith("blocks.") else {"norm": 1}.get(name.split(".")[0], 4)
            )
            above = 0 if name == "head" else above
            assert group["initial_lr"] == pytest.approx(whole * 0.5**above), name
            assert group["lr"] == pytest.approx(group["initial_lr"] / 4), name
    assert len({group["lr_scale"] for group in parameter_groups(learner.model, learner.task, 0.5)}) == 4


GRU = 2 * 3 * 8 * (8 + 8)  # operations of a forward pass of one layer of eight units
RECURRENT = ("task=next_token", *DATA["next_token"], "model=gru", "model.dim=8", "task.tied=true")


def test_the_cost_counts_what_overlapping_windows_read_again_and_the_lanes_of_a_micro_batch(make: Make) -> None:
    words = ("tbptt.k2=8", "tbptt.k1=2", "trainer.max_steps=5")
    data = make(*words, base=(*RECURRENT, *QUIET)).data
    found = [
        cost_of(check.compose([*RECURRENT, *QUIET, *words, f"trainer.accumulate={each}"]).config, data)
        for each in (1, 4)
    ]
    head = 2 * 8 * data.tokenizer.vocab_size
    assert [one.flops_per_token for one in found] == [3 * (4 * GRU + head)] * 2  # eight tokens are read for two
    assert found[1].memory_bytes < found[0].memory_bytes
    assert {one.steps for one in found} == {5}


def test_the_cost_counts_a_head_once_an_example_where_it_has_one_target(make: Make) -> None:
    session = make(base=options("sentiment"))
    found = cost_of(check.compose(list(options("sentiment"))).config, session.data)
    examples = session.plan.chunk(0, 0).examples  # type: ignore[union-attr]
    tokens = int(session.data.batcher("train").lengths[examples].sum())  # pyright: ignore[reportAttributeAccessIssue]
    head = 2 * 8 * 2
    assert found.flops_per_token == pytest.approx(3 * (GRU + head * len(examples) / tokens))


def test_the_smaller_of_max_steps_and_max_epochs_ends_a_training() -> None:
    defaults = trainer_options(check.compose([]).config)
    plan: Any = SimpleNamespace(steps=7)  # of an epoch
    for steps, epochs, expected in ((10, None, 10), (10, 2, 10), (15, 2, 14), (14, 2, 14), (None, 2, 14), (1, 5, 1)):
        options = replace(defaults, max_steps=steps, max_epochs=epochs)
        assert max_steps(options, plan) == expected, (steps, epochs)
