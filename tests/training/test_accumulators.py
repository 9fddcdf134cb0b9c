"""Sums and counts: exact over as many steps as one likes, of numbers and of tables."""

from __future__ import annotations

import pytest
import torch

from seqtrain.training.accumulators import Accumulators, merged


def test_a_table_of_sums_adds_up_in_float64() -> None:
    sums = Accumulators()
    for _ in range(3000):
        sums.add({"table": (torch.tensor([0.1, 16.0]), 1)})
    exact = 3000 * torch.tensor(0.1).double().item()
    table, count = sums.read()["table"]
    assert table == pytest.approx([exact, 48000.0], rel=1e-12)  # in float32 the first is off by 1e-5
    assert count == 3000


def test_one_sum_that_is_no_number_among_sound_ones_is_seen() -> None:
    sums = Accumulators()
    sums.add({"loss": (torch.tensor(1.0), 1)})
    assert sums.finite()
    sums.add({"other": (torch.tensor(float("nan")), 1)})
    assert not sums.finite()


def test_sums_of_processes_are_added_part_by_part_also_where_one_has_none() -> None:
    everyone = []
    for rank in range(3):
        own = Accumulators()
        own.add({"loss": (torch.tensor(float(rank)), rank + 1)})
        if rank:
            own.add({"table": (torch.tensor([1.0, rank]), 2)})
        everyone.append(own.terms)
    found = merged([{}, *everyone]).read()
    assert found == {"loss": (3.0, 6.0), "table": ([2.0, 3.0], 4.0)}
