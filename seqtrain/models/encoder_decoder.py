"""The encoder-decoder: an encoder and a decoder, chosen independently, connected by the state.

Two Transformers are the model of Vaswani et al. (2017); two recurrent networks that of Cho et al. (2014) and Sutskever
et al. (2014), or with attention that of Bahdanau et al. (2015) or Luong et al. (2015). A Transformer encoder with a
recurrent decoder is the hybrid of Chen et al. (2018, arXiv 1804.09849).
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
from seqtrain.models.parts.decoders import Attention, RecurrentDecoder, TransformerDecoder
from seqtrain.models.parts.encoders import ConvolutionalEncoder, Encoded, RecurrentEncoder, TransformerEncoder
from seqtrain.models.stepper import Stepper

EncoderKind = Literal["transformer", "rnn", "gru", "lstm", "cnn"]
DecoderKind = Literal["transformer", "rnn", "gru", "lstm"]

CELLS = get_args(Cell)
OF_TRANSFORMERS = (
    *("num_heads", "positions", "max_length", "norm", "activation", "dim_feedforward", "norm_kind", "norm_eps"),
    *("feed_forward", "num_kv_heads", "head_dim", "qk_norm", "rotary_base"),
)


class EncoderDecoder(SequenceModel):
    """Continues from `begin(source)`; its tokens are those of the target, embedded by `target_embed`.

    Both sides have `num_layers` layers of width `dim`. A Transformer multiplies its embedded tokens by the square root
    of `dim`, with any kind of positions. A recurrent decoder starts from a learned map of the encoder's last states, or
    of the mean of its outputs if the encoder has no states.

    Args:
        encoder: kind of network that reads the source.
        decoder: kind of network that reads or writes the target.
        num_heads: option of a Transformer, as are the other options of `BlockOptions`.
        positions: rotary positions apply to self-attention on both sides, not to attention to the source.
        max_length: size of the tables of learned positions, which limits both sides of a pair with a Transformer.
        bidirectional: a recurrent encoder reads both ways, each direction with half of `dim`.
        attention: how a recurrent decoder attends to the source; a Transformer has its own kind.
        kernel_size: taps of each convolution of a cnn.
        share_layers: each side applies one layer `num_layers` times. The first layer of a decoder with additive
        attention, which also reads the context, has its own weights.
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
            raise ValueError("share_layers=true: the layers of encoder=cnn differ in dilation; choose another encoder")
        # Recurrent networks and convolutions have no table of positions, so they read any length.
        if "transformer" in (encoder, decoder):
            check_sizes(options, positions, max_length)
            self.max_length = max_length
        # The order in which modules are created decides which random numbers initialise which weights.
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
        # Created last, not in the parts: the order of parameters affects the last bit of the norm of all gradients.
        self.source_norm = options.final_norm() if encoder == "transformer" else nn.Identity()
        self.norm = options.final_norm() if decoder == "transformer" else nn.Identity()
        kinds = [(self.encoder, encoder), (self.decoder, decoder)]
        initialise_transformer([part for part, kind in kinds if kind == "transformer"])

    has_encoder = True

    @classmethod
    def idle(cls, options: Mapping[str, Any]) -> dict[str, str]:
        """Return options that apply only to kinds of networks that neither side uses, with the reason."""
        encoder, decoder = options["encoder"], options["decoder"]
        pair = f"encoder={encoder} and decoder={decoder}"
        reasons: dict[str, str] = {}
        if options["positions"] != "rotary":
            reasons["rotary_base"] = f"applies only to positions=rotary, not positions={options['positions']}"
        if "transformer" not in (encoder, decoder):
            reasons |= dict.fromkeys(OF_TRANSFORMERS, f"applies only to transformers; this model has {pair}")
        if encoder not in CELLS:
            reasons["bidirectional"] = f"applies only to recurrent encoders; this model has encoder={encoder}"
        if encoder != "cnn":
            reasons["kernel_size"] = f"applies only to encoder=cnn; this model has encoder={encoder}"
        if decoder not in CELLS:
            reasons["attention"] = f"applies only to recurrent decoders; decoder={decoder} has its own attention"
        return reasons

    @property
    def config_name(self) -> str:
        # Two shipped files build this class; return the closer one.
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
        """Count the sequential steps of the source, then those of a given target, as in training."""
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
        """Count the steps through the encoder, then one step of attention, or without attention the decoder's steps."""
        depth = 2 * self.num_layers if isinstance(self.encoder, ConvolutionalEncoder) else self.num_layers
        if not isinstance(self.decoder, RecurrentDecoder) or self.decoder.attention != "none":
            return depth + 1
        if isinstance(self.encoder, RecurrentEncoder):
            # The last states of all layers are passed on, so the path from the lowest layer is the shortest. If the
            # source is read in both directions, the middle of the source has the longest path.
            depth = (length + 1) // 2 if self.encoder.bidirectional else length
        return depth + length

    def flops_per_token(self, length: int, carried: bool) -> float:
        """Average the operations over the tokens of source and target, both `length` long."""
        fronts = (getattr(front, "projection", None) for front in (self.embed, self.target_embed))
        products = sum(matrix.numel() for matrix in fronts if matrix is not None)  # each processes `length` tokens
        return products + (self.encoder.operations(length) + self.decoder.operations(length)) / (2 * length)
