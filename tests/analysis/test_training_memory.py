"""Laws of the memory that `seqtrain profile` measures: bytes equal those counted by hand, and grow as theory says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seqtrain.analysis.profile import Grid, Make
from seqtrain.analysis.profile_memory import (
    FUSED,
    KEPT,
    MATERIALISED,
    OPTIMIZER,
    PEAK,
    WEIGHTS,
    Allocations,
    MemoryProfile,
    TrainingMemory,
    attention_kept,
    measure_memory,
    memory_fits,
    training_memory,
)
from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.training.model_and_task import make_model
from tests.support.model_cases import VOCABULARY, Case

B, T, D, H = 3, 10, 8, 2
FLOAT, LONG = 4, 8  # bytes


def adam(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, fused=True)


def plain_sgd(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=1.0)


def model_of(name: str, dim: int = D, length: int = T, **options: Any) -> SequenceModel:
    """A model whose attention hides nothing behind a window."""
    options = {"num_layers": 1, "dropout": 0.0, **options}
    if name == "cbow":
        del options["num_layers"]  # it has none
    config = Case(name, ()).config(dim=dim, **options)
    if "attention_window" in config.model:
        config.model.attention_window = length
    return make_model(config, VOCABULARY).train()


def found_of(model: SequenceModel, make_optimizer: Any = adam) -> TrainingMemory:
    return training_memory(model, [{"params": list(model.parameters())}], make_optimizer, batch=B, length=T)


# -- counted by hand ---------------------------------------------------------------------------------------------


def test_an_rnn_keeps_its_inputs_and_each_of_its_states() -> None:
    tokens = B * T * LONG  # for the gradient of the table
    inputs = B * T * D * FLOAT  # for that of the map of inputs
    states = (1 + T) * B * D * FLOAT  # for that of the recurrent map, and of tanh: the first one of zeros, too
    assert found_of(model_of("rnn")).kept == tokens + inputs + states


def test_a_gpt_keeps_what_each_of_its_maps_and_norms_was_given() -> None:
    whole = B * T * D * FLOAT
    stream = 3 * whole  # before each of three norms
    normed = 2 * whole  # before the maps of attention and of the feed-forward part; after the last one comes the head
    attention = 4 * whole + B * H * T * FLOAT  # queries, keys, values and their mix; and a sum for each query
    feed_forward = 2 * 4 * whole  # before and after its activation, four times as wide
    norms = 3 * 2 * B * T * FLOAT  # mean and deviation
    tokens = B * T * LONG
    model = model_of("gpt", num_heads=H, positions="none")
    assert found_of(model).kept == stream + normed + attention + feed_forward + norms + tokens


def test_weights_gradients_and_states_are_those_of_the_core() -> None:
    core = 2 * D * D + 2 * D  # two maps and two biases
    found = found_of(model_of("rnn"))
    assert (found.weights, found.gradients) == (FLOAT * core, FLOAT * core)
    # Adam keeps two moments of each weight, and of each of four tensors the number of its steps.
    assert found.optimizer == 2 * FLOAT * core + 4 * FLOAT
    assert found_of(model_of("rnn"), plain_sgd).optimizer == 0


def test_attention_alone_keeps_its_inputs_and_a_sum_or_a_product_for_each_head() -> None:
    query = torch.ones(B, H, T, D)
    inputs = 3 * B * H * T * D * FLOAT
    fused = attention_kept(query, fused=True)
    assert fused == inputs + B * H * T * D * FLOAT + B * H * T * FLOAT  # its outputs, and a sum for each query
    # Keys and queries before their product, values and weights before theirs.
    assert attention_kept(query, fused=False) == inputs + B * H * T * T * FLOAT


# -- the peak ----------------------------------------------------------------------------------------------------


def test_the_peak_is_what_was_alive_at_once_and_not_what_was_made() -> None:
    weight = torch.ones(1000)
    with Allocations([weight]) as seen:
        for _ in range(5):
            made = weight * 2
            made = made + 1  # beside the product, which is freed only then
            made.mul_(3)  # in place
            made.view(10, 100)
            del made
    assert seen.peak == 2 * 1000 * FLOAT
    assert seen.alive == 0


def test_the_peak_holds_what_is_kept_and_is_the_same_each_time() -> None:
    model = model_of("gpt")
    first, second = found_of(model), found_of(model)
    assert first == second
    assert all(weight.grad is None for weight in model.parameters())
    assert first.peak > first.kept
    assert first.peak >= first.gradients


# -- growth ------------------------------------------------------------------------------------------------------

# Large enough for the term that theory names: oneDNN rounds what an LSTM keeps up to its blocks.
GRID = Grid((128, 256, 512), (64, 128, 256), at_dim=16, at_length=8, batch=1, dims_batch=2)


def maker(name: str, **options: Any) -> Make:
    return lambda dim, length: model_of(name, dim, length, **options)


def measured(name: str, make_optimizer: Any = adam, **options: Any) -> MemoryProfile:
    return measure_memory(name, maker(name, **options), GRID, make_optimizer, torch.device("cpu"))


def exponents(profile: MemoryProfile) -> dict[tuple[str, str], tuple[float, float | None]]:
    return {(each.kind, each.axis): (each.law.exponent, each.theory) for each in profile.fits}


@pytest.mark.parametrize(
    "name",
    ["rnn", "lstm", "gpt", *(pytest.param(name, marks=pytest.mark.long) for name in ("gru", "min_gru", "cnn", "bert"))],
)
def test_what_is_kept_grows_with_length_and_width_as_theory_says(name: str) -> None:
    profile = measured(name)
    for size, cell in profile.cells.items() if name in ("rnn", "lstm", "gpt") else ():
        assert cell[WEIGHTS] == FLOAT * profile.core_parameters[size.dim], "a core weighs what the formula says"
    found = exponents(profile)
    # Where theory gives a power, and it gives one for each of these models.
    assert found[KEPT, "T"][1] == found[KEPT, "d"][1] == 1
    for (kind, axis), (exponent, theory) in found.items():
        if theory is not None:
            assert exponent == pytest.approx(theory, abs=0.15), (kind, axis)


def test_attention_that_makes_its_products_keeps_the_square_of_the_length_and_is_told() -> None:
    profile = measured("gpt", dropout=0.1)  # for which torch has no fused kernel on the CPU
    found = exponents(profile)
    assert profile.materialised
    assert any("materialises its products" in line for line in profile.lines())
    assert found[KEPT, "T"][0] > 1.3
    assert found[KEPT, "T"][1] is None
    fused = measured("gpt")
    assert not fused.materialised
    assert not any("materialises its products" in line for line in fused.lines())


def test_attention_alone_is_measured_both_ways_and_only_what_is_there_has_an_exponent() -> None:
    found = exponents(measured("gpt"))
    assert found[FUSED, "T"][0] == pytest.approx(1, abs=0.01)
    assert found[MATERIALISED, "T"][0] == pytest.approx(2, abs=0.15)
    kinds = {kind for kind, _ in exponents(measured("rnn"))}
    assert kinds == {WEIGHTS, OPTIMIZER, KEPT, PEAK}
    assert OPTIMIZER not in {kind for kind, _ in exponents(measured("rnn", plain_sgd))}


def test_an_optimizer_that_cannot_make_a_step_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="optimizer: its first step fails: SparseAdam") as refused:
        measured("rnn", lambda groups: torch.optim.SparseAdam(groups))
    assert len(refused.value.lines) == 1
    lbfgs = found_of(model_of("rnn"), lambda groups: torch.optim.LBFGS(groups, max_iter=2))  # it wants a closure
    assert lbfgs.kept == found_of(model_of("rnn")).kept


def test_models_with_a_source_or_without_a_core_are_measured_too() -> None:
    grid = Grid((8, 16, 32), (8, 16, 32), at_dim=8, at_length=8, batch=1, dims_batch=2)
    for name in ("cbow", "encoder_decoder", "rnn_encoder_decoder", "elmo"):
        profile = measure_memory(name, maker(name), grid, adam, torch.device("cpu"))
        assert profile.lines(), name
        assert all(np.isfinite(value) for value in profile.numbers().values()), name
        assert all(cell[KEPT] > 0 for cell in profile.cells.values()), name


def test_work_that_the_formula_does_not_know_gets_no_theory() -> None:
    def make(dim: int, length: int) -> SequenceModel:
        model = model_of("rnn", dim, length)
        layer = next(module for module in model.modules() if isinstance(module, nn.RNN))
        # Attention of a stranger, by hand and unheard by the recorder.
        layer.register_forward_pre_hook(lambda module, given: (attend(given[0]), *given[1:]))
        return model

    def attend(x: torch.Tensor) -> torch.Tensor:
        return (x @ x.mT).softmax(-1) @ x

    profile = measure_memory("mine", make, GRID, adam, torch.device("cpu"))
    found = exponents(profile)
    assert found[KEPT, "T"][0] > 1.15
    assert found[KEPT, "T"][1] is None


def test_a_fit_takes_the_sizes_along_its_axis_alone() -> None:
    cells = {}
    for size in GRID.sizes():
        cells[size] = {WEIGHTS: size.dim**2, KEPT: size.length * size.dim, PEAK: size.length * size.dim + size.dim**2}
    found = {(each.kind, each.axis): each for each in memory_fits(cells, GRID, linear=True)}
    assert found[WEIGHTS, "d"].law.exponent == pytest.approx(2)
    assert (found[WEIGHTS, "T"].law.exponent, found[WEIGHTS, "T"].law.error) == (0, 0)  # and not NaN
    assert found[KEPT, "T"].law.exponent == pytest.approx(1)
    assert found[PEAK, "d"].theory is None
