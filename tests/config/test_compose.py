"""Laws of composing: the values of a command line mean what they mean to Hydra, and are composed once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from seqtrain.config import check, instantiate
from seqtrain.config.conf_files import ConfFiles, reads_environment
from seqtrain.errors import UserError

WORDS = [
    ("model.dim=32", "+trainer.max_steps=10", "++seed=2"),
    ("model={dim:32,num_layers:3}", "freeze=[embed,'layer 1']", "trainer.grad_clip=null"),
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


@pytest.mark.long
def test_a_value_means_what_it_means_to_hydra() -> None:
    for words in WORDS:
        ours = OmegaConf.to_container(check.compose(words).config, resolve=False)
        hydras = OmegaConf.to_container(by_hydra(words), resolve=False)
        assert ours == {key: value for key, value in hydras.items() if key != "hydra"}, words  # type: ignore[union-attr]


def test_a_command_line_is_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    composed: list[Sequence[str]] = []
    compose = ConfFiles.compose
    monkeypatch.setattr(ConfFiles, "compose", lambda files, words: composed.append(words) or compose(files, words))
    check.compose(["model=gpt", "model.dim=32", "optimizer.lr=1"])
    assert composed == [["model=gpt"]]


def test_of_two_folders_with_the_same_config_the_first_one_counts(tmp_path: Path) -> None:
    seeds = {"one": 11, "two": 12}
    for name, seed in seeds.items():
        (tmp_path / name / "experiment").mkdir(parents=True)
        (tmp_path / name / "experiment" / "mine.yaml").write_text(f"# @package _global_\nseed: {seed}\n")
    for order in (("one", "two"), ("two", "one")):
        folders = [tmp_path / name for name in order]
        assert check.compose(["experiment=mine"], config_dirs=folders).config.seed == seeds[order[0]]


def test_a_value_that_reads_the_environment_is_known_also_where_it_cannot_be_worked_out() -> None:
    config = OmegaConf.create(
        {
            "plain": "${oc.env:HOME}",
            "fails": "${oc.env:HOME} ${nothing}",
            "deep": {"er": ["${plain}"]},
            "seed": 1,
            "other": "${seed}",
            "wrong": "${nothing}",
        }
    )
    found = {str(key): reads_environment(config, str(key)) for key in config}
    assert found == {"plain": True, "fails": True, "deep": True, "seed": False, "other": False, "wrong": False}
    assert config.plain == os.environ["HOME"]


# -- what a class is given at run time --------------------------------------------------------------------------------


class Hides:
    def __init__(self, dim: int, **options: Any) -> None:
        self.options = options


class Names:
    def __init__(self, dim: int, embed: Any = None, **options: Any) -> None:
        self.embed = embed


def made(monkeypatch: pytest.MonkeyPatch, target: type, group: str = "model") -> Any:
    """What the config of a group makes of a class, given an embed."""
    monkeypatch.setattr(instantiate, "resolve", lambda *_, **__: target)
    monkeypatch.setattr(instantiate, "instantiate", lambda options, **_: lambda **given: target(dim=3, **given))
    config = OmegaConf.create({group: {"_target_": f"{__name__}.{target.__name__}", "dim": 3}})
    return instantiate.make(config[group], embed="front end")


def test_a_model_whose_options_hide_what_it_is_given_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError) as told:
        made(monkeypatch, Hides)
    assert told.value.lines == (
        "model: the constructor of Hides takes **options; name the arguments that it needs from seqtrain (embed)",
    )
    assert made(monkeypatch, Names).embed == "front end"
    assert made(monkeypatch, Hides, "logger").options == {}
