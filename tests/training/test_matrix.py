"""Every model with every task and cut of time trains a step or is refused in words; so does every other option."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from benchmarks.models_page import models
from seqtrain import conf  # pyright: ignore[reportAttributeAccessIssue]  # mapped in by pyproject.toml
from seqtrain.cli.matrix import main, table
from seqtrain.config import check
from seqtrain.errors import UserError
from seqtrain.experiment.start import Request, check_all
from seqtrain.experiment.written_config import config_text
from seqtrain.models.base import Capability, name_of
from seqtrain.runs.directory import Run
from seqtrain.training import compatibility
from seqtrain.training.callbacks.signals import Signals
from seqtrain.training.data import make_data
from seqtrain.training.model_and_task import make_task  # pyright: ignore[reportAttributeAccessIssue]
from seqtrain.training.session import Session, make_session
from seqtrain.training.shipped import shipped
from tests.conftest import REPOSITORY
from tests.support.examples import DATA, files
from tests.support.model_cases import Case, cases

K2 = 8
CONF = Path(conf.__path__[0])
RECURSIVE = "forecast task.strategy=recursive"
TASKS = (
    "next_token",
    "masked_lm",
    "bidirectional_lm",
    "sentiment",
    "regress",
    "regress_steps",
    "tag",
    "translation",
    "pairs",
    "forecast",
    RECURSIVE,
)
WHOLE = ("masked_lm", "bidirectional_lm", "regress", "regress_steps", "tag", "translation", "pairs")
"""Tasks that cut no example, whatever the model: two models stand for all where they refuse a cut of time."""
CUTS = ("carry", "windows", "whole")
REMEDY = "run `python -m benchmarks.models_page`"
QUICK = {task: [("carry", "never") if task == "next_token" else ("whole", "never")] for task in TASKS}
QUICK[RECURSIVE].append(("carry", "never"))
QUICK_MODELS = {
    "masked_lm": ["bert", "gpt"],
    "bidirectional_lm": ["elmo", "bert"],
    "sentiment": ["lstm", "encoder_decoder"],
    "regress": ["bert"],
    "regress_steps": ["gpt"],
    "tag": ["lstm"],
    "translation": ["rnn_encoder_decoder", "bert"],
    "pairs": ["bert"],
    "forecast": ["lstm", "encoder_decoder"],
    RECURSIVE: ["encoder_decoder", "lstm"],
}
"""Cuts of time and resets, and models, that `make test` tries of each task; of next_token all models."""
SMALL = (
    "data.max_length=16",
    "trainer.accelerator=cpu",
    "trainer.precision=32-true",
    "trainer.max_steps=2",
    "trainer.validate_every=2",
    "trainer.accumulate=2",
    "trainer.log_every=1",
    "logger=none",
    "callbacks=none",
)
FILES = [
    path
    for group in ("optimizer", "schedule", "tokenizer")
    for path in sorted((CONF / group).glob("*.yaml"))
    # Not one that only names another; nor what stands in the place of a tokenizer, which no text is read with, nor
    # what takes that of a run (tests/hub/test_journey.py).
    if "_target_" in OmegaConf.load(path) and path.stem not in ("none", "given")
]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text of a few hundred words, labelled texts, and a text in two languages."""
    return files(tmp_path_factory.mktemp("text"))


@pytest.fixture(autouse=True)
def _at_home(text: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.chdir(text)


@cache
def _composed(task: str, tbptt: str, *overrides: str) -> DictConfig:
    cut = () if tbptt == "whole" else (f"tbptt.k2={K2}",)
    name, *options = task.split()
    return check.compose([f"task={name}", f"tbptt={tbptt}", *cut, *DATA[name], *SMALL, *options, *overrides]).config


def composed(*overrides: str, task: str = "next_token", tbptt: str = "carry") -> DictConfig:
    return copy.deepcopy(_composed(task, tbptt, "data.validation_fraction=0.2", *overrides))


def train(config: DictConfig, folder: Path) -> Session:
    """Two steps and a validation, as the command takes them."""
    check_all(config, Request())
    data = make_data(config, ("train", "validation"), lambda line: None)
    run = Run.create(folder / "run")
    run.write_config(config_text(config))
    session = make_session(config, data, run, Signals(), Console(quiet=True), logged_config={})
    session.fit(None)
    run.close()
    return session


def assert_trained(session: Session) -> None:
    records = session.recorder.run.metrics()
    losses = [record[name] for record in records for name in ("train/loss", "validation/loss") if name in record]
    assert len(losses) == 3
    assert all(0 < loss < 100 for loss in losses)
    assert session.trainer.global_step == 2


def expected_refusal(case: Case, config: DictConfig) -> list[str]:
    """What the lines must say where the three do not fit: one of the pair, and one of the cut of time."""
    model = case.make()
    task = make_task(config, model, 2)
    task_name = type(task).__name__
    whole = not task.streams
    carry, lines = config.tbptt.carry, []
    if task.requires & ~model.capabilities:
        lines.append(f"which model={name_of(model)} does not promise")
    elif carry and config.task.get("strategy") == "recursive":
        lines.append("recursive forecasts from windows")
    elif carry and Capability.STATEFUL not in model.capabilities:
        lines.append("needs a state that is carried")
    elif carry and model.max_length is not None:
        lines.append("a stream has no end")
    elif task_name == "Sentiment" and config.tbptt.k2 < config.data.max_length and not carry:
        lines += [] if Capability.STATEFUL in model.capabilities else ["a state that is carried from piece to piece"]
    if whole and (carry or config.tbptt.reset != "never"):
        lines.append("reads each example independently")
    elif whole and task_name != "Sentiment" and config.tbptt.k2 < config.data.max_length:
        lines.append("cannot cut examples")
    return lines


def all_there_is() -> Iterator[ParameterSet]:
    """Yield every model as its file says with every task, cut of time and reset.

    A variant that promises the same as its model is tried with one task, and only by `make test-long`, carried over
    documents and in windows; so are the cuts of time that a model's state and contract decide already.
    """
    for case, task in product(cases(), TASKS):
        if case.options and case.name.endswith("encoder_decoder") and task != "translation":
            continue
        if case.is_mixture:
            continue
        alike = case.options and not {"bidirectional", "causal"} & dict(case.options).keys()
        if alike and task != "next_token" and not case.name.endswith("encoder_decoder"):
            continue
        cuts = ("whole",) if case.options and task != "next_token" else CUTS
        if task in WHOLE and case.name not in ("lstm", "bert"):
            cuts = ("whole",)
        for tbptt in cuts:
            for reset in ("never", "document") if task == "next_token" and tbptt != "whole" else ("never",):
                if (
                    alike
                    and task == "next_token"
                    and (tbptt, reset) not in (("carry", "document"), ("windows", "never"))
                ):
                    continue
                again = (tbptt, reset) not in QUICK[task] or case.name not in QUICK_MODELS.get(task, [case.name])
                yield pytest.param(case, task, tbptt, reset, marks=[pytest.mark.long] if alike or again else [])


@pytest.mark.parametrize(("case", "task", "tbptt", "reset"), all_there_is(), ids=str)
def test_a_model_trains_or_is_refused_in_words(case: Case, task: str, tbptt: str, reset: str, tmp_path: Path) -> None:
    config = composed(f"tbptt.reset={reset}", task=task, tbptt=tbptt)
    config.model = case.config().model
    refusal = expected_refusal(case, config)
    if not refusal:
        assert_trained(train(config, tmp_path))
        return
    with pytest.raises(UserError) as caught:
        train(config, tmp_path)
    assert len(caught.value.lines) == len(refusal)
    assert all(words in line for words, line in zip(refusal, caught.value.lines, strict=True)), caught.value.lines
    for words, line in zip(refusal, caught.value.lines, strict=True):
        # No model at all would do where the cut is refused for the task.
        no_model_does = "example" in words or (
            tbptt == "carry" and task in (RECURSIVE, "masked_lm", "bidirectional_lm")
        )
        assert ("models that do, as shipped: " in line) != no_model_does


# -- the matrix that is shown ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cells() -> list[compatibility.Cell]:
    return list(compatibility.cells())


@cache
def _defaults(task: str, tbptt: str) -> DictConfig:
    return check.compose([*f"task={task}".split(), f"tbptt={tbptt}"]).config


def as_case(words: str) -> Case:
    """The small fellow of a model as the matrix names it."""
    name, *overrides = words.split()
    turned = [override.removeprefix("model.").split("=") for override in overrides]
    return Case(name, tuple((key, value == "true") for key, value in turned))


@pytest.mark.long
def test_the_matrix_says_of_every_cell_what_training_says(cells: list[compatibility.Cell]) -> None:
    shipped = {(case.name, task, tbptt) for case, task, tbptt in product(cases(), TASKS, CUTS)}
    assert {(cell.model, cell.task, cell.tbptt) for cell in cells if " " not in cell.model} == shipped
    turned = {cell.model.split()[0] for cell in cells if " " in cell.model}
    assert turned == {"rnn", "gru", "lstm", "cnn"} | ({"rnn_encoder_decoder"} & turned)
    for cell in cells:
        refusal = expected_refusal(as_case(cell.model), _defaults(cell.task, cell.tbptt))
        assert (cell.reason is None) == (not refusal), cell
        assert cell.reason is None or refusal[0] in cell.reason, cell


def test_the_command_prints_the_matrix_which_is_made_anew_only_for_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path))
    found = []
    for key, made in (("one", "rnn"), ("one", "gru"), ("another", "lstm")):
        monkeypatch.setattr("seqtrain.training.shipped.sources_hash", lambda key=key: key)
        monkeypatch.setattr(compatibility, "cells", lambda made=made: [compatibility.Cell(made, "tag", "whole", None)])
        assert main(["--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["model"])
    assert found == ["rnn", "rnn", "lstm"]
    assert main([]) == 0
    assert capsys.readouterr().out.splitlines() == table([compatibility.Cell("lstm", "tag", "whole", None)])


def said_by(lines: list[str]) -> dict[tuple[str, str], str]:
    """What a printed table says of each model and task: the cuts that train, or the reason of a refusal."""
    head, _, *lines = lines
    rows = lines[: lines.index("")]
    numbered = [line.partition(". ") for line in lines[lines.index("") + 1 :]]
    reasons = {f"no ({number})": reason for number, _, reason in numbered}
    tasks = [word.strip() for word in head.strip("|").split("|")][1:]
    said = {}
    for line in rows:
        model, *cells = [word.strip() for word in line.strip("|").split("|")]
        for task, words in zip(tasks, cells, strict=True):
            said[model, task] = reasons.get(words, words)
    return said


@pytest.mark.long
def test_the_table_names_the_cuts_that_train_or_the_number_of_a_reason(cells: list[compatibility.Cell]) -> None:
    for (model, task), words in said_by(table(cells)).items():
        here = [cell for cell in cells if (cell.model, cell.task) == (model, task)]
        trains = [cell.tbptt for cell in here if cell.reason is None]
        if trains:
            assert words.split(", ") == trains
        else:
            assert all((cell.reason or "").startswith(words) for cell in here)


def on_the_page(mark: str) -> list[str]:
    """What stands between two marks of the page of models; a model younger than the page is added by `make docs`."""
    page = (REPOSITORY / "docs" / "models.md").read_text("utf-8")
    return page.partition(f"<!-- {mark} -->\n")[2].partition(f"\n<!-- /{mark} -->")[0].splitlines()


@pytest.mark.long
def test_what_the_page_of_models_says_of_models_and_tasks_is_true(cells: list[compatibility.Cell]) -> None:
    page = said_by(on_the_page("matrix"))
    assert len(page) > 40
    assert page.items() <= said_by(table(cells)).items(), REMEDY


def test_what_the_page_of_models_says_of_options_is_true() -> None:
    page, command = (sections(lines) for lines in (on_the_page("models"), models()))
    assert len(page) > 8
    assert page.items() <= command.items(), REMEDY
    for name in shipped("model"):
        options = OmegaConf.load(CONF / "model" / f"{name}.yaml")
        assert all(f"| `model.{key}` |" in command[name] for key in options if not str(key).startswith("_")), name


def sections(lines: list[str]) -> dict[str, str]:
    """The text below each heading of a model."""
    parts = "\n".join(lines).split("### ")[1:]
    return {name: text.strip() for name, _, text in (part.partition("\n") for part in parts)}


# -- other options -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_option_of_a_group_trains(file: Path, tmp_path: Path) -> None:
    config = composed()
    config.model = Case("gpt", ()).config().model
    config[file.parent.name] = OmegaConf.load(file)
    assert_trained(train(config, tmp_path))


def test_bytes_and_words_per_token_are_those_of_the_split() -> None:
    for kind in ("byte", "char", "word", "bpe"):
        config = composed()
        config.tokenizer = OmegaConf.load(CONF / "tokenizer" / f"{kind}.yaml")
        data = make_data(config, ("train", "validation"), lambda line: None)
        for split in ("train", "validation"):
            (written,) = data.source.documents(split)
            tokens, found = data.tokenizer.encode(written), data.facts()[split]
            assert found.bytes_per_token == pytest.approx(len(written.encode()) / len(tokens)), kind
            words = len(written.split()) + written.count("\n")
            assert found.words_per_token == (words / len(tokens) if kind == "word" else None), kind


@pytest.mark.parametrize("reset", ["never", "document"])
def test_evaluation_takes_fewer_lanes_where_the_text_has_no_more(reset: str, tmp_path: Path) -> None:
    options = ("data.eval_lanes=100000", "model.dim=8", f"tbptt.reset={reset}")
    assert_trained(train(composed(*options), tmp_path))
