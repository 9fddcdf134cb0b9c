"""Laws of updates that are left out, in process: what is counted, what stays, when it is too much."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.plugins.precision import Precision

from seqtrain.errors import NonFinite
from seqtrain.training.callbacks import guards
from seqtrain.training.carried_state import CarriedState
from seqtrain.training.learner import MAX_SKIPPED_IN_A_ROW, Learner
from tests.support.model_cases import Case, assert_near, next_token


def made() -> tuple[Learner, torch.optim.Optimizer]:
    model = Case("lstm", ()).make()
    learner = Learner(model=model, task=next_token(model), carry=True, lanes=4, facts={}, seed=0, on_nonfinite="skip")
    trainer = SimpleNamespace(global_step=6, precision_plugin=Precision())
    learner.trainer = learner.kept = trainer  # type: ignore[assignment] - referred to weakly
    return learner, torch.optim.SGD(learner.parameters(), lr=1.0, momentum=0.9, weight_decay=0.1)


def update(learner: Learner, optimizer: torch.optim.Optimizer, gradient: float) -> None:
    """What Lightning does once the gradients of a step are there."""
    for weight in learner.parameters():
        weight.grad = torch.full_like(weight, gradient)
    learner.configure_gradient_clipping(optimizer, 0.5)
    optimizer.step()


def test_as_many_in_a_row_as_may_be_are_skipped_and_a_sound_one_begins_the_count_anew() -> None:
    learner, optimizer = made()
    for bad in (MAX_SKIPPED_IN_A_ROW - 1, MAX_SKIPPED_IN_A_ROW - 1):
        for _ in range(bad):
            update(learner, optimizer, float("nan"))
        assert learner.progress.skipped_in_a_row == bad
        update(learner, optimizer, 1.0)
        assert learner.progress.skipped_in_a_row == 0
    assert learner.progress.skipped == 2 * (MAX_SKIPPED_IN_A_ROW - 1)
    for _ in range(MAX_SKIPPED_IN_A_ROW - 1):
        update(learner, optimizer, float("inf"))
    words = rf"gradient's norm is inf at step 7, the {MAX_SKIPPED_IN_A_ROW}th in a row"
    with pytest.raises(NonFinite, match=words):
        update(learner, optimizer, float("inf"))


def test_a_skipped_update_moves_nothing_and_takes_back_its_loss() -> None:
    learner, optimizer = made()
    update(learner, optimizer, 1.0)
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    moments = [state["momentum_buffer"].clone() for state in optimizer.state.values()]
    learner.terms_before = {"loss": (3.0, 2)}  # pyright: ignore[reportAttributeAccessIssue]
    learner.sums.terms = {"loss": (float("nan"), 4)}
    learner.carried.put(slice(0, 2), {"hidden": torch.tensor([[1.0, 2.0], [float("nan"), 4.0]])})
    update(learner, optimizer, float("nan"))
    assert_near(dict(learner.state_dict()), before, 0)
    assert_near([state["momentum_buffer"] for state in optimizer.state.values()], moments, 0)
    assert learner.sums.read() == {"loss": (3.0, 2.0)}
    assert learner.progress.gradient_norm is None, "a resumed run would not know that of an earlier update"
    taken = learner.carried.take(slice(0, 2))
    assert taken is not None
    assert taken["hidden"].tolist() == [[1.0, 2.0], [0.0, 0.0]]


def test_a_lane_is_forgotten_whole_where_any_part_of_its_state_is_no_number() -> None:
    for broken, value in (("hidden", float("nan")), ("cell", float("inf"))):
        state = {part: torch.arange(1.0, 13).view(3, 2, 2) for part in ("hidden", "cell")}
        state |= {"filled": torch.tensor([5, 6, 7])}
        state[broken] = state[broken].clone()
        state[broken][1, 1, 0] = value  # the output of an LSTM is a number where its cell is infinite
        carried = CarriedState()
        carried.put(slice(3, 6), state)
        carried.reset_nonfinite()
        taken = carried.take(slice(3, 6))
        assert taken is not None
        assert taken.keys() == state.keys()
        for name, left in taken.items():
            assert_near(left[[0, 2]], state[name][[0, 2]], 0)
            assert not left[1].any(), name


def test_the_first_skips_of_all_sittings_are_told_each_at_its_own_step(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(guards, "tell", said.append)
    learner, _ = made()
    trainer: Any = SimpleNamespace(accumulate_grad_batches=2, global_step=0, is_global_zero=True)

    def attempt(begin: int, skipped: list[bool]) -> None:
        skips = guards.Skips()
        skips.on_train_start(trainer, learner)
        for step, skip in enumerate(skipped, begin):
            trainer.global_step = step
            skips.on_train_batch_end(trainer, learner, None, None, 2 * step - 2)
            learner.progress.skipped += skip
            skips.on_train_batch_end(trainer, learner, None, None, 2 * step - 1)

    attempt(1, [False, True, True, False])
    attempt(5, [False, False, True, True])  # resumed: what was skipped before is known
    assert [line.partition(":")[0] for line in said] == ["step 2", "step 3", "step 7"]
    assert ["counted only" in line for line in said] == [False, False, True]
