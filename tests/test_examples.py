"""Laws of examples/lecture/: each script runs as a person types it, and claims no more than its numbers show."""

from __future__ import annotations

import importlib
import json
import math
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image
from scipy import stats

import agreement
import both_ways
import decoder_only
import elmo
import half_life
import last_state
import lstm_gru
import missing
import order
import positions
import reviews
import same_cost
import seqtrain
import state_size
import teacher_forcing
import truncation
import unrolled
import writing
from seqtrain import Trained, UserError
from seqtrain.data.sources.agreement import Agreement
from seqtrain.data.sources.seasonal import KEPT
from shared import Bench, Result, paired, spread, untrained
from tests.conftest import REPOSITORY
from tests.support.untrained_runs import MASKED, TEXTS, make_run

SCRIPTS = {
    path.stem: path
    for path in sorted((REPOSITORY / "examples" / "lecture").glob("*.py"))
    if path.stem not in ("shared", "reviews")
}
TRAINING = [name for name in SCRIPTS if name not in ("exploding", "perpendicular", "receptive_field")]
"""The scripts that train; tests/test_lecture.py runs the others, whose numbers take seconds."""
LENGTHS = re.compile(r"(trainer\.(?:max_steps|validate_every))=.*")


class Short(Bench):
    """Trains as a demonstration asks, for three steps."""

    def train(self, name: str, *overrides: str) -> Trained:
        words = [LENGTHS.sub(r"\1=3", word) for word in overrides]
        if any("flops:" in word for word in words):  # a budget of steps
            words = [re.sub(r"budget=\[(.*),flops:.*\]", r"budget=\1", word) for word in words]
            words.append("trainer.max_steps=3")
        if "callbacks=none" not in words:
            words.append("callbacks=none")
        if "task=translation" in words:  # a model that has hardly begun would write on and on
            words.append("task.max_ratio=0.1")
        if "task=next_token" in words and "data=text" not in words:  # else of the standard library, a million bytes
            words.append("data.validation_fraction=0.002")
        return super().train(name, *words)


def typed(monkeypatch: pytest.MonkeyPatch, name: str, *words: str) -> None:
    """Run a script as `python examples/lecture/NAME.py WORDS`, in this process."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPTS[name]), *words])
    runpy.run_path(str(SCRIPTS[name]), run_name="__main__")


def test_a_script_says_what_it_claims_and_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in SCRIPTS:
        with pytest.raises(SystemExit) as left:
            typed(monkeypatch, name, "--help")
        assert left.value.code == 0, name
        words = "".join(capsys.readouterr().out.split())
        for word in ("".join(importlib.import_module(name).CLAIM.split()), "--seeds", "--out", "--json"):
            assert word in words, name


def test_a_word_that_cannot_be_is_refused_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for word in ("--seeds=0", "--seeds=some", "trainer=gpu"):
        with pytest.raises(SystemExit) as left:
            typed(monkeypatch, "perpendicular", word)
        assert left.value.code == 2, word
    assert list(tmp_path.iterdir()) == []


def test_the_record_is_the_same_on_stdout_and_in_its_folder_beside_a_real_picture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(monkeypatch, "perpendicular", "--json", "--seeds", "2", "--out", str(tmp_path))
    record = json.loads(capsys.readouterr().out)
    folder = tmp_path / "perpendicular"
    assert record == json.loads((folder / "perpendicular.json").read_text())
    assert (record["name"], record["seeds"], record["holds"]) == ("perpendicular", 2, True)
    pixels = image.imread(folder / "perpendicular.png")
    assert pixels.std() > 0.05  # something is drawn on it
    typed(monkeypatch, "perpendicular", "--seeds", "2", "--out", str(tmp_path))
    claim, _, header, *rows, blank, verdict = capsys.readouterr().out.splitlines()
    assert (claim, blank, verdict) == (f"claim: {record['claim']}", "", record["verdict"])
    assert header.split() == list(record["rows"][0])
    assert len(rows) == len(record["rows"])


# -- whole scripts, with trainings of three steps ----------------------------------------------------------------


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Short]:
    """Gives the bench of a script, which keeps its runs for all tests."""
    folder = tmp_path_factory.mktemp("lecture")

    def of(name: str) -> Short:
        (folder / name).mkdir(exist_ok=True)
        return Short(folder / name)

    return of


@pytest.mark.long
@pytest.mark.parametrize("name", TRAINING)
def test_a_script_runs_and_one_seed_decides_nothing_of_trained_models(
    name: str, bench: Callable[[str], Short], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_state, "NUM_TRAIN", 400)
    for module in (last_state, state_size):
        monkeypatch.setattr(module, "NUM_PER_LENGTH", 3)
    found: Result = importlib.import_module(name).run(bench(name))
    assert {tuple(row) for row in found.rows} == {tuple(found.rows[0])}
    assert found.verdict
    assert found.figure.axes
    if name != "writing":  # that is timed
        assert found.holds is (True if name == "unrolled" else None)  # nothing is trained for that claim


@pytest.mark.long
def test_series_are_measured_as_the_runs_themselves_say(bench: Callable[[str], Short]) -> None:
    runs = [
        bench("teacher_forcing").train(f"{name}-1", *teacher_forcing.SERIES, f"task.strategy={name}", "seed=1")
        for name in ("recursive", "direct")
    ]
    curves = teacher_forcing.series_curves(*runs)
    for name, run in zip(("free", "direct"), runs, strict=True):
        mean = sum(curves[name]) / len(curves[name])
        assert mean == pytest.approx(run.metrics["validation"]["mse_original"], rel=1e-5)
    # One step ahead nothing has been fed back yet.
    assert curves["free"][0] == pytest.approx(curves["forced"][0], rel=1e-5)
    assert curves["free"][1] != pytest.approx(curves["forced"][1], rel=1e-3)
    # The noise (0.3) of an AR(1) process: what cannot be known after h steps is its variance times 1 - 0.8**(2 h).
    for step in (0, 1, 5, 23):
        assert curves["best_free"][step] == pytest.approx(0.3**2 * (1 - KEPT ** (2 * (step + 1))), rel=0.15)
    assert curves["best_forced"][23] == pytest.approx(0.3**2 * (1 - KEPT**2), rel=0.05)


# -- runs of earlier calls ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_killed_demonstration_goes_on_with_the_run_that_it_was_at(tmp_path: Path) -> None:
    said = tmp_path / "said.txt"
    with open(said, "w") as file:
        child = subprocess.Popen([sys.executable, SCRIPTS["order"], "--out", tmp_path], stderr=file)
    run = tmp_path / "order" / "runs" / "cbow-1"
    while not ((run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size):
        assert child.poll() is None, said.read_text()
        time.sleep(0.01)
    child.kill()
    child.wait()
    begun = json.loads((run / "summary.json").read_text())
    assert begun["status"] == "running"
    steps = ("trainer.max_steps=300", "trainer.validate_every=300", "seed=1")
    words = (*order.SHARED, *order.READERS["cbow"], *steps)
    for _ in range(2):  # a finished one is taken as it is
        again = Bench(tmp_path / "order").train("cbow-1", *words)
        assert (again.summary["status"], again.summary["steps"]) == ("finished", 300)
        assert again.summary["command"] == begun["command"]
        assert "trainer.precision=32-true" in begun["command"]
    with pytest.raises(UserError, match="trained with other options; remove it, or give another --out"):
        Bench(tmp_path / "order").train("cbow-1", *words, "model.dim=16")


# -- statistics over seeds ---------------------------------------------------------------------------------------


def test_the_interval_of_pairs_is_that_of_a_t_test_and_wider_for_several() -> None:
    first, second = [1.0, 1.2, 1.1, 1.4], [0.8, 1.0, 0.95, 1.1]
    found = paired(first, second)
    assert found.interval == pytest.approx(stats.ttest_rel(first, second).confidence_interval(0.95))
    assert (found.sign, paired(second, first).sign) == (1, -1)
    together = paired(first, second, comparisons=3)
    assert together.interval == pytest.approx(stats.ttest_rel(first, second).confidence_interval(1 - 0.05 / 3))
    assert "95 % interval of 3 comparisons at once +0.0" in together.words()
    assert spread(first) == "1.175 (0.171)"


SAME = "the same for each seed"
NO_VERDICT = [
    ([100.0], [0.0], "one seed, no verdict"),
    ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], SAME),  # the same run three times looks like certainty
    ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], SAME),
    ([1.0, math.inf, 1.1], [0.0, 0.0, 0.1], "not finite"),
]


def test_what_shows_no_effect_of_chance_gives_no_verdict() -> None:
    for first, second, why in NO_VERDICT:
        found = paired(first, second)
        assert (found.sign, found.interval) == (None, None), why
        assert why in found.words()


def test_a_seed_that_is_hard_for_both_models_hides_no_difference() -> None:
    hard = [0.0, 5.0, 10.0]
    assert paired([value - 1 + 0.01 * place for place, value in enumerate(hard)], hard).sign == -1
    with pytest.raises(ValueError, match="zip"):
        paired([1.0], [1.0, 2.0])


def test_equal_models_are_called_different_at_most_as_often_as_promised() -> None:
    for comparisons in (1, 4):
        draws = np.random.default_rng(0).standard_normal((2000, 2 * comparisons, 3)).tolist()
        wrong = 0
        for family in draws:
            pairs = [paired(family[2 * each], family[2 * each + 1], comparisons) for each in range(comparisons)]
            wrong += any(pair.sign is not None for pair in pairs)
        assert 0.03 < wrong / len(draws) < 0.065, comparisons


# -- verdicts: never more than the numbers show ------------------------------------------------------------------


def noisy(value: float, shift: float = 0.0) -> list[float]:
    return [value + change * (1 + shift) for change in (0.0, 0.01, -0.01)]


DECODERS = [
    (noisy(1.0), noisy(1.5, 0.5), noisy(2.0, 0.7), False, ", worse"),
    (noisy(2.0), noisy(1.5, 0.5), noisy(1.0, 0.7), True, ", better"),
    (noisy(1.0), noisy(1.0, -0.5), noisy(1.0, 0.5), None, "cannot tell them apart"),
    ([1.0], [9.0], [9.0], None, "one seed, no verdict"),
]


def test_decoders() -> None:
    for pair, equal, half, holds, said in DECODERS:
        models = {"encoder_decoder": pair, "gpt_equal": equal, "gpt_half": half}
        measured = {name: {"loss": values, "exact_match": values} for name, values in models.items()}
        words, found = decoder_only.judge(measured, {"encoder_decoder": 200, "gpt_equal": 200, "gpt_half": 100})
        assert (found, words.count(said)) == (holds, 2), said


CELLS: list[tuple[Any, Any, bool | None, str]] = [
    ((noisy(3.0), noisy(2.0, 0.5)), (noisy(0.05), noisy(0.05, 0.5)), False, "the GRU is better"),
    ((noisy(2.0), noisy(2.0, 0.5)), (noisy(0.05), noisy(0.05, 0.5)), None, "cannot tell them apart"),
    (([3.0], [2.0]), ([0.1], [0.01]), None, "one seed, no verdict"),
    ((noisy(2.0), noisy(2.0, 0.5)), (noisy(1 / 6), noisy(1 / 6, 0.5)), None, "neither has learned it"),
    # In differences the spread of the LSTM's errors would hide that they are all ten times as large.
    ((noisy(2.0), noisy(2.0)), ([1e-4, 1e-3, 1.1e-2], [1e-5, 1.1e-4, 1e-3]), False, "the GRU is better"),
    ((noisy(2.0), noisy(2.0)), ([0.0, 0.1, 0.2], [0.1, 0.1, 0.1]), None, "nothing is told apart"),
]


def test_cells() -> None:
    for text, adding, holds, said in CELLS:
        both = (("text", text), ("adding", adding))
        words, found = lstm_gru.judge({name: dict(zip(lstm_gru.MODELS, each, strict=True)) for name, each in both})
        assert found is holds, said
        assert said in words
        assert "the LSTM is better" not in words


def curve(first: float, last: float, change: float = 0.0) -> dict[int, float]:
    return {length: first + change + (last - first) * place / 14 for place, length in enumerate(last_state.LENGTHS)}


STAYS = [curve(1.0, last) for last in (0.99, 0.98, 0.97)]
FORGETS = [curve(1.0, last) for last in (0.30, 0.28, 0.25)]
FLAT = [curve(0.3, 0.3, change) for change in (0.0, 0.01, 0.02)]  # worse at all lengths alike: nothing is forgotten
GUESSES = [curve(0.06, 0.06, change) for change in (0.0, 0.001, 0.003)]


FORGETTING = [
    (FORGETS, STAYS, (100, 101), True, ""),
    (STAYS, FORGETS, (100, 101), False, ""),
    (FLAT, STAYS, (100, 101), None, ""),
    (FORGETS[:1], STAYS[:1], (100, 101), None, "one seed"),
    (FORGETS, GUESSES, (100, 101), None, "has not learned"),
    (FORGETS, STAYS, (100, 110), None, "nothing follows"),
]


def test_forgetting() -> None:
    for none, additive, (plain, attending), holds, said in FORGETTING:
        curves = {"none": none, "additive": additive}
        words, found = last_state.judge(curves, {"none": plain, "additive": attending})
        assert found is holds, said
        assert said in words


def test_free_running_is_judged_beyond_the_best_that_is_possible() -> None:
    text = {name: [0.5] * teacher_forcing.LENGTH for name in ("forced", "free", "unbroken", "chance")}
    for lost, holds in ((0.05, True), (-0.05, False), (0.0, None)):  # what nobody can know is not blamed on the model
        series = []
        for change in (0.0, 0.001, -0.001):
            values = {"forced": 0.03, "free": 0.09 + lost + change, "direct": 0.09}
            values |= {"best_forced": 0.03, "best_free": 0.09}
            series.append({name: [value] * teacher_forcing.HORIZON for name, value in values.items()})
        assert teacher_forcing.judge(series, [text] * 3)[1] is holds
        assert teacher_forcing.judge(series[:1], [text])[1] is None


def pretraining(gain: float, *, seeds: int = 3, over_bigram: float = -0.2, apart: float = 0.0) -> elmo.Measured:
    """Numbers in which both kinds gain this much by pretraining."""
    accuracy = {}
    for place, (name, variant) in enumerate(elmo.VARIANTS.items()):
        # Noise of each variant by itself, or all differences would be the same.
        accuracy[name] = noisy(0.6 + (gain if variant.origins else 0.0), 0.3 * place)[:seeds]
    sizes = dict.fromkeys(elmo.VARIANTS, 1000) | {"bert_tuned": int(1000 * (1 + apart))}
    pretrained = dict.fromkeys(elmo.PRETRAINED, [over_bigram] * seeds)
    return elmo.Measured(accuracy, {"elmo_frozen": [[0.2, 0.5, 0.3]] * seeds}, pretrained, sizes)


def test_pretraining() -> None:
    assert elmo.judge(pretraining(0.3))[1] is True
    assert elmo.judge(pretraining(-0.3))[1] is False
    undecided = {
        "within what seeds change": pretraining(0.001),
        "one seed": pretraining(0.3, seeds=1),
        "nothing was learned of the text": pretraining(0.3, over_bigram=0.1),
        "sizes apart": pretraining(0.3, apart=0.2),
    }
    assert {why: elmo.judge(measured)[1] for why, measured in undecided.items()} == dict.fromkeys(undecided)


def reached(rnn: list[Any], lstm: list[Any], accuracy: float = 1.0) -> list[Any]:
    rows = []
    for model, distances in (("rnn", rnn), ("lstm", lstm)):
        for seed, distance in enumerate(distances, 1):
            row = {"model": model, "seed": seed, "faded": distance, "half_life": distance, "last_above_half": 43.0}
            rows.append(row | {"weights": "untrained", "accuracy": "-"})
            rows.append(row | {"weights": "trained", "accuracy": accuracy})
    return rows


def test_the_least_favourable_seeds_tell_how_far_a_gradient_reaches() -> None:
    assert half_life.judge(reached([1.0, 2.0], [6.0, 9.0]))[1] is True
    assert half_life.judge(reached([1.0, 2.1], [6.0, 9.0]))[1] is False
    words, holds = half_life.judge(reached([2.0], ["none"]))
    assert holds is True  # a gradient that does not fade outlives any that does
    assert "RNN at 2 tokens, LSTM at no measured distance" in words
    assert "LSTM none, its gradient is above half of its start at 43 tokens" in words
    assert half_life.judge(reached([1.0], [9.0], accuracy=0.5))[1] is None
    assert half_life.judge(reached(["none"], ["none"]))[1] is None


# -- pretraining's reviews ---------------------------------------------------------------------------------------


def test_no_review_stands_in_two_sets_and_labels_are_half_and_half(tmp_path: Path) -> None:
    made = reviews.reviews(seed=1, unlabelled=300, labelled=20, test=100)
    texts = [row.text for part in made.values() for row in part]
    assert len(texts) == len(set(texts)) == 300 + 15 + 20 + 100
    assert sum(row.label == "good" for row in made["test"]) == 50
    few = reviews.reviews(seed=1, unlabelled=40, labelled=20, test=100)
    assert (few["test"], few["labelled"]) == (made["test"], made["labelled"])
    text, labels = reviews.write(tmp_path, 1, made)
    for override in (*text, *labels):
        lines = Path(override.partition("=")[2]).read_text().splitlines()
        assert {tuple(json.loads(line)) for line in lines} == {("text",) if override in text else ("text", "label")}


# -- order -------------------------------------------------------------------------------------------------------

GROUPS = order.permuted(TEXTS[:3], 6, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("name", order.READERS)
def test_theory_holds_for_drawn_weights_of_any_size(name: str, tmp_path: Path) -> None:
    overrides = [word for word in order.READERS[name] if not word.startswith("optimizer")]
    run = seqtrain.load(make_run(tmp_path / "run", "task=sentiment", "tokenizer=word", *overrides))
    for each in (run, untrained(run)):
        change = order.change(each, GROUPS)
        # Not a matter of where the line is drawn: rounding and reading are many powers of ten apart.
        assert change < 1e-13 if name in order.BLIND else change > 1e-6


def seen(model: str, measured: str, accuracy: float, theory: str | None = None) -> dict[str, str | float]:
    change = 1e-16 if measured == "blind" else 0.3
    row = {"model": model, "theory": theory or measured, "measured": measured, "accuracy": accuracy}
    return row | {"untrained_change": change, "trained_change": change}


ORDER: list[tuple[Any, bool | None, str]] = [
    ([seen("a", "blind", 0.5), seen("b", "sees", 1.0)], True, "untrained_change): accuracy 1.00"),
    ([seen("a", "blind", 0.5), seen("b", "sees", 0.5)], None, "Order reaches b, whose accuracy stayed below 0.95"),
    ([seen("a", "blind", 0.8), seen("b", "sees", 1.0)], False, "Off chance although blind: a"),
    ([seen("a", "sees", 1.0, "blind")], False, "Against theory: a"),
    ([seen("a", "blind", 0.5, "sees")], False, "Against theory: a"),
]


def test_order() -> None:
    for rows, holds, said in ORDER:
        words, found = order.judge(rows)
        assert found is holds, said
        assert said in words


# -- a head that finds the noun ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A masked language model of drawn weights whose tokens are words; it knows few of them, which changes nothing."""
    options = [option for option in MASKED if not option.startswith("tokenizer")]
    path: Path = tmp_path_factory.mktemp("masked") / "run"
    return seqtrain.load(make_run(path, *options, "tokenizer=word", "tokenizer.min_count=1"))


def test_scores_are_of_the_place_of_the_mask(masked: Trained) -> None:
    every = [agreement.sentence(row["text"], row["label"]) for row in Agreement(size=400).rows("train")]
    some = [one for one in every if len(one.nouns) == 4][:8]
    scores = agreement.score(masked, some)
    for number, one in enumerate(some):
        for layer, map_ in enumerate(masked.attention(one.text)):
            (place,) = [place for place, word in enumerate(map_.queries) if word == "[mask]"]
            row = map_.weights[:, place].double().numpy()  # (H, T)
            phrases = row[:, 1:] + row[:, :-1]  # of each word, with the word before it
            others = phrases[:, one.nouns[1:]]
            margin = phrases[:, one.nouns[0]] - others.mean(1)
            np.testing.assert_allclose(scores.margin[layer, :, number], margin, atol=1e-6)
            assert (scores.found[layer, :, number] == (phrases[:, one.nouns[0]] > others.max(1))).all()


def test_of_many_heads_that_know_nothing_the_best_one_is_at_chance_on_the_other_half() -> None:
    draw = np.random.default_rng(1)
    found, chosen_on = [], []
    for _ in range(20):
        lucky = draw.random((12, 16, 400)) < 0.25  # 192 heads: the best of them is far above chance where it was chosen
        best = agreement.best(agreement.Scores(lucky - 0.25, lucky))
        found.append(best["finds_noun"])
        chosen_on.append(lucky[int(best["layer"]) - 1, int(best["head"]) - 1, :200].mean())
    assert min(chosen_on) > 0.29
    assert np.mean(found) == pytest.approx(0.25, abs=0.03)


def test_the_head_that_finds_the_noun_is_the_one_that_is_chosen() -> None:
    margin = np.random.default_rng(1).normal(scale=0.1, size=(2, 4, 40))
    margin[1, 2] += 0.5
    best = agreement.best(agreement.Scores(margin, margin > 0.2))
    assert (best["layer"], best["head"]) == (2, 3)
    assert best["margin"] == pytest.approx(margin[1, 2, 20:].mean())
    assert best["finds_noun"] == (margin[1, 2, 20:] > 0.2).mean()
    for count, middle in ((16, 8), (20, 8), (4, 0)):  # a set is never in both halves
        assert agreement.halves(count) == (slice(middle), slice(middle, count))


AGREEMENT = [
    (0.9, 1.0, 0.3, True, "in 90% of sentences (untrained 30%, chance 25%)"),
    (0.35, 1.0, 0.3, False, "with seed 7 no single head finds it"),
    (0.9, 1.0, 0.85, False, "with seed 7 no single head finds it"),
    (0.9, 0.6, 0.3, None, "below 90% the model has not learnt"),
]


def test_agreement() -> None:
    for found, filled, before, holds, said in AGREEMENT:
        rows: list[dict[str, str | float]] = [
            {"model": "untrained", "finds_noun": before, "fills_pronoun": 0.25},
            {"model": "trained", "seed": 7, "finds_noun": found, "fills_pronoun": filled, "finds_noun_error": 0.02},
        ]
        words, holding = agreement.judge(rows)
        assert holding is holds, said
        assert said in words


# -- both ways, positions, truncation, cost, state, missing values, writing, depth ---------------------------------


def test_a_causal_model_off_chance_contradicts_and_one_that_has_not_learnt_tells_nothing() -> None:
    for causal, both, holds in ((0.5, 1.0, True), (0.5, 0.9, None), (0.51, 1.0, False), (0.49, 0.9, False)):
        accuracy = {name: [0.5, causal] for name in both_ways.CAUSAL}
        accuracy |= {name: [1.0, both] for name in both_ways.BOTH_WAYS}
        assert both_ways.judge(accuracy)[1] is holds, (causal, both)


def test_two_codes_know_distance_and_a_table_does_not() -> None:
    moved = {code: positions.spread_at_equal_distance(scores) for code, scores in positions.products().items()}
    assert max(moved["rotary"], moved["sinusoidal"], moved["none"]) < 1e-12
    assert moved["learned"] > 0.1
    right = {code: [0.5 if code == "none" else 0.96] for code in positions.CODES}
    assert positions.judge(moved, right)[1] is True
    assert positions.judge(moved, right | {"learned": [0.8]})[1] is None
    assert positions.judge(moved, right | {"none": [0.99]})[1] is False
    assert positions.judge(moved | {"rotary": 0.1}, right)[1] is False


def test_truncation() -> None:
    worse = [2.3, 2.2, 2.1]
    for carry, windows, holds in (([2.0] * 3, worse, True), (worse, worse, None), ([2.0] * 3, [2.1] * 3, None)):
        bits = {}
        for cut, values in (("carry", carry), ("windows", windows)):
            for k2, value in zip(truncation.LENGTHS, values, strict=True):
                bits[f"{cut} {k2}"] = [value, value + 0.01, value + (0.021 if cut == "carry" else 0.02 + k2 / 1e4)]
        assert truncation.judge(bits)[1] is holds, (carry, windows)


def test_who_wins_depends_on_which_way_is_better_and_chance_has_no_winner() -> None:
    for better, winner in ((1, "gpt"), (-1, "lstm")):
        assert same_cost.best({"lstm": [0.1, 0.2, 0.3], "gpt": [0.9, 1.01, 1.1]}, better)[0] == winner
        assert same_cost.best({"lstm": [0.1, 0.9, 0.3], "gpt": [0.9, 0.1, 1.1]}, better)[0] is None
        assert same_cost.best({"lstm": [math.nan], "gpt": [0.9]}, better)[0] is None


def test_a_state_that_holds_all_says_nothing_of_its_size() -> None:
    held = {dim: [dim / 8, dim / 8 + 0.1, dim / 8 - 0.1] for dim in state_size.DIMS}
    held[state_size.DIMS[-1]][0] += 0.1
    assert state_size.judge(held)[1] is True
    assert state_size.judge(held | {64: [16.0, 16.0, 15.9]})[1] is None


def test_a_filled_series_has_the_last_value_seen_and_labels_are_half_and_half() -> None:
    share = missing.SHARES[-1]
    table = missing.series(share)
    assert np.isnan(table["value"].to_numpy()).mean() == pytest.approx(share, abs=0.02)
    assert list(table["label"]).count("ten") == len(table) / 2
    filled = missing.fill(table)
    for _, rows in list(filled.assign(seen=table["value"]).groupby("name"))[:20]:
        last = 0.0
        for value, seen in zip(rows["value"], rows["seen"], strict=True):
            last = last if math.isnan(seen) else seen
            assert value == last


def test_writing_is_judged_by_how_time_grows() -> None:
    lengths = np.array(writing.BEFORE, dtype=float)
    level, linear, square = (list(lengths**power) for power in (0.0, 1.0, 1.5))
    curves = {"LSTM, state": level, "GPT, cache": linear, writing.AGAIN: square}
    assert writing.judge(curves)[1] is True
    assert writing.judge(curves | {"LSTM, state": linear})[1] is False


def test_an_unrolled_rnn_is_the_same_function_with_the_same_gradient() -> None:
    assert max(unrolled.unrolled()) < 1e-12
    sizes = dict.fromkeys(unrolled.VARIANTS, "1")
    accuracy = {name: [1.0] for name in unrolled.VARIANTS}
    assert unrolled.judge(0.0, 1e-3, accuracy, sizes)[1] is False
