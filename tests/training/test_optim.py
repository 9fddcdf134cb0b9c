"""Laws of optimizers and schedules."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from seqtrain.runs import checkpoint
from seqtrain.training.learner import Learner
from seqtrain.training.optim.groups import parameter_groups
from seqtrain.training.optim.muon import Muon, orthogonal
from seqtrain.training.optim.schedules import Constant, Cosine, InverseSqrt, WarmupStableDecay
from tests.support.model_cases import Case, cases, mixtures_long, next_token, some_tokens

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


@pytest.mark.parametrize("name", SCHEDULES)
def test_warm_up_is_linear_from_above_0_and_ends_at_the_whole_rate(name: str) -> None:
    schedule = SCHEDULES[name]
    rates = [schedule(step, STEPS) for step in range(51)]
    assert rates == pytest.approx([(step + 1) / 51 for step in range(51)])
    assert schedule(50, STEPS) == 1.0


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_last_step_has_the_final_rate(name: str) -> None:
    assert SCHEDULES[name](STEPS - 1, STEPS) == pytest.approx(LAST[name])


@pytest.mark.parametrize("name", SCHEDULES)
def test_after_warm_up_a_rate_never_rises_and_never_jumps(name: str) -> None:
    rates = [SCHEDULES[name](step, STEPS) for step in range(50, STEPS)]
    falls = [before - after for before, after in pairwise(rates)]
    assert min(falls) >= 0
    assert max(falls) < 0.01


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("max_steps", [1, 2, 50, 51, 52])
def test_a_run_no_longer_than_warm_up_has_rates_between_0_and_1(name: str, max_steps: int) -> None:
    assert all(0 < SCHEDULES[name](step, max_steps) <= 1 for step in range(max_steps))


def test_a_cosine_is_halfway_at_half_time() -> None:
    assert Cosine(warmup=0, final=0.2)(50, 101) == pytest.approx(0.6)


def test_warm_up_stable_decay_holds_until_its_decay_begins() -> None:
    schedule = WarmupStableDecay(warmup=10, decay=0.2, final=0.0)
    assert [schedule(step, STEPS) for step in (10, 400, 799)] == [1.0] * 3
    assert schedule(800, STEPS) < 1.0
    assert schedule(899, STEPS) == pytest.approx(0.5)


def test_an_inverse_square_root_halves_when_steps_quadruple() -> None:
    schedule = InverseSqrt(warmup=0)
    assert schedule(399, STEPS) == pytest.approx(schedule(99, STEPS) / 2)


def test_a_negative_warm_up_is_refused() -> None:
    with pytest.raises(ValueError, match="warmup=-1 must be 0 or more"):
        Constant(warmup=-1)


# -- parameter groups --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", mixtures_long(cases()), ids=str)
@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_is_in_exactly_one_group_of_its_role(case: Case, tied: bool) -> None:
    model = case.make()
    task = next_token(model, tied=tied)
    groups = {group["role"]: group for group in parameter_groups(model, task)}
    hidden = groups.get("hidden", {"params": []})  # a bag of words has none
    listed = [id(parameter) for group in groups.values() for parameter in group["params"]]
    assert sorted(listed) == sorted(id(parameter) for parameter in (*model.parameters(), *task.parameters()))
    assert all(parameter.dim() == 2 for parameter in hidden["params"])
    outside = {id(weight) for weight in (*model.embed.parameters(), *task.parameters()) if weight.dim() == 2}
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    kernels = {id(weight) for weight in model.parameters() if weight.dim() > 2}
    assert {id(weight) for weight in groups["other"]["params"]} == outside | tables | kernels
    assert "weight_decay" not in hidden
    assert {group["lr_scale"] for group in groups.values()} == {1.0}
    if "vectors" in groups:
        assert all(parameter.dim() < 2 for parameter in groups["vectors"]["params"])
        assert groups["vectors"]["weight_decay"] == 0.0


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


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_muon_goes_on_bit_for_bit_from_a_saved_state(name: str, tmp_path: Path) -> None:
    first = Training(name=name)
    for step in range(2):
        first.step(step)
    modules = {"model": first.model.state_dict(), "task": first.task.state_dict()}
    checkpoint.save({**modules, "optimizer": first.optimizer.state_dict()}, tmp_path / "a.ckpt")
    saved = checkpoint.load(tmp_path / "a.ckpt")
    second = Training(name=name)
    second.model.load_state_dict(saved["model"])
    second.task.load_state_dict(saved["task"])
    second.optimizer.load_state_dict(saved["optimizer"])
    for training in (first, second):
        training.step(2)
    assert equal(first.weights(), second.weights())
    fresh = Training(name=name)
    fresh.model.load_state_dict(saved["model"])
    fresh.task.load_state_dict(saved["task"])
    fresh.step(2)
    for role in ("hidden", "other", "vectors"):  # each kind of group has a state that matters
        assert not equal(fresh.weights(role), first.weights(role))


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


@pytest.mark.parametrize("shape", [(48, 16), (16, 48), (4, 16, 64), (16, 24), (20, 20)])
@pytest.mark.parametrize("rank", [1, 4, 16, None])
def test_matrices_are_orthogonalised_in_float32(shape: tuple[int, ...], rank: int | None) -> None:
    random = torch.Generator().manual_seed(0)
    matrices = torch.randn(shape, generator=random)
    if rank is not None:  # as gradients are: of few directions, and hardly of others
        few = torch.randn(*shape[:-1], rank, generator=random) @ torch.randn(rank, shape[-1], generator=random)
        matrices = few + 1e-3 * matrices
    first, third, fifth = coefficients = (3.4445, -4.7750, 2.0315)
    exact = matrices.double() / torch.linalg.matrix_norm(matrices.double())[..., None, None]
    for _ in range(5):
        gram = exact @ exact.mT
        exact = first * exact + (third * gram + fifth * gram @ gram) @ exact
    error = (orthogonal(matrices, coefficients, 5, 1e-7).double() - exact).abs().max().item()
    # Single directions that hardly are there are multiplied by 500, and so is what is rounded of them.
    assert error < (1e-5 if rank is None else 5e-4)


@pytest.mark.parametrize("shape", [(24, 24), (96, 24), (24, 96)])
def test_matrices_orthogonalised_together_are_those_orthogonalised_alone(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape) * torch.tensor([1e-3, 1.0, 1e3]).view(3, 1, 1)
    iteration = ((3.4445, -4.7750, 2.0315), 5, 1e-7)
    together = orthogonal(matrices, *iteration)
    for one, alone in zip(together, matrices, strict=True):
        torch.testing.assert_close(one, orthogonal(alone, *iteration), atol=1e-4, rtol=0)


def test_away_from_a_cpu_muon_calls_the_device_once_for_all_matrices_of_a_shape() -> None:
    class Calls(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            # To cut a tensor into views launches nothing.
            self.count += "unbind" not in str(function) and "as_strided" not in str(function)
            return function(*args, **(kwargs or {}))

    counts = []
    for number in (2, 12):
        weights = [nn.Parameter(torch.empty(512, 2048, device="meta")) for _ in range(number)]
        optimizer = Muon([{"params": weights, "role": "hidden"}], **OPTIONS)
        for _ in range(2):  # the first makes the buffers
            for weight in weights:
                weight.grad = torch.empty_like(weight)
            with Calls() as calls:
                optimizer.step()
        counts.append(calls.count)
    assert counts[0] == counts[1]


def test_muon_turns_hidden_matrices_by_nearly_orthogonal_steps_of_adamws_size() -> None:
    training = Training(partial(Muon, **OPTIONS | {"weight_decay": 0.0}))
    before = training.weights("hidden")
    training.step(0)
    for old, new in zip(before, training.weights("hidden"), strict=True):
        turn = (old - new) / (0.01 * 0.2 * math.sqrt(max(old.shape)))
        assert 0.5 < float(torch.linalg.matrix_norm(turn, 2)) < 1.3
        assert float(torch.linalg.matrix_norm(turn, "fro")) > 0.5 * math.sqrt(min(old.shape))


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


@pytest.mark.parametrize("roles", [("hidden",), ("other",), ("vectors", "other")])
def test_muon_serves_any_roles_that_there_are(roles: tuple[str, ...]) -> None:
    training = Training(lambda groups: Muon([g for g in groups if g["role"] in roles], **OPTIONS))
    before = {role: training.weights(role) for role in ("hidden", "other", "vectors")}
    training.step(0)
    for role, weights in before.items():
        assert equal(weights, training.weights(role)) != (role in roles)


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


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_optimizers_rate_is_the_schedules_factor_of_it_at_each_step(name: str) -> None:
    made = learner(muon, SCHEDULES[name])
    optimizer = made.configure_optimizers()
    made.trainer = trainer = SimpleNamespace(global_step=0)  # type: ignore[assignment]
    for step in (0, 1, 49, 50, 51, 500, 999, 3):  # also back again: nothing of it is kept
        trainer.global_step = step
        made.on_before_optimizer_step(optimizer)
        factor = SCHEDULES[name](step, STEPS)
        expected = [factor * (0.01 if group["role"] == "hidden" else 0.02) for group in optimizer.param_groups]
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx(expected)


def test_a_plateau_is_left_to_its_callback() -> None:
    made = learner(partial(torch.optim.SGD, lr=0.5), partial(torch.optim.lr_scheduler.ReduceLROnPlateau, patience=0))
    optimizer = made.configure_optimizers()
    assert isinstance(optimizer, torch.optim.SGD)
    assert made.plateau is not None
    for loss in (1.0, 2.0):
        made.plateau.step(loss)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
