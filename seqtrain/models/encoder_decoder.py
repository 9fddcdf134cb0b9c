"""The encoder-decoder: two networks, each of a kind of its own, that meet in State.

With two Transformers it is that of Vaswani et al. (2017); with two recurrent networks that of Cho et al. (2014) and
Sutskever et al. (2014), and with attention that of Bahdanau et al. (2015) or Luong et al. (2015); a Transformer that is
read by a recurrent decoder is the hybrid of Chen et al. (2018, arXiv 1804.09849).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State
from seqtrain.models.layers.block_options import Activation, BlockOptions, FeedForwardKind, Norm, NormKind
from seqtrain.models.layers.blocks import CrossDecoderBlock, EncoderBlock, in_depth, initialise_transformer
from seqtrain.models.layers.lengths import real_lengths
from seqtrain.models.layers.positions import BASE, PlacedInput, Positions, check_sizes
from seqtrain.models.layers.recurrence import Cell
from seqtrain.models.parts.encoders import ConvolutionalEncoder, Encoded, RecurrentEncoder, TransformerEncoder
from seqtrain.models.parts.recurrent_decoder import Attention, RecurrentDecoder
from seqtrain.models.parts.transformer_decoder import TransformerDecoder
from seqtrain.models.stepper import Stepper

EncoderKind = Literal["transformer", "rnn", "gru", "lstm", "cnn"]
DecoderKind = Literal["transformer", "rnn", "gru", "lstm"]

CELLS = get_args(Cell)
OF_TRANSFORMERS = (
    *("num_heads", "positions", "max_length", "norm", "activation", "dim_feedforward", "norm_kind", "norm_eps"),
    *("feed_forward", "num_kv_heads", "head_dim", "qk_norm", "rotary_base"),
)


class EncoderDecoder(SequenceModel):
    """Goes on from `begin(source)`; its tokens are those of the target, embedded by `target_embed`.

    Both sides are `num_layers` deep and `dim` wide. A Transformer's embedded tokens are scaled by the root of `dim`,
    whatever the positions. A recurrent decoder begins from a learned map of the encoder's last states, or, of an
    encoder that has none, of the mean of its outputs.

    Args:
        encoder: what reads the source.
        decoder: what reads, or writes, the target.
        num_heads: of a Transformer, as the other options of `BlockOptions`.
        positions: rotary ones are those of self-attention on either side; attention to the source has none.
        max_length: size of the tables of learned positions: neither side of a pair with a Transformer is longer.
        bidirectional: a recurrent encoder reads both ways, each direction with half of `dim`.
        attention: how a recurrent decoder looks at the source; a Transformer's is of its own kind.
        kernel_size: taps of the convolutions of a cnn.
        share_layers: each side applies one layer `num_layers` times. Of a decoder with additive attention the first
            layer, which reads the context too, has weights of its own.
    """

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL

    def __init__(
        self,
        *,
        embed: nn.Module,
        target_embed: nn.Module,
        encoder: EncoderKind,
        decoder: DecoderKind,
        dim: int,
        num_layers: int,
        dropout: float,
        num_heads: int = 4,
        positions: Positions = "sinusoidal",
        max_length: int | None = None,
        norm: Norm = "pre",
        activation: Activation = "relu",
        dim_feedforward: int | None = None,
        norm_kind: NormKind = "layer",
        norm_eps: float = 1e-5,
        feed_forward: FeedForwardKind = "plain",
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        qk_norm: bool = False,
        bidirectional: bool = True,
        attention: Attention = "additive",
        kernel_size: int = 3,
        share_layers: bool = False,
        rotary_base: float = BASE,
    ) -> None:
        super().__init__()
        self.embed = embed
        self.target_embed = target_embed
        self.dim = dim
        self.num_layers = num_layers
        self.kinds = encoder, decoder
        size: dict[str, Any] = {"dim": dim, "num_layers": num_layers, "dropout": dropout}
        front: dict[str, Any] = {"positions": positions, "max_length": max_length, "rotary_base": rotary_base}
        options = BlockOptions(
            dim=dim,
            num_heads=num_heads,
            dropout=dropout,
            norm=norm,
            bias=True,
            dim_feedforward=dim_feedforward,
            activation=activation,
            norm_kind=norm_kind,
            norm_eps=norm_eps,
            feed_forward=feed_forward,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            qk_norm=qk_norm,
        )
        if share_layers and encoder == "cnn":
            raise ValueError("share_layers=true: the layers of encoder=cnn differ in their dilations; take another one")
        # Recurrent networks and convolutions have no table of positions, and read any length.
        if "transformer" in (encoder, decoder):
            check_sizes(options, positions, max_length)
            self.max_length = max_length
        # The order in which modules are made decides which random numbers become whose first weights.
        if encoder == "transformer":
            blocks = in_depth(lambda name: EncoderBlock(options, f"{name} source"), num_layers, share_layers)
            self.encoder = TransformerEncoder(options, front=PlacedInput(options, **front), blocks=blocks)
        elif encoder == "cnn":
            self.encoder = ConvolutionalEncoder(**size, kernel_size=kernel_size)
        else:
            self.encoder = RecurrentEncoder(
                **size, cell=encoder, bidirectional=bidirectional, share_layers=share_layers
            )
        if decoder == "transformer":
            cross_blocks = in_depth(lambda name: CrossDecoderBlock(options, name), num_layers, share_layers)
            self.decoder = TransformerDecoder(options, front=PlacedInput(options, **front), blocks=cross_blocks)
        else:
            width = self.encoder.state_width
            self.decoder = RecurrentDecoder(
                **size, cell=decoder, attention=attention, encoder_width=width, share_layers=share_layers
            )
        # Last, not in the parts: the order of parameters decides the last bit of the norm of all gradients.
        self.source_norm = options.final_norm() if encoder == "transformer" else nn.Identity()
        self.norm = options.final_norm() if decoder == "transformer" else nn.Identity()
        kinds = [(self.encoder, encoder), (self.decoder, decoder)]
        initialise_transformer([part for part, kind in kinds if kind == "transformer"])

    has_encoder = True

    @classmethod
    def idle(cls, options: Mapping[str, Any]) -> dict[str, str]:
        """Return the options that apply only to kinds of networks that neither side uses, with the reasons."""
        encoder, decoder = options["encoder"], options["decoder"]
        pair = f"encoder={encoder} and decoder={decoder}"
        reasons: dict[str, str] = {}
        if options["positions"] != "rotary":
            reasons["rotary_base"] = f"is of rotary positions, and positions={options['positions']}"
        if "transformer" not in (encoder, decoder):
            reasons |= dict.fromkeys(OF_TRANSFORMERS, f"is of transformers, and here are {pair}")
        if encoder not in CELLS:
            reasons["bidirectional"] = f"is of recurrent encoders, and encoder={encoder}"
        if encoder != "cnn":
            reasons["kernel_size"] = f"is of encoder=cnn, and encoder={encoder}"
        if decoder not in CELLS:
            reasons["attention"] = f"is of recurrent decoders; decoder={decoder} has attention of its own"
        return reasons

    @property
    def config_name(self) -> str:
        # Two shipped files make it: the one that is nearest.
        name = "encoder_decoder" if type(self).__module__ == __name__ else type(self).__name__
        return f"rnn_{name}" if set(self.kinds) <= set(CELLS) else name

    def parts(self) -> dict[str, list[nn.Module]]:
        return {"encoder": [self.encoder, self.source_norm], "decoder": [self.decoder, self.norm]}

    def initial(self, batch: int) -> State:
        """Return the state after an empty source."""
        return self.decoder.initial(batch)

    def encode(
        self, source: Shaped[Tensor, "B S *F"], lengths: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B S D"]:
        """Encode sources. The decoder is not involved."""
        return self.source_norm(self.encoder(self.embed(source), lengths).out)

    def begin(self, source: Shaped[Tensor, "B S *F"], lengths: Int[Tensor, " B"] | None = None) -> State:
        """Read the sources once with the encoder, and return the state that the decoder starts from."""
        out, last = self.encoder(self.embed(source), lengths)
        return self.decoder.begin(Encoded(self.source_norm(out), last), real_lengths(source, lengths))

    def stepper(self, state: State, *, branches: bool = False) -> Stepper:
        if isinstance(self.decoder, TransformerDecoder):
            return self.decoder.stepper(self.target_embed, self.norm, state, branches)
        return super().stepper(state, branches=branches)

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        if state is None:
            state = self.initial(len(tokens))
        hidden, after = self.decoder(self.target_embed(tokens), state, lengths)
        return self.norm(hidden), after

    def sequential_steps(self, length: int) -> int:
        """Count the steps of the source, then those of a target that is given, as in training."""
        steps = 0
        for kind in self.kinds:
            steps += self.num_layers
            if kind in CELLS:
                steps += length - 1
            if kind == "cnn":
                steps += self.num_layers  # two convolutions a layer
        return steps

    def longest_path(self, length: int) -> int:
        """Count the steps of the longest path within the target."""
        if isinstance(self.decoder, RecurrentDecoder):
            return length + self.num_layers - 1
        return self.num_layers

    def source_path(self, length: int) -> int:
        """Count the steps through the encoder, then one of attention, or all steps of a decoder without attention."""
        depth = 2 * self.num_layers if isinstance(self.encoder, ConvolutionalEncoder) else self.num_layers
        if not isinstance(self.decoder, RecurrentDecoder) or self.decoder.attention != "none":
            return depth + 1
        if isinstance(self.encoder, RecurrentEncoder):
            # The last states of all layers are handed over, so those of the lowest are the nearest; read both ways, the
            # middle of the source is farthest from them.
            depth = (length + 1) // 2 if self.encoder.bidirectional else length
        return depth + length

    def flops_per_token(self, length: int, carried: bool) -> float:
        """Average the operations over the tokens of source and target, both `length` long."""
        fronts = (getattr(front, "projection", None) for front in (self.embed, self.target_embed))
        products = sum(matrix.numel() for matrix in fronts if matrix is not None)  # each reads `length` tokens
        return products + (self.encoder.operations(length) + self.decoder.operations(length)) / (2 * length)
