"""Nothing is concluded from figures of text that the weights were trained on, by the run or before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seqtrain.cli import main as command
from seqtrain.cli.compare import main
from seqtrain.compare.entries import read
from seqtrain.compare.verdict import conclusions
from seqtrain.errors import UserError
from seqtrain.experiment.data import check_leaks, leak_of
from seqtrain.runs.directory import Run
from seqtrain.runs.leaks import SKETCH
from tests.data.test_leaks import columns, rows
from tests.support import fake_runs

TRAIN, VALIDATION, ELSEWHERE = rows(1, 200), rows(2, 50), rows(3, 200)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))


def trained(
    path: Path,
    value: float = 1.5,
    *,
    train: list[str] = TRAIN,
    init_from: Path | None = None,
    seed: int = 1,
    **more: Any,
) -> Path:
    """A run that was checked as a training checks it."""
    parent = None if init_from is None else str(init_from)
    run = Run(fake_runs.run(path, value, seed=seed, config={"init_from": parent}, **more))
    summary = run.summary
    check_leaks(run, parent, {"train": columns(text=train), "validation": columns(text=VALIDATION)}, summary)
    run.write_summary(summary)
    return path


def verdict(folder: Path) -> str:
    found = conclusions(read([folder]))
    return "\n".join(sentence for conclusion in found for sentence in conclusion.sentences)


def seeds(folder: Path, values: tuple[float, ...], **options: Any) -> None:
    for seed, value in enumerate(values, 1):
        trained(folder / f"{seed}", value, seed=seed, **options)


def test_nothing_is_concluded_of_runs_whose_parent_trained_on_the_validation_text(tmp_path: Path) -> None:
    parent = trained(tmp_path / "parent", train=ELSEWHERE + VALIDATION)
    seeds(tmp_path / "runs" / "a", (1.0, 1.01, 1.02), init_from=parent)
    seeds(tmp_path / "runs" / "b", (2.0, 2.01, 2.02), model="gpt")
    clean, leaking = conclusions(read([tmp_path / "runs"]), target=3.0)
    reason = "validation: 100.0 % of its documents occur in the training text of init_from"
    assert leaking.group.reason == [reason]
    assert leaking.sentences == [f"not compared: {reason} (runs/a/1 and 2 more): so much may be learnt by heart"]
    assert clean.group.refusal is None
    # Nor of children of such a parent among each other.
    seeds(tmp_path / "runs" / "c", (2.0, 2.01, 2.02), init_from=parent, model="gru")
    assert "beats" not in verdict(tmp_path / "runs")
    runs = [str(tmp_path / "runs" / name / "1") for name in "ac"]
    with pytest.raises(UserError, match="--paired: not compared: validation: 100"):
        main(["--paired", *runs])


def test_what_a_parents_parent_read_is_remembered_when_it_is_gone(tmp_path: Path) -> None:
    first = trained(tmp_path / "first", train=ELSEWHERE + VALIDATION)
    second = trained(tmp_path / "second", init_from=first)
    (first / SKETCH).unlink()
    third = trained(tmp_path / "third", init_from=second)
    assert Run(third).summary.leaks["validation"]["init_from"]["share"] == 1.0
    # An attempt that goes on keeps what was found.
    (second / SKETCH).unlink()
    summary = Run(third).summary
    check_leaks(Run(third), str(second), {}, summary)
    assert summary.leaks["validation"]["init_from"]["share"] == 1.0


def test_from_a_tenth_on_nothing_is_concluded_and_below_it_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for copied in (2, 5):
        train, runs = TRAIN + VALIDATION[:copied], tmp_path / str(copied)
        seeds(runs / "a", (1.0, 1.01, 1.02), train=train)
        seeds(runs / "b", (2.0, 2.01, 2.02), train=train, model="gpt")
        said = f"validation: {2 * copied:.1f} % of its documents occur in train too"
        assert said in capsys.readouterr().err
        (found,) = conclusions(read([runs]))
        assert ("beats" in verdict(runs)) == (copied < 5)
        assert (f"{said} (all runs)" in found.group.notes) == (copied < 5)
        assert main([str(runs)]) == 0
        assert said in capsys.readouterr().out


def test_a_parent_that_keeps_no_sketch_is_said_to_be_unknown_and_so_is_its_child(tmp_path: Path) -> None:
    first = trained(tmp_path / "first")
    (first / SKETCH).unlink()
    second = trained(tmp_path / "runs" / "second", init_from=first)
    third = trained(tmp_path / "runs" / "third", init_from=second)
    for run in (second, third):
        assert Run(run).summary.leaks["validation"]["init_from"] is None
    (found,) = conclusions(read([tmp_path / "runs"]))
    unknown = "validation: unknown whether it occurs in the training text of init_from"
    assert found.group.notes == [
        f"{unknown}: train.sketch is missing, or its sample has too little to compare (all runs)"
    ]


def test_test_text_is_looked_for_in_all_that_the_run_and_its_parents_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = trained(tmp_path / "parent", train=ELSEWHERE)
    child = trained(tmp_path / "child", init_from=parent)
    text = columns(text=ELSEWHERE[:10] + rows(4, 40))
    assert leak_of(Run(child), "test", text) == {"share": 0.2, "kind": "documents", "asked": 50}
    said = "test: 20.0 % of its documents occur in train, or the training text of init_from\n"
    assert capsys.readouterr().err.endswith(said)


def test_text_that_train_tells_a_compressor_by_heart_is_noted(tmp_path: Path) -> None:
    for place, (alone, given, is_noted) in enumerate([(2.2, 1.8, False), (2.2, 0.4, True), (7.0, 2.0, False)]):
        baselines = {"xz": {"bits_per_byte": alone}, "xz_given_train": {"bits_per_byte": given}}
        fake_runs.run(tmp_path / str(place), baselines={"validation": baselines})
        (found,) = conclusions(read([tmp_path / str(place)]))
        assert any("xz needs 0.18 of what it needs alone" in note for note in found.group.notes) == is_noted


def test_a_summary_of_a_stranger_says_nothing_but_does_no_harm(tmp_path: Path) -> None:
    train: list[Any] = [3, {"train": 3}, {"train": {"share": "much", "kind": "text"}}]
    for place, leaks in enumerate([{}, *({"validation": each} for each in train)]):
        baselines = {"validation": {"xz": 3, "xz_given_train": {}}}
        fake_runs.run(tmp_path / str(place), leaks=leaks, baselines=baselines)
        (found,) = conclusions(read([tmp_path / str(place)]))
        assert found.group.refusal is None, leaks


REASONS: dict[str, tuple[dict[str, Any], str]] = {
    "another file": ({"data.path": "b.txt"}, "other validation text: data.path=b.txt, not corpus.txt"),
    "another source": (
        {"data._target_": "seqtrain.data.sources.hub.Hub", "data.path": "b"},
        "other validation text: data=hub, not text",
    ),
    "the same file, changed": ({}, "other validation text: the files themselves have changed"),
    "layout is no reason": ({"data.batch_size": 9}, "other validation text: the files themselves have changed"),
}


def test_a_reason_names_what_was_set_otherwise_and_no_hash(tmp_path: Path) -> None:
    other = fake_runs.HASHES | {"validation": "d" * 32}
    for kind, (config, reason) in REASONS.items():
        fake_runs.run(tmp_path / kind / "1")
        fake_runs.run(tmp_path / kind / "2", hashes=other, config=config)
        _, apart = conclusions(read([tmp_path / kind]))
        assert apart.group.reason == [reason], kind
    translation: dict[str, Any] = {"metric": "bleu", "signatures": {}}
    bpe = fake_runs.TRANSLATION | {"tokenizer._target_": "seqtrain.data.tokenizers.recipes.BPE"}
    fake_runs.run(tmp_path / "recipe" / "1", config=fake_runs.TRANSLATION, **translation)
    hashes = fake_runs.HASHES | {"tokenizer": "d" * 32}
    fake_runs.run(tmp_path / "recipe" / "2", config=bpe, hashes=hashes, **translation)
    _, apart = conclusions(read([tmp_path / "recipe"]), metric="loss")
    assert apart.group.reason == ["another tokenizer: tokenizer=bpe, not char (--metric bleu compares them)"]


@pytest.mark.long
def test_made_up_sequences_that_share_their_blanks_are_no_leak_and_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["task=tag", "data=copy", "data.size=20", "data.validation_size=10", "data.test_size=10", "model.dim=4"]
    run = tmp_path / "run"
    words += ["model=gru", "trainer.max_steps=1", "trainer.validate_every=1", "logger=none", f"run_dir={run}"]
    assert command.main(["train", *words]) == 0
    assert command.main(["evaluate", str(run), "--split", "test"]) == 0
    assert "occurs in train" not in "".join(capsys.readouterr())
    assert Run(run).summary.leaks == {}
