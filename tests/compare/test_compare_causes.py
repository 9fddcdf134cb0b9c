"""A comparison names the true cause of a difference, and takes nothing for chance that is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqtrain.compare.entries import read
from seqtrain.compare.settings import LAYOUT
from seqtrain.compare.verdict import Conclusion, conclusions
from seqtrain.errors import UserError
from tests.support import fake_runs

BPE = "seqtrain.data.tokenizers.recipes.BPE"
PARENT, OTHER_PARENT = "d" * 32, "e" * 32
CLEAN, LATER = "1" * 40, "2" * 40


def compared(folder: Path, **options: Any) -> Conclusion:
    (found,) = conclusions(read([folder]), **options)
    return found


def seeds(folder: Path, name: str, *values: float, **options: Any) -> None:
    """Runs of seeds 1, 2, ... with these values."""
    for seed, value in enumerate(values, 1):
        fake_runs.run(folder / f"{name}-{seed}", value, seed=seed, **options)


# -- what a run began with; tests/compare/test_misleading.py has the other cases -----------------------------------


@pytest.mark.parametrize(
    ("tokenizer", "lineage"),
    [(BPE, None), ("seqtrain.data.tokenizers.recipes.Char", [PARENT])],
    ids=["written by an older version", "written as it was used"],
)
def test_init_from_is_named_and_not_a_tokenizer_that_nobody_used(
    tmp_path: Path, tokenizer: str, lineage: list[str] | None
) -> None:
    begun = {"init_from": "outputs/pretrained", "tokenizer._target_": tokenizer}
    said = {} if lineage is None else {"lineage": lineage}
    seeds(tmp_path, "tuned", 1.0, 1.0, config=begun, parent=PARENT, **said)
    seeds(tmp_path, "fresh", 2.13, 2.13)
    found = compared(tmp_path)
    assert found.sentences == [
        "no conclusion: lstm init_from=pretrained 1.000, lstm init_from=null 2.130 bits per byte: "
        "seeds that give the same number count as one, which says nothing of chance"
    ]
    home = tmp_path.name
    assert found.caveats == [
        f"lstm init_from=pretrained: seeds 1 and 2 gave the same numbers ({home}/tuned-1, "
        f"{home}/tuned-2): the seed changed nothing, so they count as one",
        f"lstm init_from=null: seeds 1 and 2 gave the same numbers ({home}/fresh-1, "
        f"{home}/fresh-2): the seed changed nothing, so they count as one",
    ]
    assert "okenizer" not in "".join(found.sentences + found.caveats)


@pytest.mark.parametrize("schedule", ["Constant", "InverseSqrt"])
def test_where_the_schedule_asks_not_for_the_length_an_extended_run_is_folded(tmp_path: Path, schedule: str) -> None:
    """Such a run equals one that was planned so long, to the bit: tests/cli/test_extend.py."""
    config = {"schedule._target_": f"seqtrain.training.optim.schedules.{schedule}"}
    fake_runs.run(tmp_path / "fresh", 1.5, config=config)
    fake_runs.run(
        tmp_path / "extended", 1.6, seed=2, config=config, extended=["trainer.max_steps: 50 -> 100 at step 50"]
    )
    found = compared(tmp_path)
    assert [variant.values for variant in found.variants] == [(1.6, 1.5)]
    assert found.caveats == []


# -- names ---------------------------------------------------------------------------------------------------------

SIX = {"layer_decay": 0.5, "tbptt.k2": 9, "tbptt.k1": 9, "schedule.warmup": 5, "trainer.precision": "64-true"}


def test_a_name_holds_every_typed_setting_that_differs(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "1", 1.0)
    fake_runs.run(tmp_path / "2", 2.0, config={**SIX, "model.dim": 64})
    found = compared(tmp_path)
    assert [variant.name for variant in found.variants] == [
        "lstm dim=16 layer_decay=1 warmup=50 k1=8 k2=8 precision=32-true",
        "lstm dim=64 layer_decay=0.5 warmup=5 k1=9 k2=9 precision=64-true",
    ]
    assert found.caveats == []


def test_a_setting_that_only_one_has_is_named_unless_the_other_model_has_none_such(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "1", 1.0)
    fake_runs.run(tmp_path / "2", 2.0, config={"callbacks.mine": {"_target_": "mine.Stop", "patience": 9}})
    fake_runs.run(tmp_path / "3", 3.0, model="gpt", config={"model.num_heads": 4})
    assert [variant.name for variant in compared(tmp_path).variants] == [
        *("lstm", "lstm callbacks.mine=mine.Stop patience=9", "gpt")
    ]


def test_the_same_weights_are_the_same_setting_wherever_they_lie(tmp_path: Path) -> None:
    for seed, place in enumerate(("outputs/a", "moved/b"), 1):
        begun = {"init_from": place}
        fake_runs.run(tmp_path / str(seed), 1.0 + seed, seed=seed, config=begun, parent=PARENT, lineage=[PARENT])
    assert [variant.name for variant in compared(tmp_path).variants] == ["lstm"]


def test_other_weights_at_the_same_place_are_another_setting(tmp_path: Path) -> None:
    for name, parent in (("1", PARENT), ("2", OTHER_PARENT)):
        begun = {"init_from": "outputs/a"}
        fake_runs.run(tmp_path / name, float(name), config=begun, parent=parent, lineage=[parent])
    assert [variant.name for variant in compared(tmp_path).variants] == [
        *("lstm init_from=outputs/a@dddddddd", "lstm init_from=outputs/a@eeeeeeee")
    ]


# -- replicates ----------------------------------------------------------------------------------------------------


def test_of_equal_seeds_one_counts_and_the_others_count(tmp_path: Path) -> None:
    seeds(tmp_path, "a", 1.0, 1.0, 1.1)
    found = compared(tmp_path)
    assert found.variants[0].values == (1.0, 1.1)
    assert [len(variant.entries) for variant in found.variants] == [3]
    assert found.remarks == []
    assert "seeds 1 and 2 gave the same numbers" in found.caveats[0]


def test_a_figure_that_is_equal_by_chance_makes_no_two_runs_one(tmp_path: Path) -> None:
    for seed in (1, 2):
        metrics = {"validation": {"perplexity": 4.0 + seed / 10, "bits_per_byte": 1.5}}
        fake_runs.run(tmp_path / str(seed), 1.5, seed=seed, metrics=metrics)
    found = compared(tmp_path)
    assert (found.variants[0].values, found.caveats) == ((1.5, 1.5), [])


def test_an_option_that_changed_nothing_is_named(tmp_path: Path) -> None:
    seeds(tmp_path, "a", 1.0, 1.1)
    seeds(tmp_path, "b", 1.0, 1.1, config={"model.dim": 64})
    assert compared(tmp_path).caveats == [
        "lstm dim=16 and lstm dim=64 gave the same numbers to the last digit: what differs between them changed nothing"
    ]


def test_a_run_that_went_on_with_other_code_says_so(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "a", code=[CLEAN, LATER])
    assert compared(tmp_path).caveats == [f"{tmp_path.name}/a: went on with other code: commits 1111111, then 2222222"]


# -- by ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", LAYOUT)
def test_a_layout_sets_runs_apart_where_it_is_asked_for(tmp_path: Path, word: str) -> None:
    seeds(tmp_path, "a", 1.0, 1.1, config={word: "1"})
    seeds(tmp_path, "b", 2.0, 2.1, config={word: "2"})
    (said,) = compared(tmp_path, by=[word]).sentences
    short = word.rpartition(".")[2]
    assert said.startswith(f"no significant difference: at {short} 1 against {short} 2: ") or said.startswith(
        f"at {short} 1 against"
    )


def test_labels_and_tags_set_runs_apart(tmp_path: Path) -> None:
    seeds(tmp_path, "a", 1.0, 1.01, config={"run": {"label": "base", "tags": ["x", "b"]}})
    seeds(tmp_path, "b", 2.0, 2.01, config={"run": {"label": None, "tags": []}})
    assert [variant.name for variant in compared(tmp_path, by=["label"]).variants] == [
        *("lstm label=base", "lstm label=none")
    ]
    assert [variant.name for variant in compared(tmp_path, by=["tag"]).variants] == ["lstm tag=b+x", "lstm tag=none"]
    assert len(compared(tmp_path).variants) == 1
    (said,) = compared(tmp_path, by=["label,tag"]).sentences
    assert said.startswith("at label base, tag b+x against label none, tag none: lstm label=base tag=b+x beats ")


def test_by_holds_against_each_other_what_differs_in_nothing_else(tmp_path: Path) -> None:
    for model, value in (("lstm", 1.0), ("gpt", 3.0)):
        seeds(tmp_path, f"{model}-old", value + 0.5, value + 0.51, model=model, code=[CLEAN])
        seeds(tmp_path, f"{model}-new", value, value + 0.01, model=model, code=[LATER])
    found = compared(tmp_path, by=["commit"])
    assert [said.partition(" by ")[0] for said in found.sentences] == [
        f"at commit 2222222 against commit 1111111: {model} commit=2222222 beats {model} commit=1111111"
        for model in ("lstm", "gpt")
    ]
    assert found.caveats[0].endswith("that makes 2 comparisons, each of which holds at 95 % by itself")


def test_where_more_than_by_differs_it_is_said(tmp_path: Path) -> None:
    seeds(tmp_path, "a", 1.0, 1.01, config={"run": {"label": "base", "tags": []}})
    seeds(tmp_path, "b", 2.0, 2.01, config={"run": {"label": "mine", "tags": []}, "model.dim": 64})
    found = compared(tmp_path, by=["label"])
    assert found.sentences[0].startswith("at label base against label mine: lstm label=base dim=16 beats ")
    assert found.caveats == ["--by label: these differ in model.dim as well"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({0.001: 1.5, 0.003: 1.6, 0.01: 1.7}, ["lstm lr=0.001: no smaller optimizer.lr was tried, and one may be"]),
        ({0.001: 1.7, 0.003: 1.6, 0.01: 1.5}, ["lstm lr=0.01: no larger optimizer.lr was tried, and one may be"]),
        ({0.001: 1.7, 0.003: 1.5, 0.01: 1.6}, []),
        ({0.001: 1.7, 0.01: 1.5}, []),  # of two values one is always the larger
    ],
)
def test_a_best_rate_at_an_end_of_those_that_were_tried_is_said_of_each_model(
    tmp_path: Path, values: dict[float, float], told: list[str]
) -> None:
    for model in ("lstm", "gru"):
        for lr, value in values.items():
            for seed in (1, 2):
                changes = {"optimizer.lr": lr}
                path = tmp_path / f"{model}{lr}{seed}"
                fake_runs.run(path, value + seed / 100 + (model == "gru"), model=model, seed=seed, config=changes)
    (found,) = conclusions(read([tmp_path]), by=["lr"])
    said = [line for line in found.caveats if "was tried" in line]
    expected = [*told, *(line.replace("lstm", "gru") for line in told)]
    assert len(said) == len(expected)
    assert all(map(str.startswith, said, expected))
    (other,) = conclusions(read([tmp_path]))
    assert not [line for line in other.caveats if "was tried" in line]


def test_by_what_is_the_same_in_all_says_so(tmp_path: Path) -> None:
    seeds(tmp_path, "a", 1.0, 1.01, code=[CLEAN])
    seeds(tmp_path, "b", 2.0, 2.01, code=[CLEAN], config={"model.dim": 64})
    assert compared(tmp_path, by=["commit"]).caveats == ["--by commit: it is the same in all of these runs"]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("commit", "--by commit: no run says at which commit it ran; train in a git checkout"),
        ("label", "--by label: no run says its label; train with run.label=NAME"),
        ("tag", "--by tag: no run says its tag; train with run.tags=[NAME]"),
        ("model.dmi", "--by model.dmi: no run has model.dmi; did you mean model.dim?"),
        ("_target_", "--by _target_: several keys end so; say which: "),
    ],
)
def test_what_no_run_has_is_refused_in_one_line(tmp_path: Path, word: str, told: str) -> None:
    fake_runs.run(tmp_path / "1")
    with pytest.raises(UserError) as caught:
        compared(tmp_path, by=[word])
    assert len(caught.value.lines) == 1
    assert caught.value.lines[0].startswith(told)


def test_variants_of_equal_numbers_are_named_in_one_line_for_each_set(tmp_path: Path) -> None:
    for place in range(6):
        fake_runs.run(tmp_path / f"a{place}", 1.5, config={"model.dim": 8 * (place + 1)})
    for place in range(2):
        fake_runs.run(tmp_path / f"b{place}", 1.7, config={"model.dim": 80 * (place + 1)})
    fake_runs.run(tmp_path / "c", 1.9, config={"model.dim": 500})
    (found,) = conclusions(read([tmp_path]))
    said = [line for line in found.caveats if "gave the same numbers" in line]
    why = "gave the same numbers to the last digit: what differs between them changed nothing"
    assert said == [f"lstm dim=8, lstm dim=16, lstm dim=24 and 3 more {why}", f"lstm dim=80 and lstm dim=160 {why}"]
