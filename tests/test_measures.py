"""Laws of the Python entries: they give what the commands give, and keep what they were told to keep."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import seqtrain
from seqtrain.cli import main
from seqtrain.errors import UserError
from tests.support.untrained_runs import NEXT_TOKEN, make_run

SMALL = ("model=rnn", "model.dim=8", "tbptt.k2=4", "tokenizer=byte")


@pytest.fixture
def text(tmp_path: Path) -> tuple[str, ...]:
    """Overrides that read a small text."""
    (tmp_path / "text.txt").write_text("the animal was tired and slow\n" * 400)
    return "data=text", f"data.path={tmp_path / 'text.txt'}", "data.split_by=position", "data.validation_fraction=0.4"


def of_command(capsys: pytest.CaptureFixture[str], *argv: object) -> Any:
    """The record that a command prints."""
    assert main.main([*map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.long
def test_gradients_give_the_record_of_the_command(
    tmp_path: Path, text: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = of_command(capsys, "gradients", *SMALL, *text, "--samples", 4, "--whole", "--out", tmp_path / "command")
    out = tmp_path / "python"
    found = seqtrain.gradients(*SMALL, *text, samples=4, whole=True, out=out)
    assert found == wanted
    assert json.loads((out / "gradients.json").read_text()) == wanted
    assert (out / "gradients.png").read_bytes() == (tmp_path / "command" / "gradients.png").read_bytes()


@pytest.mark.long
def test_memory_gives_the_record_of_the_command_and_of_no_folder_keeps_nothing(
    tmp_path: Path, text: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", *NEXT_TOKEN, *text, "tbptt.k2=8")
    wanted = of_command(capsys, "memory", run, "--targets", 200, "--tolerance", 0.1, "--out", tmp_path / "command")
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.setattr(tempfile, "tempdir", str(empty))
    assert seqtrain.memory(run, targets=200, tolerance=0.1) == wanted
    assert list(empty.iterdir()) == []


@pytest.mark.long
def test_a_profile_has_what_the_command_counts_and_leaves_the_threads_as_they_were(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    try:
        found = seqtrain.profile(
            *("model=rnn,gru", "task=next_token", "tokenizer=byte"),
            lengths=[2, 4, 8], dims=(4, 8, 16), at_dim=8, at_length=2, repeats=1, threads=1,
        )  # fmt: skip
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert [model["name"] for model in found["models"]] == ["rnn", "gru"]
    assert [row["length"] for row in found["models"][0]["counted"]] == [2, 4, 8]


def test_mistakes_are_user_errors() -> None:
    with pytest.raises(UserError, match="flags of the command are keyword arguments"):
        seqtrain.scale("--seeds")
    with pytest.raises(UserError, match="give at least 4 budgets"):
        seqtrain.scale(flops=[1e9, 1e10, 1e11])
    with pytest.raises(UserError, match="nowhere"):
        seqtrain.memory("nowhere")
    with pytest.raises(UserError, match="one run is measured at a time"):
        seqtrain.gradients("nowhere", "tbptt.k2=3")
    with pytest.raises(UserError, match="samples=0: expected a whole number from 1 to 4,096"):
        seqtrain.gradients("model=rnn", samples=0)
    with pytest.raises(UserError, match=r"lengths=0\.5: expected a whole number"):
        seqtrain.profile(lengths=[0.5, 1, 2])  # type: ignore[list-item]
    with pytest.raises(UserError, match="split='tset': expected 'train' or 'validation' or 'test'"):
        seqtrain.memory("nowhere", split="tset")  # type: ignore[arg-type]
    calls: list[Callable[[], object]] = [
        lambda: seqtrain.train(3),  # type: ignore[arg-type]
        lambda: seqtrain.load(None),  # type: ignore[arg-type]
        lambda: seqtrain.compare(["a"]),  # type: ignore[arg-type]
        lambda: seqtrain.profile(out=3),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(UserError, match="expected a string or a path"):
            call()
    with pytest.raises(UserError, match="trust='abc': expected a list"):
        seqtrain.memory("nowhere", trust="abc")


def test_an_option_without_such_a_value_is_one_line() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"checkpoint": "x"}, "checkpoint='x': expected 'best' or 'last'"),
        ({"trust": None}, "trust=None: expected a list of strings; leave it out for none"),
        ({"trust": [1]}, "trust=[1]: expected a list of strings; leave it out for none"),
        ({"trust": "my_package"}, "trust='my_package': expected a list; write trust=['my_package']"),
    ]
    for options, told in cases:
        with pytest.raises(UserError) as refused:
            seqtrain.load("nowhere", **options)
        assert refused.value.lines == (told,)
