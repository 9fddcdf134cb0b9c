"""Laws of the samples: what the options ask for of the validation split, and pictures drawn once for all loggers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from seqtrain.data.tokenizers.recipes import Char
from seqtrain.inference import forecast_plot
from seqtrain.runs import shown as kept
from seqtrain.runs.directory import Run
from seqtrain.tasks import next_token
from seqtrain.tasks.base import ExampleTask, Sample
from seqtrain.training.callbacks import samples as shown
from seqtrain.training.callbacks.samples import Samples
from seqtrain.training.loggers.base import Guarded, RunLogger
from seqtrain.training.splits import ExampleData
from tests.support.shown_runs import fan

TOKENIZER = Char().train(["abc déjà"])


def made(run: Run, data: Any, **options: Any) -> Samples:
    given = {"prompt": "", "length": 5, "temperature": 0.8, "top_k": None, "top_p": None, "examples": 4}
    return Samples(**given | options, run=run, data=data)


def test_a_prompt_is_continued_as_the_options_say_and_kept_under_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def continued(model: Any, scores: Any, prompts: list[list[int]], **options: Any) -> Any:
        asked.update(options, prompts=prompts)
        return iter([torch.tensor([token]) for token in TOKENIZER.encode("jà").tolist()])

    monkeypatch.setattr(next_token, "continue_tokens", continued)
    run, run_logger = Run.create(tmp_path / "run"), mock.Mock(spec=RunLogger)
    options = {"length": 2, "temperature": 0.5, "top_k": 3, "top_p": 0.9}
    preprocessor = SimpleNamespace(tokenizer=TOKENIZER)
    stream = SimpleNamespace(preprocessor=preprocessor, sample=lambda split, count: None)
    callback = made(run, stream, prompt="dé", **options)
    trainer: Any = SimpleNamespace(global_step=30, loggers=[run_logger])
    task = next_token.NextToken(tied=True, dim=4, vocab_size=TOKENIZER.vocab_size)
    callback.on_validation_end(trainer, SimpleNamespace(model=None, task=task, device=torch.device("cpu")))  # type: ignore[arg-type]
    prompt = [TOKENIZER.start, *TOKENIZER.encode("dé").tolist()]
    assert asked == {"num_tokens": 2, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "prompts": [prompt]}
    assert (run.samples / "step-00000030.txt").read_text("utf-8") == "déjà"
    assert run_logger.log_text.call_args_list == [mock.call("samples", "déjà", 30)]


class Shows(ExampleTask):
    """A task that shows the numbers of the examples that it is given."""

    def logits(self, *args: Any) -> Any: ...

    def evaluate(self, model: Any, batch: Any, state: Any) -> Any: ...

    def measure(self, totals: Any, facts: Any) -> Any: ...

    def head_flops(self) -> Any: ...

    def examples(self, *args: Any, **options: Any) -> Any: ...

    def baselines(self, *args: Any) -> Any: ...

    def samples(self, model: Any, batch: Any, preprocessor: Any, options: Any) -> list[Sample]:
        return [Sample(f"example {index}") for index in batch.index.tolist()]


@pytest.mark.parametrize(("count", "shown"), [(10, [0, 2, 5, 7]), (4, [0, 1, 2, 3]), (3, [0, 1, 2])])
def test_the_examples_that_are_shown_are_spread_over_validation_and_drawn_once_for_all(
    count: int, shown: list[int], tmp_path: Path
) -> None:
    epochs = []

    def collate(index: np.ndarray, epoch: int, totals: Any) -> Any:
        epochs.append(epoch)
        batch = SimpleNamespace(index=index)
        batch.to = lambda device: batch
        return batch

    split = SimpleNamespace(lengths=np.ones((count, 1)), collate=collate, totals=lambda index, epoch: {})
    data: Any = SimpleNamespace(batcher={"validation": split}.__getitem__, preprocessor=None)
    data.sample = lambda split, count: ExampleData.sample(data, split, count)
    callback = made(Run.create(tmp_path / "run"), data)
    learner: Any = SimpleNamespace(model=None, task=Shows(), device=torch.device("cpu"))
    for step in (10, 20):
        callback.on_validation_end(SimpleNamespace(global_step=step, loggers=[]), learner)  # type: ignore[arg-type]
        assert callback.newest == "\n".join(f"example {index}" for index in shown)
    assert epochs == [0, 0]


class Keeps(RunLogger):
    """A logger that keeps names of pictures, and their first bytes, read when they are sent."""

    def __init__(self, folder: Path) -> None:
        super().__init__("Keeps", folder)
        self.images: dict[str, bytes] = {}

    def _metrics(self, metrics: Any, step: int) -> None: ...

    def _text(self, name: str, text: str, step: int) -> None: ...

    def _image(self, name: str, path: Path, step: int) -> None:
        self.images[name] = path.read_bytes()[:4]

    def _end(self, figures: Any) -> None: ...


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The pictures that were drawn."""
    found: list[Path] = []
    draw = forecast_plot.draw_small_fan

    def count(fan: Any, path: Path) -> None:
        found.append(path)
        draw(fan, path)

    monkeypatch.setattr(forecast_plot, "draw_small_fan", count)
    return found


SAMPLES = kept.Samples("", kept.Table(("text",), (("a",), ("b",), ("c",))), (fan(1.0), None, fan(2.0)))


def test_each_forecast_is_drawn_once_and_sent_to_every_logger(tmp_path: Path, drawn: list[Path]) -> None:
    one, other = Keeps(tmp_path), Keeps(tmp_path)
    shown.log_samples([one, other], SAMPLES, 30)
    assert one.images == other.images == {"sample_1": b"\x89PNG", "sample_3": b"\x89PNG"}
    assert len(drawn) == 2
    assert not any(path.exists() for path in drawn)


def test_nothing_is_drawn_where_no_logger_shows_pictures(tmp_path: Path, drawn: list[Path]) -> None:
    broken = Keeps(tmp_path)
    broken.broken = True
    shown.log_samples([], SAMPLES, 30)
    shown.log_samples([Guarded(Keeps(tmp_path), tmp_path), broken], SAMPLES, 30)
    shown.log_samples([Keeps(tmp_path)], kept.Samples("", None), 30)
    assert drawn == []


def test_a_picture_that_cannot_be_drawn_costs_a_line_and_the_others_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = forecast_plot.draw_small_fan

    def fail(fan: Any, path: Path) -> None:
        if path.stem == "sample_1":
            raise MemoryError("no room")
        draw(fan, path)

    monkeypatch.setattr(forecast_plot, "draw_small_fan", fail)
    run_logger = Keeps(tmp_path)
    shown.log_samples([run_logger], SAMPLES, 30)
    assert list(run_logger.images) == ["sample_3"]
    assert "the plot of sample 1 could not be drawn: no room" in "".join(capsys.readouterr())
