"""A peer: a causal TCN of pre-norm blocks in plain PyTorch, trained by the loop of the bare GPT."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.peers import bare_gpt, turns


class Block(nn.Module):
    """A norm, and two dilated convolutions."""

    def __init__(self, dim: int, dilation: int) -> None:
        super().__init__()
        self.before = 2 * dilation
        self.norm = nn.LayerNorm(dim)
        self.first = nn.Conv1d(dim, dim, 3, dilation=dilation)
        self.second = nn.Conv1d(dim, dim, 3, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(F.pad(self.norm(x).transpose(1, 2), (self.before, 0)))
        return x + self.second(F.pad(F.gelu(inner), (self.before, 0))).transpose(1, 2)


class TCN(nn.Module):
    """A head that shares the embedding's weights."""

    def __init__(self, *, vocab_size: int, dim: int, num_layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        nn.init.normal_(self.embed.weight, std=dim**-0.5)
        self.blocks = nn.Sequential(*(Block(dim, 2**layer) for layer in range(num_layers)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab_size, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(tokens))))


def train(work: turns.Work) -> None:
    """Trains on all batches; one step each."""
    bare_gpt.fit(TCN(**work.sizes), work)


if __name__ == "__main__":
    train(turns.from_command_line())
