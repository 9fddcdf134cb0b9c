"""trainer.compile=blocks and trainer.recompute=blocks: the same training, and evaluations as if they were off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from seqtrain.config import check
from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.runs.resume_check import final_state
from seqtrain.training.compiled import as_compiled, as_written, check_compiled, compile_blocks, recompute_blocks
from seqtrain.training.model_and_task import make_model
from tests.conftest import Changes, Seqtrain
from tests.support.tiny import GPT, OPTIONS, corpus, records

TRAIN = ("train", *OPTIONS, *GPT, "schedule=constant", "trainer.precision=32-true", "trainer.checkpoint_every=3")
COMPILED = "trainer.compile=blocks"


class Doubled(torch.nn.Module):
    """Something to compile: torch leaves its own modules alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def small_gpt() -> SequenceModel:
    return make_model(check.compose(list(GPT)).config, 5)


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(UserError, match="no Transformer blocks"):
        check_compiled(torch.nn.LSTM(2, 2))


def test_a_machine_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UserError, match="no C\\+\\+ compiler is installed \\(no-such-compiler\\)"):
        check_compiled(small_gpt())


@pytest.mark.long
def test_compiled_blocks_keep_the_names_of_their_weights() -> None:
    model = small_gpt()
    names = list(model.state_dict())
    assert compile_blocks(model) > 0
    assert list(model.state_dict()) == names


def test_blocks_are_compiled_only_where_it_is_asked_for() -> None:
    compiled: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        compiled.append(1)
        return graph

    module = Doubled()
    module.compile(backend=backend)
    with as_written():
        module(torch.ones(1))
        assert not compiled
        with as_compiled():
            module(torch.ones(1))
        assert len(compiled) == 1


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Changes:
    """Torch's compiler, where it is killed, leaves half of a library in its cache, which fails all that come later."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("compiled"))}


@pytest.mark.long
@pytest.mark.parametrize("carry", ["tbptt=windows", "tbptt.recompute=4"])
def test_a_compiled_training_resumes_to_the_bit_and_rounds_and_is_validated_as_a_plain_one(
    carry: str, own_cache: Changes, seqtrain: Seqtrain, tmp_path: Path
) -> None:
    corpus(tmp_path)
    for words in (
        (*TRAIN, carry, "trainer.max_steps=6", "run_dir=plain"),
        (*TRAIN, carry, COMPILED, "trainer.max_steps=6", "run_dir=whole"),
        (*TRAIN, carry, COMPILED, "trainer.max_steps=3", "run_dir=parts"),
        ("resume", "parts", "trainer.max_steps=6"),
    ):
        answer = seqtrain(*words, cwd=tmp_path, env=own_cache, timeout=300)
        assert answer.rc == 0, answer.err
    whole, parts = (final_state(tmp_path / name)["state_dict"] for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    plain = final_state(tmp_path / "plain")["state_dict"]
    assert any(not torch.equal(whole[name], plain[name]) for name in whole)  # so something was compiled
    for name in whole:
        torch.testing.assert_close(whole[name], plain[name], rtol=0, atol=1e-4)
    loss = [record["validation/loss"] for record in records(tmp_path / "whole") if "validation/loss" in record][-1]
    assert json.loads(seqtrain("evaluate", "whole", "--json", cwd=tmp_path).out)["metrics"]["loss"] == loss


@pytest.mark.parametrize("words", [GPT, ("model=stack", "model.mixers=[gru,attention]", "model.dim=16")])
def test_blocks_that_are_read_again_give_the_same_bits_and_keep_less_than_half(words: Sequence[str]) -> None:
    kept, gradients = [], []

    def keep(value: torch.Tensor) -> torch.Tensor:
        kept[-1] += value.nbytes
        return value

    for again in (False, True):
        torch.manual_seed(0)
        model = make_model(check.compose([*words, "model.num_layers=4", "model.dropout=0.1"]).config, 5)
        if again:
            assert recompute_blocks(model) == 4
        kept.append(0)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
            loss = model(torch.arange(240).view(4, 60) % 5)[0].square().sum()
        loss.backward()
        gradients.append([weight.grad for weight in model.parameters()])
    assert kept[1] < kept[0] / 2
    assert all(map(torch.equal, *gradients))
