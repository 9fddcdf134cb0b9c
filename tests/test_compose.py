"""Laws of composing: the values of a command line mean what they mean to Hydra, and are composed once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from omegaconf import DictConfig, OmegaConf

from seqtrain import check
from seqtrain.conf_files import ConfFiles

WORDS = [
    ("model.dim=32", "+trainer.max_steps=10", "++seed=2"),
    ("model={dim:32,num_layers:3}", "freeze=[embed,'layer 1']", "trainer.clip=null"),
    ("model.dim=${seed}", "seed=16", "run_dir='a b'"),
    ("optimizer.lr=1e-3", "optimizer.lr=2e-3", 'run_dir="a\\"b"', "budget=[params:1e5,flops:1e9]"),
    ("model.dim=32", "model=gpt", "optimizer=sgd", "optimizer.momentum=0.5"),
    ("callbacks=[default,early_stopping]", "callbacks.samples.length=5", "data=text", "data.path='a=b.txt'"),
]


def by_hydra(words: Sequence[str]) -> DictConfig:
    """What Hydra makes of the words; each may add its key, as ours may."""
    files = ConfFiles()
    choices = [word for word in words if files.is_group(word.partition("=")[0]) and "{" not in word]
    values = [f"++{word.lstrip('+')}" for word in words if word not in choices]
    return files.compose([*choices, *values])


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_value_means_what_it_means_to_hydra(words: tuple[str, ...]) -> None:
    ours = OmegaConf.to_container(check.compose(words).config, resolve=False)
    hydras = OmegaConf.to_container(by_hydra(words), resolve=False)
    assert ours == {key: value for key, value in hydras.items() if key != "hydra"}  # type: ignore[union-attr]


def test_a_command_line_is_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    composed: list[Sequence[str]] = []
    compose = ConfFiles.compose
    monkeypatch.setattr(ConfFiles, "compose", lambda files, words: composed.append(words) or compose(files, words))
    check.compose(["model=gpt", "model.dim=32", "optimizer.lr=1"])
    assert composed == [["model=gpt"]]
