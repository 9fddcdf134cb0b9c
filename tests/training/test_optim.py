"""Laws of optimizers and schedules."""

from __future__ import annotations

import math
import warnings
from functools import partial
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from seqtrain.training.learner import Learner
from seqtrain.training.optim.groups import parameter_groups
from seqtrain.training.optim.muon import Muon, orthogonal
from seqtrain.training.optim.schedules import Constant, Cosine, InverseSqrt, WarmupStableDecay, warmup_steps
from tests.support.model_cases import Case, cases, next_token, some_tokens

STEPS = 1000
OPTIONS: dict[str, Any] = {
    "lr": 0.01,
    "lr_rest": 0.02,
    "momentum": 0.95,
    "betas": (0.9, 0.99),
    "eps": 1e-8,
    "weight_decay": 0.1,
}
SCHEDULES = {
    "constant": Constant(warmup=50),
    "cosine": Cosine(warmup=50, final=0.1),
    "inverse_sqrt": InverseSqrt(warmup=50),
    "wsd": WarmupStableDecay(warmup=50, decay=0.2, final=0.05),
}
LAST = {"constant": 1.0, "cosine": 0.1, "inverse_sqrt": math.sqrt(51 / 1000), "wsd": 0.05}


# -- schedules ---------------------------------------------------------------------------------------------------


def test_a_rate_warms_up_from_above_0_falls_without_a_jump_and_ends_at_the_final_rate() -> None:
    for name, schedule in SCHEDULES.items():
        rates = [schedule(step, STEPS) for step in range(STEPS)]
        assert rates[:51] == pytest.approx([(step + 1) / 51 for step in range(51)]), name
        assert rates[50] == 1.0, name
        falls = [before - after for before, after in pairwise(rates[50:])]
        assert min(falls) >= 0, name
        assert max(falls) < 0.01, name
        assert rates[-1] == pytest.approx(LAST[name]), name


def test_a_run_no_longer_than_warm_up_has_rates_between_0_and_1() -> None:
    for name, max_steps in product(SCHEDULES, (1, 2, 50, 51, 52)):
        assert all(0 < SCHEDULES[name](step, max_steps) <= 1 for step in range(max_steps)), (name, max_steps)


def test_a_schedule_has_the_shape_of_its_paper() -> None:
    assert Cosine(warmup=0, final=0.2)(50, 101) == pytest.approx(0.6), "halfway at half time"
    holds = WarmupStableDecay(warmup=10, decay=0.2, final=0.0)
    assert [holds(step, STEPS) for step in (10, 400, 799)] == [1.0] * 3, "until its decay begins"
    assert holds(800, STEPS) < 1.0
    assert holds(899, STEPS) == pytest.approx(0.5)
    falls = InverseSqrt(warmup=0)
    assert falls(399, STEPS) == pytest.approx(falls(99, STEPS) / 2), "half of it when steps quadruple"


# -- parameter groups --------------------------------------------------------------------------------------------


def test_every_parameter_is_in_exactly_one_group_of_its_role() -> None:
    for case, tied in product(cases(), (True, False)):
        model = case.make()
        task = next_token(model, tied=tied)
        groups = {group["role"]: group for group in parameter_groups(model, task)}
        hidden = groups.get("hidden", {"params": []})  # a bag of words has none
        listed = [id(parameter) for group in groups.values() for parameter in group["params"]]
        assert sorted(listed) == sorted(id(weight) for weight in (*model.parameters(), *task.parameters())), case
        assert all(parameter.dim() == 2 for parameter in hidden["params"]), case
        outside = {id(weight) for weight in (*model.embed.parameters(), *task.parameters()) if weight.dim() == 2}
        tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
        kernels = {id(weight) for weight in model.parameters() if weight.dim() > 2}
        assert {id(weight) for weight in groups["other"]["params"]} == outside | tables | kernels, case
        assert "weight_decay" not in hidden, case
        assert {group["lr_scale"] for group in groups.values()} == {1.0}, case
        if "vectors" in groups:
            assert all(parameter.dim() < 2 for parameter in groups["vectors"]["params"]), case
            assert groups["vectors"]["weight_decay"] == 0.0, case


# -- Muon --------------------------------------------------------------------------------------------------------


def muon(groups: list[dict[str, Any]]) -> Muon:
    return Muon(groups, **OPTIONS)


class Training:
    """A model and an optimizer that learn from random tokens; both start the same each time."""

    def __init__(self, make: Any = muon, name: str = "gpt") -> None:
        torch.manual_seed(0)
        self.model = Case(name, (("bias", True),) if name == "gpt" else ()).make().float()
        self.task = next_token(self.model, tied=False).float()
        self.groups = parameter_groups(self.model, self.task)
        self.optimizer = make(self.groups)

    def backward(self, step: int) -> None:
        self.optimizer.zero_grad()
        tokens = some_tokens(3, 9, seed=step)
        scores = self.task.logits(self.model, self.model(tokens)[0])
        nn.functional.cross_entropy(scores.flatten(0, 1), tokens.flatten() % 7).backward()

    def step(self, step: int) -> None:
        self.backward(step)
        self.optimizer.step()

    def weights(self, role: str | None = None) -> list[Tensor]:
        return [
            weight.detach().clone()
            for group in self.groups
            for weight in group["params"]
            if role in (None, group["role"])
        ]


def equal(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_muon_gives_hidden_matrices_torchs_muon_and_the_rest_adamw() -> None:
    ours = Training()
    before = [weight.detach().clone() for weight in ours.weights("hidden")]
    alone = {
        "hidden": Training(lambda groups: torch.optim.Muon(
            [group for group in groups if group["role"] == "hidden"],
            lr=0.01, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw",
        )),
        "rest": Training(lambda groups: torch.optim.AdamW(
            [group for group in groups if group["role"] != "hidden"],
            lr=0.02, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1, fused=True,
        )),
    }  # fmt: skip
    for step in range(3):
        ours.backward(step)
        for training in alone.values():
            for mine, theirs in zip(_all(training), _all(ours), strict=True):
                mine.grad = None if theirs.grad is None else theirs.grad.clone()
            training.optimizer.step()
        ours.optimizer.step()
    # torch's has 8 bits, whose rounding the iteration makes 500 times as large where a matrix hardly reaches.
    for mine, theirs, first in zip(ours.weights("hidden"), alone["hidden"].weights("hidden"), before, strict=True):
        assert torch.norm(mine - theirs) < 0.25 * torch.norm(theirs - first)
    for role in ("other", "vectors"):
        assert equal(ours.weights(role), alone["rest"].weights(role))


def _all(training: Training) -> list[Tensor]:
    return [weight for group in training.groups for weight in group["params"]]


def test_matrices_are_orthogonalised_in_float32() -> None:
    first, third, fifth = coefficients = (3.4445, -4.7750, 2.0315)
    for shape, rank in product([(48, 16), (16, 48), (4, 16, 64), (16, 24), (20, 20)], (1, 4, 16, None)):
        random = torch.Generator().manual_seed(0)
        matrices = torch.randn(shape, generator=random)
        if rank is not None:  # as gradients are: of few directions, and hardly of others
            few = torch.randn(*shape[:-1], rank, generator=random) @ torch.randn(rank, shape[-1], generator=random)
            matrices = few + 1e-3 * matrices
        exact = matrices.double() / torch.linalg.matrix_norm(matrices.double())[..., None, None]
        for _ in range(5):
            gram = exact @ exact.mT
            exact = first * exact + (third * gram + fifth * gram @ gram) @ exact
        error = (orthogonal(matrices, coefficients, 5, 1e-7).double() - exact).abs().max().item()
        # Single directions that hardly are there are multiplied by 500, and so is what is rounded of them.
        assert error < (1e-5 if rank is None else 5e-4), (shape, rank)


def test_matrices_orthogonalised_together_are_those_orthogonalised_alone() -> None:
    torch.manual_seed(0)
    iteration = ((3.4445, -4.7750, 2.0315), 5, 1e-7)
    for shape in ((24, 24), (96, 24), (24, 96)):
        matrices = torch.randn(3, *shape) * torch.tensor([1e-3, 1.0, 1e3]).view(3, 1, 1)
        together = orthogonal(matrices, *iteration)
        for one, alone in zip(together, matrices, strict=True):
            torch.testing.assert_close(one, orthogonal(alone, *iteration), atol=1e-4, rtol=0)


def test_muon_follows_a_schedule_and_spares_vectors_from_decay() -> None:
    training = Training()
    schedule = torch.optim.lr_scheduler.LambdaLR(training.optimizer, lambda step: 0.0 if step else 1.0)
    training.step(0)
    schedule.step()
    before = training.weights()
    training.step(1)
    assert equal(before, training.weights())  # a rate of 0 neither learns nor decays
    decayed = {group["role"]: group["weight_decay"] for group in training.optimizer.param_groups}
    assert decayed == {"hidden": 0.1, "other": 0.1, "vectors": 0.0}


def test_muon_serves_any_roles_that_there_are() -> None:
    for roles in (("hidden",), ("other",), ("vectors", "other")):
        training = Training(lambda groups, roles=roles: Muon([g for g in groups if g["role"] in roles], **OPTIONS))
        before = {role: training.weights(role) for role in ("hidden", "other", "vectors")}
        training.step(0)
        for role, weights in before.items():
            assert equal(weights, training.weights(role)) != (role in roles), roles


# -- joined ------------------------------------------------------------------------------------------------------


def learner(optimizer: Any, schedule: Any) -> Learner:
    model = Case("gpt", (("bias", True),)).make()
    return Learner(
        model=model,
        task=next_token(model),
        carry=True,
        lanes=2,
        facts={},
        seed=0,
        optimizer=optimizer,
        schedule=schedule,
        max_steps=STEPS,
    )


def test_the_optimizers_rate_is_the_schedules_factor_of_it_at_each_step() -> None:
    for schedule in SCHEDULES.values():
        made = learner(muon, schedule)
        optimizer = made.configure_optimizers()
        made.trainer = trainer = SimpleNamespace(global_step=0)  # type: ignore[assignment]
        for step in (0, 1, 49, 50, 51, 500, 999, 3):  # also back again: nothing of it is kept
            trainer.global_step = step
            made.on_before_optimizer_step(optimizer)
            factor = schedule(step, STEPS)
            expected = [factor * (0.01 if group["role"] == "hidden" else 0.02) for group in optimizer.param_groups]
            assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(expected), schedule


def test_a_plateau_is_left_to_its_callback() -> None:
    made = learner(partial(torch.optim.SGD, lr=0.5), partial(torch.optim.lr_scheduler.ReduceLROnPlateau, patience=0))
    optimizer = made.configure_optimizers()
    assert isinstance(optimizer, torch.optim.SGD)
    assert made.plateau is not None
    for loss in (1.0, 2.0):
        made.plateau.step(loss)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


# -- how long a schedule warms up, whoever wrote it ----------------------------------------------------------------


def test_each_of_our_schedules_warms_up_as_long_as_it_says() -> None:
    for warmup in (0, 1, 7):
        for schedule in (
            Constant(warmup=warmup),
            Cosine(warmup=warmup, final=0.1),
            InverseSqrt(warmup=warmup),
            WarmupStableDecay(warmup=warmup, decay=0.2, final=0.0),
        ):
            assert warmup_steps(schedule, 50) == warmup, schedule


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
