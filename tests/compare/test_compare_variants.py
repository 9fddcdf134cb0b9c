"""The variants of a comparison: which runs count in each, at which cost they are measured, and what they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqtrain.compare.entries import read
from seqtrain.compare.groups import groups
from seqtrain.compare.settings import differing_keys
from seqtrain.compare.variants import variants
from seqtrain.compare.verdict import conclusions, sentences
from seqtrain.errors import UserError
from tests.support import fake_runs


def test_a_seed_that_was_run_twice_counts_once(tmp_path: Path) -> None:
    fake_runs.sweep(tmp_path / "one", {"lstm": (1.0, 1.1)})
    fake_runs.sweep(tmp_path / "again", {"lstm": (1.0, 1.1)})
    (found,) = conclusions(read([tmp_path]))
    (variant,) = found.variants
    assert sorted(variant.values) == [1.0, 1.1]
    assert len(variant.entries) == 4
    names = f"{tmp_path.name}/one/000, {tmp_path.name}/one/001"
    assert found.remarks == [f"lstm: 2 finished runs do not count: of a seed that has a value ({names})"]
    (found,) = conclusions(read([tmp_path / "one", tmp_path / "again" / "000"]))
    assert found.remarks == ["lstm: 1 finished run does not count: of a seed that has a value (000)"]
    other = fake_runs.run(tmp_path / "other", 1.7)  # the first of a seed counts
    for paths, value in (([tmp_path / "one" / "000", other], 1.0), ([other, tmp_path / "one" / "000"], 1.7)):
        (found,) = conclusions(read(paths))
        assert found.variants[0].values == (value,)


NUMBERS_STAY: list[dict[str, Any]] = [
    {"data.path": "elsewhere.txt"},  # the same text, as its hash says
    {"callbacks.mine": {"_target_": "seqtrain.training.callbacks.samples.Samples", "every": 9}},
    {"trainer.profile": "steps"},
    *({f"trainer.{name}": 7} for name in ("log_every", "checkpoint_every", "keep_last", "keep_best")),
    *({f"data.{name}": 7} for name in ("workers", "eval_batch_size")),
    {"logger": {"wandb": {"project": "other"}}, "run_dir": "x"},
    *({f"trainer.{name}": 7} for name in ("devices", "num_nodes", "accumulate", "threads", "strategy")),
    {"trainer.accelerator": "cpu"},
    {"layer_decay": 1, "schedule.final": 0},  # 1 is 1.0
]
NUMBERS_CHANGE: list[dict[str, Any]] = [
    {"callbacks.mine": {"_target_": "mine.Stop", "patience": 9}},  # may end the training
    {"callbacks.ema": {"_target_": "seqtrain.training.optim.averaging.AveragedWeights", "decay": 0.9}},
    *({f"trainer.{name}": 7} for name in ("max_steps", "clip", "precision")),
    *({key: 7} for key in ("model.dim", "optimizer.lr", "schedule.warmup", "tbptt.k2", "data.batch_size")),
    *({key: 7} for key in ("layer_decay", "init_from", "freeze", "task.tied")),
]


def test_runs_are_one_variant_where_nothing_differs_that_changes_a_number(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "same" / "0")
    for place, changes in enumerate(NUMBERS_STAY, 1):
        fake_runs.run(tmp_path / "same" / str(place), seed=place + 1, config=changes)
    for place, changes in enumerate(NUMBERS_CHANGE):
        fake_runs.run(tmp_path / "unlike" / str(place), config=changes)
    (group,) = groups(read([tmp_path / "same"]))
    assert [variant.name for variant in variants(group)] == ["lstm"]
    (group,) = groups(read([tmp_path]))
    names = [variant.name for variant in variants(group)]
    assert len(names) == 1 + len(NUMBERS_CHANGE), names


def test_a_cost_that_one_seed_does_not_know_is_none_of_the_variant(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "1")
    fake_runs.run(tmp_path / "2", 1.6, seed=2, flops=None)
    (group,) = groups(read([tmp_path]))
    assert set(variants(group)[0].costs) == {"steps", "tokens", "seconds"}


# -- at equal x --------------------------------------------------------------------------------------------------


def test_at_equal_x_each_run_counts_as_it_was_when_the_shortest_ended(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        fake_runs.run(
            tmp_path / f"lstm{seed}", 1.0 + seed / 100, values=(3.0 + seed / 100, 2.0 + seed / 100), seed=seed
        )
        fake_runs.run(tmp_path / f"gpt{seed}", 1.5 + seed / 100, model="gpt", values=(2.5,), seed=seed)
    (group,) = groups(read([tmp_path]))
    assert [variant.mean for variant in variants(group)] == [pytest.approx(1.02), pytest.approx(1.52)]
    equal = variants(group, x="tokens")
    assert [(variant.name, variant.mean) for variant in equal] == [
        ("gpt", pytest.approx(1.52)),
        ("lstm", pytest.approx(2.02)),
    ]
    (said,) = sentences(group, equal, x="tokens")
    assert said.startswith("gpt beats lstm by 0.500")
    assert said.endswith("at equal tokens (2k)")


def test_a_variant_that_is_measured_well_before_x_says_where(tmp_path: Path) -> None:
    for speed, says in ((60, "20; gpt at 16.7"), (50.25, "20")):
        home = tmp_path / str(speed)
        for seed in (1, 2):
            spread = seed / 100
            fake_runs.run(home / f"lstm{seed}", 1.0 + spread, values=(2.0,), seed=seed, tokens_a_second=100)
            past = {"values": (2.5 + spread,), "tokens_a_second": speed}
            fake_runs.run(home / f"gpt{seed}", 1.5, model="gpt", seed=seed, **past)
        (group,) = groups(read([home]))
        (said,) = sentences(group, variants(group, x="seconds"), x="seconds")
        assert said.startswith("lstm beats gpt by 1.5")
        assert f"at equal seconds ({says})" in said


def test_a_run_that_was_not_validated_so_early_is_refused(tmp_path: Path) -> None:
    fake_runs.run(tmp_path / "fast", values=(2.0,), tokens_a_second=1000)
    fake_runs.run(tmp_path / "slow", model="gpt", values=(2.0,), tokens_a_second=10)
    (group,) = groups(read([tmp_path]))
    with pytest.raises(UserError, match=r"--x seconds: .*slow has no validation before seconds=2"):
        variants(group, x="seconds")


def test_best_of_several_validations_says_of_how_many(tmp_path: Path) -> None:
    values = {"lstm": (1.5, 1.6), "gpt": (1.7, 1.8)}
    fake_runs.sweep(tmp_path / "sweep", values, values=(1.2, 1.1, 1.3))
    (last,) = conclusions(read([tmp_path]))
    (best,) = conclusions(read([tmp_path]), checkpoint="best")
    assert [variant.mean for variant in last.variants] == [pytest.approx(1.55), pytest.approx(1.75)]
    assert [variant.mean for variant in best.variants] == [pytest.approx(1.1)] * 2
    assert all("same number" in said for said in best.sentences)
    fake_runs.run(tmp_path / "more", 1.0, seed=9, values=(1.2,))
    (mixed,) = conclusions(read([tmp_path]), checkpoint="best")
    assert "best of 3.33 and 4 validations; " in mixed.sentences[0]
    bleu = {"metric": "bleu", "monitor": ["bleu", "max"], "config": fake_runs.TRANSLATION}
    fake_runs.run(tmp_path / "bleu", 21.0, values=(20.0, 22.0), **bleu)  # more is better
    (found,) = conclusions(read([tmp_path / "bleu"]), checkpoint="best")
    assert found.variants[0].mean == 22.0


def test_costs_that_differ_by_more_than_a_tenth_are_in_the_first_sentence_as_multiples(tmp_path: Path) -> None:
    for seed in (1, 2):
        many = {"parameters": {"total": 30_720}}
        fake_runs.run(tmp_path / f"lstm{seed}", 1.0 + seed / 100, values=(2.0,) * 3, seed=seed, **many)
        fake_runs.run(tmp_path / f"gpt{seed}", 2.0 + seed / 100, model="gpt", seed=seed, flops_per_token=9000.0)
    (found,) = conclusions(read([tmp_path]))
    ratios = "12 times the parameters, 4 times the FLOPs, 4 times the seconds"
    assert found.sentences[0].endswith(f"after 200 and 50 steps, 4k and 1k tokens, with {ratios}")
    (equal,) = conclusions(read([tmp_path]), x="tokens")
    assert "at equal tokens (1k), with 12 times the parameters, 0.67 times the FLOPs for lstm; " in equal.sentences[0]
    for seed in (1, 2):
        near = {"parameters": {"total": 28_000}, "flops": 23e6, "seconds": 37.0}
        fake_runs.run(tmp_path / f"rnn{seed}", 3.0 + seed / 100, values=(2.0,) * 3, model="rnn", seed=seed, **near)
    (found,) = conclusions(read([tmp_path]))
    share = "1.1 to 12 times the parameters, 1 to 4 times the FLOPs, 1.1 to 4 times the seconds"
    assert found.sentences[0] == f"best: lstm, ahead of all 2 others; it has {share} of the others"
    assert found.sentences[2].startswith("lstm beats rnn")
    assert found.sentences[2].endswith(") after 4k tokens each")


def test_a_state_that_differs_by_more_than_a_tenth_is_said_and_one_that_is_not_known_is_not(tmp_path: Path) -> None:
    for seed in (1, 2):
        fake_runs.run(tmp_path / f"one/lstm{seed}", 1.0 + seed / 100, seed=seed, state=64)
        fake_runs.run(tmp_path / f"one/gru{seed}", 2.0 + seed / 100, model="gru", seed=seed, state=32)
        fake_runs.run(tmp_path / f"near/rnn{seed}", 3.0 + seed / 100, model="rnn", seed=seed, state=59)
        fake_runs.run(tmp_path / f"none/gpt{seed}", 4.0 + seed / 100, model="gpt", seed=seed)
    (found,) = conclusions(read([tmp_path / "one"]))
    assert found.sentences[0].endswith("after 1k tokens each, with 2 times the state")
    (found,) = conclusions(read([tmp_path / "one", tmp_path / "near", tmp_path / "none"]))
    assert found.sentences[0].endswith("it has 1.1 to 2 times the state of the others")
    assert [line.endswith("tokens each") for line in found.sentences[1:]] == [False, True, True]


# -- names -------------------------------------------------------------------------------------------------------


PARENT, OTHER_PARENT = "d" * 32, "e" * 32
ALL = {"layer_decay": 0.5, "tbptt.k2": 9, "tbptt.k1": 9, "schedule.warmup": 5, "trainer.precision": "64-true"}
# Runs, and the names of their variants.
NAMES: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "typed options that differ": (
        [{}, {"config": {"model.dim": 64}}, {"model": "gpt", "config": {"model.dim": 32, "optimizer.lr": 0.1}}],
        ["lstm dim=16", "lstm dim=64", "gpt dim=32 lr=0.1"],
    ),
    "every one of them": (
        [{}, {"config": {**ALL, "model.dim": 64}}],
        [
            "lstm dim=16 layer_decay=1 warmup=50 k1=8 k2=8 precision=32-true",
            "lstm dim=64 layer_decay=0.5 warmup=5 k1=9 k2=9 precision=64-true",
        ],
    ),
    "an option that one alone has, unless of another model": (
        [
            {},
            {"config": {"callbacks.mine": {"_target_": "mine.Stop", "patience": 9}}},
            {"model": "gpt", "config": {"model.num_heads": 4}},
        ],
        ["lstm", "lstm callbacks.mine=mine.Stop patience=9", "gpt"],
    ),
    "few digits": (
        [{"config": {"optimizer.lr": 0.3000638904270512}}, {"config": {"optimizer.lr": 0.01234567}}],
        ["lstm lr=0.3001", "lstm lr=0.01235"],
    ),
    "digits that do not tell apart": (
        [{"config": {"optimizer.lr": 0.0012341}}, {"config": {"optimizer.lr": 0.0012342}}],
        ["lstm lr=0.001234 runs/0", "lstm lr=0.001234 runs/1"],
    ),
    "the same weights wherever they lie": (
        [
            {"seed": seed, "config": {"init_from": place}, "parent": PARENT, "lineage": [PARENT]}
            for seed, place in enumerate(("outputs/a", "moved/b"))
        ],
        ["lstm"],
    ),
    "other weights at the same place": (
        [
            {"config": {"init_from": "outputs/a"}, "parent": parent, "lineage": [parent]}
            for parent in (PARENT, OTHER_PARENT)
        ],
        ["lstm init_from=outputs/a@dddddddd", "lstm init_from=outputs/a@eeeeeeee"],
    ),
}


def test_a_variant_is_named_by_what_was_typed_and_differs(tmp_path: Path) -> None:
    for number, (case, (runs, expected)) in enumerate(NAMES.items()):
        for place, options in enumerate(runs):
            fake_runs.run(tmp_path / str(number) / "runs" / str(place), 1.0 + place, **options)
        (group,) = groups(read([tmp_path / str(number) / "runs"]))
        assert [variant.name for variant in variants(group)] == expected, case


def test_what_follows_from_another_option_is_in_no_name_but_in_the_line_below_unless_it_alone_tells_apart(
    tmp_path: Path,
) -> None:
    follows = {"model.dim": 32, "optimizer.lr": 0.1, "budget": "params:1e5"}
    fake_runs.run(tmp_path / "1", 1.0, config={"budget": "params:1e5"})
    fake_runs.run(tmp_path / "2", 2.0, model="gpt", config=follows, command=["seqtrain", "train", "budget=params:1e5"])
    (found,) = conclusions(read([tmp_path]))
    assert [variant.name for variant in found.variants] == ["lstm", "gpt"]
    assert found.caveats == ["other settings that differ: model.dim (16, 32), optimizer.lr (0.006, 0.1)"]
    fake_runs.run(tmp_path / "3", 3.0, config=follows, command=["seqtrain.train", "experiment=mine"])
    (found,) = conclusions(read([tmp_path]))
    assert [variant.name for variant in found.variants] == ["lstm dim=16", "gpt", "lstm dim=32"]


def test_an_option_of_a_mixer_that_a_run_does_not_have_is_no_setting_in_which_it_differs() -> None:
    lstm = {"model": "stack", "model.mixers": ["lstm"], "model.options.lstm": "Recurrent", "model.options.lstm.conv": 0}
    other = {"model": "stack", "model.mixers": ["kda"], "model.options.kda": "KDA", "model.options.kda.betas": 1}
    older = {name: value for name, value in lstm.items() if name != "model.options.lstm.conv"}
    assert differing_keys([lstm, other]) == ["model.mixers"]
    assert differing_keys([lstm, older]) == ["model.options.lstm.conv"], "both have the mixer"
