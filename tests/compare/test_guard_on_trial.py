"""What strangers found who tried to make a comparison say something wrong: a law for each of their cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqtrain.compare import compared as api
from seqtrain.compare import paper_table
from seqtrain.compare.entries import read
from seqtrain.compare.verdict import Conclusion, conclusions
from seqtrain.errors import UserError
from tests.compare.test_misleading import told
from tests.support import fake_runs
from tests.support.fake_runs import seeds

WORSE = (1.70, 1.71, 1.72)
BETTER = (1.50, 1.51, 1.52)


def found(folder: Path, **options: Any) -> Conclusion:
    """The one group of a folder."""
    (group,) = conclusions(read([folder]), **options)
    return group


def test_a_run_whose_config_was_edited_does_not_count(tmp_path: Path) -> None:
    seeds(tmp_path, "a", *WORSE)
    seeds(tmp_path, "b", *BETTER, model="gru", identity="0" * 16)
    verdict = found(tmp_path)
    assert "beats" not in " ".join(verdict.sentences)
    assert "config.yaml was changed after the training" in verdict.remarks[0]


def test_seeds_that_differ_in_rounding_alone_are_one_replicate(tmp_path: Path) -> None:
    for step in (1e-9, -2e-8):
        seeds(tmp_path / str(step), "a", *WORSE)
        seeds(tmp_path / str(step), "b", 1.5, 1.5 + step, 1.5 + 2 * step, model="gru")
        verdict = found(tmp_path / str(step))
        assert "beats" not in " ".join(verdict.sentences)
        assert "seeds 1, 2 and 3 gave the same numbers (" in verdict.caveats[0]
        assert verdict.caveats[0] in api.compare([tmp_path / str(step)]).remarks
    seeds(tmp_path / "beyond", "b", 1.5, 1.50001, 1.50002)
    assert len(found(tmp_path / "beyond").variants[0].values) == 3


def test_where_says_how_many_seeds_of_the_same_variants_it_hides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds(tmp_path, "a", 1.7, 1.3, 1.71, 1.3)
    seeds(tmp_path, "b", 1.5, 1.9, 1.51, 1.9, model="gru")
    line = (
        "--where hides 4 finished runs of the same variants: seeds that were chosen after a look at their results "
        "prove nothing"
    )
    (group,) = told(capsys, tmp_path, "--where", "seed=1,3")
    assert line in group["notes"]
    assert line in api.compare([tmp_path], where=["seed=1,3"]).remarks
    # Another variant may be left out by whoever likes.
    (group,) = told(capsys, tmp_path, "--where", "model=gru")
    assert group["notes"] == []


def test_variants_of_unlike_commits_say_so_unless_by_names_them(tmp_path: Path) -> None:
    seeds(tmp_path, "a", *WORSE, commit="a" * 40)
    seeds(tmp_path, "b", *BETTER, model="gru", commit="b" * 40)
    line = (
        "the code differs: gru of commit bbbbbbb, lstm of commit aaaaaaa; a difference may come from it; "
        "--by commit shows it in the names"
    )
    assert found(tmp_path).caveats == [line]
    assert line not in found(tmp_path, by=["commit"]).caveats


def test_of_seeds_that_failed_the_verdict_says_that_it_is_on_the_others(tmp_path: Path) -> None:
    seeds(tmp_path, "a", *BETTER)
    fake_runs.run(tmp_path / "4", 9.0, seed=4, status="failed", reason="the loss is no number")
    assert "lstm: 1 of 4 seeds failed, and the verdict is on the others" in found(tmp_path).caveats
    fake_runs.run(tmp_path / "again", 1.53, seed=4)  # then nothing is missing
    assert found(tmp_path).caveats == []


def test_equal_tokens_of_unlike_tokenizers_and_steps_of_unlike_batches_are_said(tmp_path: Path) -> None:
    seeds(tmp_path, "a", *WORSE)
    other = fake_runs.HASHES | {"tokenizer": "e" * 32}
    seeds(tmp_path, "b", *BETTER, model="gru", hashes=other, unknown={"validation": 0})
    assert any("tokenizers cut text differently" in line for line in found(tmp_path, x="tokens").caveats)
    assert not any("cut text differently" in line for line in found(tmp_path, x="flops").caveats)
    for seed in (1, 2, 3):
        record = tmp_path / f"b-{seed}" / "metrics.jsonl"
        record.write_text(record.read_text().replace('"tokens": 1000', '"tokens": 4000'))
    assert "--x steps: a step trains on 20 to 80 tokens" in " ".join(found(tmp_path, x="steps").caveats)


def test_seeds_that_share_a_parent_say_that_its_chance_is_not_in_the_interval(tmp_path: Path) -> None:
    begun = {"config": {"init_from": "outputs/parent"}, "parent": "d" * 32, "lineage": ["d" * 32]}
    seeds(tmp_path, "a", *BETTER, **begun)
    seeds(tmp_path, "b", *WORSE)
    (line,) = [line for line in found(tmp_path).caveats if "other seeds of that run" in line]
    assert line.startswith("lstm init_from=parent: all seeds began with the weights of one run")


def test_a_test_split_that_training_read_is_concluded_from_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds(tmp_path, "a", *WORSE)
    seeds(tmp_path, "b", *BETTER, model="gru")
    for name in ("a", "b"):
        for seed in (1, 2, 3):
            share = 1.0 if name == "b" else 0.05
            leak = {"share": share, "kind": "text", "asked": 900}
            fake_runs.evaluated(tmp_path / f"{name}-{seed}", 1.0 + seed / 100, leak=leak)
    clean, read_before = told(capsys, tmp_path, "--split", "test", "--target", "9")
    assert read_before["verdict"] == [
        f"not compared: test: 100.0 % of its text occurs in train too ({tmp_path.name}/b-1 and 2 more): so much may "
        "be learnt by heart"
    ]
    assert "test: 5.0 % of its text occurs in train too (all runs)" in clean["notes"]


def test_a_paper_s_caption_says_why_nothing_is_concluded(tmp_path: Path) -> None:
    leak = {"validation": {"train": {"share": 1.0, "kind": "text", "asked": 50}}}
    seeds(tmp_path, "a", *WORSE, leaks=leak)
    seeds(tmp_path, "b", *BETTER, model="gru", leaks=leak)
    assert "Not compared: validation: 100.0 % of its text occurs in train too" in paper_table.markdown(
        paper_table.tables([found(tmp_path)])
    )


def test_a_parent_for_each_seed_folds_when_asked_and_the_output_tells_how(tmp_path: Path) -> None:
    for seed, value in enumerate(BETTER, 1):
        begun = {"config": {"init_from": f"outputs/parent-{seed}"}, "parent": f"{seed}" * 32, "lineage": []}
        fake_runs.run(tmp_path / f"a-{seed}", value, seed=seed, **begun)
    seeds(tmp_path, "b", *WORSE)
    apart = found(tmp_path)
    assert "beats" not in " ".join(apart.sentences)
    assert apart.caveats[-1].endswith("differ in init_from alone; --across init_from makes one variant of them")
    first, second = found(tmp_path, across=["init_from"]).sentences
    assert first.startswith("across init_from: runs that began with the weights of several runs")
    assert second.startswith("lstm init_from=any beats lstm init_from=null by 0.200")
    with pytest.raises(UserError, match="--across init_from: separates no runs here; leave it out"):
        conclusions(read([tmp_path / f"b-{seed}" for seed in (1, 2, 3)]), across=["init_from"])


def test_equal_ends_of_unlike_bests_do_not_say_that_nothing_changed(tmp_path: Path) -> None:
    seeds(tmp_path, "a", *WORSE, values=[1.0])
    seeds(tmp_path, "b", *WORSE, model="gru", values=[1.4])
    assert "changed nothing" not in " ".join(found(tmp_path, checkpoint="best").caveats)
