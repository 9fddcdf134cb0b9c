"""Every model with every task and cut of time trains a step or is refused in words; so does every other option."""

from __future__ import annotations

import copy
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from seqtrain import build, check, conf  # pyright: ignore[reportAttributeAccessIssue]
from seqtrain.callbacks.signals import Signals
from seqtrain.commands.train import Request, preflight
from seqtrain.faults import Fault
from seqtrain.interface import Capability
from seqtrain.runs import Run
from tests.zoo import Case, cases

K2 = 8
CONF = Path(conf.__path__[0])
TASKS = [path.stem for path in sorted((CONF / "task").glob("*.yaml"))]
SMALL = (
    "data=text",
    "data.split_by=position",
    "data.validation_fraction=0.2",
    "data.lanes=4",
    "data.eval_lanes=3",
    f"tbptt.k2={K2}",
    "trainer.accelerator=cpu",
    "trainer.precision=32-true",
    "trainer.max_steps=2",
    "trainer.validate_every=2",
    "trainer.accumulate=2",
    "trainer.log_every=1",
    "logger=none",
    "callbacks=none",
)
FILES = [path for group in ("optimizer", "schedule", "tokenizer") for path in sorted((CONF / group).glob("*.yaml"))]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a few hundred words."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"line {n} of the text has the number {n * n % 97}\n" for n in range(60)))
    return path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@cache
def _composed(*overrides: str) -> DictConfig:
    return check.compose([*SMALL, *overrides]).config


def composed(text: Path, *overrides: str) -> DictConfig:
    return copy.deepcopy(_composed(f"data.path={text}", *overrides))


def train(config: DictConfig, folder: Path) -> build.Session:
    """Two steps and a validation, as the command takes them."""
    preflight(config, Request())
    data = build.make_data(config, ("train", "validation"), (), lambda line: None)
    run = Run.create(folder / "run")
    session = build.make_session(config, data, run, Signals(), (), Console(quiet=True))
    session.fit(None)
    run.close()
    return session


def assert_trained(session: build.Session) -> None:
    records = session.learner.run.metrics() if session.learner.run else []
    losses = [record[name] for record in records for name in ("train/loss", "validation/loss") if name in record]
    assert len(losses) == 3
    assert all(0 < loss < 100 for loss in losses)
    assert session.trainer.global_step == 2


def expected_refusal(case: Case, config: DictConfig, tbptt: str) -> str | None:
    """What the line must say where the three do not fit."""
    model = case.make()
    if build.make_task(config, model, 2, ()).requires & ~model.capabilities:
        return f"which model {type(model).__name__} does not promise"
    if tbptt == "carry" and Capability.STATEFUL not in model.capabilities:
        return "needs a state that goes on"
    if tbptt == "carry" and model.max_length is not None:
        return "a stream has no end"
    return None


@pytest.mark.parametrize("case", cases(), ids=str)
@pytest.mark.parametrize(("task", "tbptt", "reset"), product(TASKS, ("carry", "windows"), ("never", "document")))
def test_a_model_trains_or_is_refused_in_words(
    case: Case, task: str, tbptt: str, reset: str, text: Path, tmp_path: Path
) -> None:
    config = composed(text, f"task={task}", f"tbptt={tbptt}", f"tbptt.reset={reset}")
    config.model = case.config().model
    refusal = expected_refusal(case, config, tbptt)
    if refusal is None:
        assert_trained(train(config, tmp_path))
        return
    with pytest.raises(Fault) as caught:
        train(config, tmp_path)
    (line,) = caught.value.lines
    assert refusal in line
    assert "models that do, as shipped: " in line


@pytest.mark.parametrize("file", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_option_of_a_group_trains(file: Path, text: Path, tmp_path: Path) -> None:
    config = composed(text, "task=next_token", "tbptt=carry", "tbptt.reset=never")
    config.model = Case("gpt", ()).config().model
    config[file.parent.name] = OmegaConf.load(file)
    assert_trained(train(config, tmp_path))


def test_a_window_longer_than_the_learned_positions_is_refused(text: Path, tmp_path: Path) -> None:
    config = composed(text, "model=gpt", "model.positions=learned", f"model.max_length={K2 - 1}", "tbptt=windows")
    with pytest.raises(Fault, match=f"k2={K2}: longer than the {K2 - 1} positions"):
        train(config, tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("model=gpt", "model.dim=10"), "dim=10 must be a multiple of num_heads=4"),
        (("model=gpt", "model.dim=12"), "must be even for rotary positions"),
        (("model=gpt", "model.max_length=9"), "set it with positions=learned"),
        (("model=gpt", "model.positions=learned"), "set it with positions=learned"),
        (("model=lstm", "model.bidirectional=true", "model.dim=9"), "dim=9 must be even"),
    ],
)
def test_sizes_that_do_not_fit_each_other_are_refused(options: tuple[str, ...], words: str, text: Path) -> None:
    with pytest.raises(Fault, match=rf"model: .*{words}"):
        preflight(composed(text, *options), Request())


@pytest.mark.parametrize("kind", ["byte", "char", "word", "bpe"])
def test_bytes_and_words_per_token_are_those_of_the_split(kind: str, text: Path) -> None:
    config = composed(text)
    config.tokenizer = OmegaConf.load(CONF / "tokenizer" / f"{kind}.yaml")
    data = build.make_data(config, ("train", "validation"), (), lambda line: None)
    for split in ("train", "validation"):
        (written,) = data.source.documents(split)
        tokens, found = data.tokenizer.encode(written), data.facts()[split]
        assert found.bytes_per_token == pytest.approx(len(written.encode()) / len(tokens))
        words = len(written.split()) + written.count("\n")
        assert found.words_per_token == (words / len(tokens) if kind == "word" else None)


@pytest.mark.parametrize("reset", ["never", "document"])
def test_evaluation_takes_fewer_lanes_where_the_text_has_no_more(reset: str, text: Path, tmp_path: Path) -> None:
    options = ("data.eval_lanes=100000", "model.dim=8", f"tbptt.reset={reset}")
    assert_trained(train(composed(text, *options), tmp_path))
