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
from tests.support.fake_runs import seeds

BPE = "seqtrain.data.tokenizers.recipes.BPE"
PARENT = "d" * 32
CLEAN, LATER = "1" * 40, "2" * 40


def compared(folder: Path, **options: Any) -> Conclusion:
    (found,) = conclusions(read([folder]), **options)
    return found


# -- what a run began with; tests/compare/test_misleading.py has the other cases -----------------------------------


def test_init_from_is_named_and_not_a_tokenizer_that_nobody_used(tmp_path: Path) -> None:
    for version, tokenizer, said in (
        ("older", BPE, {}),
        ("own", "seqtrain.data.tokenizers.recipes.Char", {"lineage": [PARENT]}),
    ):
        begun = {"init_from": "outputs/pretrained", "tokenizer._target_": tokenizer}
        seeds(tmp_path / version, "tuned", 1.0, 1.0, config=begun, parent=PARENT, **said)
        seeds(tmp_path / version, "fresh", 2.13, 2.13)
        found = compared(tmp_path / version)
        assert found.sentences == [
            "no conclusion: lstm init_from=pretrained 1.000, lstm init_from=null 2.130 bits per byte: "
            "seeds that give the same number count as one, so the spread is unknown"
        ], version
        assert found.caveats == [
            f"lstm init_from={parent}: seeds 1 and 2 gave the same numbers ({version}/{name}-1, "
            f"{version}/{name}-2): the seed changed nothing, so they count as one"
            for parent, name in (("pretrained", "tuned"), ("null", "fresh"))
        ], version


def test_where_the_schedule_asks_not_for_the_length_an_extended_run_is_folded(tmp_path: Path) -> None:
    """Such a run equals one that was planned so long, to the bit: tests/cli/test_extend.py."""
    for schedule in ("Constant", "InverseSqrt"):
        config = {"schedule._target_": f"seqtrain.training.optim.schedules.{schedule}"}
        fake_runs.run(tmp_path / schedule / "fresh", 1.5, config=config)
        change = "trainer.max_steps: 50 -> 100 at step 50"
        fake_runs.run(tmp_path / schedule / "extended", 1.6, seed=2, config=config, extended=[change])
        found = compared(tmp_path / schedule)
        assert [variant.values for variant in found.variants] == [(1.6, 1.5)]
        assert found.caveats == []


# -- replicates ----------------------------------------------------------------------------------------------------


def test_a_figure_that_is_equal_by_chance_makes_no_two_runs_one(tmp_path: Path) -> None:
    for seed in (1, 2):
        metrics = {"validation": {"perplexity": 4.0 + seed / 10, "bits_per_byte": 1.5}}
        fake_runs.run(tmp_path / str(seed), 1.5, seed=seed, metrics=metrics)
    found = compared(tmp_path)
    assert (found.variants[0].values, found.caveats) == ((1.5, 1.5), [])


def test_a_run_that_went_on_with_other_code_says_so(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "a", code=[CLEAN, LATER])
    assert compared(tmp_path).caveats == [f"{tmp_path.name}/a: resumed with other code: commits 1111111, then 2222222"]


# -- by ------------------------------------------------------------------------------------------------------------


def test_a_layout_sets_runs_apart_where_it_is_asked_for(tmp_path: Path) -> None:
    for word in LAYOUT:
        seeds(tmp_path / word, "a", 1.0, 1.1, config={word: "1"})
        seeds(tmp_path / word, "b", 2.0, 2.1, config={word: "2"})
        (said,) = compared(tmp_path / word, by=[word]).sentences
        short = word.rpartition(".")[2]
        assert said.removeprefix("no significant difference: ").startswith(f"at {short} 1 against {short} 2: ")


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
    (line,) = compared(tmp_path, by=["label"]).caveats
    assert "if the names were given after a look at the results, they make the difference themselves" in line


def test_by_holds_against_each_other_what_differs_in_nothing_else(tmp_path: Path) -> None:
    for model, value in (("lstm", 1.0), ("gpt", 3.0)):
        seeds(tmp_path, f"{model}-old", value + 0.5, value + 0.51, model=model, code=[CLEAN])
        seeds(tmp_path, f"{model}-new", value, value + 0.01, model=model, code=[LATER])
    found = compared(tmp_path, by=["commit"])
    assert [said.partition(" by ")[0] for said in found.sentences] == [
        f"at commit 2222222 against commit 1111111: {model} commit=2222222 beats {model} commit=1111111"
        for model in ("lstm", "gpt")
    ]
    assert found.caveats[0].endswith("that makes 2 comparisons, each at 95 % by itself")


def test_where_more_than_by_differs_or_nothing_does_it_is_said(tmp_path: Path) -> None:
    seeds(tmp_path, "a", 1.0, 1.01, code=[CLEAN], config={"run": {"label": "base", "tags": []}})
    seeds(tmp_path, "b", 2.0, 2.01, code=[CLEAN], config={"run": {"label": "mine", "tags": []}, "model.dim": 64})
    found = compared(tmp_path, by=["label"])
    assert found.sentences[0].startswith("at label base against label mine: lstm label=base dim=16 beats ")
    assert found.caveats == ["--by label: these differ in model.dim as well"]
    assert compared(tmp_path, by=["commit"]).caveats == ["--by commit: it is the same in all of these runs"]


def test_a_best_rate_at_an_end_of_those_that_were_tried_is_said_of_each_model(tmp_path: Path) -> None:
    cases: list[tuple[dict[float, float], str]] = [
        ({0.001: 1.5, 0.003: 1.6, 0.01: 1.7}, "lr=0.001: no smaller optimizer.lr was tried; a smaller one may be"),
        ({0.001: 1.7, 0.003: 1.6, 0.01: 1.5}, "lr=0.01: no larger optimizer.lr was tried; a larger one may be"),
        ({0.001: 1.7, 0.003: 1.5, 0.01: 1.6}, ""),
        ({0.001: 1.7, 0.01: 1.5}, ""),  # of two values one is always the larger
    ]
    for place, (values, expected) in enumerate(cases):
        home = tmp_path / str(place)
        for model in ("lstm", "gru"):
            for lr, value in values.items():
                fake_runs.run(home / f"{model}{lr}", value + (model == "gru"), model=model, config={"optimizer.lr": lr})
        said = [line for line in compared(home, by=["lr"]).caveats if "was tried" in line]
        starts = [f"{model} {expected}" for model in ("lstm", "gru") if expected]
        assert len(said) == len(starts), values
        assert all(map(str.startswith, said, starts)), values
        assert not [line for line in compared(home).caveats if "was tried" in line]


def test_what_no_run_has_is_refused_in_one_line(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "1")
    for word, told in {
        "commit": "no run has recorded its commit; train in a git checkout",
        "label": "no run has recorded its label; train with run.label=NAME",
        "tag": "no run has recorded its tag; train with run.tags=[NAME]",
        "model.dmi": "no run has model.dmi; did you mean model.dim?",
        "_target_": "several keys end in it; choose one: ",
    }.items():
        with pytest.raises(UserError) as caught:
            compared(tmp_path, by=[word])
        (line,) = caught.value.lines
        assert line.startswith(f"--by {word}: {told}")


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
