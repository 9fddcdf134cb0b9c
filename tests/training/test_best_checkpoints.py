"""Which validation is the best, for every task and every chooser, and which checkpoint each command opens."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import EarlyStopping

from seqtrain import conf  # pyright: ignore[reportAttributeAccessIssue]  # mapped in by pyproject.toml
from seqtrain.config import check
from seqtrain.config.instantiate import make
from seqtrain.config.targets import resolve
from seqtrain.errors import UserError
from seqtrain.inference.opened import open_run  # pyright: ignore[reportAttributeAccessIssue]
from seqtrain.runs import checkpoint
from seqtrain.runs.directory import Run
from seqtrain.training.callbacks.checkpoints import Checkpoints, Plateau
from seqtrain.training.callbacks.signals import Signals
from seqtrain.training.compatibility import check_stopping
from tests.support import untrained_runs

CONF = Path(conf.__path__[0])
BETTER = {
    "next_token": ("loss", -1),
    "masked_lm": ("loss", -1),
    "sentiment": ("accuracy", 1),
    "translation": ("bleu", 1),
}
"""What each task is judged by, and whether more or less of it is better: written here, not asked of the task."""


def chosen(folder: Path, task: str, metrics: list[dict[str, float]], *, keep_best: int = 1) -> list[int]:
    """The steps of the best checkpoints that stay, the best first, after a validation at each step from 1."""
    run = Run.create(folder)
    callback = Checkpoints(run=run, every=1, keep_last=100, keep_best=keep_best, signals=Signals())
    learner = SimpleNamespace(task=resolve(OmegaConf.load(CONF / "task" / f"{task}.yaml")._target_))
    for step, found in enumerate(metrics, 1):
        (run.checkpoints / checkpoint.step_name(step)).write_text(str(step))
        trainer = SimpleNamespace(global_step=step, is_global_zero=True, state=SimpleNamespace(fn="validate"))
        learner.metrics = found
        callback.on_validation_end(trainer, learner)  # type: ignore[arg-type]
        best = int((run.checkpoints / checkpoint.BEST).read_text())
        assert best == callback.best["step"]
        assert callback.best == {"step": best, **metrics[best - 1]}
    run.close()
    named = {int(path.read_text()) for path in run.checkpoints.glob("best-*.ckpt")}
    ranked = [one["step"] for one in callback.ranked]
    assert named == (set(ranked) if keep_best > 1 else set())
    return ranked


@pytest.mark.parametrize("task", BETTER)
def test_the_best_checkpoint_is_that_of_the_best_validation(task: str, tmp_path: Path) -> None:
    name, sign = BETTER[task]
    for number, values in enumerate([[1, 2, 3, 2], [3, 2, 1, 2], [2, 1, 3, 2], [2, 3, 1, 2]]):
        # The loss, where it does not judge, says the opposite of what does.
        metrics = [{"loss": float(value), name: float(value)} for value in values]
        best, *rest = sorted(range(1, 5), key=lambda step, values=values: -sign * values[step - 1])
        for kept, expected in ((1, [best]), (2, [best, rest[0]])):
            assert chosen(tmp_path / f"{number}-{kept}", task, metrics, keep_best=kept) == expected, values
        assert chosen(tmp_path / f"{number}-all", task, metrics, keep_best=9)[0] == best, values
    equal = [{"loss": loss, name: 0.5} if name != "loss" else {"loss": loss} for loss in (2.0, 1.0, 1.0, 3.0)]
    assert chosen(tmp_path / "equal", task, equal, keep_best=4) == [2, 3, 1, 4], "the surer, and of those the earlier"
    numbers = [{"loss": value, name: value} for value in (math.nan, 5.0, math.nan)]
    assert chosen(tmp_path / "nan", task, numbers, keep_best=3) == [2, 1, 3], "what is no number is the last"


def test_a_step_that_is_measured_twice_is_ranked_once() -> None:
    callback = Checkpoints(run=Run(Path("nowhere")), every=1, keep_last=1, keep_best=3, signals=Signals())
    for step, loss in ((1, 2.0), (2, 1.0), (2, 0.5)):
        callback._rank({"step": step, "loss": loss}, "loss", "min")
    assert [(one["step"], one["loss"]) for one in callback.ranked] == [(2, 1.0), (1, 2.0)]


# -- other choosers ----------------------------------------------------------------------------------------------


def test_the_shipped_plateau_lowers_the_rate_where_the_loss_stops_falling() -> None:
    made = make(OmegaConf.load(CONF / "schedule" / "plateau.yaml"))  # type: ignore[arg-type]
    for losses, rates in (
        ([4.0, 3.0, 2.0, 1.0, 0.5], [1.0] * 5),
        ([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 0.5, 0.5, 0.25]),
        ([2.0, 2.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 0.5]),
    ):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        learner = SimpleNamespace(plateau=made(optimizer))
        found = []
        for loss in losses:
            learner.metrics = {"loss": loss, "accuracy": -loss, "perplexity": math.exp(-loss)}
            for stage in ("validate", "fit"):  # the last validation, after training, moves nothing
                trainer = SimpleNamespace(state=SimpleNamespace(fn=stage))
                Plateau().on_validation_end(trainer, learner)  # type: ignore[arg-type]
            found.append(optimizer.param_groups[0]["lr"])
        assert found == rates, losses


@pytest.mark.parametrize(
    ("losses", "stops"),
    [([5.0, 4.0, 3.0, 2.0, 1.0, 0.5], None), ([1.0, 2.0, 1.5, 1.2, 3.0], 3), ([3.0, 2.0, 2.0, 2.5, 2.2, 1.0], 4)],
)
def test_the_shipped_early_stopping_waits_for_the_validation_loss_to_fall(
    losses: list[float], stops: int | None
) -> None:
    node = OmegaConf.load(CONF / "callbacks" / "early_stopping.yaml").early_stopping
    callback: Any = make(node)
    assert isinstance(callback, EarlyStopping)
    trainer: Any = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.should_stop = False
    for number, loss in enumerate(losses):
        trainer._logger_connector.callback_metrics.update({"validation/loss": torch.tensor(loss)})
        callback._run_early_stopping_check(trainer)
        assert trainer.should_stop == (stops is not None and number >= stops), number
        if trainer.should_stop:
            break


@pytest.mark.long
@pytest.mark.parametrize(("monitor", "mode"), [("accuracy", "min"), ("loss", "max")])
def test_early_stopping_that_would_stop_what_gets_better_is_refused(monitor: str, mode: str) -> None:
    def checked(mode: str) -> None:
        keys = {"monitor": f"validation/{monitor}", "mode": mode}
        words = [f"callbacks.early_stopping.{key}={value}" for key, value in keys.items()]
        check_stopping(check.compose(["callbacks=early_stopping", *words]).config)

    other = "max" if mode == "min" else "min"
    checked(other)
    with pytest.raises(
        UserError, match=rf"early_stopping\.mode={mode}: \w+ of validation/{monitor} is better; use mode={other}"
    ):
        checked(mode)


# -- what is opened ----------------------------------------------------------------------------------------------


COMMANDS = {
    "evaluate": (),
    "predict": ("some text",),
    "predict --attention": ("some text", "--attention", "map.png"),
    "embed": ("--input", "texts.txt", "--output", "vectors.parquet"),
    "search": ("some text", "--corpus", "texts.txt"),
    "export": ("--output", "exported"),
}


class Opened(Exception):
    """A command has opened a run."""


def test_every_command_opens_the_best_checkpoint_unless_it_is_told_to_take_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opening(path: Any, checkpoint: str = "best") -> None:
        raise Opened(checkpoint)

    run = untrained_runs.make_run(tmp_path / "run", *untrained_runs.NEXT_TOKEN)
    saved = checkpoint.load(run / "checkpoints" / checkpoint.step_name(untrained_runs.STEP))
    checkpoint.save(saved | {"global_step": 3}, run / "checkpoints" / checkpoint.BEST)
    assert open_run(run).step == 3, "as a run that begins with another one opens it"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("a text\n")
    monkeypatch.setattr("seqtrain.inference.opened.open_run", opening)
    for command, words in COMMANDS.items():
        module = importlib.import_module(f"seqtrain.cli.{command.partition(' ')[0]}")
        for options, expected in (((), "best"), (("--checkpoint", "last"), "last")):
            with pytest.raises(Opened) as opened:
                module.main([str(run), *words, *options])
            assert str(opened.value) == expected, command
