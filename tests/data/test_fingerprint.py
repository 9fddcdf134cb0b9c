"""The checksum of what a step reads sees every number of it, and each process reads its own share of an evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtrain.data.batching.loader import fingerprint_of
from seqtrain.data.batching.plan import Chunk, ExampleChunk
from seqtrain.data.batching.stream import IGNORED, EvalLoader
from seqtrain.errors import RunFailed
from seqtrain.runs.directory import Run
from seqtrain.training.callbacks.record import Recorder
from tests.data.test_stream import SIZE, STREAM, plan


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


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("batch_size", [1, 3, None])
def test_processes_share_out_an_evaluation_such_that_every_token_is_scored_once(
    world: int, batch_size: int | None
) -> None:
    layout = plan(8, 4, "never", shuffle=False)
    found: list[int] = []
    for rank in range(world):
        for batch in EvalLoader(STREAM, layout, batch_size=batch_size, world=world, rank=rank):
            found += [token for token in batch.targets.flatten().tolist() if token != IGNORED]
    assert sorted(found) == list(range(SIZE))


def test_a_recorder_refuses_other_batches_than_the_runs_and_goes_on_with_its_clock() -> None:
    layout = plan(8, 4, "never", shuffle=False)
    recorder = Recorder(run=Run(Path("nowhere")), every=1, plan=layout)
    recorder._check_read(3, 7, 7)
    recorder.recorded = {3: f"{7:08x}", 4: f"{8:08x}"}
    recorder._check_read(3, 7, 7)
    for step, marks in ((3, (7, 8)), (4, (7, 7))):
        with pytest.raises(RunFailed, match=f"step {step} does not go on with the batches"):
            recorder._check_read(step, *marks)
    recorder.load_state_dict({"seconds": 5.0, "validated": 3})
    assert recorder.state_dict() == {"seconds": 5.0, "validated": 3}
