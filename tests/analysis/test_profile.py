"""Laws of `seqtrain profile`: formula and counter agree for every model, and a fit finds the power that is there."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from seqtrain.analysis import profile as timing
from seqtrain.analysis.formula import ATTENTION, LINEAR, RECURRENCE, fit_power_law, formula_of
from seqtrain.analysis.profile import (
    ALONE,
    REST,
    TRAINING,
    Fitted,
    Grid,
    Profile,
    Size,
    count_by_length,
    crossovers,
    fits_of,
    longest_path,
    source_path,
)
from seqtrain.cli import main
from seqtrain.models.base import Capability, SequenceModel
from seqtrain.training.cost import num_sequential_steps
from seqtrain.training.model_and_task import make_model
from tests.support.model_cases import VOCABULARY, Case, cases

SHIPPED = [case for case in cases(Capability.NONE) if not case.options]
LENGTHS = (6, 12)


def model_of(case: Case, **options: Any) -> SequenceModel:
    """The model of a case, with a window that hides nothing."""
    config = case.config(**options)
    if "attention_window" in config.model:
        config.model.attention_window = 64
    return make_model(config, VOCABULARY).eval()


@pytest.mark.parametrize("name", [case.name for case in SHIPPED])
def test_the_formula_is_what_torch_counts_for_every_model(name: str) -> None:
    for case in cases():
        if case.name == name:
            model = model_of(case)
            for length in LENGTHS:
                formula, counted = formula_of(model, length), model.flops_per_token(length, carried=False)
                assert formula.total == pytest.approx(counted, rel=0.01), (str(case), length)


def test_parameters_of_attention_are_no_function_of_the_length_and_its_products_are() -> None:
    def make(dim: int, length: int) -> SequenceModel:
        return model_of(Case("gpt", ()), dim=dim)

    short, long = count_by_length(make, (8, 32), 16)
    assert short["attention_parameters"] == long["attention_parameters"] > 0
    assert short["parameters"] == long["parameters"]
    assert long["flops_by_kind"][ATTENTION] == 4 * short["flops_by_kind"][ATTENTION]  # a token, of which there are 4 x
    assert long["flops_by_kind"][LINEAR] == short["flops_by_kind"][LINEAR]


def test_a_recurrence_waits_for_each_token_and_all_others_do_not() -> None:
    for case in SHIPPED:
        model = model_of(case)
        short, long = num_sequential_steps(model, 16), num_sequential_steps(model, 64)
        assert short is not None and long is not None, case  # noqa: PT018
        assert (long >= short + 48) == (RECURRENCE in formula_of(model, 4).flops), case
        if RECURRENCE not in formula_of(model, 4).flops:
            assert long <= 2 * short, case  # a scan of blocks waits for a sixteenth of them


def test_a_stack_that_reads_both_ways_waits_for_the_whole_layer_below() -> None:
    one_way = model_of(Case("lstm", (("num_layers", 3),)))
    both_ways = model_of(Case("lstm", (("num_layers", 3), ("bidirectional", True))))
    assert num_sequential_steps(one_way, 16) == 16 + 2
    assert num_sequential_steps(both_ways, 16) == 3 * 16


def test_a_model_without_a_path_to_the_first_token_does_not_depend_on_it() -> None:
    for case in SHIPPED:
        model = case.make()
        if Capability.UNCONDITIONAL not in model.capabilities:
            continue  # it has two paths, below
        for length in (2, 5, 9, 30):
            if model.max_length is not None and length > model.max_length:
                continue
            tokens = torch.zeros(1, length, dtype=torch.long)
            other = tokens.clone()
            other[0, 0] = 1
            with torch.no_grad():
                depends = not torch.equal(model(tokens)[0][:, -1], model(other)[0][:, -1])
            assert depends == (longest_path(model, length) is not None), (str(case), length)


ENCODER_DECODERS = {
    # A layer of the decoder attends, and sees what the encoder's layers made of any token of the source.
    ("transformer", "transformer", "additive"): (lambda T: 2 + 1, lambda T: 2),
    ("cnn", "transformer", "additive"): (lambda T: 4 + 1, lambda T: 2),
    ("gru", "gru", "additive"): (lambda T: 2 + 1, lambda T: T + 1),
    ("gru", "lstm", "dot"): (lambda T: 2 + 1, lambda T: T + 1),
    # Without attention all steps of the target are passed, behind half of the source: it is read both ways.
    ("gru", "gru", "none"): (lambda T: T // 2 + T, lambda T: T + 1),
    ("transformer", "gru", "none"): (lambda T: 2 + T, lambda T: T + 1),
}


def test_attention_makes_the_way_from_the_source_as_long_as_the_layers_and_without_it_as_the_text() -> None:
    for kinds, (from_source, in_target) in ENCODER_DECODERS.items():
        options = dict(zip(("encoder", "decoder", "attention"), kinds, strict=True), num_layers=2)
        model = model_of(Case("encoder_decoder", tuple(options.items())))
        for length in (8, 64):
            found = source_path(model, length), longest_path(model, length)
            assert found == (from_source(length), in_target(length)), kinds
    options = {"encoder": "gru", "decoder": "gru", "attention": "none", "bidirectional": False}
    assert source_path(model_of(Case("encoder_decoder", tuple(options.items()))), 8) == 16  # passed whole


def test_parameters_of_attention_are_those_of_self_and_cross_attention_of_any_decoder() -> None:
    d = 16
    recurrent = {"encoder": "gru", "decoder": "gru"}
    expected: list[tuple[dict[str, Any], int, int]] = [
        # Maps with biases: 4 (d^2 + d) a layer, of which there are self 4 and cross 2.
        ({"encoder": "transformer", "decoder": "transformer"}, 24 * (d * d + d), 8 * (d * d + d)),
        # Query with bias, key, and the vector of scores.
        ({**recurrent, "attention": "additive"}, 2 * d * d + 2 * d, 2 * d * d + 2 * d),
        ({**recurrent, "attention": "dot"}, d * d, d * d),
        ({**recurrent, "attention": "none"}, 0, 0),
    ]
    for options, of_all, of_cross in expected:
        case = Case("encoder_decoder", tuple({**options, "num_layers": 2, "num_heads": 2}.items()))
        for row in count_by_length(lambda dim, length, case=case: model_of(case, dim=dim), (4, 8), d):
            assert (row["attention_parameters"], row["cross_attention_parameters"]) == (of_all, of_cross), options


# -- fits --------------------------------------------------------------------------------------------------------


def test_a_power_is_found_with_an_error_that_holds_it_from_three_points_on() -> None:
    sizes = [64, 128, 256, 512, 1024]
    noise = np.random.default_rng(0).normal(size=5) * 0.03
    law = fit_power_law(sizes, [3e-6 * size**2 * np.exp(each) for size, each in zip(sizes, noise, strict=True)])
    assert law is not None
    assert abs(law.exponent - 2) < 3 * law.error < 0.15
    assert fit_power_law([1, 2], [1.0, 4.0]) is None
    assert fit_power_law([1, 2, 3], [1.0, 4.0, 0.0]) is None  # what took no time was not timed


def test_points_off_every_line_have_no_clear_exponent_and_say_how_uncertain_it_is() -> None:
    sizes = [64, 128, 256, 512]
    for noise, clear in ((0.01, True), (1.0, False)):
        times = [size * np.exp(sign * noise) for size, sign in zip(sizes, (1, -1, -1, 1), strict=True)]
        law = fit_power_law(sizes, times)
        assert law is not None
        assert (law.is_clear, law.record()["clear"]) == (clear, clear)
        slope = f"T^{law.exponent:.2f} +- {law.error:.2f}"
        assert law.words("T") == (slope if clear else f"no clear exponent ({slope})")


GRID = Grid((64, 128, 256, 512), (32, 64, 128, 256), at_dim=32, at_length=64, batch=2, dims_batch=2)


def made_up(attention_share: float = 1.0) -> dict[Size, dict[str, float]]:
    """Times as theory has them."""
    seconds = {}
    for size in GRID.sizes():
        linear, attention = size.length * size.dim**2, attention_share * size.length**2 * size.dim
        seconds[size] = {LINEAR: linear, ATTENTION: attention, REST: 0.01 * linear, TRAINING: 3 * (linear + attention)}
    return {size: {kind: 1e-9 * value for kind, value in each.items()} for size, each in seconds.items()}


def exponents(fits: list[Fitted]) -> dict[tuple[str, str], float | None]:
    return {(each.kind, each.axis): None if each.law is None else each.law.exponent for each in fits}


def test_each_kind_of_work_has_its_own_powers() -> None:
    found = exponents(fits_of(made_up(), GRID, {LINEAR: 1.0, ATTENTION: 1.0}))
    assert found[LINEAR, "T"] == pytest.approx(1)
    assert found[LINEAR, "d"] == pytest.approx(2)
    assert found[ATTENTION, "T"] == pytest.approx(2)
    assert found[ATTENTION, "d"] == pytest.approx(1)


def test_a_kind_of_work_that_takes_a_trifle_is_not_fitted() -> None:
    found = exponents(fits_of(made_up(attention_share=1e-4), GRID, {LINEAR: 1.0, ATTENTION: 1.0}))
    assert found[ATTENTION, "T"] is None
    assert found[ATTENTION, "d"] is None


def test_a_whole_pass_has_a_theory_only_where_one_kind_of_work_rules() -> None:
    mixed = {(each.kind, each.axis): each.theory for each in fits_of(made_up(), GRID, {LINEAR: 1.0, ATTENTION: 1.0})}
    assert mixed[TRAINING, "T"] is None
    ruled = fits_of(made_up(attention_share=1e-4), GRID, {LINEAR: 1.0, ATTENTION: 1.0})
    assert {each.axis: each.theory for each in ruled if each.kind == TRAINING} == {"T": 1, "d": 2}


def test_the_crossover_of_an_rnn_and_attention_is_where_the_length_is_the_width() -> None:
    dim = 128
    recurrent = Profile("rnn", [{"flops_by_kind": {RECURRENCE: 4.0 * dim**2}}])
    attending = Profile("gpt", [{"flops_by_kind": {}}])
    lengths = [64, 128, 256, 512]
    slow = fit_power_law(lengths, [1e-9 * 4 * dim**2 * length for length in lengths])
    steep = fit_power_law(lengths, [1e-9 * 4 * dim * length**2 for length in lengths])
    recurrent.fits = [Fitted(RECURRENCE, "T", slow, 1, 1.0)]
    attending.fits = [Fitted(ALONE, "T", steep, 2, 1.0)]
    (found,) = crossovers([recurrent, attending], dim)
    assert (found.recurrent, found.attending) == ("rnn", "gpt")
    assert found.counted == dim
    assert found.measured == pytest.approx(dim)


def test_no_crossover_is_told_of_an_exponent_that_is_not_clear_nor_of_a_model_with_itself() -> None:
    lengths = [64, 128, 256, 512]
    clear = fit_power_law(lengths, [1e-9 * length for length in lengths])
    unclear = fit_power_law(lengths, [1e-12, 1e-6, 1e-12, 1e-3])
    steep = fit_power_law(lengths, [1e-9 * length**2 for length in lengths])
    assert unclear is not None
    assert not unclear.is_clear

    def profile(*fits: Fitted) -> Profile:
        return Profile("name", [{"flops_by_kind": {RECURRENCE: 1.0}}], fits=list(fits))

    attending = profile(Fitted(ALONE, "T", steep, 2, 1.0))
    assert len(crossovers([profile(Fitted(RECURRENCE, "T", clear, 1, 1.0)), attending], 8)) == 1
    assert crossovers([profile(Fitted(RECURRENCE, "T", unclear, 1, 1.0)), attending], 8) == []
    assert crossovers([profile(Fitted(RECURRENCE, "T", clear, 1, 1.0), *attending.fits)], 8) == []


# -- times -------------------------------------------------------------------------------------------------------


def test_a_cell_that_was_slow_in_one_round_keeps_its_least_time_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []

    def measure(cell: str) -> dict[str, float]:
        calls.append(cell)
        return {"work": {1: 0.1, 2: 5.0, 3: 2.0}[calls.count(cell)]}  # the first is fastest: it must not count

    assert timing.interleaved(["a", "b"], measure, repeats=2) == [{"work": 2.0}] * 2
    assert sorted(calls) == ["a"] * 3 + ["b"] * 3


def test_the_clock_knows_the_work_of_each_model() -> None:
    for name in ("rnn", "gru", "lstm", "cnn", "gpt", "bert"):
        model = model_of(Case(name, ()))
        seconds = timing.seconds_by_kind(model, 2, 8, timing.heads_of(model))
        assert set(formula_of(model, 8).flops) <= set(seconds), name
        assert (ALONE in seconds) == (name in ("gpt", "bert")), name
        assert all(value > 0 for kind, value in seconds.items() if kind != REST), name
        assert all(weight.grad is None for weight in model.parameters()), name


def test_the_clock_adds_up_what_it_stands_around() -> None:
    with timing.Clock() as clock:
        start = time.perf_counter()
        torch.nn.functional.linear(torch.ones(64, 64), torch.ones(64, 64))
        whole = time.perf_counter() - start
    assert 0 < clock.seconds[LINEAR] <= whole


# -- the command -------------------------------------------------------------------------------------------------


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command; gives exit code, standard output and standard error."""

    def run(*args: object) -> tuple[int, str, str]:
        threads = torch.get_num_threads()
        try:
            rc = main.main(["profile", *map(str, args)])
        finally:
            torch.set_num_threads(threads)
        return rc, *capsys.readouterr()

    return run


SMALL = ("--lengths", "8,16,32", "--dims", "8,16,32", "--at-dim", "8", "--at-length", "8", "--repeats", "1")
TEXT = ("data=text", "data.split_by=position", "tokenizer=char", "trainer.max_steps=5")


def text_words(folder: Path) -> tuple[str, ...]:
    """Overrides for a small text."""
    (folder / "text.txt").write_text("the animal was tired and slow\n" * 400)
    return (*TEXT, f"data.path={folder / 'text.txt'}")


@pytest.mark.long
def test_the_command_profiles_several_models_and_writes_what_it_says(tmp_path: Path, call: Any) -> None:
    rc, out, _ = call(*text_words(tmp_path), "-m", "model=rnn,gpt", *SMALL, "--out", tmp_path / "out")
    assert rc == 0
    assert "== rnn" in out
    assert "one layer of attention's products" in out or "T^" in out
    record = json.loads((tmp_path / "out" / "profile.json").read_text())
    assert [model["name"] for model in record["models"]] == ["rnn", "gpt"]
    assert record["models"][0]["counted"][0]["flops"] == record["models"][0]["counted"][0]["counted_flops"]
    assert 0 < record["numbers"]["gpt_peak_share"] <= 1
    assert "kept for backward" in out
    for memory, name in zip(record["memory"], ("rnn", "gpt"), strict=True):
        assert (memory["name"], memory["device"], memory["materialised"]) == (name, "cpu", False)
        for cell in memory["cells"]:
            assert 0 < cell["bytes"]["kept"] < cell["bytes"]["peak"], cell
    assert record["numbers"]["rnn_memory_kept_T"] == pytest.approx(1, abs=0.1)
    assert all(np.isfinite(value) for value in record["numbers"].values())
    for name in ("times.png", "crossover.png", "memory.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_a_width_that_is_typed_is_that_of_all_lengths_and_one_model_has_no_picture_of_a_crossover(
    tmp_path: Path, call: Any
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "crossover.png").write_bytes(b"of an earlier call")
    sizes = [word for word in SMALL if word not in ("--at-dim",)]
    sizes.remove("8")  # that of --at-dim
    rc, said, _ = call("model=rnn", "model.dim=24", *text_words(tmp_path), *sizes, "--out", out)
    assert rc == 0
    record = json.loads((out / "profile.json").read_text())
    assert record["grid"]["at_dim"] == 24
    assert {cell["dim"] for cell in record["models"][0]["cells"] if cell["length"] == 32} == {24}
    assert not (out / "crossover.png").exists()
    assert "no plot of a crossover" in said
    for line in said.splitlines():
        assert ("+- " not in line) or ("^" in line), line
