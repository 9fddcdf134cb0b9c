"""GPT-style causal decoder (Radford et al. 2018, 2019) whose key-value cache is a sliding attention window."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.layers.attention import newest, of_document, tokens_before, window_of
from seqtrain.models.layers.block_options import Activation, BlockOptions, FeedForwardKind, Norm, NormKind
from seqtrain.models.layers.blocks import DecoderBlock, in_depth
from seqtrain.models.layers.front_ends import TokenEmbedding
from seqtrain.models.layers.lengths import real_lengths
from seqtrain.models.layers.positions import (
    BASE,
    Positions,
    check_sizes,
    learned_positions,
    place,
    rotary_table,
    rotate,
)
from seqtrain.models.layers.slots import BlockStepper, KeysValues, Seen
from seqtrain.models.stepper import Stepper


class GPT(SequenceModel):
    """Each token attends to itself and to exactly the `attention_window` tokens before it, even across chunks."""

    def __init__(
        self,
        *,
        embed: nn.Module,
        dim: int,
        num_layers: int,
        num_heads: int,
        dropout: float,
        attention_window: int,
        positions: Positions,
        max_length: int | None,
        norm: Norm,
        bias: bool,
        dim_feedforward: int | None = None,
        activation: Activation = "gelu",
        norm_kind: NormKind = "layer",
        norm_eps: float = 1e-5,
        feed_forward: FeedForwardKind = "plain",
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        qk_norm: bool = False,
        rotary_base: float = BASE,
        share_layers: bool = False,
    ) -> None:
        super().__init__()
        options = BlockOptions(
            dim=dim,
            num_heads=num_heads,
            dropout=dropout,
            norm=norm,
            bias=bias,
            dim_feedforward=dim_feedforward,
            activation=activation,
            norm_kind=norm_kind,
            norm_eps=norm_eps,
            feed_forward=feed_forward,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            qk_norm=qk_norm,
        )
        check_sizes(options, positions, max_length)
        if attention_window < 0:
            raise ValueError(f"attention_window={attention_window} must be 0 or more tokens")
        self.embed = embed
        self.dim = dim
        self.key_shape = options.kv_heads, options.head_width
        self.rotary_base = rotary_base
        self.attention_window = attention_window
        self.positions: Positions = positions
        self.max_length = max_length
        self.capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL
        self.table = learned_positions(max_length, dim)
        self.dropout = nn.Dropout(dropout)
        self.blocks = in_depth(lambda name: DecoderBlock(options, name), num_layers, share_layers)
        self.norm = options.final_norm()
        self._initialise()

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding | TokenEmbedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        # Each block adds to the residual stream twice: GPT-2 keeps the sum's variance at one block's.
        for name, weight in self.named_parameters():
            if name.endswith("out.weight"):
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * len(self.blocks)))

    @classmethod
    def idle(cls, options: Mapping[str, Any]) -> dict[str, str]:
        """Return the option for rotary positions if the model has other positions, with the reason."""
        if options["positions"] == "rotary":
            return {}
        return {"rotary_base": f"applies only to positions=rotary, not positions={options['positions']}"}

    def initial(self, batch: int) -> State:
        return self._unread(batch, self.attention_window)

    def _unread(self, batch: int, slots: int) -> State:
        """Return the state before any token is read, with `slots` positions for keys."""
        like = next(self.blocks.parameters())
        num_kv_heads, head_width = self.key_shape
        shape = (batch, num_kv_heads, slots, head_width)
        state: State = {}
        for layer in range(len(self.blocks)):
            state[f"key.{layer}"] = like.new_zeros(shape)
            state[f"value.{layer}"] = like.new_zeros(shape)
        state["filled"] = torch.zeros(batch, dtype=torch.long, device=like.device)
        return state

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        keep_state: bool = True,
        starts: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return hidden states, the last `attention_window` unrotated keys and values, and the number of tokens read.

        A state with fewer positions for keys (from `begin`, or after reading from an empty state) grows by the tokens
        read. Without `keep_state` the returned state is the count alone. With `starts`, which needs a state, documents
        begin where it is True.
        """
        length = tokens.shape[1]
        # From an empty state, and no longer than the window, plain causal attention gives the same with half the work.
        if state is None and length > self.attention_window + 1:
            state = self.initial(len(tokens))
        cached = 0
        num_before = mask = None
        num_read = real_lengths(tokens, lengths)
        if state is not None:
            cached, num_before = state["key.0"].shape[2], state["filled"]
            num_read = num_before + num_read
            if starts is not None:
                num_before = tokens_before(num_before, starts)
                num_read = num_before[:, -1] + length
            if starts is not None or cached or length > self.attention_window + 1:
                mask = window_of(num_before, length, cached, self.attention_window)
        kept = min(self.attention_window, cached + length)
        x = self.front(tokens, num_before)
        rotary = self.rotary(cached + length, x)
        dtype = next(self.blocks.parameters()).dtype  # state keeps the parameters' precision under autocast
        after: State = {"filled": num_read}
        for layer, block in enumerate(self.blocks):
            cache = None if state is None else (state[f"key.{layer}"], state[f"value.{layer}"])
            x, keys_values = block(x, cache, mask, rotary, alone=state is None and not keep_state)
            if not keep_state:
                continue
            key, value = (newest(each, lengths, cached, kept) for each in keys_values)
            if starts is not None:
                key, value = of_document(key, num_read), of_document(value, num_read)
            if state is not None:
                # Copies: views would keep alive keys that are no longer seen. From an empty state they are views, since
                # most such calls do not carry state.
                key, value = key.contiguous(), value.contiguous()
            after[f"key.{layer}"], after[f"value.{layer}"] = key.to(dtype), value.to(dtype)
        return self.norm(x), after

    def read_documents(
        self, tokens: Shaped[Tensor, "B T *F"], state: State, starts: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T D"], State]:
        return self(tokens, state, starts=starts)

    def front(
        self, tokens: Shaped[Tensor, "B T *F"], num_before: Int[Tensor, " B"] | Int[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T D"]:
        """Return the input of the first block. `num_before`: tokens that each lane has read before; None means 0."""
        x = self.embed(tokens)
        if self.positions == "sinusoidal":
            x = x * math.sqrt(self.dim)  # as in the paper, because sinusoids have an amplitude of 1
        return self.dropout(place(x, self.positions, self.table, num_before))

    def rotary(self, length: int, like: Float[Tensor, "*Any"], begin: int = 0) -> Float[Tensor, "2 {length} K"] | None:
        """Return cosines and sines of `length` positions from `begin` on; None if positions are not rotary."""
        if self.positions != "rotary":
            return None
        return rotary_table(length, self.key_shape[1], like.device, begin, self.rotary_base).to(like.dtype)

    def sequential_steps(self, length: int) -> int:
        return len(self.blocks)

    def longest_path(self, length: int) -> int | None:
        # Each layer extends the path by one attention window.
        return len(self.blocks) if length - 1 <= len(self.blocks) * self.attention_window else None

    def encode(
        self, source: Shaped[Tensor, "B S *F"], lengths: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B S D"]:
        # Padding on the right does not change hidden states before it, so lengths are not needed.
        return self(source, keep_state=False)[0]

    def begin(self, source: Shaped[Tensor, "B S *F"], lengths: Int[Tensor, " B"] | None = None) -> State:
        # As many positions as the source has tokens: those of a whole window would only cost attention and copying.
        return self(source, self._unread(len(source), 0), lengths)[1]

    def last(self, tokens: Shaped[Tensor, "B T *F"]) -> Float[Tensor, "B 1 D"]:
        return self.encode(tokens)[:, -1:]

    def stepper(self, state: State, *, branches: bool = False) -> Stepper:
        return GPTStepper(self, state, branches)


class GPTStepper(BlockStepper):
    """Reads token by token; keys are rotated once and written in place."""

    def __init__(self, model: GPT, state: State, branches: bool) -> None:
        filled, cached = state["filled"], state["key.0"].shape[2]
        count = min(cached, int(filled.max()))  # slots that hold a token in at least one lane
        table = model.rotary(count, state["key.0"])
        prefixes: list[KeysValues] = []
        for layer in range(len(model.blocks)):
            key, value = (state[f"{name}.{layer}"][:, :, cached - count :] for name in ("key", "value"))
            prefixes.append((key if table is None else rotate(key, table), value))
        super().__init__(prefixes, filled, attention_window=model.attention_window, branches=branches)
        self.model = model

    def step(self, tokens: Int[Tensor, "N 1"], seen: Seen) -> Float[Tensor, "N 1 D"]:
        x = self.model.front(tokens, self.num_before)
        rotary = self.model.rotary(1, x, self.slot)
        for block, slots in zip(self.model.blocks, self.layers, strict=True):
            x = block.step(x, slots, seen, rotary)  # type: ignore[operator]
        return self.model.norm(x)
