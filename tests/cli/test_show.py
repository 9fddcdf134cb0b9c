"""Laws of `seqtrain show`: it names each weight of a model once, and the state that the model carries."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from seqtrain.analysis.profile_report import VOCAB_SIZE
from seqtrain.cli.show import diagram, flow_chart
from seqtrain.config import check
from seqtrain.models.base import Capability
from seqtrain.training.model_and_task import make_model
from tests.conftest import REPOSITORY, Seqtrain

MODELS = sorted(path.stem for path in (REPOSITORY / "conf" / "model").glob("*.yaml"))


def words_of(model: str) -> list[str]:
    task = {"elmo": "bidirectional_lm", "bert": "masked_lm"}.get(model, "sentiment")
    return ["task=translation" if "encoder_decoder" in model else f"task={task}", f"model={model}"]


@cache
def shown(model: str) -> Any:
    """The diagram of a shipped model."""
    return diagram(words_of(model), 16)


def test_each_weight_of_a_shipped_model_is_shown_once_beside_its_state() -> None:
    for model in MODELS:
        layers, _, state = shown(model)
        made = make_model(check.compose(words_of(model)).config, VOCAB_SIZE)
        assert sum(layer.parameters for layer in layers) == sum(weight.numel() for weight in made.parameters()), model
        if Capability.STATEFUL in made.capabilities:
            assert {name: tensor.shape[0] for name, tensor in state.items()} == dict.fromkeys(state, 1), model
            assert state, model


def test_shapes_follow_length_and_width_and_json_has_a_layer_a_line(seqtrain: Seqtrain, tmp_path: Path) -> None:
    shown = seqtrain("show", "model=lstm", "model.dim=24", "--length", "5", cwd=tmp_path)
    assert "LSTM            1 x 5 x 24" in shown.out
    assert "state after 5 positions: hidden 1 x 1 x 24, cell 1 x 1 x 24" in shown.out
    answer = seqtrain("show", "model=lstm", "model.dim=24", "--json", cwd=tmp_path)
    rows = [json.loads(line) for line in answer.out.splitlines()]
    assert rows[0] == {
        "name": "embed",
        "kind": "TokenEmbedding",
        "gives": "1 x 16 x 24",
        "weights": f"{VOCAB_SIZE + 3} x 24",
        "parameters": (VOCAB_SIZE + 3) * 24,
        "reads": ["input"],
    }
    assert rows[-1] == {"state": {"hidden": "1 x 1 x 24", "cell": "1 x 1 x 24"}}


def test_layers_stand_in_the_order_in_which_they_compute_and_a_shared_one_says_how_often() -> None:
    words = ["model=gpt", "model.num_layers=3", "model.num_heads=2", "model.share_layers=true"]
    names = [layer.name for layer in diagram(words, 8)[0]]
    assert names.index("blocks.0.norm1") < names.index("blocks.0.attention.out") < names.index("blocks.0.norm2")
    shared = {layer.name for layer in diagram(words, 8)[0] if layer.gives.endswith(", 3 times")}
    assert shared == {name for name in names if name.startswith("blocks.0.")}


def test_arrows_follow_the_data_past_a_residual_and_each_layer_that_is_called_is_reached() -> None:
    layers, output, _ = diagram(["model=gpt", "model.num_layers=1", "model.num_heads=2"], 8)
    reads = {layer.name: layer.reads for layer in layers}
    assert reads["blocks.0.attention.out"] == ["blocks.0.attention.query_key_value"]
    assert sorted(reads["blocks.0.norm2"]) == ["blocks.0.attention.out", "embed"]
    assert (reads["embed"], output) == (["input"], ["norm"])
    for model in MODELS:
        layers, output, _ = shown(model)
        used = {name for layer in layers for name in layer.reads} | set(output)
        assert {layer.name for layer in layers if layer.gives} <= used, model
        lines = list(flow_chart(layers, output))
        assert sum("-->" in line for line in lines) == sum(len(layer.reads) for layer in layers) + len(output), model


def test_the_drawing_in_the_lecture_is_what_the_command_beside_it_prints() -> None:
    page = (REPOSITORY / "docs" / "lecture.md").read_text()
    words = ["model=gpt", "model.dim=64", "model.num_layers=1", "model.num_heads=2"]
    assert f"seqtrain show {' '.join(words)} --length 8\n" in page
    layers, output, _ = diagram(words, 8)
    assert page.partition("```mermaid\n")[2].partition("```")[0].splitlines() == list(flow_chart(layers, output))
