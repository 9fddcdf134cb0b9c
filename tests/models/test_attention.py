"""The decoder's attention window against a dense reference that knows nothing of caches, chunks or masks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqtrain.models.gpt import GPT
from tests.support.model_cases import Case, assert_near, cases, some_tokens

MEMORY = 3
TIME = 6 * (MEMORY + 1)  # six windows
DECODERS = [*(case for case in cases() if case.name == "gpt"), Case("gpt", (("attention_window", 0),))]


def turned(vector: Tensor, position: int, base: float = 10_000.0) -> Tensor:
    """Rotary positions as a product of complex numbers: the halves of a head are the parts of K/2 numbers."""
    half = len(vector) // 2
    rates = base ** (-torch.arange(half).double() / half)
    number = torch.complex(vector[:half], vector[half:]) * torch.polar(torch.ones(half).double(), position * rates)
    return torch.cat([number.real, number.imag])


def rms(x: Tensor, norm: Any) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight


def sinusoid(position: int, dim: int) -> Tensor:
    angles = [position / 10_000 ** (index // 2 * 2 / dim) for index in range(dim)]
    waves = [math.cos(angle) if index % 2 else math.sin(angle) for index, angle in enumerate(angles)]
    return torch.tensor(waves, dtype=torch.float64)


def attend(model: GPT, x: Tensor, attention: Any) -> Tensor:
    """Each token alone over itself and the `attention_window` tokens before it: x (T, D)."""
    width, sharing = attention.head_width, attention.num_heads // attention.num_kv_heads
    rows = [attention.num_heads * width, *[attention.num_kv_heads * width] * 2]
    queries, keys, values = (part.view(len(x), -1, width) for part in attention.query_key_value(x).split(rows, -1))
    if attention.query_norm is not None:
        queries, keys = rms(queries, attention.query_norm), rms(keys, attention.key_norm)
    out = []
    for now in range(len(x)):
        seen = range(max(now - model.attention_window, 0), now + 1)
        heads = []
        for head in range(attention.num_heads):
            query, known = queries[now, head], [keys[then, head // sharing] for then in seen]
            if model.positions == "rotary":
                base = model.rotary_base
                query, known = turned(query, now, base), [turned(k, t, base) for k, t in zip(known, seen, strict=True)]
            shares = (torch.stack(known) @ query / math.sqrt(width)).softmax(0)
            heads.append(shares @ values[list(seen), head // sharing])
        out.append(torch.cat(heads))
    return attention.out(torch.stack(out))


def inner(feed: Any, x: Tensor) -> Tensor:
    """The feed-forward part: gelu, or SwiGLU."""
    if not feed.gated:
        return feed.out(F.gelu(feed.wide(x)))
    gate, up = feed.wide.weight.chunk(2)
    return feed.out(x @ gate.T * torch.sigmoid(x @ gate.T) * (x @ up.T))


def dense(model: GPT, tokens: Tensor) -> Tensor:
    """Hidden states of one lane (T,)."""
    x = model.embed(tokens)
    if model.positions == "sinusoidal":
        x = x * math.sqrt(model.dim) + torch.stack([sinusoid(t, model.dim) for t in range(len(x))])
    if model.table is not None:
        x = x + model.table.weight[: len(x)]
    blocks: Any = model.blocks
    for block in blocks:
        feed = block.feed_forward
        if block.norm1.pre:
            x = x + attend(model, block.norm1(x), block.attention)
            x = x + inner(feed, block.norm2(x))
        else:
            x = block.norm1(x + attend(model, x, block.attention))
            x = block.norm2(x + inner(feed, x))
    return model.norm(x)


def decoder(case: Case, **options: object) -> GPT:
    model = case.make(**options)
    assert isinstance(model, GPT)
    return model


@pytest.mark.parametrize("case", DECODERS, ids=str)
def test_the_window_equals_a_dense_reference(case: Case) -> None:
    model, tokens = decoder(case), some_tokens(2, TIME)
    reference = torch.stack([dense(model, lane) for lane in tokens])
    assert_near(model(tokens)[0], reference)
    for length in (1, MEMORY, MEMORY + 1, 2 * MEMORY + 1):
        state, parts = None, []
        for begin in range(0, TIME, length):
            hidden, state = model(tokens[:, begin : begin + length], state)
            parts.append(hidden)
        assert_near(torch.cat(parts, 1), reference)


def test_a_reading_from_nothing_copies_no_keys_and_what_is_carried_holds_no_others() -> None:
    model = decoder(Case("gpt", ()))
    bare = model(some_tokens(2, MEMORY))[1]
    assert bare["key.0"].untyped_storage().data_ptr() == bare["value.0"].untyped_storage().data_ptr()
    carried = model(some_tokens(2, MEMORY), model.initial(2))[1]
    assert carried["key.0"].untyped_storage().nbytes() == carried["key.0"].nbytes


def test_rotary_positions_do_not_drift_in_a_long_stream() -> None:
    model, tokens = decoder(Case("gpt", ())), some_tokens(1, 30)
    state = model(tokens)[1]
    late = {**state, "filled": state["filled"] + 10**9}
    assert torch.equal(model(tokens, late)[0], model(tokens, state)[0])
