"""ELMo (Peters et al. 2018): a forward and a backward stack of LSTM layers, and a learned mix of all layers."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State, Weights
from seqtrain.models.layers.recurrence import mirror_index, reverse
from seqtrain.models.layers.side_by_side import side_by_side


class ELMo(SequenceModel):
    """h_t = gamma * sum_j softmax(s)_j [forward_j; backward_j] over the layers j, starting with the embedding.

    Shallow: neither stack reads the other's output, so each is a language model of its direction. (A bidirectional LSTM
    is deep: its second layer reads both directions.) Both stacks share the embedding, as in the paper. The tokenizer's
    front end replaces the paper's convolutions over characters, and layers have no residual connections.
    """

    capabilities = Capability.BIDIRECTIONAL | Capability.UNCONDITIONAL | Capability.SEPARABLE

    def __init__(self, *, embed: nn.Module, dim: int, num_layers: int, dropout: float, bias: bool) -> None:
        """Build the model. Raise ValueError for an odd `dim`: each direction gets half of it."""
        super().__init__()
        if dim % 2:
            raise ValueError(f"dim={dim} must be even: each direction gets half of it")
        self.embed = embed
        self.dim = dim
        self.dropout = nn.Dropout(dropout)
        self.forwards = nn.ModuleList()
        self.backwards = nn.ModuleList()
        for layer in range(num_layers):
            # One module per layer, because torch's stacked layers return only the outputs of the last one.
            inputs = dim if layer == 0 else dim // 2
            for stack in (self.forwards, self.backwards):
                stack.append(nn.LSTM(inputs, dim // 2, bias=bias, batch_first=True))
        self.mix = nn.Parameter(torch.zeros(num_layers + 1))  # s: equal weights at first
        self.scale = nn.Parameter(torch.ones(1))  # gamma

    def initial(self, batch: int) -> State:
        return {}

    def layer_weights(self) -> Float[Tensor, " N"]:
        """Return the share of each layer in the hidden states, the embedding first. The shares sum to 1."""
        return self.mix.softmax(0)

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return the mix of all layers. The model has no state, so a given state is ignored."""
        layers = self._layers(tokens, lengths)
        mixed = torch.zeros_like(layers[0])
        for weight, layer in zip(self.layer_weights(), layers, strict=True):
            mixed = mixed + weight * layer
        return self.scale * mixed, {}

    def directions(
        self, tokens: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B T U"], Float[Tensor, "B T U"]]:
        """Return the last layer of each stack: of the text up to each token, and of the text from each token on."""
        last = self._layers(tokens, lengths)[-1]
        # The mix is not used in a language model, but DDP waits for a gradient of every weight: add zeros.
        nothing = 0.0 * (self.mix.sum() + self.scale.sum())
        forwards, backwards = (last + nothing).chunk(2, -1)
        return forwards, backwards

    def _layers(
        self, tokens: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"] | None
    ) -> list[Float[Tensor, "B T D"]]:
        """Return the embedding and each layer's output: forwards in the first half of the units, then backwards."""
        x = self.dropout(self.embed(tokens))
        mirror = mirror_index(x, lengths)
        layers = [x]
        there, back = x, reverse(x, mirror)
        for forwards, backwards in zip(self.forwards, self.backwards, strict=True):
            there = self.dropout(forwards(there)[0])
            back = self.dropout(backwards(back)[0])
            # The backward output is reversed again, so that both halves refer to the same position.
            layers.append(torch.cat([there, reverse(back, mirror)], -1))
        return layers

    def from_directions(self, forwards: Weights, backwards: Weights) -> Weights:
        separator: int = self.embed.separator  # type: ignore[assignment]

        def name_of(direction: int, layer: int, kind: str) -> str:
            return f"{('forwards', 'backwards')[direction]}.{layer}.{kind}_l0"

        return side_by_side(self.state_dict(), (forwards, backwards), separator=separator, name_of=name_of)

    def sequential_steps(self, length: int) -> int:
        return length + len(self.forwards) - 1  # both stacks in parallel; a layer follows the one below by one token

    def longest_path(self, length: int) -> int:
        return length + len(self.forwards) - 1

    def flops_per_token(self, length: int, carried: bool) -> float:
        return super().flops_per_token(1, carried)  # each token costs the same; torch counts step by step
