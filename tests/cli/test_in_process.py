"""Laws of `seqtrain.train` inside another program: a thread, a running loop, streams without a descriptor."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import seqtrain
from seqtrain import api
from seqtrain.distributed.ranks import CAUGHT
from seqtrain.errors import UserError
from seqtrain.runs.directory import Run
from seqtrain.training.callbacks.record import Recorder
from seqtrain.training.callbacks.signals import Interrupted, Signals
from tests.support.tiny import OPTIONS, corpus


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a text, and standard streams such as a notebook has them."""
    monkeypatch.chdir(corpus(tmp_path))
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    return tmp_path


def state() -> tuple[object, ...]:
    """What belongs to the whole process, and to no training."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "PYTORCH"))}
    return [signal.getsignal(number) for number in CAUGHT], os.getcwd(), ours, torch.get_num_threads(), sys.argv[:]


def interrupt_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends this process what a notebook's stop sends, in the middle of a training."""
    recorded = Recorder.on_train_batch_end

    def on_train_batch_end(self: Recorder, trainer, *rest) -> None:
        recorded(self, trainer, *rest)
        if trainer.global_step == step:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Recorder, "on_train_batch_end", on_train_batch_end)


@pytest.mark.long
def test_a_training_in_a_thread_ends_as_one_in_the_main_thread_and_changes_nothing_of_the_process(folder: Path) -> None:
    found: list[BaseException | dict] = []

    def work() -> None:
        try:
            found.append(seqtrain.train(*OPTIONS, "trainer.max_steps=3", "trainer.threads=1", "run_dir=run").metrics)
        except BaseException as error:
            found.append(error)

    before = state()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert state() == before
    assert found == [seqtrain.train(*OPTIONS, "trainer.max_steps=3", "trainer.threads=1", "run_dir=other").metrics]
    assert Run(folder / "run").summary.status == "finished"


def test_a_second_training_at_the_same_time_is_refused(folder: Path) -> None:
    refused: list[str] = []

    class Second(threading.Thread):
        def run(self) -> None:
            try:
                seqtrain.train(*OPTIONS, "trainer.max_steps=1", "run_dir=second")
            except UserError as fault:
                refused.extend(fault.lines)

    with api._TRAINING:
        second = Second()
        second.start()
        second.join()
    assert len(refused) == 1
    assert refused[0].startswith("a training is already running in this process")
    assert not (folder / "second").exists()


def test_an_interrupt_in_a_running_loop_leaves_a_run_that_can_be_resumed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state()
    interrupt_at(4, monkeypatch)

    async def cell() -> None:
        assert asyncio.get_running_loop().is_running()
        with pytest.raises(KeyboardInterrupt):
            seqtrain.train(*OPTIONS, "trainer.max_steps=9", "run_dir=run")

    asyncio.run(cell())
    run = Run(folder / "run")
    assert run.summary.status == "interrupted"
    assert any(run.checkpoints.glob("step-0000000[4-9].ckpt"))
    assert state() == before


@pytest.mark.long
def test_a_sweep_from_python_that_is_refused_leaves_nothing_and_lets_the_next_one_begin(folder: Path) -> None:
    wrong = {
        "model=lsmt": "model=lsmt",
        "dry_run=true": "dry_run=true: a dry run leaves no runs to compare",
        "model.dmi=3": "model.dmi=3",
    }
    for words, says in wrong.items():
        for _ in range(2):  # the second one is not told that the first still trains
            with pytest.raises(UserError, match=says):
                seqtrain.sweep(*OPTIONS, words, "hydra.sweep.dir=sweep")
            assert not (folder / "sweep").exists()
    with api._TRAINING, pytest.raises(UserError, match="a training is already running in this process"):
        seqtrain.sweep(*OPTIONS, "seed=1,2")


@pytest.mark.long
def test_a_sweep_from_python_has_the_numbers_of_trainings_and_another_process_may_go_on_with_it(folder: Path) -> None:
    small = (*OPTIONS, "trainer.max_steps=3", "trainer.threads=1")
    before = state()
    found = seqtrain.sweep(*small, "seed=1,2", "task=sentiment,next_token", "hydra.sweep.dir=sweep")
    assert state() == before
    assert found.paths == (Path("sweep"),)
    assert found.runs["status"].tolist() == ["finished"] * 2
    assert sum("task=sentiment" in remark for remark in found.remarks) == 2  # refused, and said
    alone = seqtrain.train(*small, "seed=2", "run_dir=alone").metrics["validation"]["bits_per_byte"]
    assert found.runs.set_index("seed").loc[2, "final"] == alone
    claimed = "from seqtrain.sweeps.folder import Sweep; from pathlib import Path; Sweep(Path('sweep')).claim()"
    subprocess.run([sys.executable, "-c", claimed], check=True)


def test_a_signal_that_was_noted_while_training_ends_it_when_training_is_over() -> None:
    with Signals(alone=True) as signals:
        signals.leave()  # none has come
        signals.defer()
        signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(Interrupted) as leaving:
            signals.leave()  # between the batches of a validation
        assert leaving.value.number == signal.SIGUSR1
        with pytest.raises(Interrupted):
            signals.at_once()
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("alone", [True, False])
def test_a_second_signal_leaves_at_once_only_where_one_process_trains_alone(alone: bool) -> None:
    with Signals(alone=alone) as signals:
        signals.defer()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted) if alone else contextlib.nullcontext():
            signal.raise_signal(signal.SIGINT)
        signals.leave_together()  # nothing is agreed yet
        signals.agree(1)
        with pytest.raises(Interrupted) as leaving:
            signals.leave_together()
        assert leaving.value.number == signal.SIGINT


def test_several_processes_ask_each_other_for_signals_after_half_a_second_of_steps_or_a_hundred(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    clock = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr("time.monotonic", lambda: clock.seconds)
    for seconds, expected in ((0.001, 100), (0.125, 4), (0.3, 1), (2.0, 1)):
        signals = Signals(alone=False)
        monkeypatch.setattr("seqtrain.training.callbacks.signals.all_max", lambda number: asked.append(0) or number)
        exchanges = []
        for step in range(1, 402):
            clock.seconds += seconds
            before = len(asked)
            signals.agree(step)
            if len(asked) > before:
                exchanges.append(step)
        assert exchanges == [1, *range(2, 402, expected)], seconds


def test_a_signal_that_python_discarded_stops_what_begins_next() -> None:
    with Signals() as outer, contextlib.suppress(Interrupted):
        outer.received = signal.SIGTERM  # as after a signal during an import, where Python drops what a handler raises
        with Signals():
            pytest.fail("the signal was lost")
    with Signals():
        pass
