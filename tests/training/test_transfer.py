"""Laws of beginning from another run: what fits is loaded bit for bit and said, what is frozen never moves."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from seqtrain.data.corpus import Corpus
from seqtrain.data.preprocess import Preprocessor, Rows
from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.runs.checkpoint import load, step_name
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import Task
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.training.data import _say_unknown
from seqtrain.training.learner import parameter_groups
from seqtrain.training.model_and_task import make_model
from seqtrain.training.session import load_initial_weights
from seqtrain.training.transfer import copy_matching, freeze
from tests.conftest import Seqtrain
from tests.support import untrained_runs
from tests.support.examples import DATA, files
from tests.support.model_cases import VOCABULARY, Case, next_token

Weights = dict[str, Tensor]


def sentiment(model: SequenceModel, labels: int = 2) -> Sentiment:
    given: dict[str, Any] = {"pool": "last", "dropout": 0.0, "class_weights": "none", "bptt_length": 100}
    return Sentiment(**given, dim=model.dim, labels=tuple(map(str, range(labels))), label_counts=()).double()


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


@pytest.mark.parametrize("name", ["lstm", "rnn_encoder_decoder"])
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


def test_of_an_embedding_with_fewer_or_more_special_tokens_the_rows_of_both_are_loaded() -> None:
    for missing in (-2, -1, 0, 1, 2):
        model = Case("gru", ()).make()
        task, given = sentiment(model), weights_of(model, sentiment(model))
        known = given["model.embed.weight"]
        rows = len(known) - missing
        given["model.embed.weight"] = known[:rows] if missing >= 0 else torch.cat([known, torch.ones(-missing, 8)])
        fresh = model.embed.weight.detach().clone()  # type: ignore[union-attr,operator]
        line = adopted(model, task, given)
        found: Tensor = model.embed.weight  # type: ignore[assignment]
        assert torch.equal(found[:rows], given["model.embed.weight"][: len(found)]), missing
        assert torch.equal(found[rows:], fresh[rows:]), missing
        assert (f"{abs(missing)} special tokens of model.embed.weight" in line) == (missing != 0)
        assert (" special tokens" in line.partition("left behind")[2]) == (missing < 0)


def test_weights_of_other_shapes_are_refused_in_one_line_that_names_the_first() -> None:
    model = Case("lstm", ()).make()
    given = weights_of(model, sentiment(model))
    changed = [name for name in given if name.startswith("model.") and "embed" not in name][:2]
    given |= {name: torch.zeros(3) for name in changed}
    here = "x".join(map(str, model.state_dict()[changed[0].removeprefix("model.")].shape))
    with pytest.raises(UserError) as caught:
        adopted(model, sentiment(model), given)
    assert caught.value.lines == (
        f"init_from: {changed[0]} is 3 there, but {here} here (and 1 more); set the same model options",
    )


def test_an_embedding_of_another_vocabulary_is_refused() -> None:
    for missing in (-3, 3, 9):
        model = Case("gru", ()).make()
        given = weights_of(model, sentiment(model))
        weight = given["model.embed.weight"]
        given["model.embed.weight"] = torch.cat([weight, weight])[: len(weight) - missing]
        before = model.state_dict()["embed.weight"].clone()
        with pytest.raises(UserError, match=r"embed\.weight|vocabulary"):
            adopted(model, sentiment(model), given)
        assert torch.equal(model.state_dict()["embed.weight"], before), missing


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


def test_a_part_is_named_by_whole_words_and_numbers() -> None:
    model = Case("gpt", ()).make(num_layers=12)
    count = freeze(model, ["blocks.1"])
    frozen = {name for name, value in model.named_parameters() if not value.requires_grad}
    assert frozen == {name for name, _ in model.named_parameters() if name.startswith("blocks.1.")}
    assert count == sum(value.numel() for name, value in model.named_parameters() if name in frozen) > 0
    for name, wanted, words in (
        ("gpt", "blokcs", r"freeze=blokcs: the model has no such part; did you mean blocks\?$"),
        ("gpt", "block", r"freeze=block: the model has no such part"),
        ("gpt", "blocks.9", r"freeze=blocks\.9: the model has no such part"),
        ("lstm", "nonsense", r"freeze=nonsense: the model has no such part; known: embed, layer$"),
    ):
        with pytest.raises(UserError, match=words) as caught:
            freeze(Case(name, ()).make(), [wanted])
        assert len(caught.value.lines) == 1


def test_each_layer_has_the_learning_rate_of_the_one_above_times_the_decay() -> None:
    for name in ("gpt", "lstm", "bert", "cnn", "min_gru"):
        model = Case(name, ()).make(num_layers=3)
        task = next_token(model, tied=False)
        groups = parameter_groups(model, task, 0.5)
        scales = {id(value): group["lr_scale"] for group in groups for value in group["params"]}
        assert scales.keys() == {id(value) for value in (*model.parameters(), *task.parameters())}, name
        assert {scales[id(value)] for value in task.parameters()} == {1.0}, name
        assert {scales[id(value)] for value in model.embed.parameters()} == {0.5**4}, name
        for key, value in model.named_parameters():
            layer = re.search(r"(?:\.|_l)([012])(?:\.|$|_)", key)
            if layer and not key.startswith("embed"):
                assert scales[id(value)] == 0.5 ** (3 - int(layer[1])), (name, key)


LEARNED = (("positions", "learned"), ("max_length", 16))


def test_what_stands_before_the_first_layer_is_below_it_and_no_hidden_matrix() -> None:
    front = re.compile(r"(target_)?embed\.|(.*\.)?table\.|segments")
    for name, options, count in (
        ("gpt", LEARNED, 2),
        ("bert", LEARNED, 3),
        ("encoder_decoder", (), 2),
        ("encoder_decoder", LEARNED, 4),
        ("rnn_encoder_decoder", (), 2),
    ):
        model = make_model(Case(name, options).config(num_layers=3), VOCABULARY, target_vocab_size=9)
        fronts = [value for key, value in model.named_parameters() if front.match(key)]
        assert len(fronts) == count, name
        for decay, scale in ((1.0, 1.0), (0.5, 0.5**4)):
            groups = parameter_groups(model, next_token(model), decay)
            found = {id(value): (group["role"], group["lr_scale"]) for group in groups for value in group["params"]}
            assert {found[id(value)] for value in fronts} == {("other", scale)}, name


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


def test_a_tokenizer_that_does_not_know_most_of_the_text_is_refused() -> None:
    corpus = Corpus(np.zeros(10, dtype=np.uint16), np.array([0, 10]), 20, 10, 6, "")
    rows = Rows({"text": corpus}, None, lambda: iter([]))
    with pytest.raises(UserError, match="does not know 60% of this text"):
        _say_unknown({"train": rows}, lambda line: None, "outputs/other")
    said: list[str] = []
    few = Rows({"text": replace(corpus, num_unknown=1)}, None, lambda: iter([]))
    _say_unknown({"train": few}, said.append, "outputs/other")
    assert said == ["10.0% of the tokens are <unk> for the tokenizer of outputs/other"]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of next_token with a head of its own."""
    return untrained_runs.make_run(
        tmp_path_factory.mktemp("beginnings") / "run", *untrained_runs.NEXT_TOKEN, "task.tied=false"
    )


@pytest.mark.parametrize("same", [True, False])
def test_a_run_hands_its_head_on_to_its_own_task_alone(same: bool, origin: Path) -> None:
    saved = load(origin / "checkpoints" / step_name(untrained_runs.STEP))["state_dict"]
    begun = untrained_runs.double(origin)
    model: SequenceModel = begun.model.float()
    for weight in model.parameters():
        nn.init.zeros_(weight)
    vocab_size = len(saved["task.head.weight"])
    task: Task = NextToken(tied=False, dim=16, vocab_size=vocab_size) if same else sentiment(model, vocab_size)
    before: Tensor = task.head.weight.clone()  # type: ignore[union-attr,operator]
    recorder = SimpleNamespace(run=Run(origin))
    data = SimpleNamespace(preprocessor=Preprocessor.load(origin, Run(origin).summary.hashes))
    session: Any = SimpleNamespace(learner=SimpleNamespace(model=model, task=task), recorder=recorder, data=data)
    config = OmegaConf.create({"init_from": str(origin)})
    load_initial_weights(config, session, lambda line: None, parent_hash=None)
    assert all(torch.equal(value, saved[f"model.{name}"]) for name, value in model.state_dict().items())
    assert torch.equal(task.head.weight, saved["task.head.weight"] if same else before)  # type: ignore[union-attr,arg-type]


@pytest.mark.parametrize("adapter", [(), ("adapter=lora",)], ids=["weights", "adapters"])
def test_a_run_with_a_checkpoint_resumes_without_the_run_that_it_began_with(
    adapter: tuple[str, ...], seqtrain: Seqtrain, tmp_path: Path
) -> None:
    data = ("task=tag", "data=parity", "data.size=40", "data.validation_size=8", "data.test_size=0", "data.longest=9")
    words = (*data, "trainer.validate_every=1", "trainer.checkpoint_every=1", "logger=none", "callbacks=none")
    first = seqtrain("train", *words, "model=gru", "model.dim=8", "trainer.max_steps=1", "run_dir=first", cwd=tmp_path)
    assert first.rc == 0, first.err
    begun = seqtrain("train", *words, *adapter, "init_from=first", "trainer.max_steps=1", cwd=tmp_path)
    assert begun.rc == 0, begun.err
    (run,) = (tmp_path / "outputs").iterdir()
    assert run.name.endswith("_tag_gru"), "named after the model of the first run, not after the task's own"
    run.rename(tmp_path / "second")
    (tmp_path / "first").rename(tmp_path / "elsewhere")
    resumed = seqtrain("resume", "second", "trainer.max_steps=2", cwd=tmp_path)
    assert resumed.rc == 0, resumed.err
    (tmp_path / "second" / "checkpoints").rename(tmp_path / "lost")  # without one it has to begin again
    (tmp_path / "second" / "checkpoints").mkdir()
    refused = seqtrain("resume", "second", "trainer.max_steps=3", cwd=tmp_path)
    assert refused.rc == 2
    assert "init_from=first: no run directory" in refused.err


SERIES = (
    *("task=classify", "data=series", "data.id_column=id", "data.label_column=state", "model=gru", "model.dim=4"),
    *("model.num_layers=1", "trainer.max_steps=1", "logger=none"),
)


def test_weights_of_columns_and_labels_go_to_no_others_without_a_word(seqtrain: Seqtrain, tmp_path: Path) -> None:
    rows = [(f"p{n // 4:02d}", n % 7, n % 5, "AB"[n // 4 % 2]) for n in range(160)]
    columns = {"id": 0, "pulse": 1, "pressure": 2, "state": 3}

    def begun(names: str, labels: str = "AB", **options: str) -> tuple[int, str]:
        lines = [names]
        for row in rows:
            of = dict(zip(columns, row, strict=True)) | {"weight": row[1], "state": labels["AB".index(row[3])]}
            lines.append(",".join(str(of[name]) for name in names.split(",")))
        (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
        given = [f"{key}={value}" for key, value in options.items()]
        answer = seqtrain("train", *SERIES, "data.path=a.csv", *given, cwd=tmp_path)
        return answer.rc, answer.err

    assert begun("id,pulse,pressure,state", run_dir="base")[0] == 0
    code, said = begun("id,pressure,pulse,state", run_dir="other", init_from="base")
    assert (code, "weights belong to a place; set data.columns=[pulse,pressure]" in said) == (2, True)
    code, said = begun("id,weight,pressure,state", run_dir="weight", init_from="base")
    assert (code, "weights of pulse, pressure are taken for weight, pressure, in this order" in said) == (0, True)
    code, said = begun("id,pulse,pressure,state", labels="CA", run_dir="labels", init_from="base")
    assert (code, "that run's labels are A, B, and not A, C: the head is new" in said) == (0, True)
    assert "new: 2 (task.head)" in said
