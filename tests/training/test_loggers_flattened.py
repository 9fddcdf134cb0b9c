"""Laws of the names that loggers group runs by, and of the figures that they take for metrics."""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from seqtrain.training.loggers import base
from tests.support import fake_runs

CONF = Path(str(files("seqtrain.conf")))


def test_every_model_goes_by_the_name_that_was_typed() -> None:
    for path in (CONF / "model").glob("*.yaml"):
        config = {"model": yaml.safe_load(path.read_text())}
        # Of two files with one class, which differ in its options, that of the class.
        name = "encoder_decoder" if path.stem == "rnn_encoder_decoder" else path.stem
        assert base.chosen(config) == {"model": name}


def test_hyperparameters_are_plain_values_without_what_only_says_how_a_run_is_watched() -> None:
    config: dict[str, Any] = {**fake_runs.CONFIG, "logger": {"wandb": {"project": "p"}}}
    found = base.hyperparameters(config)
    assert (found["model"], found["model.dim"], found["optimizer.betas"]) == ("lstm", 16, "[0.9, 0.95]")
    assert not [name for name in found if name.startswith(("logger", "callbacks", "run_dir")) or "._" in name]
    assert all(isinstance(value, str | bool | int | float) for value in found.values())


@pytest.mark.parametrize("config", [{"model": 3}, {"model": {"_target_": 7}}, {"model": None}, {}])
def test_a_stranger_s_config_chooses_nothing_where_it_says_nothing(config: dict[str, Any]) -> None:
    assert base.chosen(config) == {}


def test_a_figure_never_has_the_name_of_what_was_measured_on_the_way() -> None:
    figures: dict[str, Any] = {
        "status": "finished",
        "metrics": {"validation": {"loss": 1.5, "bleu": math.nan}},
        "best": {"step": 20, "validation": {"loss": 1.25}},
        "tokens": 640,
        "parameters": {"total": 10},
        "padding": None,
    }
    assert base.figures_as_metrics(figures) == {
        "final/validation/loss": 1.5,
        "best/step": 20.0,
        "best/validation/loss": 1.25,
        "run/tokens": 640.0,
        "run/parameters/total": 10.0,
    }
