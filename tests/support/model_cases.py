"""Every shipped model, small, in float64, with weights large enough that a wrong read shows."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from seqtrain import conf  # pyright: ignore[reportAttributeAccessIssue]  # mapped in by pyproject.toml
from seqtrain.models import contract
from seqtrain.models.base import Capability, SequenceModel
from seqtrain.models.contract import VOCAB_SIZE as VOCABULARY
from seqtrain.models.laws import subject
from seqtrain.models.laws.subject import starting as starting
from seqtrain.tasks.next_token import NextToken
from seqtrain.training.model_and_task import make_model  # pyright: ignore[reportAttributeAccessIssue]
from seqtrain.training.shipped import add_mixers, shipped

MODELS = Path(conf.__path__[0], "model")
START = VOCABULARY
TABLE = 32  # learned positions
MIXED = [("transformer", "lstm"), ("gru", "transformer"), ("cnn", "transformer"), ("cnn", "rnn"), ("gru", "lstm")]
"""Pairs of networks of two kinds in `encoder_decoder`, in which each way to meet comes once."""
CELLS = [("lstm", "dot", True), ("rnn", "none", True), ("gru", "none", False)]
"""Cells, attentions and directions of `rnn_encoder_decoder`: each option once beside the default's."""

MIXERS = shipped("mixer")
HYBRIDS = [("mamba2", "attention"), ("gated_delta", "slstm")]

PUBLISHED: dict[str, Any] = {
    **{"norm_kind": "rms", "feed_forward": "gated", "activation": "silu"},
    **{"num_kv_heads": 1, "head_dim": 6, "qk_norm": True},
}
"""Options that published decoders have, all at once."""

SHARED: dict[str, Any] = {"num_layers": 3, "share_layers": True}

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "ar": [{"window": 6}],
    "dlinear": [{"window": 6, "kernel_size": 3}],
    "rnn": [{"activation": "relu"}, {"bias": False}, SHARED],
    "lstm": [{"bidirectional": True}, {"learned_state": True}, {**SHARED, "learned_state": True}],
    "gru": [{"bidirectional": True}, {"bidirectional": True, "learned_state": True}, {**SHARED, "bidirectional": True}],
    "cnn": [{"causal": False}, {"kernel_size": 2}],
    "bert": [
        {"norm": "post"},
        {"positions": "learned", "max_length": TABLE},
        {"positions": "sinusoidal"},
        {"positions": "none"},
        {**PUBLISHED, "rotary_base": 100.0},
        SHARED,
    ],
    "stack": [
        *({"mixers": mixers} for mixers in (*((name,) for name in MIXERS if name != "gated_delta"), *HYBRIDS)),
        {"mixers": HYBRIDS[0], **SHARED},
    ],
    "encoder_decoder": [
        SHARED,
        {"positions": "rotary", **PUBLISHED, "rotary_base": 100.0},
        {"norm": "post"},
        {"positions": "learned", "max_length": TABLE},
        {"positions": "none"},
        *({"encoder": encoder, "decoder": decoder} for encoder, decoder in MIXED),
    ],
    "rnn_encoder_decoder": [
        *(
            {"encoder": cell, "decoder": cell, "attention": attention, "bidirectional": both}
            for cell, attention, both in CELLS
        ),
        *({**SHARED, "attention": attention} for attention in ("none", "additive")),
    ],
    "gpt": [
        SHARED,
        {**PUBLISHED, "rotary_base": 100.0},
        {"norm": "post", "bias": True},
        {"positions": "sinusoidal"},
        {"positions": "none"},
        {"positions": "learned", "max_length": TABLE},
    ],
}
"""What else a model can be, beside what its file says; a model without an entry is tested as its file says."""


@dataclass(frozen=True)
class Case:
    """One configuration of one shipped model."""

    name: str  # of its file
    options: tuple[tuple[str, Any], ...]  # lists as tuples

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{key}={value}" for key, value in self.options)])

    @property
    def is_mixture(self) -> bool:
        """True if it only mixes what other cases or tests hold too."""
        if "share_layers" in dict(self.options):  # test_share_layers.py: such a model is one of equal layers
            return self.name not in ("gru", "stack")
        # The mixers of a stack are held to their own laws; one hybrid stays, and one that shares.
        return self.name == "stack" and dict(self.options).get("mixers") not in (None, HYBRIDS[0])

    def config(self, **options: Any) -> DictConfig:
        """What build wants to know to make it."""
        content = OmegaConf.load(MODELS / f"{self.name}.yaml")
        small = {key: value for key, value in contract.SMALL.items() if key in content}
        model = OmegaConf.merge(content, small, dict(self.options), options)
        add_mixers(model)  # pyright: ignore[reportArgumentType]
        return OmegaConf.create({"seed": 0, "tbptt": {"k2": 3}, "model": model})

    def make(self, **options: Any) -> SequenceModel:
        """The model in evaluation mode, in float64."""
        built, random = _built(self, tuple(options.items()))
        model = copy.deepcopy(built)
        torch.set_rng_state(random)  # so that every one that is made has the same weights
        subject.enlarge(model)
        return model

    def subject(self) -> contract.Subject:
        """The same for the laws of the contract."""
        return contract.Subject(self.make, lambda: self.make(dropout=0.5), self.draw)

    def draw(self, seed: int) -> SequenceModel:
        """The model as build makes it from a seed."""
        return make_model(self.config() | {"seed": seed}, VOCABULARY)


@cache
def _built(case: Case, options: tuple[tuple[str, Any], ...]) -> tuple[SequenceModel, Tensor]:
    """A model to copy, and torch's state behind it: to compose and build one takes most of the time of a small test."""
    model = make_model(case.config(**dict(options)), VOCABULARY).double().eval()
    return model, torch.get_rng_state()


@cache
def cases(promise: Capability = Capability.NONE) -> list[Case]:
    """All that keep a promise."""
    names = sorted(path.stem for path in MODELS.glob("*.yaml") if "_target_" in OmegaConf.load(path))
    found = [Case(name, tuple(options.items())) for name in names for options in ({}, *VARIANTS.get(name, []))]
    return [case for case in found if promise in _built(case, ())[0].capabilities]


def unmixed(promise: Capability = Capability.NONE) -> list[Case]:
    """All that keep a promise, without mixtures."""
    return [case for case in cases(promise) if not case.is_mixture]


def shipped_first(promise: Capability) -> list[Any]:
    """All that keep a promise, to be parameters of a test; variants, which promise the same, are long."""
    return [pytest.param(case, marks=pytest.mark.long if case.options else ()) for case in cases(promise)]


def next_token(model: SequenceModel, *, tied: bool = True) -> NextToken:
    """The task with a head for the model, in float64."""
    return NextToken(tied=tied, dim=model.dim, vocab_size=VOCABULARY).double()


def outputs(module: nn.Module) -> list[Tensor]:
    """What a module gives from here on, call by call; of a model the hidden states."""
    seen: list[Tensor] = []

    def keep(module: nn.Module, given: Any, out: Any) -> None:
        seen.append(out[0] if isinstance(out, tuple) else out)

    module.register_forward_hook(keep)
    return seen


def assert_near(one: Any, two: Any, tolerance: float = 1e-9) -> None:
    """Tensors, or containers of them, agree to an absolute tolerance."""
    torch.testing.assert_close(one, two, rtol=0.0, atol=tolerance)


def some_tokens(*shape: int, seed: int = 0, specials: int = 1) -> Tensor:
    """Token ids of any shape, the first special ones (start, separator, mask) among them."""
    return subject.some_tokens(*shape, seed=seed, vocab_size=VOCABULARY + specials)
