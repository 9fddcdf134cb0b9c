"""How often the gradient is clipped, and by how much: the same sums after a resume, and nothing of training changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seqtrain.training.clipping import Clipping, of_records


def summed(norms: list[float], limit: float | None = 2.0) -> Clipping:
    """The sums over updates with gradients of these norms."""
    clipping = Clipping()
    for norm in norms:
        clipping.add(torch.tensor(norm), limit)
    return clipping


def test_the_share_counts_updates_above_the_limit_and_the_excess_is_a_mean_over_those_alone() -> None:
    assert summed([1.0, 2.0, 4.0, 8.0]).measures() == {"clipped": 0.5, "clipped_by": 3.0}


def test_sums_that_go_through_a_checkpoint_go_on_as_if_nothing_had_been_saved() -> None:
    whole = summed([3.0, 1.0, 7.3, 2.5])
    resumed = Clipping.from_plain(summed([3.0, 1.0]).plain())
    for norm in (7.3, 2.5):
        resumed.add(torch.tensor(norm), 2.0)
    assert resumed.plain() == whole.plain()


def test_the_norm_is_not_read_as_a_number_until_a_record_asks() -> None:
    """On the meta device a tensor has no value: whoever asked for one would fail there, as a GPU would wait."""
    clipping = Clipping()
    clipping.add(torch.zeros((), device="meta"), 1.0)
    with pytest.raises(RuntimeError):
        clipping.measures()


def test_the_figures_of_a_run_are_those_of_its_records_and_old_records_have_none() -> None:
    records: list[Any] = [
        {"step": 10, "clipped": 0.5, "clipped_by": 4.0},
        {"step": 10, "validation/loss": 1.0},
        {"step": 20, "clipped": 0.1, "clipped_by": 10.0},
        {"step": 30, "clipped": 0.0},
    ]
    figures = of_records(records, 10, 30)
    assert figures["share"] == pytest.approx(0.2)
    assert figures["by"] == pytest.approx(5.0)
    assert of_records([{"step": 10, "gradient_norm": 1.0}], 10, 10) == {}
