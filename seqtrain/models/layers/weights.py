"""Cost and initial values of a module's weights."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


def count_weights(module: nn.Module) -> int:
    """Count the numbers in the matrices and kernels of a module; each costs two operations a token.

    Embedding tables are left out: a lookup needs no operation.
    """
    tables = [part.weight for part in module.modules() if isinstance(part, nn.Embedding)]
    total = sum(weight.numel() for weight in module.parameters() if weight.dim() > 1)
    return total - sum(table.numel() for table in tables)


def initialise_transformer(parts: Sequence[nn.Module]) -> None:
    """Draw initial weights that keep the scale of their input, forwards and backwards (Glorot & Bengio 2010)."""
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
