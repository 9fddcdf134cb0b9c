"""Laws of what a task takes by itself.

Its own file says it, an experiment may say otherwise, a command line has the last word.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from seqtrain.config import check
from seqtrain.errors import UserError

TASKS = sorted(Path(str(files("seqtrain.conf"))).glob("task/*.yaml"))
GROUPS = ("data", "model", "tokenizer", "tbptt", "optimizer")
MINE = {"data": "word_order", "model": "gru", "tokenizer": "char", "tbptt": "whole", "optimizer": "sgd"}
"""What a task of a user's own takes here; no shipped task takes the same."""

BODY = """_target_: seqtrain.tasks.sentiment.Sentiment
_recommend_:
  max_steps: 77
pool: mean
dropout: 0.0
class_weights: none
"""
EXPERIMENT = """# @package _global_
defaults:
  - override /task: mine
  - override /model: cnn
trainer:
  max_steps: 55
"""


def mine(folder: Path, options: dict[str, str], *, before: str = "", body: str = BODY) -> list[Path]:
    """Writes task/mine.yaml, which takes these options; gives what follows --config-dir."""
    (folder / "task").mkdir(exist_ok=True)
    entries = [before, *(f"  - override /{group}: {option}\n" for group, option in options.items())]
    (folder / "task" / "mine.yaml").write_text(f"defaults:\n{''.join(entries)}{body}")
    return [folder]


def own(options: dict[str, str]) -> dict[str, str]:
    """The options as a task's file names them: their groups stand beside the task, not inside it."""
    return {f"{group}@_group_": option for group, option in options.items()}


def chosen(composed: check.Composed) -> dict[str, str]:
    return {group: composed.choices[group] for group in GROUPS}


def test_a_task_takes_what_its_own_file_names() -> None:
    for path in TASKS:
        defaults = yaml.safe_load(path.read_text())["defaults"]
        entries = {key: option for entry in defaults for key, option in entry.items()}
        composed = check.compose([f"task={path.stem}"])
        expected = {f"override /{group}@_group_": option for group, option in chosen(composed).items()}
        assert entries == expected, path.stem


def test_an_experiment_beats_its_task_and_a_command_line_beats_both(tmp_path: Path) -> None:
    folders = mine(tmp_path, own(MINE))
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(EXPERIMENT)
    alone = check.compose(["task=mine"], folders)
    assert (chosen(alone), alone.choices["task"], alone.config.trainer.max_steps) == (MINE, "mine", 77)
    by_experiment = check.compose(["experiment=mine"], folders)
    assert chosen(by_experiment) == MINE | {"model": "cnn"}
    assert (by_experiment.choices["task"], by_experiment.config.trainer.max_steps) == ("mine", 55)
    words = ["experiment=mine", "model=lstm", "optimizer=adam", "trainer.max_steps=33"]
    by_command = check.compose(words, folders)
    assert chosen(by_command) == MINE | {"model": "lstm", "optimizer": "adam"}
    assert by_command.config.trainer.max_steps == 33
    other_task = check.compose(["experiment=mine", "task=next_token"], folders)
    assert chosen(other_task) == chosen(check.compose(["task=next_token"])) | {"model": "cnn"}


def test_a_task_may_choose_a_schedule_a_trainer_a_logger_and_callbacks_too(tmp_path: Path) -> None:
    others = {"schedule": "wsd", "trainer": "cpu", "logger": "none", "callbacks": "early_stopping"}
    folders = mine(tmp_path, own(MINE | others))
    composed = check.compose(["task=mine"], folders)
    assert {group: composed.choices[group] for group in others} == others
    debugged = check.compose(["task=mine", "debug=fast"], folders)
    assert (chosen(debugged), debugged.config.trainer.max_steps) == (MINE, 20)


def test_a_task_that_builds_upon_another_takes_what_that_one_takes_but_for_what_it_names(tmp_path: Path) -> None:
    folders = mine(tmp_path, own({"model": "gru"}), before="  - sentiment\n  - _self_\n", body="dropout: 0.4\n")
    composed = check.compose(["task=mine"], folders)
    assert chosen(composed) == chosen(check.compose(["task=sentiment"])) | {"model": "gru"}
    assert (composed.config.task.dropout, composed.config.trainer.max_steps) == (0.4, "auto")


def test_all_that_a_task_leaves_open_is_told_at_once(tmp_path: Path) -> None:
    folders = mine(tmp_path, own({"model": "gru", "tbptt": "whole"}))
    with pytest.raises(UserError) as caught:
        check.compose(["task=mine", "optimizer=adam", "data.path=x", "trainer.max_step=3"], folders)
    reason = "task=mine: has no default data, tokenizer; add data=... tokenizer=..."
    assert caught.value.lines == (reason,)
    with pytest.raises(UserError) as caught:
        check.compose(["task=mine", "optimizer=adma", "data=text", "tokenizer=word"], folders)
    assert caught.value.lines == ("optimizer=adma: no such optimizer; did you mean adam?",)
    added = check.compose(["task=mine", "optimizer=adam", "data=word_order", "tokenizer=word"], folders)
    assert chosen(added) == MINE | {"tokenizer": "word", "optimizer": "adam"}


def test_a_choice_that_hydra_looks_for_inside_the_task_is_told_with_the_way_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"override '/data: word_order'\..*: write `override /data@_group_: \.\.\.`"
    ) as caught:
        check.compose(["task=mine"], mine(tmp_path, {"data": "word_order"}))
    assert len(caught.value.lines) == 1


EXPERIMENT_WITH_MUON = """# @package _global_
defaults:
  - override /optimizer: muon
optimizer: {lr: 0.03, lr_rest: 0.004, weight_decay: 0.1}
schedule: {warmup: 7}
"""


def with_muon(tmp_path: Path, *words: str) -> check.Composed:
    (tmp_path / "experiment").mkdir(exist_ok=True)
    (tmp_path / "experiment" / "mine.yaml").write_text(EXPERIMENT_WITH_MUON)
    return check.compose(["task=next_token", "experiment=mine", *words], [tmp_path])


def test_another_optimizer_takes_none_of_what_an_experiment_sets_for_its_own(tmp_path: Path) -> None:
    other = with_muon(tmp_path, "optimizer=adamw", "optimizer.eps=1e-6")
    alone = check.compose(["task=next_token", "optimizer=adamw", "optimizer.eps=1e-6"])
    assert other.config.optimizer == alone.config.optimizer
    assert other.config.schedule.warmup == 7, "the schedule was not chosen anew"
    (note,) = other.notes
    assert "experiment/mine.yaml" in note
    assert "lr, lr_rest, weight_decay" in note


def test_a_value_that_is_typed_counts_whichever_optimizer_is_chosen(tmp_path: Path) -> None:
    assert with_muon(tmp_path, "optimizer=adamw", "optimizer.lr=0.5").config.optimizer.lr == 0.5
    with pytest.raises(UserError, match="optimizer=adamw has no option lr_rest"):
        with_muon(tmp_path, "optimizer=adamw", "optimizer.lr_rest=0.5")


def test_the_methods_of_an_experiment_keep_its_values_and_another_schedule_takes_none(tmp_path: Path) -> None:
    for words in ((), ("optimizer=muon",), ("schedule=cosine",)):
        composed = with_muon(tmp_path, *words)
        assert (composed.config.optimizer.lr, composed.config.optimizer.lr_rest) == (0.03, 0.004), words
        assert (composed.config.schedule.warmup, composed.notes) == (7, ()), words
    composed = with_muon(tmp_path, "schedule=inverse_sqrt")
    assert composed.config.schedule == check.compose(["task=next_token", "schedule=inverse_sqrt"]).config.schedule
    assert composed.config.optimizer.lr_rest == 0.004
