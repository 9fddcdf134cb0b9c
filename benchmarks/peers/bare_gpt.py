"""A peer: a GPT and the loop that a person would write for it, of nanoGPT's shape, in plain PyTorch.

Tuned, it has the two tricks that make bf16 fast on a CPU: attention by plain products, and memory that glibc keeps.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.peers import turns


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, dim: int, num_heads: int, tuned: int) -> None:
        super().__init__()
        self.num_heads, self.tuned = num_heads, tuned
        self.norm1 = nn.LayerNorm(dim, bias=False)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.norm2 = nn.LayerNorm(dim, bias=False)
        self.wide = nn.Linear(dim, 4 * dim, bias=False)
        self.narrow = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norm1(x)).unflatten(-1, (3, self.num_heads, -1))  # (B, T, 3, H, K)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        if self.tuned and torch.is_autocast_enabled("cpu"):
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            scores = query @ key.mT * query.shape[-1] ** -0.5
            mixed = scores.masked_fill(later, -torch.inf).softmax(-1) @ value
        else:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class GPT(nn.Module):
    """Learned positions, no biases, a head that shares the embedding's weights."""

    def __init__(
        self, *, vocab_size: int, dim: int, num_layers: int, num_heads: int, length: int, tuned: int = 0
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.positions = nn.Embedding(length, dim)
        self.blocks = nn.Sequential(*(Block(dim, num_heads, tuned) for _ in range(num_layers)))
        self.norm = nn.LayerNorm(dim, bias=False)
        self.head = nn.Linear(dim, vocab_size, bias=False)
        for weight in self.parameters():
            if weight.ndim > 1:
                nn.init.normal_(weight, std=0.02)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.blocks(self.embed(tokens) + self.positions(places))))


def train(work: turns.Work) -> None:
    """Trains on all batches; one step each."""
    if work.sizes.get("tuned"):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 2**25)  # M_MMAP_THRESHOLD: blocks up to its largest value come from memory that is kept,
        mallopt(-1, 2**30)  # M_TRIM_THRESHOLD: of which a gibibyte stays
    model = GPT(**work.sizes)
    fit(model, work)


def fit(model: nn.Module, work: turns.Work) -> None:
    """The usual loop over a model that gives logits."""
    optimizer = turns.adamw(model)
    work.ready(model)
    for batch in work:
        with work.autocast():
            logits = model(batch["tokens"])
            loss = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), ignore_index=-100)
        turns.update(model, optimizer, loss)


if __name__ == "__main__":
    train(turns.from_command_line())
