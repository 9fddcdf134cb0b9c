"""Laws of beginning from another run: what fits is loaded bit for bit and said, what is frozen never moves."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seqtrain.data.corpus import Corpus
from seqtrain.data.preprocess import Rows
from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.runs.checkpoint import load
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import Task
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.training.data import _say_unknown
from seqtrain.training.learner import parameter_groups
from seqtrain.training.model_and_task import make_model
from seqtrain.training.transfer import copy_matching, freeze
from tests.conftest import Seqtrain
from tests.support.examples import DATA, files
from tests.support.model_cases import VOCABULARY, Case, next_token
from tests.support.quick import some_long

Weights = dict[str, Tensor]


def sentiment(model: SequenceModel) -> Sentiment:
    given: dict[str, Any] = {"pool": "last", "dropout": 0.0, "class_weights": "none"}
    return Sentiment(**given, dim=model.dim, bptt_length=100, labels=("a", "b"), label_counts=(1, 1)).double()


def weights_of(model: SequenceModel, task: Task) -> Weights:
    found = {f"model.{name}": value.clone() + 1 for name, value in model.state_dict().items()}
    return found | {f"task.{name}": value.clone() + 1 for name, value in task.state_dict().items()}


def adopted(model: SequenceModel, task: Task, weights: Weights, *, same_task: bool = False) -> str:
    lines: list[str] = []
    with torch.no_grad():
        copy_matching(model, task, weights, same_task=same_task, say=lines.append)
    (line,) = lines
    return line


# -- what is loaded ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt", "lstm", "bert", "rnn_encoder_decoder"])
def test_all_that_matches_is_loaded_bit_for_bit_and_said(name: str) -> None:
    model = Case(name, ()).make()
    task, origin = sentiment(model), next_token(model, tied=False)
    given, head = weights_of(model, origin), {key: value.clone() for key, value in task.state_dict().items()}
    line = adopted(model, task, given)
    assert all(torch.equal(value, given[f"model.{key}"]) for key, value in model.state_dict().items())
    assert all(torch.equal(value, head[key]) for key, value in task.state_dict().items())
    heads = [key for key in given if key.startswith("task.")]
    found = re.fullmatch(r"init_from: loaded (\d+) \(.*\); new: (\d+) \(task\.head\); left behind: (\d+) \(.*\)", line)
    assert found, line
    assert [int(count) for count in found.groups()] == [len(given) - len(heads), len(head), len(heads)]


def test_a_head_is_loaded_where_the_task_is_the_same_and_the_shape_too() -> None:
    model = Case("gru", ()).make()
    task = sentiment(model)
    given = weights_of(model, task)
    adopted(model, task, given, same_task=True)
    assert all(torch.equal(value, given[f"task.{key}"]) for key, value in task.state_dict().items())
    other = sentiment(model)
    before = other.head.weight.clone()
    line = adopted(model, other, given | {"task.head.weight": torch.ones(5, 8)}, same_task=True)
    assert torch.equal(other.head.weight, before)
    assert "new: 1 (task.head)" in line


@pytest.mark.parametrize("missing", [-2, -1, 0, 1, 2])
def test_of_an_embedding_with_fewer_or_more_special_tokens_the_rows_of_both_are_loaded(missing: int) -> None:
    model = Case("gru", ()).make()
    task, given = sentiment(model), weights_of(model, sentiment(model))
    rows = len(given["model.embed.weight"]) - missing
    known = given["model.embed.weight"]
    given["model.embed.weight"] = known[:rows] if missing >= 0 else torch.cat([known, torch.ones(-missing, 8)])
    fresh = model.embed.weight.detach().clone()  # type: ignore[union-attr,operator]
    line = adopted(model, task, given)
    found: Tensor = model.embed.weight  # type: ignore[assignment]
    assert torch.equal(found[:rows], given["model.embed.weight"][: len(found)])
    assert torch.equal(found[rows:], fresh[rows:])
    assert (f"{abs(missing)} special tokens of model.embed.weight" in line) == (missing != 0)
    assert (" special tokens" in line.partition("left behind")[2]) == (missing < 0)


def test_weights_of_another_width_are_refused_in_one_line_that_names_it() -> None:
    model = Case("lstm", ()).make()
    wider = weights_of(Case("lstm", ()).make(dim=16), sentiment(model))
    with pytest.raises(UserError) as caught:
        adopted(model, sentiment(model), wider)
    assert caught.value.lines == ("init_from: model.dim=8 here, and that run's model has 16; set model.dim=16",)


def test_weights_of_other_shapes_are_refused_in_one_line_that_names_the_first() -> None:
    model = Case("lstm", ()).make()
    given = weights_of(model, sentiment(model))
    changed = [name for name in given if name.startswith("model.") and "embed" not in name][:2]
    given |= {name: torch.zeros(3) for name in changed}
    here = "x".join(map(str, model.state_dict()[changed[0].removeprefix("model.")].shape))
    with pytest.raises(UserError) as caught:
        adopted(model, sentiment(model), given)
    assert caught.value.lines == (
        f"init_from: {changed[0]} is 3 there and {here} here (and 1 more); set the same model options",
    )


def test_another_vocabulary_is_refused() -> None:
    model = Case("gru", ()).make()
    given = weights_of(model, sentiment(model))
    given["model.embed.weight"] = torch.zeros(30, 8)
    with pytest.raises(UserError, match=r"init_from: model\.embed\.weight is 30x8 there and 10x8 here") as caught:
        adopted(model, sentiment(model), given)
    assert len(caught.value.lines) == 1


@pytest.mark.parametrize("missing", [-3, 3, 9])
def test_an_embedding_of_another_vocabulary_is_refused(missing: int) -> None:
    model = Case("gru", ()).make()
    given = weights_of(model, sentiment(model))
    weight = given["model.embed.weight"]
    given["model.embed.weight"] = torch.cat([weight, weight])[: len(weight) - missing]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UserError, match=r"embed\.weight|vocabulary"):
        adopted(model, sentiment(model), given)
    assert torch.equal(model.state_dict()["embed.weight"], before["embed.weight"])


def test_another_model_is_refused() -> None:
    model = Case("gru", ()).make()
    other = weights_of(Case("gpt", ()).make(), sentiment(model))
    with pytest.raises(UserError, match="has no weight of this model's; use the same model"):
        adopted(model, sentiment(model), other)


# -- freezing and layers -----------------------------------------------------------------------------------------


def test_what_is_frozen_is_in_no_group_and_the_rest_is() -> None:
    model = Case("gpt", ()).make()
    task = next_token(model, tied=False)
    count = freeze(model, ["embed", "blocks.0"])
    frozen = {name for name, value in model.named_parameters() if not value.requires_grad}
    assert frozen == {name for name, _ in model.named_parameters() if name.startswith(("embed.", "blocks.0."))}
    assert count == sum(value.numel() for value in model.parameters() if not value.requires_grad)
    assert freeze(model, ["embed"]) == 0  # it is already
    listed = {id(value) for group in parameter_groups(model, task) for value in group["params"]}
    assert listed == {id(value) for value in (*model.parameters(), *task.parameters()) if value.requires_grad}


def test_the_whole_model_can_be_frozen_but_not_everything() -> None:
    model = Case("gru", ()).make()
    freeze(model, ["all"])
    head = next_token(model, tied=False)
    listed = {id(value) for group in parameter_groups(model, head) for value in group["params"]}
    assert listed == {id(value) for value in head.parameters()}
    tied = next_token(model)
    for value in tied.parameters():
        value.requires_grad_(False)
    with pytest.raises(UserError, match="freeze: nothing is left to train"):
        parameter_groups(model, tied)


@pytest.mark.parametrize(
    ("name", "wanted", "words"),
    [
        ("gpt", "blokcs", r"freeze=blokcs: the model has no such part; did you mean blocks\?$"),
        ("gpt", "blocks.9", r"freeze=blocks\.9: the model has no such part"),
        ("lstm", "nonsense", r"freeze=nonsense: the model has no such part; known: embed, layer$"),
    ],
)
def test_a_part_that_is_not_there_is_told_in_one_line(name: str, wanted: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        freeze(Case(name, ()).make(), [wanted])
    assert len(caught.value.lines) == 1


@pytest.mark.parametrize("name", ["gpt", "lstm", "bert", "cnn", "min_gru"])
def test_each_layer_has_the_learning_rate_of_the_one_above_times_the_decay(name: str) -> None:
    model = Case(name, ()).make(num_layers=3)
    task = next_token(model, tied=False)
    scales = {id(value): group["lr_scale"] for group in parameter_groups(model, task, 0.5) for value in group["params"]}
    everything = {id(value) for value in (*model.parameters(), *task.parameters())}
    assert scales.keys() == everything
    assert {scales[id(value)] for value in task.parameters()} == {1.0}
    assert {scales[id(value)] for value in model.embed.parameters()} == {0.5**4}
    for key, value in model.named_parameters():
        layer = re.search(r"(?:\.|_l)([012])(?:\.|$|_)", key)
        if layer and not key.startswith("embed"):
            assert scales[id(value)] == 0.5 ** (3 - int(layer[1])), key
    assert len(parameter_groups(model, task, 1.0)) == len({group["role"] for group in parameter_groups(model, task)})


LEARNED = (("positions", "learned"), ("max_length", 16))


@pytest.mark.parametrize(
    ("name", "options", "count"),
    [
        ("gpt", LEARNED, 2),
        ("bert", LEARNED, 3),
        ("encoder_decoder", (), 2),
        ("encoder_decoder", LEARNED, 4),
        ("rnn_encoder_decoder", (), 2),
    ],
    ids=str,
)
def test_what_stands_before_the_first_layer_is_below_it_and_no_hidden_matrix(
    name: str, options: tuple[tuple[str, Any], ...], count: int
) -> None:
    model = make_model(Case(name, options).config(num_layers=3), VOCABULARY, target_vocab_size=9)
    fronts = [
        value for key, value in model.named_parameters() if re.match(r"(target_)?embed\.|(.*\.)?table\.|segments", key)
    ]
    assert len(fronts) == count
    for decay, scale in ((1.0, 1.0), (0.5, 0.5**4)):
        groups = parameter_groups(model, next_token(model), decay)
        found = {id(value): (group["role"], group["lr_scale"]) for group in groups for value in group["params"]}
        assert {found[id(value)] for value in fronts} == {("other", scale)}


# -- through the command line ------------------------------------------------------------------------------------

TINY = ("model.dim=8", "trainer.max_steps=4", "trainer.validate_every=4", "logger=none", "callbacks=none")
BERT = ("model=bert", "model.num_layers=1", "model.num_heads=2")
ORIGINS = {
    "masked_lm": ("task=masked_lm", *BERT, *DATA["masked_lm"], "data.max_length=16"),
    "next_token": ("task=next_token", "model=lstm", *DATA["next_token"], "tbptt.k2=8"),
}
LABELLED = ("task=sentiment", *DATA["sentiment"], "data.max_length=16")


@pytest.fixture(scope="module")
def folder(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the data, and a finished run of each task that pretrains."""
    folder = files(tmp_path_factory.mktemp("transfer"))
    for task, options in ORIGINS.items():
        answer = seqtrain("train", *options, *TINY, f"run_dir={task}", cwd=folder)
        assert answer.rc == 0, answer.err
    shutil.copytree(folder / "next_token", folder / "lost", ignore=shutil.ignore_patterns("checkpoints"))
    (folder / "foreign").mkdir()
    (folder / "foreign" / "config.json").write_text('{"model_type": "bert"}')
    return folder


def best(run: Path) -> Weights:
    return load(run / "checkpoints" / "best.ckpt")["state_dict"]


@pytest.mark.long
@pytest.mark.parametrize("origin", ORIGINS)
def test_pretraining_is_the_beginning_of_sentiment(origin: str, folder: Path, seqtrain: Seqtrain) -> None:
    model = BERT if origin == "masked_lm" else ("model=lstm",)
    frozen = ("freeze=[all]", "trainer.max_steps=2")
    begun = (f"init_from={origin}", f"run_dir=after_{origin}")
    answer = seqtrain("train", *LABELLED, *model, *TINY, *begun, *frozen, cwd=folder)
    assert answer.rc == 0, answer.err
    said = [line for line in answer.err.splitlines() if line.startswith("init_from: ")]
    assert len(said) == 1
    run, first = folder / f"after_{origin}", folder / origin
    assert (run / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()
    assert Run(run).summary.hashes["tokenizer"] == Run(first).summary.hashes["tokenizer"]
    assert Run(run).config["tokenizer"] == Run(first).config["tokenizer"], (
        "what was used, not what sentiment would take"
    )
    (whose,) = Run(run).summary.lineage or []
    assert whose == Run(run).summary.parent
    before, after = best(first), best(run)
    for name in (name for name in after if name.startswith("model.")):
        rows = len(before[name])  # next_token knows one special token, sentiment three
        assert torch.equal(after[name][:rows], before[name]), name
        assert len(after[name]) - rows == (2 if origin == "next_token" and "embed." in name else 0)
    assert after["task.head.weight"].shape == (2, 8)


def test_what_is_frozen_keeps_its_bits_and_the_rest_moves(folder: Path, seqtrain: Seqtrain) -> None:
    begun = ("init_from=masked_lm", "freeze=[embed,blocks.0]", "run_dir=frozen", "trainer.grad_clip=null")
    answer = seqtrain("train", *LABELLED, *BERT, *TINY, *begun, "layer_decay=0.8", cwd=folder)
    assert answer.rc == 0, answer.err
    before, after = best(folder / "masked_lm"), best(folder / "frozen")
    for name in (name for name in after if name.startswith("model.")):
        assert torch.equal(after[name], before[name]) == name.startswith(("model.embed.", "model.blocks.0.")), name


REFUSED = {
    "hub": (
        ("init_from=google/bert_uncased",),
        ("init_from=google/bert_uncased", "init_from=hub:google/bert_uncased takes it"),
    ),
    "nowhere": (("init_from=./nowhere",), ("init_from=./nowhere: no run directory;",)),
    "not a run": (("init_from=.",), ("init_from=.: no run directory;",)),
    "a word like a run's": (("init_from=next_tokn",), ("no run directory", "did you mean next_token?")),
    "a file": (
        ("init_from=labelled.tsv",),
        ("init_from=labelled.tsv: no run directory", "give the directory of a run"),
    ),
    "a folder of a run": (
        ("init_from=masked_lm/checkpoints",),
        (
            "no run directory",
            "init_from=masked_lm",
        ),
    ),
    "a file of a run": (("init_from=masked_lm/checkpoints/best.ckpt",), ("give the run itself: init_from=masked_lm",)),
    "Hugging Face": (("init_from=foreign",), ("foreign: hidden_size=None: expected a number above 0",)),
    "lost checkpoints": (("init_from=lost", "model=lstm"), ("run lost has lost", "put lost/checkpoints back")),
    "another model": (
        ("init_from=masked_lm", "model=lstm"),
        ("init_from=masked_lm: that run is of model=bert", "set model=bert, or begin with a run of model=lstm"),
    ),
    "another width": (("init_from=next_token", "model=lstm", "model.dim=16"), ("set model.dim=8",)),
    "no such part": (("model=lstm", "freeze=[nonsense]"), ("freeze=nonsense", "known: embed, layer")),
    "no decay": (("layer_decay=0",), ("layer_decay=0", "from 0.001 to 1")),
    "too much decay": (("layer_decay=1.5",), ("layer_decay=1.5", "from 0.001 to 1")),
}


@pytest.mark.parametrize(
    "name", some_long(REFUSED, ["a file of a run", "lost checkpoints", "another model", "no such part"])
)
def test_a_beginning_that_cannot_be_is_refused_in_one_line_and_leaves_nothing(
    name: str, folder: Path, seqtrain: Seqtrain
) -> None:
    options, words = REFUSED[name]
    before = set(folder.rglob("*"))
    answer = seqtrain("train", *LABELLED, *TINY, *options, cwd=folder)
    assert answer.rc == 2, answer.err
    (line,) = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    assert [word for word in words if word not in line] == [], line
    assert set(folder.rglob("*")) == before


def test_a_model_of_which_the_origin_has_less_than_half_is_refused() -> None:
    model = Case("gpt", (("num_layers", 6),)).make()
    task = sentiment(model)
    given = {name: value for name, value in weights_of(model, task).items() if ".blocks.0." in name}
    with pytest.raises(UserError, match=r"has only \d+ of this model's \d+ weights"):
        copy_matching(model, task, given, same_task=False, say=lambda line: None)


def test_a_tokenizer_that_does_not_know_most_of_the_text_is_refused() -> None:
    corpus = Corpus(np.zeros(10, dtype=np.uint16), np.array([0, 10]), 20, 10, 6, "")
    rows = Rows({"text": corpus}, None, lambda: iter([]))
    with pytest.raises(UserError, match="does not know 60% of this text"):
        _say_unknown({"train": rows}, lambda line: None, "outputs/other")
    said: list[str] = []
    few = Rows({"text": replace(corpus, num_unknown=1)}, None, lambda: iter([]))
    _say_unknown({"train": few}, said.append, "outputs/other")
    assert said == ["10.0% of the tokens are <unk> to the tokenizer of outputs/other"]


def test_a_beginning_that_is_not_there_is_told_with_all_other_faults(seqtrain: Seqtrain, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    answer = seqtrain("train", "init_from=./nowhere", "run_dir=taken", cwd=tmp_path)
    assert answer.rc == 2
    assert "init_from=./nowhere: no run directory" in answer.err
    assert "run_dir=taken exists already" in answer.err
