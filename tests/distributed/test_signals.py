"""Laws of leaving: a signal at any time ends a run soon, says how to go on, and costs no bit of the result."""

from __future__ import annotations

import lzma
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from seqtrain.data.batching import loader
from seqtrain.distributed.ranks import CAUGHT
from seqtrain.runs.directory import Run
from seqtrain.tasks.baselines.counts import xz_baselines
from tests.conftest import Changes, Seqtrain
from tests.support.texts import text_of
from tests.support.tiny import OPTIONS, PATIENCE, assert_twins, corpus, newest_step, wait_until

STEPS = 12
TRAIN = (
    *("train", *OPTIONS, "tokenizer=bpe", "tokenizer.size=300", "data.validation_fraction=0.2"),
    *(f"trainer.max_steps={STEPS}", "trainer.validate_every=6", "trainer.checkpoint_every=2"),
)
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}


def recorded(run: Path, step: int, name: str) -> bool:
    return any(record["step"] == step and name in record for record in Run(run).metrics())


MOMENTS: dict[str, Callable[[Path], bool]] = {
    "reading data": lambda run: (run / "summary.json").exists(),
    "training": lambda run: newest_step(run) >= 1,
    "validating": lambda run: recorded(run, 6, "train/loss"),
    "the last validation": lambda run: recorded(run, STEPS, "train/loss"),
    "after training": lambda run: recorded(run, STEPS, "validation/loss"),
}


@pytest.fixture(scope="module")
def twin(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody interrupted, on a text that takes a while to read and to validate on."""
    folder = corpus(tmp_path_factory.mktemp("signals"), lines=3000)
    answer = seqtrain(*TRAIN, "run_dir=twin", cwd=folder)
    assert answer.rc == 0, answer.err
    return folder / "twin"


@pytest.mark.long
@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("reading data", signal.SIGTERM),
        ("training", signal.SIGINT),
        ("validating", signal.SIGTERM),
        ("the last validation", signal.SIGINT),
        ("after training", signal.SIGTERM),
    ],
)
def test_a_signal_at_any_time_leaves_a_run_that_resumes_to_the_bit(
    moment: str, number: signal.Signals, twin: Path, seqtrain: Seqtrain, tmp_path: Path
) -> None:
    corpus(tmp_path, lines=3000)
    cold: Changes = {"SEQTRAIN_CACHE": str(tmp_path / "cache")}  # so that reading and baselines take their time
    rarely = ("trainer.checkpoint_every=1000",) if moment == "training" else ()
    child = seqtrain.start(*TRAIN, *rarely, "run_dir=run", cwd=tmp_path, env=cold)
    run = tmp_path / "run"
    wait_until((run / "config.yaml").exists, child, "the run")
    wait_until(lambda: MOMENTS[moment](run), child, moment)
    child.kill(number)
    assert child.wait(PATIENCE) == CODES[number], child.stderr
    assert Run(run).summary.status == "interrupted"
    told = [line for line in child.stderr.splitlines() if "interrupted" in line or "rror" in line]
    saved = any((run / "checkpoints").glob("step-*.ckpt"))
    where = "continues from the last checkpoint" if saved else "starts again from step 0: no checkpoint was saved yet"
    assert told == [f"interrupted by {number.name}: `seqtrain resume run` {where}"]
    step = newest_step(run)
    if moment in ("validating", "the last validation"):
        assert step == (6 if moment == "validating" else STEPS)
        assert not recorded(run, step, "validation/loss"), "a pending validation never delays leaving"
    answer = seqtrain("resume", "run", cwd=tmp_path)
    assert answer.rc == 0, answer.err
    if moment in ("reading data", "training"):
        assert f"run run: resumed from step {step if moment == 'training' else 0}\n" in answer.err, "no step was lost"
    assert_twins(twin, run)


def test_a_signal_while_torch_is_imported_leaves_nothing_behind(
    seqtrain_environment: dict[str, str], tmp_path: Path
) -> None:
    corpus(tmp_path)
    command = [sys.executable, "-m", "seqtrain", *TRAIN, "run_dir=run"]
    with subprocess.Popen(command, cwd=tmp_path, env=seqtrain_environment, stderr=subprocess.PIPE) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        while "libtorch" not in maps.read_text():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (143, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


def test_leaving_does_not_wait_for_xz(tmp_path: Path) -> None:
    text = random.Random(0).randbytes(1 << 20).hex()  # 2 MiB: many seconds of work

    class Leaving(Exception):
        pass

    def leave(*_: object) -> None:
        raise Leaving

    began = time.monotonic()
    lzma.compress(text.encode(), preset=9)
    once = time.monotonic() - began
    former = signal.signal(signal.SIGALRM, leave)
    signal.setitimer(signal.ITIMER_REAL, once / 10)
    packed = text_of([text])
    began = time.monotonic()
    try:
        with pytest.raises(Leaving):
            xz_baselines(packed, packed, print, cache=tmp_path)
    finally:
        signal.signal(signal.SIGALRM, former)
    assert time.monotonic() - began < once, "the text is packed twice, alone and given train"


def test_workers_leave_to_the_training_what_it_catches() -> None:
    assert set(loader.LEAVING) == set(CAUGHT)
