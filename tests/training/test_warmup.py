"""How long a schedule warms up, whoever wrote it."""

from __future__ import annotations

import warnings
from functools import partial

import pytest
from torch.optim import lr_scheduler

from seqtrain.training.optim.schedules import Constant, Cosine, InverseSqrt, Schedule, WarmupStableDecay, warmup_steps


@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_each_of_our_schedules_warms_up_as_long_as_it_says(warmup: int) -> None:
    schedules: list[Schedule] = [
        Constant(warmup=warmup),
        Cosine(warmup=warmup, final=0.1),
        InverseSqrt(warmup=warmup),
        WarmupStableDecay(warmup=warmup, decay=0.2, final=0.0),
    ]
    for schedule in schedules:
        assert warmup_steps(schedule, 50) == warmup


def test_a_warmup_that_is_a_part_of_all_steps_or_rises_in_stairs_is_found_by_the_rates() -> None:
    assert warmup_steps(lambda step, steps: min(step / (0.25 * steps), 1.0), 80) == 20
    assert warmup_steps(lambda step, steps: 0.5 if step < 9 else 1.0, 80) == 9


def test_a_rate_that_rises_again_after_it_has_fallen_has_warmed_up() -> None:
    assert warmup_steps(lambda step, steps: [0.1, 0.2, 0.1, 0.9][min(step, 3)], 10) == 1


def test_a_training_that_is_all_warmup_is_warming_up_until_its_last_step() -> None:
    assert warmup_steps(Constant(warmup=100), 40) == 39


def test_the_warmup_of_torchs_schedules_is_found_by_their_rates_and_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warmup_steps(partial(lr_scheduler.LinearLR, start_factor=0.1, total_iters=6), 40) == 6
        assert warmup_steps(partial(lr_scheduler.ConstantLR, factor=0.1, total_iters=6), 40) == 6
        assert warmup_steps(partial(lr_scheduler.ExponentialLR, gamma=0.9), 40) == 0
        assert warmup_steps(partial(lr_scheduler.ReduceLROnPlateau, patience=1), 40) == 0
        one_cycle = partial(lr_scheduler.OneCycleLR, max_lr=1.0, total_steps=40, pct_start=0.25)
        assert warmup_steps(one_cycle, 60) == 9
