"""Whether there is a card to ask."""

from __future__ import annotations

import sys
from typing import NoReturn

import torch

NO_CARD = 2  # the exit code where there is none: the user can mend it


def refuse_without_card() -> None:
    """Ends this process with one line and exit code 2 where torch sees no NVIDIA GPU."""
    if not torch.cuda.is_available():
        _refuse("no CUDA GPU is seen" if torch.version.cuda else f"torch {torch.__version__} is built without CUDA")


def _refuse(reason: str) -> NoReturn:
    print(f"error: {reason}; docs/gpu.md says what to install, and `make test-long` runs the same on the CPU")
    sys.exit(NO_CARD)


if __name__ == "__main__":
    refuse_without_card()
