"""A folder of the hub that cannot be read ends in one line that says why, and nothing in it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from seqtrain.errors import UserError
from seqtrain.hub.convert import converted, opened
from tests.support.hub_folders import save


def change(folder: Path, name: str = "config.json", **entries: Any) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def other_tokenizer(folder: Path, part: str, value: Any) -> None:
    change(folder, "tokenizer.json", **{part: value})


def huge_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((1 << 40).to_bytes(8, "little") + b"{}")


def pickle_alone(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def index(names: dict[str, str]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))

    return write


def hidden(folder: Path) -> None:
    """A list that is not read stands before the one that is."""
    other_tokenizer(folder, "pre_tokenizer", {"type": "Sequence", "first": [], "pretokenizers": [EVIL]})


def without_dense(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["cls.predictions.transform.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


EVIL = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
CASES: dict[str, tuple[str, Callable[[Path], Any], tuple[str, ...]]] = {
    "pickle alone": ("bert", pickle_alone, ("only as a pickle, which could run code; save them as safetensors",)),
    "no weights": ("bert", lambda folder: (folder / "model.safetensors").unlink(), ("has no model.safetensors",)),
    "no config": ("bert", lambda folder: (folder / "config.json").unlink(), ("has no config.json; name a folder",)),
    "unknown family": (
        "bert",
        lambda folder: change(folder, model_type="t5"),
        ("model_type=t5", "is not supported; use one of"),
    ),
    "code": ("bert", lambda folder: change(folder, auto_map={"AutoModel": "evil.Model"}), ("auto_map", "never run")),
    "missing shard": ("bert", index({"a": "model-1.safetensors"}), ("model-1.safetensors is missing",)),
    "a way out": ("bert", index({"a": "../model.safetensors"}), ("../model.safetensors is outside the folder",)),
    "huge header": ("bert", huge_header, ("its header has 1,099,511,627,776 bytes",)),
    "other width": ("bert", lambda folder: change(folder, hidden_size=32), ("config.json asks for", "32")),
    "more blocks": ("gpt2", lambda folder: change(folder, n_layer=5), ("has no weight h.3.ln_1.weight",)),
    "a billion blocks": ("gpt2", lambda folder: change(folder, n_layer=10**9), ("asks for 1,000,000,000 blocks, but",)),
    "activation": ("bert", lambda folder: change(folder, hidden_act="mish"), ("hidden_act=mish: expected one of",)),
    "parallel residual": (
        "gpt_neox",
        lambda folder: change(folder, use_parallel_residual=True),
        ("use_parallel_residual=True: seqtrain supports only False",),
    ),
    "scaled positions": (
        "llama",
        lambda folder: change(folder, rope_parameters={"rope_type": "yarn", "rope_theta": 1e4}),
        ("rope_type=yarn",),
    ),
    "no tokenizer": ("bert", lambda folder: (folder / "tokenizer.json").unlink(), ("has no tokenizer.json",)),
    "foreign pattern": (
        "gpt2",
        lambda folder: other_tokenizer(folder, "pre_tokenizer", EVIL),
        ("tokenizer.json is not read", "not one of the published patterns"),
    ),
    "hidden pattern": ("gpt2", hidden, ("not one of the published patterns",)),
    "half a head": ("bert", without_dense, ("has no weight cls.predictions.transform.dense.weight",)),
    "no list": ("gpt2", lambda folder: other_tokenizer(folder, "decoder", {"type": "Sequence"}), ("is not read",)),
    "no number": (
        "gpt2",
        lambda folder: change(folder, resid_pdrop="much"),
        ("config.json is not valid for model_type=gpt2",),
    ),
    "foreign part": (
        "gpt2",
        lambda folder: other_tokenizer(folder, "normalizer", {"type": "Precompiled"}),
        ("normalizer Precompiled is not supported",),
    ),
    "no special tokens": (
        "bert",
        lambda folder: change(folder, "tokenizer_config.json", cls_token="[NO]"),
        ("names no cls_token of its vocabulary",),
    ),
}


def test_a_folder_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    wrong = []
    for number, (name, (family, spoil, words)) in enumerate(CASES.items()):
        folder = save(family, tmp_path / str(number))
        spoil(folder)
        try:
            opened(folder)
            converted(str(folder))
            wrong.append(f"{name}: was taken")
        except UserError as fault:
            (line,) = fault.lines
            wrong += [f"{name}: {line}: lacks {word}" for word in words if word not in line]
            if len(line) > 300 or "\n" in line:
                wrong.append(f"{name}: {line}: is not one line")
    assert wrong == []


def test_a_name_of_the_hub_without_a_network_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="hub:some/model: cannot be downloaded: "):
        converted("hub:some/model")
