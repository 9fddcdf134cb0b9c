"""Laws of what another order of the words changes: nothing for those that cannot see it, whatever their weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqtrain.analysis import order
from seqtrain.analysis.demos.order import READERS, judge
from seqtrain.analysis.untrained import untrained
from seqtrain.inference.opened import open_run
from tests.support.untrained_runs import TEXTS, make_run

GROUPS = order.permuted(TEXTS[:3], 6, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.slug)
def test_theory_holds_for_drawn_weights_of_any_size(reader, tmp_path: Path):
    overrides = [word for word in reader.overrides if not word.startswith("optimizer")]
    opened = open_run(make_run(tmp_path / "run", "task=sentiment", "tokenizer=word", *overrides))
    for each in (opened, untrained(opened)):
        change = order.change(each, GROUPS)
        assert change.blind == reader.blind
        # Not a matter of where the line is drawn: rounding and reading are many powers of ten apart.
        assert change.pooled < 1e-13 if reader.blind else change.pooled > 1e-6


def test_one_causal_layer_without_positions_is_blind_at_its_end_and_two_are_not(tmp_path: Path):
    for layers in (1, 2):
        words = ("task=sentiment", "tokenizer=word", "model=gpt", "model.positions=none", "model.num_heads=2")
        run = make_run(tmp_path / str(layers), *words, f"model.num_layers={layers}", "task.pool=last")
        change = order.change(open_run(run), GROUPS)
        assert (change.last < order.ROUNDING) == (layers == 1)
        assert change.pooled == change.last


def test_a_permuted_text_has_the_words_of_the_first_and_some_are_in_another_order():
    for group in GROUPS:
        assert {" ".join(sorted(text.split())) for text in group} == {" ".join(sorted(group[0].split()))}
        assert len(set(group)) > 1
    assert order.permuted(TEXTS[:3], 6, seed=1) == GROUPS != order.permuted(TEXTS[:3], 6, seed=2)


def row(model: str, measured: str, accuracy: float, theory: str | None = None) -> dict[str, str | float]:
    change = 1e-16 if measured == "blind" else 0.3
    return {
        "model": model,
        "theory": theory or measured,
        "measured": measured,
        "untrained_change": change,
        "trained_change": change,
        "accuracy": accuracy,
    }


@pytest.mark.parametrize(
    ("rows", "holds", "said"),
    [
        (
            [row("a", "blind", 0.5), row("b", "sees", 1.0)],
            True,
            "trained or not (trained_change, untrained_change): accuracy 1.00",
        ),
        ([row("a", "blind", 0.5), row("b", "sees", 0.5)], None, "Order reaches b, whose accuracy stayed below 0.95"),
        ([row("a", "blind", 0.8), row("b", "sees", 1.0)], False, "Off chance although blind: a"),
        ([row("a", "sees", 1.0, "blind")], False, "Against theory: a"),
        ([row("a", "blind", 0.5, "sees")], False, "Against theory: a"),
    ],
)
def test_the_verdict_follows_from_the_numbers(rows, holds, said):
    words, found = judge(rows)
    assert found is holds
    assert said in words
