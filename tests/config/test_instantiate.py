"""What a config's class is given at run time it must name: a constructor that hides it is told so in one line."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from seqtrain.config import instantiate
from seqtrain.errors import UserError


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
        "model: the constructor of Hides collects its options in **options; name what it is to be given (embed)",
    )
    assert made(monkeypatch, Names).embed == "front end"
    assert made(monkeypatch, Hides, "logger").options == {}
