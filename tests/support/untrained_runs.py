"""Runs with random weights, made in a moment: what the commands open that use a trained run."""

from __future__ import annotations

from pathlib import Path

import torch
from omegaconf import DictConfig
from torch import nn

import seqtrain
from seqtrain.api import Trained
from seqtrain.config import check
from seqtrain.config.instantiate import make
from seqtrain.data.preprocess import Preprocessor
from seqtrain.experiment.written_config import config_text
from seqtrain.runs import checkpoint
from seqtrain.runs.directory import Run
from seqtrain.training.model_and_task import make_pair

TEXTS = ["the animal was tired and slow", "a film that was not good", "the street was too long for it", "déjà vu"]
STEP = 7
LEARNED = ("model.positions=learned", "model.max_length=512")
MASKED = ("task=masked_lm", "model=bert", *LEARNED, "tokenizer.size=300", "model.num_layers=2", "model.num_heads=2")
SENTIMENT = ("task=sentiment", "model=gru", "tokenizer=char")
TRANSLATION = ("task=translation", "model=encoder_decoder", "tokenizer=char", "model.num_layers=2", "model.num_heads=2")
NEXT_TOKEN = ("task=next_token", "model=gpt", "tokenizer=char", "model.num_layers=2", "model.num_heads=2")


def make_run(path: Path, *overrides: str, labels: tuple[str, ...] = ("bad", "fair", "good")) -> Path:
    """A run directory of `overrides`, as a training leaves it, whose tokenizer knows TEXTS."""
    config = check.compose([*overrides, "model.dim=16"]).config
    tokenizer = make(config.tokenizer).train(TEXTS * 3)
    task = config.task._target_.rpartition(".")[2]
    preprocessor = Preprocessor(tokenizer, tokenizer, labels if task in ("Sentiment", "Tag") else ())
    model, task = make_pair(config, preprocessor)
    torch.manual_seed(1)
    for module in (model, task):
        for weight in module.parameters():
            nn.init.normal_(weight, std=0.4)
    return leave_run(path, config, preprocessor, model, task)


def leave_run(path: Path, config: DictConfig, preprocessor: Preprocessor, model: nn.Module, task: nn.Module) -> Path:
    """A run directory with the weights that model and task have now."""
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    weights |= {f"task.{name}": value for name, value in task.state_dict().items()}
    run = Run.create(path)
    run.write_config(config_text(config))
    preprocessor.save(run.path)
    run.update_summary(hashes=preprocessor.hashes)
    saved = {"state_dict": weights, "global_step": STEP, "seqtrain": {"run": run.identity}}
    checkpoint.save(saved, run.checkpoints / checkpoint.step_name(STEP))
    run.close()
    return run.path


def sign(path: Path, hashes: dict[str, str]) -> None:
    """Lets the run say that it began with files of these hashes, in its summary and in its checkpoint."""
    run = Run(path)
    run.update_summary(hashes=hashes)
    file = path / "checkpoints" / checkpoint.step_name(STEP)
    checkpoint.save(checkpoint.load(file) | {"seqtrain": {"run": run.identity}}, file)


def double(path: Path) -> Trained:
    """The run in float64."""
    trained = seqtrain.load(path)
    trained.model.double()
    trained.task.double()
    return trained
