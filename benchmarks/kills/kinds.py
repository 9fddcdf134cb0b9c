"""The kinds of runs and sweeps that the campaign kills, small enough that a hundred of each are minutes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.support import examples, fault_injection, tiny

STEPS = (
    *("trainer.max_steps=20", "trainer.checkpoint_every=3", "trainer.validate_every=7", "trainer.log_every=1"),
    *("trainer.accelerator=cpu", "trainer.threads=1", "trainer.check_ranks_every=5"),
)
STREAM = (*tiny.OPTIONS, *STEPS, "model=gru", "model.dropout=0.2", "schedule.warmup=5")
DOCUMENTS = tuple("data.path=documents.jsonl" if word.startswith("data.path=") else word for word in STREAM)
BASE = "base"  # the run that others begin from
BEGUN_FROM = f"init_from={BASE}-twin/run"


def of(task: str, *words: str) -> tuple[str, ...]:
    """The command line of a small run of a task that reads examples."""
    return (*examples.options(task), *STEPS, "schedule.warmup=5", *words)


RUNS: dict[str, tuple[str, ...]] = {
    "carried state": (*STREAM, "optimizer=adamw"),
    "carried state, k1 < k2": (*STREAM, "tbptt.k1=4"),
    "windows": (*STREAM, "tbptt=windows"),
    "windows, k1 < k2": (*STREAM, "tbptt=windows", "tbptt.k1=4"),
    "jitter": (*STREAM, "tbptt.jitter=awd"),
    "document reset": (*DOCUMENTS, "tbptt.reset=document", "data.split_by=document"),
    "LSTM of two layers, samples and plots": (*STREAM, "model=lstm", "model.num_layers=2", "callbacks=default"),
    "GPT, four micro-batches": (*STREAM, *tiny.GPT, "trainer.accumulate=4", "tbptt=windows"),
    "GPT with memory": (*STREAM, *tiny.GPT, "trainer.validate_every=6"),
    "sentiment": of("sentiment", "task.dropout=0.2", "data.batch_tokens=48"),
    "sentiment, four micro-batches": of("sentiment", "task.dropout=0.2", "trainer.accumulate=4"),
    "masked LM": of("masked_lm", "model.dropout=0.1"),
    "next sentence": of("masked_lm", "task.next_sentence=true", "model.dropout=0.1"),
    "translation, one vocabulary": of("translation", "model.dropout=0.1"),
    "translation, two vocabularies": of("translation", "model.dropout=0.1", "task.shared_vocab=false"),
    "early stopping": (
        *(*STREAM, "callbacks=early_stopping", "callbacks.samples=null", "callbacks.curves=null"),
        *("callbacks.early_stopping.patience=1", "callbacks.early_stopping.min_delta=0.9", "trainer.validate_every=4"),
    ),
    "plateau": (
        *(*(word for word in STREAM if not word.startswith("schedule.")), "schedule=plateau"),
        *("schedule.patience=0", "schedule.threshold=0.9", "trainer.validate_every=4"),
    ),
    "Muon": (*STREAM, "optimizer=muon"),
    "data workers": (*STREAM, "data.workers=2"),
    "several best": (*STREAM, "trainer.keep_best=3", "trainer.validate_every=2"),
    "begun from another run": of("sentiment", BEGUN_FROM, "model=gru"),
    "updates skipped": (
        *STREAM,
        *fault_injection.OPTIONS,
        "callbacks=wild",
        "callbacks.wild.steps=[4,5,12]",
        "trainer.on_nonfinite=skip",
    ),
    "epochs": (*STREAM, "trainer.max_steps=null", "trainer.max_epochs=2"),
    "two processes": (*STREAM, "trainer.devices=2"),
    "two processes, two micro-batches, data workers": of(
        "sentiment", "trainer.devices=2", "trainer.accumulate=2", "data.workers=1", "task.dropout=0.2"
    ),
}
"""Name: arguments of `seqtrain train`."""

TRIALS = (*STREAM, "trainer.max_steps=8", "trainer.validate_every=4")
SWEEPS: dict[str, tuple[str, ...]] = {
    "grid": (*TRIALS, "seed=1,2"),
    "grid, two trials at a time": (*TRIALS, "model=gru,min_gru", "hydra.launcher.n_jobs=2"),
    "grid of translations": (
        *(
            *of("translation"),
            "task.shared_vocab=false",
            "seed=1,2",
            "trainer.max_steps=8",
            "trainer.validate_every=4",
        ),
    ),
    "search with pruning": (
        *(*TRIALS, "sweep=optuna", "optimizer.lr=tag(log,interval(1e-4,1e-1))", "trainer.validate_every=2"),
        *("hydra.sweeper.n_trials=5", "hydra.sweeper.pruner.n_startup_trials=1"),
        "hydra.sweeper.sampler.n_startup_trials=2",
    ),
    "search by halving": (
        *(*TRIALS, "sweep=optuna", "optimizer.lr=tag(log,interval(1e-4,1e-1))", "trainer.validate_every=2"),
        *("hydra.sweeper.n_trials=4", "hydra/sweeper/pruner=halving", "hydra.sweeper.pruner.min_resource=2"),
    ),
}
"""Name: arguments of `seqtrain train -m`."""


@dataclass(frozen=True)
class Kind:
    """One kind of run, or of sweep."""

    name: str
    words: tuple[str, ...]
    is_sweep: bool = False

    @property
    def is_search(self) -> bool:
        """Whether it needs optuna."""
        return "sweep=optuna" in self.words

    @property
    def several(self) -> bool:
        """Whether there are several processes that write, so that one of them can be killed alone."""
        return self.is_sweep or "trainer.devices=2" in self.words

    def train(self, folder: str) -> list[str]:
        """The command that begins it."""
        begin = ["train", "-m"] if self.is_sweep else ["train"]
        return [*begin, *self.words, f"{'hydra.sweep.dir' if self.is_sweep else 'run_dir'}={folder}"]

    def resume(self, folder: str) -> list[str]:
        """The command that goes on with it."""
        trust = fault_injection.TRUST if "--trust" in self.words else ()
        retry = ["--retry-failed"] if self.is_sweep and not self.is_search else []
        return ["resume", folder, *trust, *retry]

    def begun(self, folder: Path) -> bool:
        """Whether there is something that a resume could go on with."""
        return (folder / ("sweep.yaml" if self.is_sweep else "config.yaml")).exists()


KINDS = {
    **{name: Kind(name, words) for name, words in RUNS.items()},
    **{name: Kind(name, words, is_sweep=True) for name, words in SWEEPS.items()},
}


def files(folder: Path) -> dict[str, str]:
    """Writes what the kinds read; gives what their environment has beside ours."""
    tiny.corpus(folder, lines=30)
    examples.files(folder)
    rows = [json.dumps({"text": f"document {n} is {'long ' * (n % 9)}and ends\n"}) for n in range(60)]
    (folder / "documents.jsonl").write_text("\n".join(rows) + "\n")
    return {"PYTHONPATH": str(fault_injection.package(folder)["PYTHONPATH"])}
