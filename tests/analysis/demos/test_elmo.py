"""Pretraining with few labels: no text is in two parts, what is said to be frozen is, and a verdict needs seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from seqtrain.analysis import opinions
from seqtrain.analysis.demo import Bench
from seqtrain.analysis.demos import elmo
from seqtrain.cli.kept_runs import trainer
from seqtrain.runs.checkpoint import load


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    (path,) = sorted((run / "checkpoints").glob("step-*.ckpt"))[-1:]
    return load(path)["state_dict"]


def test_no_text_stands_in_two_parts_and_labels_are_half_and_half() -> None:
    made = opinions.reviews(seed=1, unlabelled=300, labelled=20, test=100)
    texts = [row.text for part in made for row in part]
    assert len(texts) == len(set(texts)) == 300 + 15 + 20 + 100
    assert sum(row.label == "good" for row in made.test) == 50


def test_test_and_labels_do_not_change_with_how_much_there_is_to_pretrain_on() -> None:
    few, many = (opinions.reviews(seed=3, unlabelled=count, labelled=10, test=20) for count in (40, 400))
    assert (few.test, few.labelled) == (many.test, many.labelled)


def test_of_text_to_pretrain_on_the_labels_are_not_written(tmp_path: Path) -> None:
    text, labels = elmo.write_reviews(tmp_path, 1)
    for override in (*text, *labels):
        lines = Path(override.partition("=")[2]).read_text().splitlines()
        keys = {tuple(json.loads(line)) for line in lines}
        assert keys == {("text",)} if override in text else {("text", "label")}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All runs of the demonstration with one seed, very short ones."""
    folder = tmp_path_factory.mktemp("elmo")
    train = trainer(folder / "runs")

    def short(name: str, *overrides: str) -> Path:
        kept = [word for word in overrides if not word.startswith(("trainer.max_steps", "trainer.validate_every"))]
        return train(name, *kept, "trainer.max_steps=3", "trainer.validate_every=3", "trainer.accelerator=cpu")

    elmo.run(Bench(folder, short, lambda line: None, 1))
    return folder / "runs"


@pytest.mark.long
@pytest.mark.parametrize("name", ["elmo_frozen", "joined_frozen"])
def test_frozen_layers_end_as_they_began_while_the_mix_and_the_head_are_learned(runs: Path, name: str) -> None:
    frozen, tuned = (weights_of(runs / f"{name.partition('_')[0]}_{way}-1") for way in ("frozen", "tuned"))
    sources = ["elmo"] if name.startswith("elmo") else ["forward", "backward"]
    known = [value for source in sources for value in weights_of(runs / f"{source}-text-1").values()]

    def is_of_a_source(value: torch.Tensor) -> bool:
        # Two runs are joined with both embeddings side by side: each stack has zeros for the other's half.
        if value.dim() == 2:
            value = value[:, value.any(0)]
        return any(value.shape == other.shape and torch.equal(value, other) for other in known)

    stacks = [each for each in frozen if ".forwards." in each or ".backwards." in each]
    assert len(stacks) >= 16
    for each in stacks:
        assert is_of_a_source(frozen[each]), each
        assert not is_of_a_source(tuned[each]), each
    learned = [each for each in frozen if not is_of_a_source(frozen[each])]
    assert any("mix" in each or "scale" in each or "layer" in each for each in learned)


def measured(gain: float, *, seeds: int = 3, over_bigram: float = -0.2, apart: float = 0.0) -> Any:
    """Numbers in which both kinds gain this much by pretraining."""
    noise = [0.0, 0.01, -0.01][:seeds]
    accuracy = {}
    for place, name in enumerate(elmo.VARIANTS):
        # Noise of each variant by itself, or all differences would be the same.
        level = 0.6 + (gain if elmo.VARIANTS[name].origins else 0.0)
        accuracy[name] = [level + each * (1 + 0.3 * place) for each in noise]
    mix = {name: [[0.2, 0.5, 0.3]] * seeds for name, each in elmo.VARIANTS.items() if each.model == elmo.ELMO}
    pretrained = dict.fromkeys(elmo.PRETRAINED, [over_bigram] * seeds)
    sizes = dict.fromkeys(elmo.VARIANTS, 1000)
    sizes["bert_tuned"] = int(1000 * (1 + apart))
    return elmo.findings(elmo.Measured(accuracy, mix, pretrained, sizes))


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (measured(0.3), True),
        (measured(-0.3), False),
        (measured(0.001), None),  # within what seeds change
        (measured(0.3, seeds=1), None),
        (measured(0.3, over_bigram=0.1), None),  # nothing was learned of the text
        (measured(0.3, apart=0.2), None),  # of other sizes
    ],
    ids=["gain", "loss", "noise", "one seed", "nothing learned", "sizes apart"],
)
def test_the_verdict_says_no_more_than_the_numbers(found: Any, holds: bool | None) -> None:
    assert found.holds is holds
