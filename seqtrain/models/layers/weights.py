"""What the weights of a module cost, and what they begin as."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


def count_weights(module: nn.Module) -> int:
    """How many numbers the matrices and kernels of a module hold, each of which costs two operations a token.

    Tables of vectors are left out: to look one up is no operation.
    """
    tables = [part.weight for part in module.modules() if isinstance(part, nn.Embedding)]
    total = sum(weight.numel() for weight in module.parameters() if weight.dim() > 1)
    return total - sum(table.numel() for table in tables)


def initialise_transformer(parts: Sequence[nn.Module]) -> None:
    """Draws first weights that keep the scale of what they read, forwards and backwards (Glorot & Bengio 2010)."""
    tables: list[nn.Embedding] = []
    for part in parts:
        for module in part.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            if isinstance(module, nn.Embedding):
                tables.append(module)
    # Last, so that a seed gives the same matrices with a table and without one.
    for table in tables:
        nn.init.normal_(table.weight, std=table.embedding_dim**-0.5)
