"""Laws of beginning with two runs: a bidirectional model reads as the two do, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel, directions
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.runs.checkpoint import load
from seqtrain.runs.directory import Run
from seqtrain.training.origins import from_directions
from tests.conftest import Seqtrain
from tests.support.examples import DATA, files
from tests.support.model_cases import VOCABULARY, Case, assert_near

START, SEPARATOR = VOCABULARY, VOCABULARY + 1
INTO = {
    "lstm into elmo": ("lstm", Case("elmo", ())),
    "lstm into lstm": ("lstm", Case("lstm", (("bidirectional", True),))),
    "gru into gru": ("gru", Case("gru", (("bidirectional", True),))),
    "rnn into rnn": ("rnn", Case("rnn", (("bidirectional", True),))),
}


def stack(kind: str, seed: int, **options: Any) -> SequenceModel:
    """A model of one direction, of half the width, that knows one special token as next_token's do."""
    torch.manual_seed(seed)
    model = Case(kind, ()).make(dim=4, **options)
    embed = TokenEmbedding(vocab_size=VOCABULARY, dim=4, specials=1).double()
    for weight in (*model.parameters(), *embed.parameters()):
        torch.nn.init.normal_(weight, std=0.4)
    model.embed = embed
    return model


def begun(model: SequenceModel, runs: tuple[SequenceModel, SequenceModel]) -> SequenceModel:
    """The model with the weights that `from_directions` gives it."""
    found = from_directions(model, runs[0].state_dict(), runs[1].state_dict())
    left = [name for name in found if " " in name]
    model.load_state_dict(model.state_dict() | {name: found[name] for name in found if name not in left})
    return model


def both(model: SequenceModel, tokens: Tensor, lengths: Tensor | None) -> Tensor:
    """Hidden states without a mix of layers: forwards beside backwards."""
    if Capability.SEPARABLE in model.capabilities:
        return torch.cat(directions(model, tokens, lengths), -1)
    return model(tokens, None, lengths)[0]


@pytest.mark.parametrize("name", INTO)
@pytest.mark.parametrize("num_layers", [1, 3])
def test_a_model_that_begins_with_two_runs_reads_as_they_do_side_by_side(name: str, num_layers: int) -> None:
    kind, case = INTO[name]
    runs = stack(kind, 1, num_layers=num_layers), stack(kind, 2, num_layers=num_layers)
    model = begun(case.make(num_layers=num_layers), runs)
    text = torch.tensor([[1, 4, 2, 6, 3], [5, 0, 2, 0, 0]])
    for lane, length in enumerate((5, 3)):
        alone = text[lane : lane + 1, :length]
        tokens = torch.cat([torch.full((2, 1), START), text, torch.zeros(2, 1, dtype=torch.long)], 1)
        tokens[0, 6], tokens[1, 4] = SEPARATOR, SEPARATOR
        hidden = both(model, tokens, torch.tensor([7, 5]))[lane, 1 : length + 1]
        # Each run begins at its start token, as in its own training; then come the tokens in its own order.
        start = torch.tensor([[START]])
        there = runs[0](torch.cat([start, alone], 1))[0][0, 1:]
        back = runs[1](torch.cat([start, alone.flip(1)], 1))[0][0, 1:].flip(0)
        assert_near(hidden, torch.cat([there, back], -1), 1e-12)


def test_special_tokens_that_no_run_had_keep_their_own_vectors() -> None:
    model = Case("elmo", ()).make()
    fresh = model.state_dict()["embed.weight"].clone()
    runs = stack("lstm", 1, num_layers=2), stack("lstm", 2, num_layers=2)
    table = from_directions(model, runs[0].state_dict(), runs[1].state_dict())["embed.weight"]
    assert torch.equal(table[:VOCABULARY, :4], runs[0].state_dict()["embed.weight"][:VOCABULARY])
    assert torch.equal(table[:VOCABULARY, 4:], runs[1].state_dict()["embed.weight"][:VOCABULARY])
    assert torch.equal(table[SEPARATOR, :4], fresh[SEPARATOR, :4]), "forwards it ends a text, as nothing did"
    assert torch.equal(table[SEPARATOR, 4:], runs[1].state_dict()["embed.weight"][START]), "backwards a text begins"
    assert torch.equal(table[SEPARATOR + 1 :], fresh[SEPARATOR + 1 :])


LSTM = {"num_layers": 2}
REFUSED = {
    "another width": (Case("elmo", ()), stack("lstm", 1, **LSTM), {"dim": 12}, "model.dim=12 here has two directions"),
    "another kind": (Case("elmo", ()), stack("gru", 1, **LSTM), {}, "set the same kind of model"),
    "fewer layers": (Case("elmo", ()), stack("lstm", 1, **LSTM), {"num_layers": 1}, "same model.num_layers"),
    "no stack": (Case("elmo", ()), Case("cbow", ()).make(dim=4), {}, "the forward run has no one-directional layers"),
    "no directions": (Case("bert", ()), stack("lstm", 1, **LSTM), {}, "model=bert cannot be initialised with two runs"),
    "one direction": (Case("lstm", ()), stack("lstm", 1, **LSTM), {}, "model=lstm cannot be initialised with two runs"),
}


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    for name, (case, run, options, words) in REFUSED.items():
        with pytest.raises(UserError) as caught:
            from_directions(case.make(**options), run.state_dict(), run.state_dict())
        (line,) = caught.value.lines
        assert line.startswith("init_from: "), name
        assert words in line, name


# -- through the command line ------------------------------------------------------------------------------------

TINY = ("trainer.max_steps=2", "trainer.validate_every=2", "logger=none", "callbacks=none", "trainer.accelerator=cpu")
ONE_WAY = ("task=next_token", "model=lstm", "model.dim=4", "model.num_layers=2", *DATA["next_token"], "tbptt.k2=8")
LABELLED = ("task=sentiment", *DATA["sentiment"], "data.max_length=16", "model=elmo", "model.dim=8", *TINY)
TOGETHER = ("task=bidirectional_lm", *DATA["bidirectional_lm"], "data.max_length=16", "model.dim=8")


@pytest.fixture(scope="module")
def folder(seqtrain: Seqtrain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the data, a forward and a backward run, one of another tokenizer, and one that was trained both ways."""
    folder = files(tmp_path_factory.mktemp("two"))
    runs = {
        "forward": ONE_WAY,
        "backward": (*ONE_WAY, "task.direction=backward"),
        "characters": (*ONE_WAY, "task.direction=backward", "tokenizer=char"),
        "together": TOGETHER,
    }
    for name, options in runs.items():
        answer = seqtrain("train", *options, *TINY, f"run_dir={name}", cwd=folder)
        assert answer.rc == 0, answer.err
    return folder


def best(run: Path) -> dict[str, Tensor]:
    return load(run / "checkpoints" / "best.ckpt")["state_dict"]


@pytest.mark.long
def test_two_runs_are_the_beginning_of_one_and_both_are_on_record(folder: Path, seqtrain: Seqtrain) -> None:
    words = ("init_from=[forward,backward]", "freeze=[embed,forwards,backwards]", "run_dir=both_ways")
    answer = seqtrain("train", *LABELLED, *words, cwd=folder)
    assert answer.rc == 0, answer.err
    (line,) = [line for line in answer.err.splitlines() if line.startswith("init_from: ")]
    assert "of forward (forward) and backward (backward); new: 4 (model.mix, model.scale, task.head)" in line
    summary = Run(folder / "both_ways").summary
    hashes = []
    for name in ("forward", "backward"):
        child = folder / f"after_{name}"
        more = ("model=lstm", "model.dim=4", "model.num_layers=2", f"init_from={name}", f"run_dir={child.name}")
        assert seqtrain("train", *LABELLED, *more, cwd=folder).rc == 0
        hashes.append(Run(child).summary.parent)
    assert summary.lineage == hashes, "each by the hash that it has where a run begins with it alone"
    assert summary.parent not in (None, *hashes)
    before, after = best(folder / "backward"), best(folder / "both_ways")
    assert torch.equal(after["model.backwards.1.weight_hh_l0"], before["model.layer.weight_hh_l1"])
    assert not after["model.backwards.0.weight_ih_l0"][:, :4].any(), "frozen: what it would read forwards stays zero"
    assert Run(folder / "both_ways").summary.leaks["validation"]["init_from"] is not None


@pytest.mark.long
def test_a_run_of_two_goes_on_as_if_it_had_never_stopped(folder: Path, seqtrain: Seqtrain) -> None:
    words = (*LABELLED, "init_from=[forward,backward]", "trainer.max_steps=4", "trainer.checkpoint_every=2")
    assert seqtrain("train", *words, "run_dir=whole", cwd=folder).rc == 0
    assert seqtrain("train", *words, "trainer.max_steps=2", "run_dir=parts", cwd=folder).rc == 0
    answer = seqtrain("resume", "parts", "trainer.max_steps=4", cwd=folder)
    assert answer.rc == 0, answer.err
    assert Run(folder / "parts").summary.parent == Run(folder / "whole").summary.parent
    assert seqtrain("export", "whole", "--output", "exported", cwd=folder).rc == 0
    answer = seqtrain("predict", "exported", "line 3 of the text", cwd=folder)
    assert answer.rc == 0, answer.err


@pytest.mark.long
def test_trained_together_the_stacks_are_loaded_and_the_head_is_new(folder: Path, seqtrain: Seqtrain) -> None:
    answer = seqtrain("train", *LABELLED, "init_from=together", "freeze=[all]", "run_dir=deep", cwd=folder)
    assert answer.rc == 0, answer.err
    before, after = best(folder / "together"), best(folder / "deep")
    for name in (name for name in after if name.startswith("model.")):
        assert torch.equal(after[name], before[name]), name
    assert "new: 2 (task.head); left behind: 2 (task.head)" in answer.err
