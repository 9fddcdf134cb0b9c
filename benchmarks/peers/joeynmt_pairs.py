"""A peer: JoeyNMT's TrainManager with its Transformer."""

from __future__ import annotations

import importlib
import importlib.metadata
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.peers import turns

FOREVER = 10**9


class Ready:
    """Batches that are ready, in what JoeyNMT takes for a data set, its iterator and its sampler."""

    def __init__(self, work: turns.Work) -> None:
        self.work = work
        self.seed = 0
        self.batch_sampler = self

    def make_iter(self, **options: Any) -> Ready:
        return self

    def set_seed(self, seed: int) -> None:
        """All is in order already."""

    def __iter__(self) -> Iterator[Any]:
        batch_type = importlib.import_module("joeynmt.batch").Batch
        for batch in self.work:
            yield batch_type(
                src=batch["source"],
                src_length=batch["lengths"],
                src_prompt_mask=None,
                trg=batch["target"],
                trg_prompt_mask=None,
                indices=torch.arange(len(batch["source"])),
                device=torch.device("cpu"),
                pad_index=turns.PADDING,
                eos_index=turns.END,
            )


def model_of(sizes: dict[str, int]) -> Any:
    """A Transformer with one embedding for source, target and head."""
    names = ("unk", "pad", "bos", "eos")
    special: dict[str, Any] = {"lang_tags": [], "sep_token": None}
    for number, (name, token) in enumerate(zip(names, turns.SPECIALS, strict=True)):
        special |= {f"{name}_token": token, f"{name}_id": number}
    words = [f"w{number}" for number in range(sizes["vocab_size"] - len(turns.SPECIALS))]
    vocab = importlib.import_module("joeynmt.vocabulary").Vocabulary(words, SimpleNamespace(**special))
    side = {
        "type": "transformer",
        "num_layers": sizes["num_layers"],
        "num_heads": sizes["num_heads"],
        "embeddings": {"embedding_dim": sizes["dim"], "scale": True, "dropout": 0.0},
        "hidden_size": sizes["dim"],
        "ff_size": 4 * sizes["dim"],
        "dropout": 0.0,
        "layer_norm": "pre",
    }
    first_weights = {"initializer": "xavier_uniform", "embed_initializer": "xavier_uniform"}
    config = {"tied_embeddings": True, "tied_softmax": True, "encoder": side, "decoder": side, **first_weights}
    model = importlib.import_module("joeynmt.model").build_model(config, vocab, vocab)
    model.loss_function = "crossentropy", 0.1
    return model


def train(work: turns.Work) -> None:
    """Trains on all batches; one step each."""
    config = importlib.import_module("joeynmt.config")
    manager_type = importlib.import_module("joeynmt.training").TrainManager
    model = model_of(work.sizes)
    # What it does not need here is None, and what would come every so many steps never comes.
    arguments: dict[str, Any] = dict.fromkeys(config.TrainConfig._fields)
    arguments |= {"optimizer": "adamw", "adam_betas": (0.9, 0.95), "learning_rate": 1e-3, "weight_decay": 0.01}
    arguments |= {"clip_grad_norm": 1.0, "normalization": "tokens", "batch_multiplier": 1, "epochs": 1}
    arguments |= {"max_updates": FOREVER, "validation_freq": FOREVER, "logging_freq": 100, "minimize_metric": True}
    arguments |= {"scheduling": "exponential", "decrease_factor": 0.99}  # once an epoch, of which there is one
    arguments |= {"batch_size": 2048, "batch_type": "token", "shuffle": False, "learning_rate_min": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        manager = manager_type(
            rank=0,
            model=model,
            model_dir=Path(folder),
            device=torch.device("cpu"),
            autocast={"device_type": "cpu", "dtype": torch.bfloat16, "enabled": work.bf16},
            train_args=config.TrainConfig(**arguments),
        )
        # Its own choice of optimizers has AdamW without the fused step, which is slower.
        for group in manager.optimizer.param_groups:
            group |= {"fused": True, "foreach": False}
        work.ready(model, version=importlib.metadata.version("joeynmt"))
        manager.train_and_validate(Ready(work), Ready(work))


if __name__ == "__main__":
    train(turns.from_command_line())
