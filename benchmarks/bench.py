"""Step time of seqtrain against a bare PyTorch loop and an empty Lightning Trainer, in alternation: `make bench`.

All three train the same model on the same batches with the same optimizer and clipping. seqtrain has everything on:
record, TensorBoard, progress bar, checkpoints. Blocks of steps alternate, and ratios are taken block by block, so that
a machine that changes its speed meanwhile changes all three.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig
from pytorch_lightning import Callback, LightningModule, Trainer
from rich.console import Console

from seqtrain.config import check
from seqtrain.data.batching.loader import TrainLoader
from seqtrain.data.batching.stream import StreamBatch
from seqtrain.experiment.written_config import config_text
from seqtrain.models.base import SequenceModel, detach
from seqtrain.runs.directory import Run
from seqtrain.runs.provenance import environment
from seqtrain.tasks.base import Task
from seqtrain.training.callbacks.signals import Signals
from seqtrain.training.data import make_data
from seqtrain.training.model_and_task import make_model, make_task
from seqtrain.training.session import Session, make_session
from seqtrain.training.splits import Data
from seqtrain.training.trainer import quiet_lightning

# About 2, 20 and 100 ms a step on two cores.
SIZES = {
    "LSTM": [
        "model=lstm model.dim=64 data.batch_size=16 tbptt.k2=32",
        "model=lstm model.dim=256 data.batch_size=32 tbptt.k2=48",
        "model=lstm model.dim=512 data.batch_size=32 tbptt.k2=64",
    ],
    "GPT": [
        "model=gpt model.dim=32 model.num_layers=1 data.batch_size=8 tbptt.k2=32",
        "model=gpt model.dim=96 model.num_layers=3 data.batch_size=16 tbptt.k2=64",
        "model=gpt model.dim=192 model.num_layers=4 data.batch_size=24 tbptt.k2=64",
    ],
}
COMMON = (
    "trainer.precision=32-true trainer.validate_every=1000000 tokenizer=byte logger=tensorboard callbacks=none "
    "optimizer.lr=0.001"
)
WARM = 5  # steps of each block that are not timed
MARK = "<!-- make bench writes what follows -->"


class Clock(Callback):
    """Seconds of the steps after the first few of a fit."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def on_train_batch_end(self, *args: object) -> None:
        self.marks.append(time.perf_counter())

    def per_step(self) -> float:
        """Milliseconds a step; the last one, which ends a run and saves it, belongs to no step time."""
        return (self.marks[-2] - self.marks[WARM - 1]) / (len(self.marks) - 1 - WARM) * 1e3


class Empty(LightningModule):
    """The least that trains under Lightning."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.model, self.task = setup.fresh()
        self.setup_ = setup
        self.state = self.model.initial(setup.plan.lanes)

    def training_step(self, batch: StreamBatch, index: int) -> torch.Tensor:
        parts, state = self.task.evaluate(self.model, batch, self.state)
        self.state = detach(state)
        return parts["loss"][0] / batch.total

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.setup_.optimizer(self.parameters())


class Setup:
    """One size: the config, the batches, and the three ways to train it."""

    def __init__(self, overrides: str, text: Path, steps: int) -> None:
        words = [*overrides.split(), *COMMON.split(), "data=text", f"data.path={text}", f"trainer.max_steps={steps}"]
        self.config = check.compose([*words, "data.split_by=position"]).config
        self.data = make_data(self.config, ("train", "validation"), lambda line: None)
        self.plan = self.data.plan("train")
        self.steps = steps

    def fresh(self) -> tuple[SequenceModel, Task]:
        vocab_size = self.data.tokenizer.vocab_size
        model = make_model(self.config, vocab_size)
        return model, make_task(self.config, model, vocab_size)

    def optimizer(self, parameters: object) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, 0.001, (0.9, 0.99), weight_decay=0.01, fused=True)  # type: ignore[arg-type]

    def loader(self) -> TrainLoader:
        return TrainLoader(self.data.batcher("train"), self.plan, accumulate=1)

    def bare(self) -> float:
        """Milliseconds a step of a loop that a person would write."""
        model, task = self.fresh()
        optimizer = self.optimizer(model.parameters())
        state = model.initial(self.plan.lanes)
        for step, batch in enumerate(self.loader()):
            if step == WARM:
                begin = time.perf_counter()
            if step == self.steps:
                return (time.perf_counter() - begin) / (self.steps - WARM) * 1e3
            parts, state = task.evaluate(model, batch, state)
            state = detach(state)
            optimizer.zero_grad()
            (parts["loss"][0] / batch.total).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        raise AssertionError("the loader ended")

    def lightning(self) -> float:
        """Milliseconds a step of an empty Trainer."""
        clock = Clock()
        trainer = Trainer(
            accelerator="cpu",
            max_steps=self.steps,
            gradient_clip_val=1.0,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            callbacks=[clock],
        )
        trainer.fit(Empty(self), self.loader())
        return clock.per_step()

    def seqtrain(self) -> float:
        """Milliseconds a step of seqtrain with everything on."""
        clock = Clock()
        with (
            tempfile.TemporaryDirectory() as folder,
            recorded_session(self.config, self.data, Path(folder) / "run") as session,
        ):
            session.trainer.callbacks.append(clock)  # pyright: ignore[reportAttributeAccessIssue]
            session.trainer.fit(session.learner, self.loader())
        return clock.per_step()


@contextlib.contextmanager
def recorded_session(config: DictConfig, data: Data, path: Path) -> Iterator[Session]:
    """A training with everything on, recorded into a new run at `path`, its progress bar drawn where nobody looks."""
    run = Run.create(path)
    run.write_config(config_text(config))
    console = Console(file=io.StringIO(), force_terminal=True)
    yield make_session(config, data, run, Signals(), console, logged_config={})
    run.close()


def measure(ways: dict[str, Callable[[], float]], blocks: int) -> dict[str, list[float]]:
    """Milliseconds a step of each way in each block; the ways alternate."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for block in range(blocks + 1):
        for name, way in ways.items():
            each = way()
            if block:  # the first block warms caches
                times[name].append(each)
    return times


def row(model: str, times: dict[str, list[float]]) -> str:
    """A line of the table: medians, and medians of what the blocks' ratios and differences are."""
    bare, lightning, ours = (np.array(times[name]) for name in ("bare", "lightning", "seqtrain"))
    middle = [f"{statistics.median(values):.2f}" for values in (bare, lightning, ours)]
    return (
        f"| {model} | {' | '.join(middle)} | {np.median(ours / bare):.3f} | "
        f"{np.median(ours - lightning):+.2f} | {np.median(ours - bare):+.2f} |"
    )


def machine(command: str) -> str:
    """What was measured where: the command, the commit, the processor, its cores and threads, and the versions."""
    place = environment()
    versions = place["versions"]
    commit = "no commit"
    if place["commit"] is not None:
        changed = place["commit"].lstrip("0123456789abcdef")  # + where files differ from it
        commit = f"commit {place['commit'][:8]}{changed}"
    return (
        f"`{command}` ({commit}): {place['cpu']}, {place['cores']} cores, {torch.get_num_threads()} threads, "
        f"torch {versions['torch']}, Python {versions['python']}"
    )


def main() -> None:
    """Measures all sizes, prints the table and puts it into docs/benchmarks.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a block, about")
    parser.add_argument("--write", type=Path, default=Path("docs/benchmarks.md"))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    quiet_lightning()
    print(machine("make bench"), flush=True)
    rows = [
        "| model | bare ms | empty Lightning ms | seqtrain ms | seqtrain / bare | over Lightning, ms | over bare, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        letters = np.random.default_rng(0).integers(97, 123, 2_000_000)
        text.write_bytes(letters.astype(np.uint8).tobytes())
        for model, sizes in SIZES.items():
            for overrides in sizes:
                probe = Setup(overrides, text, WARM + 20).bare()
                setup = Setup(overrides, text, WARM + max(20, round(options.seconds * 1e3 / probe)))
                ways = {"bare": setup.bare, "lightning": setup.lightning, "seqtrain": setup.seqtrain}
                rows.append(row(f"{model} `{overrides.partition(' ')[2]}`", measure(ways, options.blocks)))
                print(rows[-1], flush=True)
    table = "\n".join(rows)
    print(table)
    head = f"{machine('make bench')}; medians of {options.blocks} alternating blocks of about {options.seconds:g} s."
    text = options.write.read_text() if options.write.exists() else "# Benchmarks\n\n"
    options.write.write_text(with_table(text, f"{head}\n\n{table}"))


def with_table(text: str, table: str) -> str:
    """A page with this table behind the mark, up to the next heading, whatever stood there."""
    before, _, after = text.partition(MARK)
    _, heading, rest = after.partition("\n## ")
    return f"{before}{MARK}\n\n{table}\n{heading}{rest}"


if __name__ == "__main__":
    main()
