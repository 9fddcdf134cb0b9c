"""Laws of the numbers of a configuration: each has a range, and what can do nothing is one line before anything."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from seqtrain import conf  # pyright: ignore[reportAttributeAccessIssue]  # conf/ is mapped in by pyproject.toml
from seqtrain.config import check
from seqtrain.config.groups import OWN
from seqtrain.config.nodes import leaves
from seqtrain.config.ranges import RANGES, out_of_range
from seqtrain.config.signatures import fits, signature
from seqtrain.errors import UserError
from seqtrain.sweeps.launchers import Local
from seqtrain.sweeps.settings import Settings, Words

ROOT = Path(conf.__path__[0])
ABSURD = (-1, 1e-300, 1e300, math.nan, math.inf, -math.inf, 10**12)
KNOWN_ELSEWHERE = {"hydra.launcher.pre_dispatch", "hydra.launcher.max_nbytes"}

MEANS_SOMETHING = {
    # value: what accepts it, and why
    -1: {
        "hydra.launcher.n_jobs",  # joblib: one a core; our own launcher refuses it
        *("data.token_column", "data.label_column"),  # of a CoNLL file the last one
    },
    1e-300: {
        *(path for path, allowed in RANGES.items() if not allowed.whole and allowed.low == 0),  # as 0, or next to it
    },
    10**12: {"optimizer.lr", "optimizer.lr_rest"},  # the run diverges, fails in itself and says so
}


def numbers(folder: Path = ROOT) -> Iterator[tuple[str, str, Any]]:
    """Each key of a shipped file that holds a number, or null where a number may stand: path, target, kind."""
    for file in sorted(folder.rglob("*.yaml")):
        group = ".".join(file.relative_to(ROOT).parts[:-1])
        node = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
        assert isinstance(node, dict)
        for path, value in leaves(node, "" if file.name == "train.yaml" else group):
            if group in ("sweep", "debug", "experiment") or "_recommend_" in path or path.startswith("hydra.sweep."):
                continue
            kind = declared(path, node)
            takes_numbers = fits(1, kind) or fits(0.5, kind) or fits([0.5, 0.5], kind)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number or (takes_numbers and kind is not Any):
                yield path, file.stem, kind


def declared(path: str, node: Any) -> Any:
    """The kind of value that the target of a key, or our own options, take."""
    group, _, key = path.rpartition(".")
    if group in OWN:
        own = signature(f"seqtrain.config.options.{OWN[group].__name__}")
        if own and key in own.options:
            return own.options[key].kind
    entry = node.get(group.rpartition(".")[2], node) if group.startswith("callbacks.") else node
    target = entry.get("_target_") if isinstance(entry, dict) else None
    found = signature(target) if target else None
    return found.options[key].kind if found and key in found.options else Any


def test_every_number_of_every_file_has_a_range() -> None:
    paths = {path for path, _, _ in numbers()} - KNOWN_ELSEWHERE
    assert len(paths) > 80
    assert sorted(paths - RANGES.keys()) == []


def test_an_absurd_number_is_refused_or_means_something() -> None:
    known = [(path, kind) for path, _, kind in numbers() if path in RANGES]
    for value in ABSURD:
        accepted = {path for path, kind in known if fits(value, kind) and out_of_range(path, value) is None}
        assert accepted <= MEANS_SOMETHING.get(value, set()), value


NOTHING = {
    # what does nothing, or undoes training: what the line says
    "optimizer.lr=0": "from 1e-12 to 1e+38",
    "optimizer.betas=[0.9,1]": "a list, each item a number from 0, below 1",
    "optimizer.eps=0": "from 1e-30 to 1",
    "optimizer.weight_decay=-0.1": "from 0 to 100",
    "model.dropout=1": "from 0, below 1",
    "model.num_layers=1000000000": "from 1 to 1,024",
    "model.dim=0": "a whole number from 1 to",
    "trainer.grad_clip=0": "from 1e-06",
    "trainer.max_steps=1000000000000": "from 1 to 99,999,999",
    "trainer.log_every=0": "from 1 to",
    "trainer.checkpoint_every=0": "from 1 to",
    "trainer.devices=100000": "from 1 to 1,024",
    "data.workers=100000": "from 0 to 128",
    "data.eval_lanes=1000000000": "from 1 to",
    "data.max_length=7": "from 8 to",
    "callbacks.samples.length=1000000000": "from 1 to 100,000",
    "callbacks.samples.temperature=1e-300": "from 0.001 to 1000, or 0",
    "layer_decay=2": "from 0.001 to 1",
    "seed=4294967296": "from 0 to 4,294,967,295",
}


def test_numbers_out_of_range_are_each_one_line_that_names_the_range() -> None:
    with pytest.raises(UserError) as refused:
        check.compose(list(NOTHING))
    lines = {line.partition(": ")[0]: line for line in refused.value.lines}
    assert sorted(lines) == sorted(NOTHING)
    assert [key for key, words in NOTHING.items() if words not in lines[key]] == []


GIVEN = (
    ("optimizer.momentum=7", "optimizer=sgd"),
    ("task.mask_prob=1e-300", "task=masked_lm"),
    ("callbacks.early_stopping.patience=-1", "callbacks=early_stopping"),
    ("tbptt.k2=0", "model=lstm"),  # and not k1, which is ${tbptt.k2}
    ("tbptt.k2=1000000000000", "model=gpt"),  # and not model.attention_window
)


def test_a_number_is_refused_in_the_name_of_the_key_that_was_given() -> None:
    for word, choice in GIVEN:
        with pytest.raises(UserError) as refused:
            check.compose([choice, word])
        assert [line.partition(": ")[0] for line in refused.value.lines] == [word]


def test_the_numbers_of_a_sweep_have_ranges_too() -> None:
    for word in ("n_jobs=1000000000", "n_jobs=many", "n_jobs=true", "threads=0"):
        settings = Settings.read(Words.sort([f"hydra.launcher.{word}"]))
        with pytest.raises(UserError, match=f"^hydra.launcher.{word}: expected a whole number from 1 to 1,024"):
            settings.make("launcher", Local)
