"""Laws of layouts: how many processes train, and in how many micro-batches, changes no number."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqtrain.runs.checkpoint import load
from seqtrain.runs.directory import Run
from seqtrain.runs.summary import of_the_machine
from tests.conftest import Seqtrain
from tests.support import examples
from tests.support.quick import some_long
from tests.support.tiny import GPT, OPTIONS, corpus

STEPS = 20
EXACT = (
    *("trainer.precision=64-true", f"trainer.max_steps={STEPS}", "trainer.validate_every=10"),
    *("trainer.checkpoint_every=10", "trainer.accelerator=cpu", "trainer.check_ranks_every=1"),
    "trainer.log_every=4",  # so that the checkpoint at 10 stands between two records, with sums that go on
    "trainer.grad_clip=0.17",  # so low that some updates are clipped, and not all
)
LAYOUTS = {
    "1 process and 4 micro-batches": ("trainer.accumulate=4",),
    "2 processes": ("trainer.devices=2",),
    "2 processes and 2 micro-batches": ("trainer.devices=2", "trainer.accumulate=2"),
}
SHARDED = ("trainer.devices=2", "trainer.strategy=fsdp")
STREAM = (*OPTIONS, "data.batch_size=8", "data.eval_lanes=3")
SERIES = (
    *("task=forecast", "data.size=4", "data.length=150", "data.missing_share=0.4", "data.max_length=16"),
    *("task.horizon=4", "model.dim=8", "model.dropout=0", "logger=none", "callbacks=none"),
)
RUNS = {
    "lstm that carries": STREAM,
    "gru with k1 below k2": (*STREAM, "model=gru", "tbptt.k1=2"),
    "gpt with memory": (*STREAM, *GPT),
    "rnn on documents": (*STREAM, "model=rnn", "tbptt.reset=document"),
    "sentiment": (*examples.options("sentiment"), "task.dropout=0", "model.dropout=0", "task.class_weights=balanced"),
    "sentiment cut in time": (*examples.options("sentiment"), "task.dropout=0", "model.dropout=0", "tbptt.k2=8"),
    "masked_lm": (*examples.options("masked_lm"), "model.dropout=0", "task.next_sentence=true"),
    "translation": (*examples.options("translation"), "model.dropout=0"),
    "pairs": (*examples.options("pairs"), "model.dropout=0"),
    "forecast of missing values": (*SERIES, "data.batch_size=8"),
    "recursive forecast": (*SERIES, "data.batch_size=8", "task.strategy=recursive", "model=encoder_decoder"),
    "forecast that carries": (*SERIES, "tbptt=carry", "tbptt.reset=document", "tbptt.k2=16", "data.batch_size=4"),
}
BOTH = "2 processes and 2 micro-batches"
PARTS = [(name, layout) for name in ("lstm that carries", "sentiment") for layout in LAYOUTS if layout != BOTH]
"""A stream and examples: what divides them between processes alone, or micro-batches alone."""
QUICK = [("lstm that carries", BOTH), ("sentiment", "2 processes")]
WEIGHTS = (
    "lstm that carries",
    "gpt with memory",
    "sentiment",
    "masked_lm",
    "translation",
    "pairs",
    "recursive forecast",
)
"""Of each task a run, and another model: how time or examples are cut is nothing to weights that are shared out."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return examples.files(corpus(tmp_path_factory.mktemp("layouts")))


def trained(seqtrain: Seqtrain, folder: Path, name: str, layout: tuple[str, ...], run: str) -> Path:
    """The run of this layout, trained once for all tests of the module."""
    if not (folder / run).exists():
        answer = seqtrain("train", *RUNS[name], *EXACT, *layout, f"run_dir={run}", cwd=folder)
        assert answer.rc == 0, answer.err
    return folder / run


def assert_same_numbers(one: Path, other: Path) -> None:
    """Final weights to 1e-9, every logged loss and metric to 1e-6, the same batches, each target counted once."""
    weights = [load(run / "checkpoints" / f"step-{STEPS:08d}.ckpt")["state_dict"] for run in (one, other)]
    for name, value in weights[0].items():
        assert float((value - weights[1][name]).abs().max()) < 1e-9, name
    records = [Run(run).metrics() for run in (one, other)]
    assert len(records[0]) == len(records[1]) > 2
    for first, second in zip(*records, strict=True):
        names = [{name for name in record if not of_the_machine(name)} for record in (first, second)]
        assert names[0] == names[1]
        for name in names[0]:
            same = first[name] == second[name]
            assert same or abs(first[name] - second[name]) < 1e-6, (first["step"], name, first[name], second[name])
    assert clipped_share(one) == clipped_share(other)


def clipped_share(run: Path) -> float:
    """The share of updates that were clipped, as the summary says it."""
    clipped = Run(run).summary.clipped
    assert clipped is not None
    return clipped["share"]


def test_the_runs_of_these_laws_have_updates_that_were_clipped_and_others(seqtrain: Seqtrain, folder: Path) -> None:
    name = "lstm that carries"
    assert 0 < clipped_share(trained(seqtrain, folder, name, (), f"{name}-whole")) < 1


@pytest.mark.parametrize("case", some_long([*((name, BOTH) for name in RUNS), *PARTS], QUICK), ids="-".join)
def test_processes_and_micro_batches_change_no_number(case: tuple[str, str], seqtrain: Seqtrain, folder: Path) -> None:
    name, layout = case
    whole = trained(seqtrain, folder, name, (), f"{name}-whole")
    assert_same_numbers(whole, trained(seqtrain, folder, name, LAYOUTS[layout], f"{name}-{layout}"))


@pytest.mark.long
@pytest.mark.parametrize("name", WEIGHTS)
def test_sharing_out_the_weights_changes_no_number(name: str, seqtrain: Seqtrain, folder: Path) -> None:
    adamw = ("optimizer=adamw",) if name == "masked_lm" else ()  # its own, Muon, is refused
    whole = trained(seqtrain, folder, name, adamw, f"{name}-whole{len(adamw) or ''}")
    assert_same_numbers(whole, trained(seqtrain, folder, name, (*adamw, *SHARDED), f"{name}-sharded"))


@pytest.mark.long
@pytest.mark.parametrize("name", ["lstm that carries", "sentiment"])
def test_evaluation_batches_of_two_processes_change_no_metric(name: str, seqtrain: Seqtrain, folder: Path) -> None:
    whole = trained(seqtrain, folder, name, (), f"{name}-whole")
    layout = ("trainer.devices=2", "data.eval_batch_size=3")
    assert_same_numbers(whole, trained(seqtrain, folder, name, layout, f"{name}-eval"))


@pytest.mark.long
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_another_number_of_processes_goes_on_with_the_same_lanes_and_numbers(
    before: int, after: int, seqtrain: Seqtrain, folder: Path
) -> None:
    name, run = "lstm that carries", f"from-{before}-to-{after}"
    whole = trained(seqtrain, folder, name, (), f"{name}-whole")
    planned = f"trainer.devices={before}"
    child = seqtrain.start("train", *RUNS[name], *EXACT, planned, f"run_dir={run}", cwd=folder)
    half = folder / run / "checkpoints" / "step-00000010.ckpt"
    while child.poll() is None and not half.exists():
        pass
    child.kill()
    child.wait(60)
    (folder / run / "checkpoints" / f"step-{STEPS:08d}.ckpt").unlink(missing_ok=True)  # it may have been faster than us
    answer = seqtrain("resume", run, f"trainer.devices={after}", cwd=folder)
    assert answer.rc == 0, answer.err
    assert f"trainer.devices: {before} -> {after}" in answer.err
    assert_same_numbers(whole, folder / run)


def test_a_resume_does_not_change_the_strategy(seqtrain: Seqtrain, folder: Path) -> None:
    name = "lstm that carries"
    trained(seqtrain, folder, name, (), f"{name}-whole")
    before = (folder / f"{name}-whole" / "config.yaml").read_text()
    answer = seqtrain("resume", f"{name}-whole", *SHARDED, "trainer.max_steps=30", cwd=folder)
    assert (answer.rc, "trainer.strategy: cannot change in a resumed run" in answer.err) == (2, True), answer.err
    assert (folder / f"{name}-whole" / "config.yaml").read_text() == before


@pytest.mark.long
def test_workers_that_cut_batches_change_no_bit(seqtrain: Seqtrain, folder: Path) -> None:
    whole = trained(seqtrain, folder, "sentiment", (), "sentiment-whole")
    ahead = trained(seqtrain, folder, "sentiment", ("data.workers=2",), "sentiment-workers")
    states = [load(run / "checkpoints" / f"step-{STEPS:08d}.ckpt")["state_dict"] for run in (whole, ahead)]
    assert all(value.equal(states[1][name]) for name, value in states[0].items())
