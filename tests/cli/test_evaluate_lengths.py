"""Laws of `evaluate --lengths`: a row is what evaluate gives on data of that length, in memory of one piece."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from seqtrain.cli.evaluate import evaluate, main
from seqtrain.config import check
from seqtrain.experiment import lengths
from seqtrain.models import base, recurrent
from seqtrain.models.base import SequenceModel
from seqtrain.models.min_gru import MinGRU
from seqtrain.tasks.base import Task
from seqtrain.training.data import make_data
from seqtrain.training.model_and_task import make_pair
from tests.support.untrained_runs import leave_run

SMALL = ("data.size=40", "data.validation_size=12", "data.test_size=12", "trainer.accelerator=cpu", "logger=none")
PARITY = ("task=tag", "data=parity", "data.asked=every", "trainer.precision=32-true", *SMALL)
ADDING = ("task=forecast", "data=adding", "data.length=12", "trainer.precision=32-true", *SMALL)
OF_TEST = ("data.test_shortest=12", "data.test_longest=12")
WIDE = 1e-5  # of float32, whose sums over time are rounded elsewhere
Weigh = Callable[[SequenceModel, Task, Any], None]


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))


def at_random(model: SequenceModel, task: Task, tokenizer: Any) -> None:
    torch.manual_seed(1)
    for module in (model, task):
        for weight in module.parameters():
            nn.init.normal_(weight, std=0.4)


def counting_modulo_two(model: SequenceModel, task: Task, tokenizer: Any) -> None:
    """Two units, OR and AND of the bit and of the parity so far; their difference is the new parity."""
    for module in (model, task):
        for weight in module.parameters():
            nn.init.zeros_(weight)
    (one,) = tokenizer.encode("1")
    with torch.no_grad():
        layer: Any = model.layer
        model.embed.weight[one] = 1.0  # type: ignore[index]
        layer.weight_ih_l0[:, 0] = 10.0
        layer.weight_hh_l0[:] = torch.tensor([5.0, -5.0])
        layer.bias_ih_l0[:] = torch.tensor([-5.0, -15.0])
        odd = task.labels.index("odd")  # type: ignore[operator,union-attr]
        # `start` is read as a 0: OR and AND are -1 from then on, and their difference is 0 as before.
        task.head.weight[odd] = torch.tensor([9.0, -9.0])  # type: ignore[index,union-attr]
        task.head.bias[odd] = -9.0  # type: ignore[index,union-attr]


def make_run(path: Path, *overrides: str, weigh: Weigh = at_random) -> str:
    """A run directory of `overrides`, with the vocabularies of its own data."""
    config = check.compose(list(overrides)).config
    preprocessor = make_data(config, ["train"], lambda line: None).preprocessor
    model, task = make_pair(config, preprocessor)
    weigh(model, task, preprocessor.tokenizer)
    return str(leave_run(path, config, preprocessor, model, task))


def text_run(tmp_path: Path, *overrides: str) -> str:
    for name, count in (("train", 40), ("validation", 30)):
        (tmp_path / f"{name}.txt").write_text("the cat sat on the mat, and the dog ran\n" * count)
    paths = [f"data.path={tmp_path}/train.txt", f"data.validation_path={tmp_path}/validation.txt"]
    words = ("tokenizer=char", "model.dim=8", "logger=none", "trainer.accelerator=cpu", "trainer.precision=32-true")
    return make_run(tmp_path / "run", "task=next_token", "data=text", *paths, *words, *overrides)


@pytest.fixture
def rows(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[dict[str, Any]]]:
    def read(run: str, asked: str, *words: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main([run, "--json", "--lengths", asked, *words]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return read


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many positions each reading of a model held."""
    found: list[int] = []
    for kind in (recurrent.Recurrent, MinGRU):
        forward = kind.forward

        def counted(self: Any, tokens: Any, *more: Any, _forward: Any = forward, **named: Any) -> Any:
            found.append(tokens.shape[1])
            return _forward(self, tokens, *more, **named)

        monkeypatch.setattr(kind, "forward", counted)
    return found


def in_pieces(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    monkeypatch.setattr(base, "PIECE", tokens)
    monkeypatch.setattr(lengths, "PIECE", tokens)


@pytest.mark.parametrize(
    ("words", "split"),
    [
        ((*PARITY, "data.shortest=12", "data.longest=12", *OF_TEST), "validation"),
        ((*PARITY, "data.shortest=3", "data.longest=9", *OF_TEST, "data.validation_lengths=test"), "test"),
        (("task=tag", "data=copy", "data.shortest=12", "data.longest=12", "trainer.precision=32-true", *SMALL), "test"),
        (ADDING, "validation"),
    ],
    ids=["parity", "longer", "copy", "adding"],
)
def test_the_row_of_a_length_is_what_evaluate_gives_on_data_of_that_length(
    words: tuple[str, ...], split: str, tmp_path: Path, rows: Any
) -> None:
    run = make_run(tmp_path / "run", *words, "model=gru", "model.dim=8")
    plain = evaluate(run, split, "last", None)
    _, row = rows(run, "14,12", "--split", split)
    assert (row["examples"], row["tokens"]) == (plain["examples"], plain["tokens"])
    if words != ADDING:  # whose hash is of all splits, and the others are drawn smaller
        assert row["hash"] == plain["hash"]
    assert row["metrics"] == pytest.approx(plain["metrics"], rel=1e-6)


@pytest.mark.parametrize("model", ["gru", "cnn"])
def test_the_row_of_a_text_is_what_evaluate_gives_where_windows_of_that_length_are_read(
    model: str, tmp_path: Path, rows: Any
) -> None:
    causal = ["model.causal=true"] if model == "cnn" else []
    words = ("tbptt=windows", "tbptt.k2=24", "data.eval_lanes=1", f"model={model}", *causal)
    run = text_run(tmp_path, *words)  # 1,200 letters, a multiple of 24
    plain = evaluate(run, "validation", "last", None)
    (row,) = rows(run, "24")
    assert row["tokens"] == plain["tokens"] == 1200
    assert row["metrics"] == pytest.approx(plain["metrics"], rel=1e-6)


def test_a_text_is_cut_into_windows_of_exactly_that_length_and_each_is_read_from_nothing(
    tmp_path: Path, rows: Any, widths: list[int]
) -> None:
    run = text_run(tmp_path, "model=gru")
    found = rows(run, "1000,7,64")
    assert [row["length"] for row in found] == [1000, 7, 64]  # in the order given
    assert [row["examples"] for row in found] == [1, 171, 18]
    assert [row["tokens"] for row in found] == [1000, 1197, 1152]
    assert set(widths) == {1000, 7, 64}


def test_where_documents_reset_the_state_no_window_crosses_one(tmp_path: Path) -> None:
    plan = lengths.Windows(torch.tensor([0, 10, 13, 30]).numpy(), 5, 2)
    assert plan.begin.tolist() == [0, 5, 13, 18, 23]
    chunks = [plan.chunk(0, step) for step in range(plan.steps)]
    assert [chunk.count.tolist() for chunk in chunks] == [[2] * 5, [2] * 5, [1] * 5]
    assert [chunk.reset_lanes.all() for chunk in chunks] == [True, False, False]


@pytest.mark.parametrize(("kind", "model"), [("parity", "lstm"), ("adding", "min_gru"), ("text", "rnn")])
def test_reading_in_pieces_changes_no_number_and_holds_one_piece(
    kind: str, model: str, tmp_path: Path, rows: Any, widths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"parity": PARITY, "adding": ADDING}
    if kind == "text":
        run = text_run(tmp_path, f"model={model}")
    else:
        run = make_run(tmp_path / "run", *words[kind], f"model={model}", "model.dim=8")
    (whole,) = rows(run, "300")
    assert max(widths) >= 300
    del widths[:]
    in_pieces(monkeypatch, 64)
    (pieces,) = rows(run, "300")
    assert max(widths) == 64
    assert pieces["metrics"] == pytest.approx(whole["metrics"], rel=WIDE)
    assert (pieces["examples"], pieces["tokens"]) == (whole["examples"], whole["tokens"])


def test_a_model_that_counts_modulo_two_is_right_at_every_length(
    tmp_path: Path, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pieces(monkeypatch, 50)
    for asked in ("end", "every"):
        words = (*PARITY, f"data.asked={asked}", "model=rnn", "model.dim=2")
        run = make_run(tmp_path / asked, *words, weigh=counting_modulo_two)
        for row in rows(run, "20,40,41,100,999"):
            assert row["metrics"]["accuracy"] == row["metrics"]["sequence_accuracy"] == 1.0, asked
            assert row["chance"]["accuracy"] == 0.5


@pytest.mark.long
def test_a_million_tokens_are_read_in_pieces(tmp_path: Path, rows: Any, widths: list[int]) -> None:
    run = make_run(tmp_path / "run", *PARITY, "model=rnn", "model.dim=2", weigh=counting_modulo_two)
    (row,) = rows(run, "1000000")
    assert (row["examples"], row["tokens"]) == (1, 1_000_000)
    assert max(widths) == base.PIECE
    assert row["metrics"]["sequence_accuracy"] == 1.0


def test_a_row_of_test_counts_as_a_look_at_that_length_and_is_no_figure_of_test(tmp_path: Path, rows: Any) -> None:
    from seqtrain.runs.evaluations import kept

    run = make_run(tmp_path / "run", *PARITY, "model=gru", "model.dim=8")
    rows(run, "30,20", "--split", "test")
    assert [row["look"] for row in rows(run, "20", "--split", "test")] == [2]
    found = kept(Path(run))
    assert (found.looks(), found.looks(test_set="length 30"), found.looks(test_set="length 20")) == (0, 1, 2)
    rows(run, "20")
    assert len(kept(Path(run)).evaluations) == 3


def test_the_table_has_a_line_for_each_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", *PARITY, "model=gru", "model.dim=8")
    main([run, "--lengths", "30,30,1500"])
    title, heads, *lines = capsys.readouterr().out.splitlines()
    assert title == "validation at each length (best checkpoint, step 7)"
    assert heads.split() == ["length", "examples", "tokens", "loss", "accuracy", "sequence_accuracy"]
    assert [line.split()[:3] for line in lines] == [["30", "12", "360"], ["1,500", "12", "18,000"]]
    assert len({len(line) for line in (heads, *lines)}) == 1
