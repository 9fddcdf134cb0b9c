"""What the page says first, as data: differences as numbers, overfitting, baselines, progress, links and commands."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from seqtrain.compare import entries
from seqtrain.compare.baselines import baselines
from seqtrain.compare.comparisons import compared
from seqtrain.compare.entries import Entry, read
from seqtrain.compare.page import content, course
from seqtrain.compare.page.content import links
from seqtrain.compare.page.course import progress, progress_words, resume_command
from seqtrain.compare.verdict import Conclusion, conclusions
from seqtrain.compare.verdict import Conclusion as Found
from tests.support import fake_runs

SPREAD = {"lstm": [1.50, 1.51, 1.52], "gru": [1.51, 1.52, 1.54], "gpt": [1.80, 1.81, 1.82]}


def concluded(folder: Path, **options: Any) -> Found:
    """The only group of the runs below a folder."""
    found = conclusions(read([folder]), **options)
    assert len(found) == 1
    return found[0]


def group(found: Conclusion) -> dict[str, Any]:
    """What the page knows of a group."""
    drawn = content.all_curves(found.group.entries)
    return content.groups_and_runs([found], drawn, [])["groups"][0]


def answers(found: Conclusion) -> dict[str, str]:
    return dict(group(found)["answers"])


def started(path: Path, records: list[dict[str, Any]], config: dict[str, Any] | None = None, **summary: Any) -> Entry:
    """A run of these records that has not come to its end."""
    made = fake_runs.run(path, config=config, **{"status": "interrupted", **summary})
    known = json.loads((made / "summary.json").read_text())
    for name in ("metrics", "best", "steps", "tokens", "flops", "seconds", "tokens_per_second"):
        del known[name]
    (made / "summary.json").write_text(json.dumps(known))
    (made / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return read([made])[0]


# -- variants ----------------------------------------------------------------------------------------------------


def test_a_row_calls_a_difference_shown_exactly_where_a_sentence_says_beats(tmp_path: Path) -> None:
    found = concluded(fake_runs.sweep(tmp_path / "sweep", SPREAD))
    known = group(found)
    expected = {pair.other.name: pair for pair in compared(found.variants, "min")}
    shown = {}
    for row in known["variants"]:
        pair = row["comparison"]
        if pair is not None:
            other = expected[row["name"]]
            assert [pair["difference"], pair["low"], pair["high"]] == [other.difference, other.low, other.high]
            assert pair["effect"] == other.effect
            shown[row["name"]] = pair["shown"]
    assert shown == {name: any(f"beats {name} " in line for line in found.sentences) for name in ("gru", "gpt")}
    assert shown == {"gru": False, "gpt": True}
    assert [row["reference"] for row in known["variants"]] == [True, False, False]


def test_whether_it_is_sure_is_said_of_the_ties_and_of_how_many_are_worse(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        (
            SPREAD,
            "lstm: 1.51 bits per byte (mean of 3 seeds",
            "in part: better than 1 of 2 others, no significant difference from gru",
        ),
        ({name: SPREAD[name] for name in ("lstm", "gpt")}, "lstm", "yes: lstm is better than the other one"),
        ({name: SPREAD[name] for name in ("lstm", "gru")}, "lstm", "no: lstm has no significant difference from gru ("),
        ({"lstm": [1.5], "gru": [1.9]}, "the best number is that of lstm", "no: one seed each"),
    ]
    for place, (values, best, sure) in enumerate(cases):
        known = group(concluded(fake_runs.sweep(tmp_path / str(place), values)))
        said = dict(known["answers"])
        assert said["Which is best?"].startswith(best)
        assert said["Is it sure?"].startswith(sure)
        if len(values["lstm"]) == 1:
            for row in known["variants"]:
                assert (row["interval"], row["comparison"], row["reference"]) == (None, None, False)
    # A lucky single seed is not called best without a word.
    said = answers(concluded(fake_runs.sweep(tmp_path / "lucky", {"rnn": [1.2], **SPREAD})))
    assert "one seed" in said["Which is best?"]
    assert "of those with several seeds lstm" in said["Which is best?"]
    assert "no conclusion on 1 with one seed" in said["Is it sure?"]


def test_against_a_variant_the_rows_are_held_against_it_and_a_better_one_has_a_negative_difference(
    tmp_path: Path,
) -> None:
    found = concluded(fake_runs.sweep(tmp_path / "sweep", SPREAD), against="gpt")
    rows = {row["name"]: row for row in group(found)["variants"]}
    assert rows["gpt"]["reference"]
    assert rows["lstm"]["comparison"]["difference"] == pytest.approx(-0.3)
    assert rows["lstm"]["comparison"]["shown"]
    assert answers(found)["Is it sure?"] == "2 of 2 differences are significant, each against gpt"


def test_nothing_is_said_of_numbers_whose_weights_were_trained_on_validation(tmp_path: Path) -> None:
    leak = {"validation": {"train": {"share": 0.9, "asked": 10, "kind": "documents"}}}
    found = concluded(fake_runs.sweep(tmp_path / "sweep", SPREAD, leaks=leak))
    assert found.group.refusal is not None
    assert list(answers(found).values()) == [found.group.refusal]
    assert not found.comparisons


def test_a_test_figure_stands_in_a_row_only_where_every_seed_has_one(tmp_path: Path) -> None:
    path = fake_runs.sweep(tmp_path / "sweep", {"lstm": [1.50, 1.52], "gru": [1.60, 1.62]})
    for number, value in ((0, 1.55), (1, 1.57), (2, 1.66)):
        fake_runs.evaluated(path / f"{number:03d}", value)
    lstm, gru = group(concluded(path))["variants"]
    assert (lstm["test"], lstm["tested"]) == (pytest.approx(1.56), 2)
    assert (gru["test"], gru["tested"]) == (None, 1)


# -- overfitting -------------------------------------------------------------------------------------------------


def judged(validation: list[float], training: list[float | None], mode: Any = "min") -> course.Ending:
    """How a run ended that was validated so, with training so before each validation."""
    records: list[dict[str, Any]] = []
    for place, (value, trained) in enumerate(zip(validation, training, strict=True), 1):
        if trained is not None:
            records += [
                {"step": 10 * place - 5, "train/x": trained - 0.1},
                {"step": 10 * place, "train/x": trained + 0.1},
            ]
        records.append({"step": 10 * place, "validation/x": value, "train/loss": 77.0})
    found = course.ending(course.courses(records)["x"], mode)
    assert found is not None
    return found


def test_overfitting_is_validation_that_became_worse_while_training_became_better() -> None:
    cases: list[tuple[list[float], list[float | None], str, bool | None]] = [
        ([2.0, 1.5, 1.2, 1.4], [2.0, 1.4, 1.0, 0.6], "min", True),
        ([2.0, 1.5, 1.2, 1.2], [2.0, 1.4, 1.0, 0.6], "min", False),  # a gap alone is no harm
        ([2.0, 1.5, 1.2, 1.21], [2.0, 1.4, 1.0, 0.6], "min", False),  # chance
        ([2.0, 1.5, 1.2, 1.9], [2.0, 1.4, 1.0, 1.8], "min", False),  # training diverged as well
        ([2.0, 1.5, 1.2, 1.4], [None, None, None, None], "min", None),
        ([1.2, 1.4], [1.0, 0.5], "min", None),  # two validations
        ([0.5, 0.8, 0.9, 0.8], [0.5, 0.8, 0.9, 0.99], "max", True),
        ([0.5, 0.8, 0.7, 0.9], [0.5, 0.8, 0.9, 0.99], "max", False),
        ([9000.0, 60.0, 50.0, 60.0], [8000.0, 50.0, 40.0, 30.0], "min", True),  # perplexity gains thousands at first
    ]
    for validation, training, mode, overfits in cases:
        assert judged(validation, training, mode).overfits is overfits, (validation, training)


def test_the_gap_is_to_training_since_the_last_validation_in_the_same_metric() -> None:
    found = judged([2.0, 1.5, 1.4], [1.9, 1.3, 1.1])
    assert found.trained == pytest.approx(1.1)
    assert found.gap == pytest.approx(0.3)
    assert judged([0.7, 0.8], [0.8, 0.9], "max").gap == pytest.approx(0.1)  # worse than training, where more is better
    assert judged([2.0, 1.5], [None, None]).gap is None
    assert judged([1.0], [3.0]).gap is None  # training began with random weights


# -- baselines ---------------------------------------------------------------------------------------------------


def test_baselines_stand_once_and_apart_where_runs_have_other_figures_of_them(tmp_path: Path) -> None:
    for place, value in enumerate((4.5, 4.5, 4.9)):
        fake_runs.run(
            tmp_path / str(place), seed=place, baselines={"validation": {"unigram": {"bits_per_byte": value}}}
        )
    found = baselines(read([tmp_path]))
    assert [(each["values"]["bits_per_byte"], each["runs"]) for each in found] == [(4.5, 2), (4.9, 1)]
    assert found[0]["knows"] == "how often each token is"


def test_what_is_no_baseline_counts_as_not_said(tmp_path: Path) -> None:
    strange: list[Any] = [{"validation": []}, {"validation": {"a": 1}}, {"validation": {"a": {"b": "x"}}}]
    for place, each in enumerate(strange):
        fake_runs.run(tmp_path / str(place), baselines=each, baseline_words={"a": 3})
    assert baselines(read([tmp_path])) == []


# -- progress ----------------------------------------------------------------------------------------------------

HALF = [{"step": step, "tokens": 10 * step, "seconds": step / 4, "train/loss": 1.0} for step in range(10, 60, 10)]


def progress_of(monkeypatch: pytest.MonkeyPatch, *options: Any, **more: Any) -> dict[str, Any]:
    monkeypatch.setattr(entries, "stands", lambda path, summary: "running")
    found = progress(started(*options, **more))
    assert found is not None
    return found


def test_a_running_run_says_how_far_it_is_how_fast_and_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = progress_of(monkeypatch, tmp_path / "run", HALF, max_steps=200)
    assert (found["step"], found["of"], found["share"]) == (50, 200, 0.25)
    assert found["rate"] == pytest.approx(4.0)
    assert found["left"] == pytest.approx(150 / 4)
    words = progress_words(read([tmp_path])[0])
    assert words == "step 50 of 200 (25%), 4 steps/s, about 38 s of training left"
    # The limit that is met first decides.
    found = progress_of(monkeypatch, tmp_path / "short", HALF, {"trainer.max_seconds": 15.0}, max_steps=200)
    assert found["share"] == pytest.approx(12.5 / 15)
    assert found["left"] == pytest.approx(2.5)


def test_nothing_is_said_of_what_is_left_where_it_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = progress_of(monkeypatch, tmp_path / "a", HALF, {"trainer.max_steps": None})
    assert (unlimited["share"], unlimited["left"]) == (None, None)
    first = progress_of(monkeypatch, tmp_path / "b", HALF[:1], max_steps=200)  # one record has no rate
    assert (first["share"], first["rate"], first["left"]) == (0.05, None, None)
    monkeypatch.undo()
    stopped = progress(started(tmp_path / "c", HALF, max_steps=200))
    assert stopped is not None
    assert (stopped["share"], stopped["rate"], stopped["left"]) == (0.25, None, None)


def test_a_run_that_ended_early_has_the_command_that_goes_on_unless_it_would_fail_alike(tmp_path: Path) -> None:
    for status in ("failed", "pruned", "interrupted"):
        entry = read([fake_runs.run(tmp_path / status / "a b", status=status, trust=["mine"])])[0]
        expected = ["seqtrain", "resume", str(tmp_path / status / "a b"), "--trust", "mine"]
        assert shlex.split(resume_command(entry) or "") == expected
    for status, reason in (("refused", ""), ("failed", "the loss is inf at step 2")):
        entry = read([fake_runs.run(tmp_path / f"not {status}", status=status, reason=reason)])[0]
        assert resume_command(entry) is None


# -- one run alone, links ----------------------------------------------------------------------------------------


def test_a_run_alone_has_the_page_of_several_with_one_row(tmp_path: Path) -> None:
    known = {"unigram": {"bits_per_byte": 4.5}, "xz": {"bits_per_byte": 1.4}}
    fake_runs.run(tmp_path / "run", 1.5, baselines={"validation": known}, values=[1.6, 1.45], max_steps=150)
    found = concluded(tmp_path)
    said = answers(found)
    assert said["Which is best?"].startswith("there is only one variant: lstm: 1.5 bits per byte (one seed")
    assert said["Better than baselines?"] == "lstm: not better than xz (1.4); better than unigram (4.5)"
    assert said["Is it sure?"].startswith("one run shows no spread")
    assert len(group(found)["variants"]) == 1


def test_links_lead_from_where_the_page_stands_to_the_run_whatever_it_is_called(tmp_path: Path) -> None:
    for name in ("plain", "javascript:alert(1)", "a b#c?d%20", "--x", "<b>"):
        run = fake_runs.run(tmp_path / "runs" / name)
        (run / "samples").mkdir()
        for page in (tmp_path / "runs", tmp_path / "elsewhere" / "deep"):
            page.mkdir(parents=True, exist_ok=True)
            found = links(read([run])[0], page)
            assert set(found) == {"folder", "samples"}
            for address in found.values():
                assert address.startswith("./")
                assert not set(address) & set(':?#<>" ')
            assert os.path.samefile(page / unquote(found["folder"]), run)
            assert os.path.samefile(page / unquote(found["samples"]), run / "samples")


def test_a_trial_has_a_link_to_its_log_and_a_served_page_has_none_at_all(tmp_path: Path) -> None:
    path = fake_runs.sweep(tmp_path / "sweep", {"lstm": [1.5]})
    (path / "logs").mkdir()
    (path / "logs" / "000.txt").write_text("said")
    entry = read([path])[0]
    assert links(entry, tmp_path)["log"] == "./sweep/logs/000.txt"
    assert links(entry, None) == {}
    groups = content.groups_and_runs(conclusions([entry]), content.all_curves([entry]), [])
    assert groups["runs"][0]["links"] == {}


def test_what_differs_has_as_many_digits_as_names_have_unless_two_values_would_be_called_the_same(
    tmp_path: Path,
) -> None:
    for place, dim in enumerate((16, 32, 8, 64, 128, 24)):
        for seed in (1, 2):  # no cause of a difference
            fake_runs.run(tmp_path / "many" / f"{place}{seed}", 1.5 + seed / 9, seed=seed, config={"model.dim": dim})
    assert answers(concluded(tmp_path / "many"))["What differs?"] == "dim (6 values from 8 to 128)"
    for place, lr in enumerate((0.00010398256468788535, 0.0123456789)):
        fake_runs.run(tmp_path / "few" / str(place), 1.5 + place, config={"optimizer.lr": lr})
    assert answers(concluded(tmp_path / "few"))["What differs?"] == "lr (0.000104, 0.01235)"
    for place, lr in enumerate((0.0123451, 0.0123452)):
        fake_runs.run(tmp_path / "near" / str(place), 1.5 + place, config={"optimizer.lr": lr})
    assert answers(concluded(tmp_path / "near"))["What differs?"] == "lr (0.0123451, 0.0123452)"


def test_what_across_does_not_mean_stands_before_the_answers(tmp_path: Path) -> None:
    for seed in (1, 2):
        fake_runs.run(tmp_path / f"a{seed}", 1.5, seed=seed)
        fake_runs.run(tmp_path / f"b{seed}", 1.6, seed=seed, hashes={**fake_runs.HASHES, "train": "e" * 32})
    (line,) = group(concluded(tmp_path, across=["train"]))["first"]
    assert line.startswith("across train: ")
