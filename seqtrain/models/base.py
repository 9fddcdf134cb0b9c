"""The interface of all sequence models.

Letters: `B` lanes, `T` time, `S` source time, `D` width, `H` heads, `K` head width, `V` vocabulary, `L` layers.

The functions below the class read with any model:

- `read`: a chunk from a state, in which documents may begin; `read_rows` is its way for most models.
- `read_warmup`: chunks of which only the states after them are needed.
- `read_by_length`: padded lanes, in calls without padding; models use it in their `forward`.
- `read_in_segments`: padded lanes, with a gradient through the last tokens only.
- `encode_in_pieces`, `last_hidden`: long texts, without a gradient.
- `read_blank`: blank input, to learn shapes and costs.
"""

from __future__ import annotations

import copy
import enum
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seqtrain.errors import UserError
from seqtrain.models.stepper import State, StateStepper, Stepper

PIECE = 4096
"""Number of tokens per piece when evaluation reads a long text in pieces (if the model can carry its state)."""

Weights = Mapping[str, Shaped[Tensor, "..."]]
"""Weights by name, as in `state_dict`."""


class Capability(enum.Flag):
    """Properties that a model instance promises; a contract test checks each one."""

    NONE = 0
    CAUSAL = enum.auto()  # h_t depends on x_1..t only
    BIDIRECTIONAL = enum.auto()  # h_t depends on every token
    STATEFUL = enum.auto()  # reading in chunks with carried state equals reading the whole at once
    CONDITIONAL = enum.auto()  # can read a source first: the state from begin(source) changes later outputs
    UNCONDITIONAL = enum.auto()  # can start without a source
    SEPARABLE = enum.auto()  # bidirectional, and `directions` returns each direction's hidden states separately


class SequenceModel(nn.Module, ABC):
    """Maps tokens, and the state that earlier tokens left, to hidden states. Heads and losses belong to tasks.

    `embed` is the front end, passed to the constructor: it maps tokens (B, T), or values (B, T, F), to (B, T, E).
    CONTRIBUTING.md lists the optional members of a model.
    """

    capabilities: Capability
    dim: int  # D, the width of the hidden states
    embed: nn.Module
    max_length: int | None = None  # maximum number of tokens after a reset; None: no limit

    @abstractmethod
    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return the hidden states of `tokens`, and the state after them (after `lengths[b]` tokens, if given).

        Tokens are right-padded; hidden states at padding are arbitrary. `state=None` is the same as `initial(B)`.
        """

    @abstractmethod
    def initial(self, batch: int) -> State:
        """Return the state before any token is read: all zeros."""

    def flops_per_token(self, length: int, carried: bool) -> float:
        """Count the floating-point operations per token of a forward pass over `length` tokens.

        One multiply-add is 2 operations; embedding look-ups and element-wise work are not counted. By default torch
        counts the operations on the meta device, without computing anything. Override this method in a model that
        cannot run on the meta device, or that reads token by token, where counting takes milliseconds per token.

        Args:
            length: tokens per forward pass; for a model that needs a source, the length of both source and target.
            carried: whether each forward pass continues from a state; a cache adds keys to attend to.

        Raises:
            UserError: if the model cannot run on the meta device.
        """
        # A copy, because the model itself may be in training or on another device.
        twin = copy.deepcopy(self).to("meta").eval().requires_grad_(False)
        needs_source = Capability.UNCONDITIONAL not in self.capabilities
        counter = FlopCounterMode(display=False, custom_mapping=UNCOUNTED)
        try:
            # The device is set because models make masks and positions during the forward pass.
            with torch.device("meta"), torch.no_grad(), counter:
                if carried and not needs_source:
                    twin(blank_input(twin, 1, length), twin.initial(1))
                else:
                    read_blank(twin, 1, length)
        except RuntimeError as error:  # an operation depends on values, which meta tensors lack
            reason = str(error).partition("\n")[0]
            raise UserError(
                f"model={name_of(self)} cannot run on the meta device ({reason}), so torch cannot count its "
                "operations; give it a method flops_per_token"
            ) from error
        if needs_source:
            return counter.get_total_flops() / (2 * length)  # the source is as long as the target
        return counter.get_total_flops() / length

    def encode(
        self, source: Shaped[Tensor, "B S *F"], lengths: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B S D"]:
        """Return the hidden states of texts, each read independently; an encoder-decoder uses its encoder."""
        # Padding on the right does not change the hidden states before it in a causal model. Without lengths the model
        # reads in one dense call.
        hidden, _ = self(source, None, None if Capability.CAUSAL in self.capabilities else lengths)
        return hidden

    def stepper(self, state: State, *, branches: bool = False) -> Stepper:
        """Return a stepper that continues from a state token by token, without gradients. The state is not modified.

        A model overrides this if it can continue with less copying than `forward`.

        Args:
            state: the state of all lanes.
            branches: True if a lane will have several continuations, as in a beam.
        """
        return StateStepper(self, state)

    def begin(self, source: Shaped[Tensor, "B S *F"], lengths: Int[Tensor, " B"] | None = None) -> State:
        """Return the state from which generation starts; by default `source` is read as a prefix."""
        return self(source, self.initial(len(source)), lengths)[1]


def name_of(model: SequenceModel) -> str:
    """Return the model's name for messages: as in `model=...`, or the class name of a third-party model.

    A model whose shipped YAML file is not named like its module sets `config_name`.
    """
    found = getattr(model, "config_name", None)
    if found is not None:
        return found
    # The YAML file that chose the class is unknown when a run is loaded; seqtrain's models are named like their
    # modules.
    package, _, module = type(model).__module__.rpartition(".")
    return module if package == __package__ else type(model).__name__


def can_encode(model: SequenceModel) -> bool:
    """Return True if `encode` can return the hidden states of a text read alone.

    A model that needs a source and has an encoder for it sets `has_encoder = True`.
    """
    return Capability.UNCONDITIONAL in model.capabilities or getattr(model, "has_encoder", False)


@runtime_checkable
class ReadsLast(Protocol):
    """A model that can compute the last hidden state at less cost than all hidden states."""

    def last(self, tokens: Shaped[Tensor, "B T *F"]) -> Float[Tensor, "B 1 D"]:
        """Return the last hidden state that `forward` computes for sequences without padding."""
        ...


def last_hidden(model: SequenceModel, tokens: Shaped[Tensor, "B T *F"]) -> Float[Tensor, "B 1 D"]:
    """Return the last hidden state of sequences without padding, each read independently."""
    if isinstance(model, ReadsLast):
        return model.last(tokens)
    if torch.is_grad_enabled() or not reads_in_pieces(model, tokens.shape[1]):
        return model(tokens)[0][:, -1:]
    return deque(encode_in_pieces(model, tokens), maxlen=1).pop()[:, -1:]  # keeps only the newest piece


def reads_in_pieces(model: SequenceModel, length: int) -> bool:
    """Return True if evaluation reads a text of `length` tokens in pieces: it is long and the model can carry state."""
    return length > PIECE and Capability.CAUSAL | Capability.STATEFUL | Capability.UNCONDITIONAL in model.capabilities


def encode_in_pieces(
    model: SequenceModel, tokens: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"] | None = None
) -> Iterator[Float[Tensor, "B t D"]]:
    """Yield the hidden states of `encode` piece by piece along time, so that memory does not grow with T.

    The text is one piece if it has at most `PIECE` tokens, or if the model cannot continue from a state.
    """
    if not reads_in_pieces(model, tokens.shape[1]):
        yield model.encode(tokens, lengths)
        return
    state = model.initial(len(tokens))
    for piece in tokens.split(PIECE, 1):
        hidden, state = model(piece, state)
        yield hidden


class Separable(Protocol):
    """A model that promises SEPARABLE."""

    def directions(
        self, tokens: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B T U"], Float[Tensor, "B T U"]]:
        """Return the hidden states of each direction, of dim/2 units: those at t depend on x_1..t, and on x_t..T."""
        ...


def directions(
    model: SequenceModel, tokens: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"] | None = None
) -> tuple[Float[Tensor, "B T U"], Float[Tensor, "B T U"]]:
    """Return the hidden states of each direction, for a model that promises SEPARABLE."""
    return cast(Separable, model).directions(tokens, lengths)


def idle_of(target: Any, options: Mapping[str, Any]) -> dict[str, str]:
    """Return options that have no effect given the values of the others, with the reason; setting one is an error.

    Models with such options have a class method `idle`.
    """
    idle = getattr(target, "idle", None) if isinstance(target, type) and issubclass(target, SequenceModel) else None
    return {} if idle is None else idle(options)


def blank_input(model: SequenceModel, batch: int, length: int, *, written: bool = False) -> Shaped[Tensor, "B T *F"]:
    """Return blank tokens or values of this shape, as the model reads, on the device of its weights.

    `written`: return blanks for the target of an encoder-decoder instead of its source.
    """
    front = getattr(model, "target_embed", model.embed) if written else model.embed
    # A third-party front end, or a model without one, is assumed to read tokens.
    blank = getattr(front, "blank", None)
    if blank is not None:
        return blank(batch, length)
    return torch.zeros(batch, length, dtype=torch.long, device=next(model.parameters()).device)


def read_blank(model: SequenceModel, batch: int, length: int) -> tuple[Float[Tensor, "B T D"], State]:
    """Return a model's output for blank input. A model that needs a source reads a target as long as the source."""
    source = blank_input(model, batch, length)
    if Capability.UNCONDITIONAL in model.capabilities:
        return model(source)
    return model(blank_input(model, batch, length, written=True), model.begin(source))


def _matrix_vector_flops(matrix: torch.Size, vector: torch.Size, *, out_shape: torch.Size | None = None) -> int:
    """Count the operations of a matrix times a vector, which torch's counter does not count."""
    return 2 * matrix.numel()


def _triangular_flops(system: torch.Size, given: torch.Size, *, out_shape: torch.Size, **options: bool) -> int:
    """Count the operations of a triangular solve, half those of a product, which torch's counter does not count."""
    return out_shape.numel() * system[-1]


UNCOUNTED = {
    torch.ops.aten.mv: _matrix_vector_flops,
    torch.ops.aten.linalg_solve_triangular: _triangular_flops,
}
"""Operations that torch's counter does not count, and the functions that count them."""


def detach(state: State) -> State:
    """Detach a state from the graph that computed it."""
    return {name: value.detach() for name, value in state.items()}


def reset(state: State, lanes: Bool[Tensor, " B"]) -> State:
    """Return a new state in which the lanes of a mask are zero."""
    after = {}
    for name, value in state.items():
        mask = lanes.view(-1, *[1] * (value.dim() - 1))  # (B, 1, ...): one value per lane
        # `where`, not a product: a lane that diverged contains NaN, and NaN times 0 is NaN.
        after[name] = torch.where(mask, torch.zeros_like(value), value)
    return after


def select(state: State, lanes: Int[Tensor, " N"] | Bool[Tensor, " B"] | slice) -> State:
    """Select the state of some lanes, by index, mask or slice."""
    return {name: value[lanes] for name, value in state.items()}


@runtime_checkable
class ReadsDocuments(Protocol):
    """A model that reads documents that begin within a chunk at less cost than one by one."""

    def read_documents(
        self, tokens: Shaped[Tensor, "B T *F"], state: State, starts: Bool[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T D"], State]:
        """Return the same as `forward`, with the state set to zeros before each token at which a document begins."""
        ...


def read(
    model: SequenceModel,
    tokens: Shaped[Tensor, "B T *F"],
    state: State | None,
    starts: Bool[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, "B T D"], State]:
    """Return the hidden states of `tokens` read from `state`, and the state after them.

    Args:
        model: the model.
        tokens: without padding.
        state: None: read the tokens without earlier ones, and return an empty state, because it is not used.
        starts: True where a document begins and the state is reset to zeros; None: nowhere.
    """
    if starts is not None:
        if Capability.STATEFUL not in model.capabilities:  # then nothing is carried
            begins = starts.clone()
            begins[:, 0] = True
            edges = [*begins.flatten().nonzero().squeeze(1).tolist(), begins.numel()]
            parts = [model.encode(tokens.flatten(0, 1)[None, begin:end]) for begin, end in pairwise(edges)]
            return torch.cat(parts, 1).unflatten(1, starts.shape).squeeze(0), {}
        before = model.initial(len(tokens)) if state is None else state
        if isinstance(model, ReadsDocuments):
            return model.read_documents(tokens, before, starts)
        return read_rows(model, tokens, before, starts)
    if state is None:
        return model.encode(tokens), {}
    return model(tokens, state)


def read_warmup(
    model: SequenceModel,
    warmup_chunks: Sequence[tuple[Shaped[Tensor, "B _ *F"], Bool[Tensor, " B"] | None, Bool[Tensor, "B _"] | None]],
    state: State | None,
    read_chunk: Callable[..., tuple[Any, State]] = read,
) -> list[State | None]:
    """Read chunks and return the states after them.

    Args:
        model: the model.
        warmup_chunks: for each chunk, tokens (B, T), the lanes (B,) to reset after it, and `starts` (B, T) as in
        `read`; None if no lane is reset or no document begins.
        state: the start state; None if nothing was read.
        read_chunk: function that reads a chunk, with the arguments and results of `read`.

    Returns:
        The state before the first chunk, then the state after each chunk.
    """
    states = [state]
    for tokens, reset_after, starts in warmup_chunks:
        before = model.initial(len(tokens)) if states[-1] is None else states[-1]
        after = read_chunk(model, tokens, before, starts)[1]
        if reset_after is not None:
            after = reset(after, reset_after)
        states.append(after)
    return states


def read_by_length(
    read: Callable[[Shaped[Tensor, "b t *F"], State], tuple[Float[Tensor, "b t D"], State]],
    tokens: Shaped[Tensor, "B T *F"],
    state: State,
    lengths: Int[Tensor, " B"] | None,
) -> tuple[Float[Tensor, "B T D"], State]:
    """Read right-padded lanes with dense calls only: call `read` from one distinct length to the next.

    Args:
        read: reads tokens without padding and continues from a state.
        tokens: right-padded.
        state: the state of all lanes before their first token.
        lengths: number of real tokens of each lane; 0 leaves a lane's state unchanged. None: all tokens are real.

    Returns:
        Hidden states (B, T, D), zero at padding, and the state of each lane after its own length.
    """
    if lengths is None:
        return read(tokens, state)
    batch, width = tokens.shape[:2]
    lanes = torch.arange(batch, device=tokens.device)  # lanes that have not ended; `state` and `hidden` have these
    ended_lanes: list[Int[Tensor, " b"]] = []
    ended_states: list[State] = []
    segments: list[Float[Tensor, "B t D"]] = []
    begin = 0
    for end in sorted(set(lengths.tolist())):
        if end > begin:
            hidden, state = read(tokens[lanes, begin:end], state)
            padded = hidden.new_zeros(batch, *hidden.shape[1:])
            segments.append(padded.index_copy(0, lanes, hidden))
            begin = end
        done = lengths[lanes] == end
        ended_lanes.append(lanes[done])
        ended_states.append(select(state, done))
        lanes, state = lanes[~done], select(state, ~done)
    # The lanes ended in order of length; restore the order of the batch.
    order = torch.cat(ended_lanes).argsort()
    final: State = {}
    for name in ended_states[0]:
        final[name] = torch.cat([state[name] for state in ended_states])[order]
    if begin < width:
        # All lanes are empty and nothing was read; only a forward pass gives the width and dtype of hidden states.
        like = segments[0] if segments else read(tokens[:1, :1], select(ended_states[0], slice(0, 1)))[0]
        segments.append(like.new_zeros(batch, width - begin, like.shape[-1]))
    return torch.cat(segments, 1), final


def read_rows(
    read: Callable[[Shaped[Tensor, "b t *F"], State], tuple[Float[Tensor, "b t D"], State]],
    tokens: Shaped[Tensor, "B T *F"],
    state: State,
    starts: Bool[Tensor, "B T"],
) -> tuple[Float[Tensor, "B T D"], State]:
    """Read lanes as rows: one row for what continues a lane's state, and one for each document that begins.

    Rows are split into powers of two that sum to their length, so that a few dense calls suffice without padding.

    Args:
        read: reads tokens without padding and continues from a state.
        tokens: without padding.
        state: the state of all lanes before their first token.
        starts: True where a document begins, and the state is reset to zeros.

    Returns:
        Hidden states (B, T, D), and the state of each lane after its last token.
    """
    batch, length = starts.shape
    time = torch.arange(length, device=tokens.device)
    # `place` is an index into the concatenated lanes.
    flat, place = tokens.flatten(0, 1), (starts | (time == 0)).flatten().nonzero().squeeze(1)
    count = torch.diff(place, append=place.new_tensor([batch * length]))
    is_last = (place + count) % length == 0
    state = reset(select(state, place // length), starts.flatten()[place] | (place % length != 0))
    hidden, places = [], []
    for power in reversed(range(length.bit_length())):
        size = 2**power
        rows = (count & size).nonzero().squeeze(1)
        if len(rows):
            index = place[rows, None] + time[:size]
            out, after = read(flat[index], select(state, rows))
            state = {name: value.index_copy(0, rows, after[name]) for name, value in state.items()}
            place = place.index_add(0, rows, torch.full_like(rows, size))
            hidden.append(out.flatten(0, 1))
            places.append(index.flatten())
    order = torch.cat(places).argsort()
    return torch.cat(hidden)[order].unflatten(0, (batch, length)), select(state, is_last)


class Segment(NamedTuple):
    """Hidden states of some lanes of a batch, from one forward pass."""

    lanes: Int[Tensor, " b"]
    hidden: Float[Tensor, "b T D"]
    lengths: Int[Tensor, " b"]  # number of real positions; hidden states at padding are arbitrary


def read_in_segments(
    model: SequenceModel, tokens: Shaped[Tensor, "B T *F"], lengths: Int[Tensor, " B"], bptt_length: int
) -> Iterator[Segment]:
    """Read right-padded lanes; gradients reach exactly the last min(bptt_length, n) of the n tokens of each lane.

    Earlier tokens are read without gradient: first (n - bptt_length) mod bptt_length tokens, then `bptt_length` at a
    time. So the last segment of each lane ends where the lane ends, and memory is that of `bptt_length` tokens. The
    model must be STATEFUL.
    """
    lanes = torch.arange(len(tokens), device=tokens.device)
    time = torch.arange(bptt_length, device=tokens.device)
    prefix = (lengths - bptt_length).clamp(min=0)  # tokens per lane that are read without gradient
    heads = prefix % bptt_length
    rounds = prefix // bptt_length
    state = model.initial(len(tokens))
    width = int(heads.max())
    if width:
        with torch.no_grad():  # exited before the yield, so that the caller's computation has gradients
            hidden, state = model(tokens[:, :width], state, heads)
        yield Segment(lanes, hidden, heads)
    for number in range(int(rounds.max())):
        live = lanes[rounds > number]
        # Each lane starts at a different position, so tokens are gathered with an index (b, bptt_length).
        begin = heads[live] + number * bptt_length
        with torch.no_grad():
            hidden, after = model(tokens[live.unsqueeze(1), begin.unsqueeze(1) + time], select(state, live))
        state = {name: value.index_copy(0, live, after[name]) for name, value in state.items()}
        yield Segment(live, hidden, torch.full_like(live, bptt_length))
    rest = lengths - prefix
    place = prefix.unsqueeze(1) + time[: int(rest.max())]
    # Past a lane's end this reads padding; past the width it repeats the last column, because an index must be valid.
    newest = tokens[lanes.unsqueeze(1), place.clamp(max=tokens.shape[1] - 1)]
    yield Segment(lanes, model(newest, state)[0], rest)
