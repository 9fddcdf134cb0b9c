"""What each side of a comparison does between its turns: it waits on a pipe, then hands out so many batches.

It imports torch alone, for a peer's environment has no seqtrain. A turn is timed between requests for batches: from the
request for its first one to the first request that is no part of it. So every trainer is timed alike, whatever calls
back where, and one that asks for a batch ahead of time still does as many steps as it is asked for. Beside the clock
stands the time on a processor: where other work waits for the same cores, only that says what a step costs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SPECIALS = ("<unk>", "<blank>", "<s>", "</s>")
"""What stands before the words in both translators' vocabularies, in this order."""
PADDING, START, END = 1, 2, 3

Report = Callable[[dict[str, Any]], None]


class Turns:
    """Batches, handed out turn by turn; after each turn its seconds are reported."""

    def __init__(self, batches: Iterable[Any], commands: Iterable[str], report: Report) -> None:
        """Holds what it needs.

        Args:
            batches: What is trained on, enough for all turns.
            commands: For each turn the number of its steps; to wait for the next one is to stand still.
            report: Takes what is said of a turn.
        """
        self.batches = batches
        self.commands = commands
        self.report = report

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.batches)
        for command in self.commands:
            begin, begin_cpu = time.perf_counter(), time.process_time()
            for _ in range(int(command)):
                yield next(batches)
            seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
            self.report({"seconds": seconds, "cpu_seconds": cpu_seconds})


class Work:
    """What a peer is given: the sizes of its model, whether it computes in bf16, and its batches turn by turn."""

    def __init__(self, given: dict[str, Any], *, bf16: bool, commands: Iterable[str], report: Report) -> None:
        self.sizes: dict[str, int] = given["sizes"]
        self.bf16 = bf16
        self.report = report
        self.turns: Iterable[dict[str, Tensor]] = Turns(given["batches"], commands, self._say_of_turn)
        self.model: nn.Module | None = None
        self.weights_before = torch.zeros(())

    def _say_of_turn(self, said: dict[str, Any]) -> None:
        """Hands on what a turn took, and whether the model was trained in it: a loss of NaN is no slower to make."""
        assert self.model is not None
        weights = flat(self.model)
        trained = bool(weights.isfinite().all()) and not torch.equal(weights, self.weights_before)
        self.weights_before = weights
        self.report({**said, "trained": trained})

    def autocast(self) -> torch.autocast:
        """The precision of a forward pass."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self.bf16)

    def ready(self, model: nn.Module, **about: str) -> None:
        """Says that the model stands, and what it is."""
        self.model, self.weights_before = model, flat(model)
        self.report({"parameters": count(model), **about})

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        return iter(self.turns)


def adamw(model: nn.Module) -> torch.optim.AdamW:
    """The optimizer of a bare loop, as ours is configured."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01, fused=True)


def update(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step of a bare loop behind its loss: backward, clipping, and the update."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def count(model: nn.Module) -> int:
    """Numbers that are trained; those that two parts share count once."""
    return sum(weight.numel() for weight in model.parameters())


def flat(model: nn.Module) -> Tensor:
    """All weights as one vector, a copy."""
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def from_command_line() -> Work:
    """The work that `benchmarks.peers.training` gives a process: FILE PRECISION, and turns on standard input."""
    path, precision = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    report = reporter()
    return Work(torch.load(Path(path)), bf16=precision != "float32", commands=commands(), report=report)


def reporter() -> Report:
    """Reports go to what was standard output; whatever else is printed goes to standard error."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def report(said: dict[str, Any]) -> None:
        print(json.dumps(said), file=pipe, flush=True)

    return report


def commands() -> Iterator[str]:
    """The lines of standard input; after the last one the process ends, in the middle of whatever trainer it is in."""
    yield from iter(sys.stdin.readline, "")
    os._exit(0)
