"""What demonstrations say of constructed numbers: never more than the numbers show."""

from __future__ import annotations

from typing import Any

import pytest

from seqtrain.analysis.demos import decoder_only, last_state, lstm_gru, teacher_forcing

NEAR = (0.0, 0.01, -0.01)  # what seeds change
SIZES = {"encoder_decoder": 200, "gpt_equal": 200, "gpt_half": 100}


def noisy(value: float, shift: float = 0.0) -> list[float]:
    return [value + change * (1 + shift) for change in NEAR]


# -- decoder-only ------------------------------------------------------------------------------------------------


def translated(pair: list[float], equal: list[float], half: list[float]) -> Any:
    models = {"encoder_decoder": pair, "gpt_equal": equal, "gpt_half": half}
    measured = {name: {"loss": values, "exact_match": values} for name, values in models.items()}
    return decoder_only.findings(measured, SIZES)


def test_a_decoder_alone_that_is_worse_contradicts_the_claim() -> None:
    found = translated(noisy(1.0), noisy(1.5, 0.5), noisy(2.0, 0.7))
    assert found.holds is False
    assert found.verdict.count("worse") == 2


def test_a_decoder_of_half_the_size_that_is_better_keeps_the_claim() -> None:
    assert translated(noisy(2.0), noisy(1.5, 0.5), noisy(1.0, 0.7)).holds is True


def test_equal_losses_are_no_proof_that_half_the_parameters_suffice() -> None:
    found = translated(noisy(1.0), noisy(1.0, -0.5), noisy(1.0, 0.5))
    assert found.holds is None
    assert "cannot tell them apart" in found.verdict


def test_one_seed_decides_nothing_of_decoders() -> None:
    found = translated([1.0], [9.0], [9.0])
    assert found.holds is None
    assert found.verdict.count("one seed, no verdict") == 2


# -- lstm-gru ----------------------------------------------------------------------------------------------------


def cells(text: list[list[float]], adding: list[list[float]]) -> Any:
    measured = {}
    for name, values in (("text", text), ("adding", adding)):
        measured[name] = dict(zip(lstm_gru.MODELS, values, strict=True))
    return lstm_gru.findings(measured, {name: dict.fromkeys(lstm_gru.MODELS, 100) for name in measured})


def test_a_cell_that_is_better_on_one_task_contradicts_that_both_are_alike() -> None:
    found = cells([noisy(3.0), noisy(2.0, 0.5)], [noisy(0.05), noisy(0.05, 0.5)])
    assert found.holds is False
    assert "the GRU is better" in found.verdict
    assert "the LSTM is better" not in found.verdict


def test_seeds_that_overlap_do_not_prove_that_both_are_alike() -> None:
    found = cells([noisy(2.0), noisy(2.0, 0.5)], [noisy(0.05), noisy(0.05, 0.5)])
    assert found.holds is None
    assert found.verdict.count("cannot tell them apart") == 2


def test_one_seed_decides_nothing_of_cells() -> None:
    found = cells([[3.0], [2.0]], [[0.1], [0.01]])
    assert found.holds is None
    assert found.verdict.count("one seed, no verdict") == 2


def test_cells_that_both_guess_are_said_to_have_learned_nothing() -> None:
    guesses = cells([noisy(2.0), noisy(2.0)], [noisy(1 / 6), noisy(1 / 6)])
    assert "neither has learned it" in guesses.verdict
    assert "learned" not in cells([noisy(2.0), noisy(2.0)], [noisy(1 / 6), noisy(0.02)]).verdict


def test_errors_near_nothing_are_compared_by_their_ratio() -> None:
    # In differences the spread of the LSTM's errors would hide that they are all ten times as large.
    found = cells([noisy(2.0), noisy(2.0)], [[1e-4, 1e-3, 1.1e-2], [1e-5, 1.1e-4, 1e-3]])
    assert found.verdict.count("the GRU is better") == 1
    assert found.holds is False
    assert cells([noisy(2.0), noisy(2.0)], [[0.0, 0.1, 0.2], [0.1, 0.1, 0.1]]).holds is None


# -- last-state --------------------------------------------------------------------------------------------------


def curve(first: float, last: float, change: float = 0.0) -> dict[int, float]:
    return {length: first + change + (last - first) * place / 8 for place, length in enumerate(range(2, 11))}


def forgetting(
    none: list[dict[int, float]], additive: list[dict[int, float]], sizes: tuple[int, int] = (100, 101)
) -> Any:
    return last_state.findings(
        {"none": none, "additive": additive}, dict(zip(("none", "additive"), sizes, strict=True))
    )


STAYS = [curve(1.0, last) for last in (0.99, 0.98, 0.97)]
FORGETS = [curve(1.0, last) for last in (0.30, 0.28, 0.25)]


def test_a_last_state_that_loses_with_length_keeps_the_claim() -> None:
    assert forgetting(FORGETS, STAYS).holds is True
    assert forgetting(STAYS, FORGETS).holds is False


def test_a_model_that_is_worse_at_all_lengths_alike_has_not_forgotten() -> None:
    flat = [curve(0.3, 0.3, change) for change in (0.0, 0.01, 0.02)]
    assert forgetting(flat, STAYS).holds is not True


def test_one_seed_decides_nothing_of_forgetting() -> None:
    assert forgetting(FORGETS[:1], STAYS[:1]).holds is None


def test_nothing_is_claimed_where_attention_has_learned_nothing() -> None:
    found = forgetting(FORGETS, [curve(0.06, 0.06, change) for change in (0.0, 0.001, 0.003)])
    assert found.holds is None
    assert "has not learned" in found.verdict


def test_nothing_is_claimed_where_parameters_lie_apart() -> None:
    found = forgetting(FORGETS, STAYS, (100, 110))
    assert found.holds is None
    assert "nothing follows" in found.verdict


def test_letters_count_at_their_place_alone() -> None:
    true = ["a", "b", "c"]
    assert last_state.letters_right(true, ["a", "b", "c", "d"]) == 3
    assert last_state.letters_right(true, ["b", "c"]) == 0
    assert last_state.letters_right(true, []) == 0


# -- teacher-forcing ---------------------------------------------------------------------------------------------


def errors(forced: float, free: float, best_free: float) -> dict[str, list[float]]:
    values = {"forced": forced, "free": free, "direct": free, "best_forced": 0.03, "best_free": best_free}
    return {name: [value] * teacher_forcing.HORIZON for name, value in values.items()}


def free_running(series: list[dict[str, list[float]]]) -> Any:
    text = {name: [0.5] * teacher_forcing.LENGTH for name in ("forced", "free", "unbroken", "chance")}
    return teacher_forcing.findings(series, [text] * len(series))


def test_what_nobody_can_know_is_not_blamed_on_the_model() -> None:
    # Free running is three times as wrong, and so is the best forecast there can be.
    found = free_running([errors(0.03 + change, 0.09 + change * 1.5, 0.09) for change in (0.0, 0.001, -0.001)])
    assert found.holds is None


@pytest.mark.parametrize(("sign", "holds"), [(1, True), (-1, False)])
def test_what_free_running_loses_beyond_the_best_is_judged_over_seeds(sign: int, holds: bool) -> None:
    series = [errors(0.03, 0.09 + sign * (0.05 + change), 0.09) for change in (0.0, 0.001, -0.001)]
    assert free_running(series).holds is holds
    assert free_running(series[:1]).holds is None
