"""A peer: Hugging Face's Trainer with BertForMaskedLM."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.peers import turns


class Ready(IterableDataset):
    """Batches that are ready, under the names that BERT has for them."""

    def __init__(self, work: turns.Work) -> None:
        self.work = work
        self.padding = work.sizes["vocab_size"] - 1

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for batch in self.work:
            tokens = batch["tokens"]
            yield {
                "input_ids": tokens,
                "attention_mask": (tokens != self.padding).long(),
                "token_type_ids": torch.zeros_like(tokens),
                "labels": batch["targets"],
            }


def train(work: turns.Work) -> None:
    """Trains on all batches; one step each."""
    transformers: Any = importlib.import_module("transformers")
    sizes = work.sizes
    shape = transformers.BertConfig(
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["dim"],
        num_hidden_layers=sizes["num_layers"],
        num_attention_heads=sizes["num_heads"],
        intermediate_size=4 * sizes["dim"],
        max_position_embeddings=sizes["length"],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=sizes["vocab_size"] - 1,
    )
    model = transformers.BertForMaskedLM(shape)

    class Trainer(transformers.Trainer):
        """Reads batches that are ready."""

        def get_train_dataloader(self) -> DataLoader:
            return DataLoader(Ready(work), batch_size=None)

    with tempfile.TemporaryDirectory() as folder:
        options = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=10**6,
            optim="adamw_torch_fused",
            learning_rate=1e-3,
            weight_decay=0.01,
            max_grad_norm=1.0,
            bf16=work.bf16,
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(model=model, args=options, train_dataset=Ready(work))
        work.ready(model, version=transformers.__version__)
        trainer.train()


if __name__ == "__main__":
    train(turns.from_command_line())
