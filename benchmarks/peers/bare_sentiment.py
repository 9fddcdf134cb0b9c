"""A peer: an LSTM in both directions over packed sentences, and the loop that a person would write to classify them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.peers import turns


class Model(nn.Module):
    """torch's fused LSTM on a packed sequence, the maximum over the words, and a linear head."""

    def __init__(self, *, vocab_size: int, dim: int, labels: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.core = nn.LSTM(dim, dim // 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(dim, labels)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.core(packed)[0], batch_first=True, padding_value=-torch.inf)
        return self.head(hidden.amax(1))


def train(work: turns.Work) -> None:
    """Trains on all batches; one step each."""
    model = Model(**work.sizes)
    optimizer = turns.adamw(model)
    work.ready(model)
    for batch in work:
        with work.autocast():
            loss = F.cross_entropy(model(batch["tokens"], batch["lengths"]), batch["targets"])
        turns.update(model, optimizer, loss)


if __name__ == "__main__":
    train(turns.from_command_line())
