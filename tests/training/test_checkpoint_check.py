"""Laws of what a resume takes: a checkpoint whose weights, moments and carried state are those of this run."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from seqtrain.config import check
from seqtrain.data.preprocess import Preprocessor
from seqtrain.errors import UserError
from seqtrain.experiment.start import Request, start
from seqtrain.inference.opened import checked_config
from seqtrain.runs.checkpoint import load, save, step_name
from seqtrain.runs.directory import Run
from seqtrain.training import checkpoint_check
from seqtrain.training.callbacks.signals import Signals
from seqtrain.training.data import make_data
from seqtrain.training.session import Session, make_session
from tests.support import tiny

STEP = 4
OPTIONS = (
    *(word for word in tiny.OPTIONS if not word.startswith("callbacks")),
    *("callbacks=early_stopping", "callbacks.samples=null", "callbacks.curves=null", "trainer.keep_best=2"),
    *("trainer.max_steps=4", "trainer.validate_every=4", "trainer.checkpoint_every=3", "trainer.log_every=100"),
    *("trainer.accumulate=2", "trainer.precision=32-true"),
)


def trained(folder: Path, *options: str) -> Path:
    """A run of four steps, trained in this process."""
    composed = check.compose([*OPTIONS, f"data.path={folder / 'corpus.txt'}", f"run_dir={folder / 'run'}", *options])
    return start(composed, Request()).path


def session(run: Path) -> Session:
    """What a run would go on with."""
    opened = Run(run)
    config = checked_config(opened)
    data = make_data(config, ("train", "validation"), lambda line: None, Preprocessor.load(run, opened.summary.hashes))
    return make_session(config, data, opened, Signals(alone=False), Console(quiet=True), logged_config={})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.corpus(tmp_path_factory.mktemp("check"), lines=60)


@pytest.fixture(scope="module")
def going_on(folder: Path) -> tuple[Session, dict[str, Any]]:
    """A session that has not begun, and what the newest checkpoint of its run holds."""
    run = trained(folder)
    return session(run), load(run / "checkpoints" / step_name(STEP))


def held(going_on: Session, saved: Any) -> None:
    checkpoint_check.check(saved, Path("x.ckpt"), going_on.learner, going_on.trainer, max_steps=going_on.max_steps or 0)


def moments(saved: dict[str, Any]) -> dict[str, Any]:
    return saved["optimizer_states"][0]["state"][0]


def turned(value: torch.Tensor) -> torch.Tensor:
    """The same numbers in another order in memory."""
    rows = value if value.dim() > 1 else value.view(-1, 1).expand(-1, 2)
    return rows.t().contiguous().t().view_as(value) if value.dim() > 1 else rows[:, 0]


def overhanging(value: torch.Tensor) -> torch.Tensor:
    """Of this shape, at the very end of its storage: who takes it for contiguous reads beyond."""
    row = value.shape[-1]
    return torch.zeros(value.numel()).as_strided(value.shape, (0,) * (value.dim() - 1) + (1,), value.numel() - row)


def group(saved: dict[str, Any]) -> dict[str, Any]:
    return saved["optimizer_states"][0]["param_groups"][0]


Change = Callable[[dict[str, Any]], Any]
NAN = torch.tensor(float("nan"))

CHANGES: dict[str, tuple[Change, str]] = {
    # name: (what is changed in the checkpoint, what the line says)
    "weight of another shape": (
        lambda s: s["state_dict"].update({"model.embed.weight": torch.zeros(3)}),
        "embed.weight",
    ),
    "weight of another type": (
        lambda s: s["state_dict"].update({"model.embed.weight": s["state_dict"]["model.embed.weight"].double()}),
        "embed.weight is float64",
    ),
    "weight that is no number": (lambda s: s["state_dict"]["model.embed.weight"].fill_(NAN), "contains nan or inf"),
    "weight that is missing": (lambda s: s["state_dict"].pop("model.embed.weight"), "embed.weight is missing"),
    "weight too many": (lambda s: s["state_dict"].update(x=torch.zeros(1)), "x is unknown"),
    "moment of another shape": (lambda s: moments(s).update(exp_avg=torch.zeros(1)), "exp_avg is float32 of 1"),
    "moment of another type": (lambda s: moments(s).update(exp_avg=moments(s)["exp_avg"].int()), "exp_avg is int32"),
    "moment that is text": (lambda s: moments(s).update(exp_avg="x"), "exp_avg is str"),
    "moment too many": (lambda s: moments(s).update(more=torch.zeros(1)), "more is unknown"),
    "moment too few": (lambda s: moments(s).pop("exp_avg"), "exp_avg is missing"),
    "moment laid out otherwise": (
        lambda s: moments(s).update(exp_avg=turned(moments(s)["exp_avg"])),
        "exp_avg has another memory layout",
    ),
    "moment at the end of its memory": (
        lambda s: moments(s).update(exp_avg=overhanging(moments(s)["exp_avg"])),
        "exp_avg has another memory layout",
    ),
    "no moments at all": (lambda s: s["optimizer_states"][0]["state"].clear(), "has no moments"),
    "no optimizer": (lambda s: s["optimizer_states"].clear(), "one optimizer"),
    "optimizer that is text": (lambda s: s.update(optimizer_states=["x"]), "one optimizer"),
    "groups too few": (lambda s: s["optimizer_states"][0]["param_groups"].pop(), "param_groups: 2 entries"),
    "other betas": (lambda s: group(s).update(betas=(0.1, 0.2)), "betas is [0.1, 0.2]"),
    "other rate": (lambda s: group(s).update(initial_lr=1.0), "initial_lr is 1.0"),
    "carried state of another shape": (lambda s: s["seqtrain"]["carried"].update(cell=torch.zeros(4, 1, 9)), "cell"),
    "carried state of other lanes": (lambda s: s["seqtrain"]["carried"].update(cell=torch.zeros(3, 1, 16)), "cell"),
    "carried state of another type": (
        lambda s: s["seqtrain"]["carried"].update(cell=torch.zeros(4, 1, 16).half()),
        "cell is float16",
    ),
    "carried state that is missing": (lambda s: s["seqtrain"].update(carried={}), "cell is missing"),
    "carried state that is text": (lambda s: s["seqtrain"].update(carried="x"), "carried is str"),
    "skipped that is one number": (lambda s: s["seqtrain"].update(skipped=1), "'int' object is not subscriptable"),
    "all of the entry is missing": (lambda s: s.pop("seqtrain"), "seqtrain is missing"),
    "step from the future": (lambda s: s.update(global_step=5), "allow 4 steps"),
    "step that is text": (lambda s: s.update(global_step="4"), "not supported between instances of 'str'"),
    "nothing in its place": (lambda s: s.clear(), "global_step is missing"),
}


def test_what_this_run_could_not_have_written_is_refused_by_its_name(going_on: tuple[Session, dict[str, Any]]) -> None:
    for name, (change, says) in CHANGES.items():
        saved = copy.deepcopy(going_on[1])
        change(saved)
        with pytest.raises(UserError, match=re.escape(says)) as fault:
            held(going_on[0], saved)
        assert len(fault.value.lines) == 1, name
        assert fault.value.lines[0].startswith(("checkpoint x.ckpt: ", "trainer.max_steps")), name


def test_an_unfit_checkpoint_trains_nothing(folder: Path, going_on: tuple[Session, dict[str, Any]]) -> None:
    """Held before Lightning has it: fused AdamW would read beyond the memory of a moment of another shape."""
    begun = session(folder / "run")
    path = folder / "x" / step_name(STEP)
    saved = copy.deepcopy(going_on[1])
    moments(saved).update(exp_avg=torch.zeros(1))
    save(saved, path)
    with pytest.raises(UserError, match="exp_avg is float32 of 1, but this run has float32 of 64x16"):
        begun.check_checkpoint(path)
    assert begun.trainer.global_step == 0
    assert not begun.learner.restored
