"""Published families against `transformers`: the same function, read whole, padded, in chunks and token by token."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from seqtrain.hub.convert import converted, opened
from seqtrain.hub.folder import HubFolder
from seqtrain.hub.names import read, write
from seqtrain.inference.opened import Opened, open_run
from tests.support.hub_folders import ENCODERS, FAMILIES, reference, save
from tests.support.model_cases import assert_near

TOLERANCE = {"bert": 1e-12, "roberta": 1e-12, "distilbert": 1e-12, "gpt2": 1e-12}  # others turn positions in float32
ROTARY = 1e-5
DECODERS = [family for family in FAMILIES if family not in (*ENCODERS, "marian")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {family: save(family, tmp_path_factory.mktemp(family)) for family in FAMILIES}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))


def double(folder: Path) -> Opened:
    taken = open_run(folder)
    taken.model.double(), taken.task.double()
    return taken


def some_tokens(taken: Opened, family: str) -> Tensor:
    """Ids of ours; of an encoder with its edges, and where it knows segments with two texts."""
    tokens = torch.randint(2, taken.tokenizer.vocab_size, (3, 20), generator=torch.Generator().manual_seed(1))
    if family in ENCODERS:
        tokens[:, 0], tokens[:, -1] = taken.tokenizer.start, taken.tokenizer.separator
        if family == "bert":
            tokens[:, 9] = taken.tokenizer.separator
    return tokens


def theirs_of(taken: Opened, tokens: Tensor) -> Tensor:
    return torch.from_numpy(taken.tokenizer.theirs)[tokens]  # type: ignore[attr-defined]


@pytest.mark.parametrize("family", ENCODERS)
def test_an_encoder_gives_the_hidden_states_of_the_reference_at_every_real_token(
    family: str, folders: dict[str, Path]
) -> None:
    taken, model = double(folders[family]), reference(family).double()
    tokens, lengths = some_tokens(taken, family), torch.tensor([20, 11, 3])
    real = torch.arange(20) < lengths.unsqueeze(1)
    segments = (torch.arange(20) > 9).long().expand(3, 20)
    options = {"token_type_ids": segments} if family == "bert" else {}
    base = getattr(model, model.base_model_prefix, model)
    expected = base(theirs_of(taken, tokens), attention_mask=real.long(), **options).last_hidden_state
    assert_near(taken.model(tokens, None, lengths)[0][real], expected[real], TOLERANCE[family])


@pytest.mark.parametrize("family", DECODERS)
def test_a_decoder_gives_the_hidden_states_and_the_scores_of_the_reference_however_it_is_read(
    family: str, folders: dict[str, Path]
) -> None:
    taken, model = double(folders[family]), reference(family).double()
    tolerance = TOLERANCE.get(family, ROTARY)
    tokens = some_tokens(taken, family)
    whole = getattr(model, model.base_model_prefix)(theirs_of(taken, tokens)).last_hidden_state
    hidden = taken.model(tokens)[0]
    assert_near(hidden, whole, tolerance)
    state, parts = None, []
    for chunk in tokens.split(7, 1):
        part, state = taken.model(chunk, state)
        parts.append(part)
    assert_near(torch.cat(parts, 1), whole, tolerance)
    with torch.no_grad():
        stepper = taken.model.stepper(taken.model.begin(tokens[:, :5]))
        steps = [stepper.read(tokens[:, place]) for place in range(5, 20)]
    assert_near(torch.stack(steps, 1), whole[:, 5:], tolerance)
    scores = taken.task.output(taken.model, hidden).logits()  # type: ignore[attr-defined]
    text = taken.tokenizer.theirs[: taken.tokenizer.vocab_size]  # type: ignore[attr-defined]
    assert_near(scores, model(theirs_of(taken, tokens)).logits[..., text], tolerance)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_read_is_written_back_bit_for_bit(family: str, folders: dict[str, Path]) -> None:
    imported = opened(folders[family])
    theirs = imported.bare(HubFolder(folders[family]).weights())
    ours, used = read(imported.rules, theirs, open_run(folders[family]).model.state_dict())
    back = write(imported.rules, ours)
    assert used
    for name in used:
        given = theirs[name][2:] if family == "roberta" and "position" in name else theirs[name]  # rows of no token
        again = back[name][2:] if family == "roberta" and "position" in name else back[name]
        assert torch.equal(again, given), name
    left = set(imported.left_behind)
    assert {name for name in theirs if name not in used} >= left
    assert not left or family in ENCODERS


def test_shards_are_read_as_one_file(tmp_path: Path, folders: dict[str, Path]) -> None:
    sharded = save("llama", tmp_path / "sharded", max_shard_size="20KB")
    assert len(list(sharded.glob("*.safetensors"))) > 2
    one, many = open_run(folders["llama"]), open_run(sharded)
    assert one.hash == many.hash


def test_weights_are_trained_on_as_those_of_the_reference(folders: dict[str, Path]) -> None:
    taken, model = double(folders["gpt2"]), reference("gpt2").double()
    optimizers = [torch.optim.AdamW(part.parameters(), lr=1e-2) for part in (taken.model, model)]
    for step in range(20):
        tokens = torch.randint(0, 256, (2, 12), generator=torch.Generator().manual_seed(step))
        hidden = taken.model(tokens)[0]
        text = torch.from_numpy(taken.tokenizer.theirs[:256])  # type: ignore[attr-defined]
        both = (
            taken.task.output(taken.model, hidden).logits(),  # type: ignore[attr-defined]
            model(text[tokens]).logits[..., text],
        )
        for optimizer, scores in zip(optimizers, both, strict=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
    imported = opened(folders["gpt2"])
    theirs = imported.bare(model.state_dict())
    expected, _ = read(imported.rules, theirs, taken.model.state_dict())
    for name, value in taken.model.state_dict().items():
        assert_near(value, expected[name], 1e-9)


def test_a_folder_is_converted_once_and_anew_where_it_has_changed(tmp_path: Path) -> None:
    folder = save("gpt2", tmp_path / "gpt2")
    first = converted(str(folder))
    assert converted(str(folder)) == first
    model = reference("gpt2")
    model.transformer.wte.weight.data += 1
    save("gpt2", folder, model)
    assert converted(str(folder)) != first
