"""Where each model drops, how much, and what falls away: counted at torch's own doors, not in the models' code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.base import SequenceModel
from seqtrain.models.layers.block_options import BlockOptions
from seqtrain.models.layers.blocks import ResidualNorm
from seqtrain.models.layers.recorder import recording
from seqtrain.training.learner import Learner
from tests.support.model_cases import Case, assert_near, next_token, some_tokens, starting

BATCH, TIME, WIDTH, LAYERS, SHARE = 3, 5, 8, 2, 0.3


@dataclass
class Drops:
    """What was dropped in a reading: vectors by `F.dropout`, attention in its kernel, between layers in the RNN's."""

    vectors: list[float] = field(default_factory=list)  # the share of each
    attention: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Drops]:
    """Notes the share of all that drops inside; a share of 0, or outside training, is none."""
    found, plain, kernel = Drops(), F.dropout, F.scaled_dot_product_attention

    def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        found.vectors += [p] if p and training else []
        return plain(x, p, training, inplace)

    def attention(query: Tensor, key: Tensor, value: Tensor, mask: Any, p: float, causal: bool) -> Tensor:
        found.attention += [p] if p else []
        return kernel(query, key, value, mask, p, causal)

    def note(core: nn.Module, given: Any) -> None:
        if isinstance(core, nn.RNNBase) and core.training and core.dropout:
            found.between += [core.dropout] * (core.num_layers - 1)

    with monkeypatch.context() as patch, nn.modules.module.register_module_forward_pre_hook(note):
        patch.setattr(F, "dropout", dropout)
        patch.setattr(F, "scaled_dot_product_attention", attention)
        yield found


def read(model: SequenceModel) -> Tensor:
    return model(some_tokens(BATCH, TIME), starting(model, BATCH))[0]


STACK = (2, 0, 1)  # what is read and what comes out; between the two layers the kernel drops
BLOCKS = (1 + 2 * LAYERS, LAYERS, 0)  # the embedding, and the two residual paths of each layer; attention in each
BOTH_WAYS = {"bidirectional": True}
PLACES: dict[tuple[str, tuple[tuple[str, Any], ...]], tuple[int, int, int]] = {
    ("rnn", ()): STACK,
    ("gru", ()): STACK,
    ("lstm", ()): STACK,
    ("gru", tuple(BOTH_WAYS.items())): (1 + LAYERS, 0, 0),
    ("min_gru", ()): (1 + LAYERS, 0, 0),
    ("cnn", ()): (1 + 2 * LAYERS, 0, 0),
    ("mlp", ()): (1 + LAYERS, 0, 0),
    ("cbow", ()): (1, 0, 0),
    ("ar", ()): (1, 0, 0),
    ("dlinear", ()): (1, 0, 0),
    ("gpt", ()): BLOCKS,
    ("gpt", (("norm", "post"),)): BLOCKS,
    ("bert", ()): BLOCKS,
    # An encoder, and a decoder that looks at it in each layer.
    ("encoder_decoder", ()): (2 + 5 * LAYERS, 3 * LAYERS, 0),
    # The source's embedding and what is between the encoder's layers; the target's embedding and what comes out;
    # between the decoder's layers at each step, or in the kernel.
    ("rnn_encoder_decoder", ()): (4 + TIME * (LAYERS - 1), 0, 0),
    ("rnn_encoder_decoder", (("attention", "dot"),)): (4, 0, 1),
    ("rnn_encoder_decoder", (("attention", "none"),)): (4, 0, 1),
}


def test_every_place_that_is_promised_drops_its_share_in_training_and_none_in_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for (name, options), expected in PLACES.items():
        model = Case(name, options).make(dropout=SHARE)
        with watched(monkeypatch) as found:
            read(model)
        assert found == Drops(), (name, options)
        with watched(monkeypatch) as found:
            read(model.train())
        assert (len(found.vectors), len(found.attention), len(found.between)) == expected, (name, options)
        assert {*found.vectors, *found.attention, *found.between} == {SHARE}


def all_dropped(name: str, *, only: type[nn.Module] | None = None, **options: Any) -> SequenceModel:
    """A model in training, of which every nn.Dropout drops everything, or those inside `only` do, and nothing else."""
    model = Case(name, tuple(options.items())).make(dropout=1.0 if only is None else 0.0).train()
    for module in model.modules():
        if only is not None and isinstance(module, only):
            module.dropout.p = 1.0  # type: ignore[union-attr]
    return model


def test_where_everything_is_dropped_nothing_comes_out_or_of_a_residual_stack_the_norm_of_nothing() -> None:
    for name in ("rnn", "gru", "lstm", "cbow", "ar", "dlinear"):
        assert not read(all_dropped(name)).any(), name
    for name in ("min_gru", "cnn"):
        model = all_dropped(name)
        last: Any = model.norms[-1]  # type: ignore[index]
        assert_near(read(model), last.bias.expand(BATCH, TIME, WIDTH))


def test_a_residual_norm_keeps_the_stream_where_its_change_is_dropped() -> None:
    x, change = torch.randn(2, BATCH, TIME, WIDTH, dtype=torch.float64)
    for norm, expected in (("pre", x), ("post", F.layer_norm(x, (WIDTH,)))):
        path = ResidualNorm(BlockOptions(dim=WIDTH, num_heads=1, norm=norm, dropout=1.0, bias=True)).double()
        assert_near(path.after(x, change), expected)


@pytest.mark.parametrize("listening", [False, True])
def test_attention_drops_what_it_mixes_and_hands_out_the_weights_before_that(listening: bool) -> None:
    model = Case("gpt", ()).make().train()
    attention: Any = model.blocks[0].attention  # type: ignore[index]
    attention.dropout = 1.0
    x = torch.randn(BATCH, TIME, WIDTH, dtype=torch.float64)
    if not listening:
        mixed, _ = attention(x, None, None, None)
    else:
        with recording() as maps:
            mixed, _ = attention(x, None, None, None)
        assert_near(maps[0].weights.sum(-1), torch.ones(BATCH, 2, TIME, dtype=torch.float64))
    bias = torch.zeros(WIDTH) if attention.out.bias is None else attention.out.bias
    assert_near(mixed, bias.double().expand_as(mixed))


# -- streams of random numbers -----------------------------------------------------------------------------------


def drawn(seed: int, rank: int, batch_idx: int) -> tuple[float, ...]:
    """What dropout would draw in a micro-batch of a process."""
    model = Case("lstm", ()).make()
    learner = Learner(model=model, task=next_token(model), carry=True, lanes=4, facts={}, seed=seed)
    trainer = SimpleNamespace(global_rank=rank, global_step=0, world_size=4)  # the learner refers weakly
    learner.trainer = trainer  # type: ignore[assignment]
    learner.on_train_batch_start(None, batch_idx)
    return tuple(torch.rand(8).tolist())


def test_each_process_and_each_micro_batch_of_each_seed_has_random_numbers_of_its_own() -> None:
    asked = [(seed, rank, batch) for seed in (1, 11) for rank in range(4) for batch in (0, 1, 2, 10, 11, 111)]
    streams = {place: drawn(*place) for place in asked}
    assert len(set(streams.values())) == len(asked)
    torch.rand(100)
    assert {place: drawn(*place) for place in reversed(asked)} == streams
