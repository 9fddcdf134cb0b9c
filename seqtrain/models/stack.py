"""One residual block around any mixer, so that models differ only in their mixers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State, read_by_length
from seqtrain.models.layers.block_options import BlockOptions
from seqtrain.models.mixers.attention import Attention
from seqtrain.models.mixers.base import Mixer, MixerBlock


class Stack(SequenceModel):
    """Blocks of x + mixer(norm(x)), then x + feed_forward(norm(x)), with RMS norms and SwiGLU.

    The state contains the mixers' tensors, prefixed by the number of their block: `0.memory`.
    """

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL

    def __init__(
        self,
        *,
        embed: nn.Module,
        dim: int,
        num_layers: int,
        mixers: str | Sequence[str],
        options: Mapping[str, Callable[..., Mixer]],
        dropout: float,
        dim_feedforward: int | None = None,
        norm_eps: float = 1e-5,
        share_layers: bool = False,
    ) -> None:
        """Build the model.

        Args:
            embed: The front end.
            dim: D, the width of the residual stream.
            num_layers: L, the number of blocks.
            mixers: Names of the mixers, in order of the blocks; the list is repeated until there are L.
            options: Constructor of each mixer by name; it takes `dim`.
            dropout: Share of the numbers set to zero in training, applied to the input and to each part's output.
            dim_feedforward: Width inside the feed-forward part. None: 8/3 D.
            norm_eps: Number added to the mean square in each norm.
            share_layers: True if each repetition of `mixers` uses the same weights.
        """
        super().__init__()
        self.embed, self.dim = embed, dim
        block = BlockOptions(
            dim=dim,
            num_heads=1,
            dropout=dropout,
            norm="pre",
            bias=False,
            dim_feedforward=dim_feedforward,
            activation="silu",
            norm_kind="rms",
            norm_eps=norm_eps,
            feed_forward="gated",
        )
        names = [mixers] if isinstance(mixers, str) else mixers
        if not names:
            raise ValueError("mixers=[]: name at least one")
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList()
        for layer in range(num_layers):
            name = names[layer % len(names)]
            if share_layers and layer >= len(names):
                self.blocks.append(self.blocks[layer - len(names)])
                continue
            try:
                mixer = options[name](dim=dim)
            except ValueError as error:
                raise ValueError(f"options.{name}.{error}") from None
            self.blocks.append(MixerBlock(mixer, block))
        self.norm = block.final_norm()

    def initial(self, batch: int, slots: int | None = None) -> State:
        """Return the state before any token is read, with `slots` positions for keys; None: as many as a window has."""
        state = {}
        for layer, block in enumerate(self.blocks):
            mixer = cast(Mixer, block.mixer)
            own = mixer.initial(batch, slots) if isinstance(mixer, Attention) else mixer.initial(batch)
            for name, value in own.items():
                state[f"{layer}.{name}"] = value
        return state

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        starts: Bool[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        if state is None and lengths is None and starts is None:
            # All lanes start from the first token, so empty positions of a window are not attended to.
            hidden, state = self._read(tokens, self.initial(len(tokens), 0))
            return hidden, self._widen(state)
        if state is None:
            state = self.initial(len(tokens))
        if starts is not None:
            return self._read(tokens, state, starts)
        return read_by_length(self._read, tokens, state, lengths)

    def encode(
        self, source: Shaped[Tensor, "B S *F"], lengths: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B S D"]:
        # Padding on the right changes nothing before it. A window, often much longer than a text, contains no keys
        # here.
        return self._read(source, self.initial(len(source), 0))[0]

    def read_documents(
        self, tokens: Shaped[Tensor, "B T *F"], state: State, starts: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T D"], State]:
        return self(tokens, state, starts=starts)

    def _read(
        self, tokens: Shaped[Tensor, "B T *F"], state: State, starts: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Read tokens without padding."""
        x, after = self.dropout(self.embed(tokens)), {}
        for layer, block in enumerate(self.blocks):
            x, new = block(x, self._of_layer(state, layer), starts)
            after |= {f"{layer}.{name}": value for name, value in new.items()}
        return self.norm(x), after

    def _of_layer(self, state: State, layer: int) -> State:
        prefix = f"{layer}."
        return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}

    def _widen(self, state: State) -> State:
        """Return the same state, with each window padded to its full size."""
        for layer, block in enumerate(self.blocks):
            if isinstance(block.mixer, Attention):
                wide = block.mixer.widen(self._of_layer(state, layer))
                state = state | {f"{layer}.{name}": value for name, value in wide.items()}
        return state

    def flops_per_token(self, length: int, carried: bool) -> float:
        # torch's counter takes milliseconds per token read alone, and the operations are the same for every token.
        return super().flops_per_token(1 if self._goes_by_token() else length, carried)

    def sequential_steps(self, length: int) -> int:
        if self._goes_by_token():  # a block starts on a token once the block below has finished it
            return length + len(self.blocks) - 1
        return sum(block.mixer.steps(length) for block in self.blocks)  # type: ignore[union-attr,operator]

    def longest_path(self, length: int) -> int | None:
        windows = [block.mixer.window for block in self.blocks if isinstance(block.mixer, Attention)]
        if len(windows) == len(self.blocks):  # each block extends the path by one window
            return len(windows) if length - 1 <= sum(windows) else None
        return length + len(self.blocks) - 1  # a recurrence multiplies at each token, even if many are read at a time

    def _goes_by_token(self) -> bool:
        """Return True if every mixer takes one sequential step per token."""
        return all(block.mixer.steps(1000) >= 1000 for block in self.blocks)  # type: ignore[union-attr,operator]
