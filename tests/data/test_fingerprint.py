"""The checksum of what a step reads sees every number of it, and a resume compares it with the record."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtrain.data.batching.loader import fingerprint_of
from seqtrain.data.batching.plan import Chunk, ExampleChunk
from seqtrain.errors import RunFailed
from seqtrain.runs.directory import Run
from seqtrain.training.callbacks import record
from seqtrain.training.callbacks.record import Recorder
from seqtrain.training.learner import chained
from tests.data.test_stream import plan


def chunk(**changed: Any) -> Chunk:
    before = Chunk(np.array([0, 50]), np.array([2, 2]), np.array([True, False]))
    whole = Chunk(np.array([2, 52]), np.array([4, 3]), np.array([False, False]), (before,), 1)
    return whole._replace(**changed)


def test_a_checksum_sees_every_part_of_what_a_step_reads() -> None:
    others = [
        chunk(begin=np.array([2, 53])),
        chunk(count=np.array([4, 4])),
        chunk(reset_lanes=np.array([False, True])),
        chunk(warmup_chunks=()),
        chunk(warmup_chunks=(chunk().warmup_chunks[0]._replace(begin=np.array([1, 50])),)),
        chunk(advance=0),
        ExampleChunk(np.array([3, 1]), 0),
        ExampleChunk(np.array([1, 3]), 0),
        ExampleChunk(np.array([3, 1]), 1),
    ]
    marks = [fingerprint_of(one) for one in (chunk(), *others)]
    assert len(set(marks)) == len(marks)
    assert fingerprint_of(chunk()) == marks[0]


def test_a_recorder_refuses_other_batches_than_the_runs_and_goes_on_with_its_clock() -> None:
    layout = plan(8, 4, "never", shuffle=False)
    recorder = Recorder(run=Run(Path("nowhere")), every=1, plan=layout)
    recorder._check_read(3, 7, 7)
    recorder.recorded = {3: f"{7:08x}", 4: f"{8:08x}"}
    recorder._check_read(3, 7, 7)
    for step, marks in ((3, (7, 8)), (4, (7, 7))):
        with pytest.raises(RunFailed, match=f"step {step} does not continue with the batches"):
            recorder._check_read(step, *marks)
    recorder.load_state_dict({"seconds": 5.0, "validated": 3})
    assert recorder.state_dict() == {"seconds": 5.0, "validated": 3}


def test_a_resume_asks_the_plan_for_the_last_steps_alone_where_the_record_knows_what_came_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "CHECKED_STEPS", 10)
    layout = plan(3, 4, "never", carry=False)
    marks = [0]
    for step in range(60):
        marks.append(chained(fingerprint_of(layout.chunk(*divmod(step, layout.steps))), marks[-1]))
    asked: list[int] = []

    def chunk(epoch: int, step: int) -> Chunk:
        asked.append(epoch * layout.steps + step)
        return whole(epoch, step)

    whole = layout.chunk
    monkeypatch.setattr(layout, "chunk", chunk)
    for every, step in product((1, 3, 7, 1000), (0, 5, 30, 59)):
        recorder = Recorder(run=Run(Path("nowhere")), every=every, plan=layout)
        recorder.recorded = {known: f"{marks[known]:08x}" for known in range(every, 60, every)}
        asked.clear()
        assert recorder._planned(step) == marks[step]
        known = max(step - 10, 0) // every * every  # of the records, the newest that lies ten steps back
        assert asked == list(range(known, step))
        if (every, step) == (7, 59):  # data that changed since then is seen, and so is a record that was edited
            recorder.recorded[49] = f"{marks[48]:08x}"
            assert recorder._planned(59) != marks[59]
