"""The contract of a model as laws: each reads a small model in float64 and tells the first counterexample in words.

`judge` holds one model to every law; `seqtrain contract` prints what it finds, and the tests run the same laws on every
shipped model. A law is checked only where the model promises what it rests on (`Law.promise`).
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.models.base import Capability, SequenceModel, State, detach, reset, select

VOCAB_SIZE = 7  # tokens of text
SPECIALS = 3  # start, separator, mask
LANES = 3
TIME = 24  # tokens that most laws read
SMALL = {"dim": 8, "num_layers": 2, "num_heads": 2, "attention_window": 3}
"""Options that make a model small, where it has them."""

READ_BEFORE = 5  # tokens that left a `used` state
LEAST_LENGTH = 16  # tokens since a reset that every model must be able to read
WEIGHT_SCALE = 0.4
TOLERANCE = 1e-9  # of two ways to compute the same, in float64
EXACT = 1e-12  # of what must not depend on something at all
HIDDEN_AXES = ("lane", "position", "unit")
STATE_AXES = ("lane",)  # of what follows a model alone knows the meaning


class Broken(AssertionError):
    """A law that does not hold, with the first counterexample in words."""


@dataclass(frozen=True)
class Subject:
    """A model that laws ask, made as often as they want."""

    make: Callable[[], SequenceModel]  # by `prepare`, always with the same weights
    make_with_dropout: Callable[[], SequenceModel] | None  # the same with dropout; None without such an option
    draw: Callable[[int], SequenceModel]  # as build makes it, with weights drawn from a seed


class Law(NamedTuple):
    """One sentence that a model keeps, and how that is checked."""

    name: str
    sentence: str
    promise: Capability  # a model owes it only if it promises all of this
    check: Callable[[Subject], None]  # raises Broken


class Verdict(NamedTuple):
    """What became of one law."""

    law: Law
    status: Literal["holds", "does not hold", "not promised"]
    counterexample: str | None


LAWS: list[Law] = []
"""All laws, in the order in which they are told: what the others rest on comes first."""


def judge(subject: Subject) -> Iterator[Verdict]:
    """What becomes of each law, one by one.

    Args:
        subject: the model.

    Yields:
        The verdicts, in the order of `LAWS`. An error that the model raises breaks the law that met it.
    """
    promised = subject.make().capabilities
    for law in LAWS:
        if law.promise not in promised:
            yield Verdict(law, "not promised", None)
            continue
        try:
            law.check(subject)
        except Broken as broken:
            yield Verdict(law, "does not hold", str(broken))
        except Exception as error:
            yield Verdict(law, "does not hold", _raised(error))
        else:
            yield Verdict(law, "holds", None)


def prepare(model: SequenceModel) -> SequenceModel:
    """The model as laws want it: float64, evaluation mode, and weights so large that a wrong read shows.

    A model whose hidden states are no numbers with such weights keeps its own.
    """
    model = model.double().eval()
    own = {name: value.clone() for name, value in model.state_dict().items()}
    enlarge(model)
    if not _is_finite(model):
        model.load_state_dict(own)
    return model


def enlarge(model: nn.Module) -> None:
    """Draws every weight anew from torch's generator, larger than a first weight would be."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=WEIGHT_SCALE)


def _is_finite(model: SequenceModel) -> bool:
    try:
        with torch.no_grad():
            hidden = model(some_tokens(LANES, READ_BEFORE), starting(model, LANES))[0]
    except Exception:  # a law will meet it again, and tell it
        return True
    return bool(hidden.isfinite().all())


def _raised(error: Exception) -> str:
    """An error in one line, with the place in the model's code where it was raised."""
    words = " ".join(str(error).split())
    here = Path(__file__)
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "torch" not in Path(frame.filename).parts]
    own = [frame for frame in own if Path(frame.filename) != here]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"raises {type(error).__name__}: {words}{place}"


def some_tokens(*shape: int, seed: int = 0, vocab_size: int = VOCAB_SIZE + SPECIALS) -> Int[Tensor, "..."]:
    """Token ids of any shape, drawn evenly."""
    return torch.randint(0, vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def starting(model: SequenceModel, batch: int, *, seed: int = 5) -> State | None:
    """Where reading begins: nothing, or, for a model that needs a source, what sources of uneven lengths left."""
    if Capability.UNCONDITIONAL in model.capabilities:
        return None
    return model.begin(some_tokens(batch, 6, seed=seed), torch.arange(batch) * 2 % 6 + 1)


def used(model: SequenceModel, batch: int = LANES) -> State:
    """A state that some tokens left."""
    return detach(model(some_tokens(batch, READ_BEFORE, seed=9), starting(model, batch))[1])


def beginnings(model: SequenceModel, batch: int = LANES) -> list[tuple[str, State | None]]:
    """Ways to begin, in words and as a state: nothing read; and the source, of a model that needs one."""
    start = starting(model, batch)
    from_source = [] if start is None else [("from a source", start)]
    return [("from state=None", None), ("from initial()", model.initial(batch)), *from_source]


def time_of(model: SequenceModel) -> int:
    """How many tokens laws read at most, after those of a used state."""
    return TIME if model.max_length is None else min(TIME, model.max_length - READ_BEFORE)


def law(sentence: str, promise: Capability = Capability.NONE) -> Callable[[Callable[[Subject], None]], Law]:
    """Makes a function a law of this name and enters it among `LAWS`."""

    def enter(check: Callable[[Subject], None]) -> Law:
        LAWS.append(Law(check.__name__, sentence, promise, check))
        return LAWS[-1]

    return enter


def agree(
    found: Shaped[Tensor, "..."],
    expected: Shaped[Tensor, "..."],
    what: str,
    *,
    tolerance: float = TOLERANCE,
    axes: Sequence[str] = HIDDEN_AXES,
    first_lane: int = 0,
) -> None:
    """Raises Broken, with the first place and the largest difference, unless two tensors agree.

    Args:
        found: what the model gave.
        expected: what it should have given.
        what: the circumstances, in words: the counterexample begins with them.
        tolerance: the largest absolute difference.
        axes: what an index into the tensors counts, axis by axis.
        first_lane: number of the lane that comes first in the tensors.
    """
    if found.shape != expected.shape:
        raise Broken(f"{what}: shape {tuple(found.shape)} instead of {tuple(expected.shape)}")
    if found.dtype != expected.dtype:
        raise Broken(f"{what}: {found.dtype} instead of {expected.dtype}")
    if found.dtype == torch.bool:
        found, expected = found.int(), expected.int()
    far = ~torch.isclose(found, expected, rtol=0.0, atol=tolerance)
    if not far.any():
        return
    first = tuple(far.nonzero()[0].tolist())
    one, two = found[first].item(), expected[first].item()
    largest = (found - expected).abs().max().item()
    raise Broken(
        f"{what}: {_place(first, axes, first_lane)}: {one:.6g} instead of {two:.6g}, off by {abs(one - two):.2g}; "
        f"{int(far.sum())} of {far.numel()} values differ, by {largest:.2g} at most; shape {tuple(found.shape)}"
    )


def agree_in_bits(
    found: Shaped[Tensor, "..."], expected: Shaped[Tensor, "..."], what: str, *, axes: Sequence[str] = HIDDEN_AXES
) -> None:
    """Raises Broken unless two tensors are equal bit for bit."""
    agree(found, expected, what, tolerance=0.0, axes=axes)


def agree_in_state(found: State, expected: State, what: str, *, first_lane: int = 0) -> None:
    """Raises Broken unless two states hold the same."""
    if found.keys() != expected.keys():
        raise Broken(f"{what}: the state holds {sorted(found)} instead of {sorted(expected)}")
    for name, value in expected.items():
        agree(found[name], value, f'{what}: state["{name}"]', axes=STATE_AXES, first_lane=first_lane)


def agree_in_what_follows(
    model: SequenceModel, found: State, expected: State, what: str, *, first_lane: int = 0
) -> None:
    """Raises Broken unless two states mean the same.

    Those of a model that needs a source may hold unequal amounts of padding: they must go on to the same end.
    """
    if Capability.UNCONDITIONAL in model.capabilities:
        agree_in_state(found, expected, what, first_lane=first_lane)
        return
    for name in found.keys() & expected.keys():
        if found[name].shape == expected[name].shape:
            words = f'{what}: state["{name}"]'
            agree(found[name], expected[name], words, axes=STATE_AXES, first_lane=first_lane)
    lanes = len(next(iter(found.values())))
    for length in (1, 2):
        tokens = some_tokens(lanes, length)
        (one, found), (two, expected) = model(tokens, found), model(tokens, expected)
        agree(one, two, f"{what}: hidden states of tokens read after it", first_lane=first_lane)


def _place(index: tuple[int, ...], axes: Sequence[str], first_lane: int = 0) -> str:
    """An index in words: lane 1, position 7, unit 0."""
    names = [*axes[: len(index)], *["index"] * (len(index) - len(axes))]
    numbers = [index[0] + first_lane, *index[1:]] if index else []
    return ", ".join(f"{name} {number}" for name, number in zip(names, numbers, strict=True)) or "its only value"


def nowhere(bad: Bool[Tensor, "..."], what: str, *, axes: Sequence[str] = HIDDEN_AXES) -> None:
    """Raises Broken, with the first place, where a mask is set."""
    if bad.any():
        raise Broken(f"{what} at {_place(tuple(bad.nonzero()[0].tolist()), axes)}; shape {tuple(bad.shape)}")


def _lane(state: State | None, lane: int) -> State | None:
    return None if state is None else select(state, slice(lane, lane + 1))


@law("It promises one direction: CAUSAL or BIDIRECTIONAL, and not both.")
def one_direction(subject: Subject) -> None:
    promised = subject.make().capabilities
    if (Capability.BIDIRECTIONAL in promised) == (Capability.CAUSAL in promised):
        both = "both" if Capability.CAUSAL in promised else "neither"
        raise Broken(f"it promises {both} of CAUSAL and BIDIRECTIONAL")


@law("Hidden states are (B, T, dim), finite, and in the precision of the weights.")
def shape_of_hidden_states(subject: Subject) -> None:
    model = subject.make()
    for batch, width in ((LANES, time_of(model)), (1, 1)):
        hidden = model(some_tokens(batch, width), starting(model, batch))[0]
        what = f"tokens ({batch}, {width}) give hidden states"
        expected = (batch, width, model.dim)
        if tuple(hidden.shape) != expected:
            raise Broken(f"{what} {tuple(hidden.shape)} instead of {expected}, where dim={model.dim}")
        if hidden.dtype != torch.float64:
            raise Broken(f"{what} in {hidden.dtype} from weights in torch.float64")
        nowhere(~hidden.isfinite(), f"{what} that are no numbers")


@law("state=None is the same as initial(B).")
def nothing_read(subject: Subject) -> None:
    model = subject.make()
    tokens = some_tokens(LANES, time_of(model))
    one, two = model(tokens, None)[0], model(tokens, model.initial(LANES))[0]
    agree(one, two, "hidden states from state=None and from initial(3)")


@law("Reading leaves nothing behind in the model: the same tokens give the same bits again.")
def nothing_kept(subject: Subject) -> None:
    model = subject.make()
    tokens, others = some_tokens(LANES, 6), some_tokens(LANES, 4, seed=3)
    for words, state in beginnings(model):
        first = model(tokens, state)[0]
        model(others, state)
        agree_in_bits(model(tokens, state)[0], first, f"read {words}, and again after other tokens were read")


@law("State is a flat dict of tensors, batch first; all zeros before anything is read.", Capability.STATEFUL)
def state_is_flat(subject: Subject) -> None:
    model = subject.make()
    first = model.initial(LANES)
    _check_flat(first, "initial(3)")
    for name, value in first.items():
        nowhere(value != 0, f'initial(3)["{name}"] is not 0', axes=STATE_AXES)
    start = starting(model, LANES)
    if start is not None:
        _check_flat(start, "begin(source)")
    _check_flat(model(some_tokens(LANES, READ_BEFORE), start)[1], "the state after 5 tokens of 3 lanes")


def _check_flat(state: object, what: str) -> None:
    """Raises Broken unless a state of three lanes is a dict of tensors, batch first."""
    if not isinstance(state, dict) or not state:
        raise Broken(f"{what} is {state if isinstance(state, dict) else type(state).__name__}, not a dict of tensors")
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise Broken(f'{what}["{name}"] is of type {type(value).__name__}, not a tensor')
        if value.dim() == 0 or value.shape[0] != LANES:
            raise Broken(f'{what}["{name}"] has shape {tuple(value.shape)}: its first size is not the batch')


@law("The state keeps its shape.", Capability.STATEFUL | Capability.UNCONDITIONAL)
def state_keeps_its_shape(subject: Subject) -> None:
    model = subject.make()
    first = {name: tuple(value.shape) for name, value in model.initial(LANES).items()}
    later = {name: tuple(value.shape) for name, value in used(model).items()}
    if first != later:
        raise Broken(f"initial(3) holds {first}, and after 5 tokens {later}")


@law("The state that is given is not modified, and none is kept.", Capability.STATEFUL)
def state_is_left_alone(subject: Subject) -> None:
    model = subject.make()
    tokens, state = some_tokens(LANES, 5), used(model)
    before = {name: value.clone() for name, value in state.items()}
    first = model(tokens, state)[0]
    for name, value in before.items():
        agree_in_bits(state[name], value, f'state["{name}"] after it was given to be read from', axes=STATE_AXES)
    agree_in_bits(model(tokens, state)[0], first, "read twice from the same state")
    for name, buffer in model.named_buffers():
        if any(torch.equal(buffer, value) for value in state.values()):
            raise Broken(f"the buffer {name} holds the state that was given")


@law("Chunks with carried state equal the whole.", Capability.STATEFUL)
def chunks_equal_the_whole(subject: Subject) -> None:
    model = subject.make()
    tokens = some_tokens(LANES, time_of(model))
    for words, state in beginnings(model):
        expected, after = model(tokens, state)
        for cuts in _ways_to_cut(tokens.shape[1]):
            hidden, final = _in_chunks(model, tokens, cuts, state)
            what = f"{tokens.shape[1]} tokens read {words}, cut at {cuts}"
            agree(hidden, expected, f"{what}: hidden states")
            agree_in_state(final, after, what)


def _ways_to_cut(time: int) -> list[list[int]]:
    """Where chunks may end: once at the borders, everywhere, and at random."""
    generator = random.Random(0)
    every = list(range(1, time))
    return [[1], [time - 1], *(sorted(generator.sample(every, number)) for number in (2, 3, 5, 9)), every]


def _in_chunks(
    model: SequenceModel, tokens: Int[Tensor, "B T"], cuts: list[int], state: State | None
) -> tuple[Float[Tensor, "B T D"], State]:
    """Hidden states and final state of a reading from cut to cut."""
    hidden = []
    after: State = {}
    for begin, end in zip([0, *cuts], [*cuts, tokens.shape[1]], strict=True):
        out, after = model(tokens[:, begin:end], state)
        hidden.append(out)
        state = after
    return torch.cat(hidden, 1), after


@law("Gradients flow through a carried state as through the whole.", Capability.STATEFUL)
def gradients_flow_through_the_state(subject: Subject) -> None:
    model = subject.make()
    tokens = some_tokens(LANES, 12)
    weights = {name: value for name, value in model.named_parameters() if value.requires_grad}

    def gradients(cuts: list[int]) -> tuple[Float[Tensor, "..."], ...]:
        last = _in_chunks(model, tokens, cuts, starting(model, LANES))[0][:, -1]
        loss = (last * torch.linspace(-1.0, 1.0, last.numel(), dtype=last.dtype).view_as(last)).sum()
        return torch.autograd.grad(loss, list(weights.values()), allow_unused=True, materialize_grads=True)

    for name, whole, cut in zip(weights, gradients([]), gradients([7, 11]), strict=True):
        agree(cut, whole, f"gradient of {name}, for the last of 12 tokens, cut at [7, 11]", axes=())


@law("A hidden state depends on its own token, and on no later one.", Capability.CAUSAL)
def no_token_sees_a_later_one(subject: Subject) -> None:
    model = subject.make()
    tokens = some_tokens(LANES, time_of(model))
    states = beginnings(model)
    if Capability.STATEFUL in model.capabilities:
        states.append(("after 5 tokens", used(model)))
    for words, state in states:
        before = model(tokens, state)[0]
        for place in (1, 7, tokens.shape[1] - 1):
            other = tokens.clone()
            other[:, place:] = (other[:, place:] + 1) % (VOCAB_SIZE + SPECIALS)
            changed = model(other, state)[0]
            what = f"read {words}, other tokens from position {place} on: earlier hidden states"
            agree(changed[:, :place], before[:, :place], what, tolerance=EXACT)
            same = (changed[:, place] == before[:, place]).all(-1)  # (B,)
            nowhere(same, f"read {words}: another token at position {place} gives the same hidden state")


@law("Every hidden state depends on every token.", Capability.BIDIRECTIONAL)
def every_token_sees_every_other(subject: Subject) -> None:
    model = subject.make()
    width = 6
    for place in range(width):
        tokens = some_tokens(1, width).repeat(VOCAB_SIZE + SPECIALS, 1)
        tokens[:, place] = torch.arange(len(tokens))  # each lane has another token there
        hidden = model(tokens, starting(model, len(tokens)))[0]
        change = (hidden - hidden[:1]).abs().amax((0, 2))  # (T,)
        for blind in (change <= EXACT).nonzero().flatten().tolist():
            raise Broken(
                f"tokens (1, {width}): whatever token stands at position {place}, position {blind} is the same"
            )


@law("Lanes are read independently of each other, in any order.")
def lanes_are_independent(subject: Subject) -> None:
    model = subject.make()
    tokens, order = some_tokens(LANES, 6), torch.tensor([2, 0, 2, 1])
    states = beginnings(model)
    if Capability.STATEFUL in model.capabilities:
        states.append(("after 5 tokens", used(model)))
    for words, state in states:
        hidden, after = model(tokens, state)
        mixed, later = model(tokens[order], None if state is None else select(state, order))
        what = f"3 lanes of 6 tokens read {words}, selected as lanes [2, 0, 2, 1]"
        agree(mixed, hidden[order], f"{what}: hidden states")
        agree_in_state(later, select(after, order), what)


@law("Right padding changes no hidden state.")
def padding_changes_nothing(subject: Subject) -> None:
    for model, tokens, words, state, lengths in _padded(subject):
        hidden = model(tokens, state, torch.tensor(lengths))[0]
        expected = (*tokens.shape, model.dim)
        if tuple(hidden.shape) != expected:
            raise Broken(f"{words}, lengths {lengths}: hidden states {tuple(hidden.shape)} instead of {expected}")
        for lane, length in enumerate(lengths):
            if length:
                alone = model(tokens[lane : lane + 1, :length], _lane(state, lane))[0]
                what = f"{words}, lengths {lengths}, beside each lane read alone"
                agree(hidden[lane : lane + 1, :length], alone, what, first_lane=lane)


@law("With `lengths`, the state is that after each lane's own tokens.", Capability.STATEFUL)
def state_is_that_after_lengths(subject: Subject) -> None:
    for model, tokens, words, state, lengths in _padded(subject):
        after = model(tokens, state, torch.tensor(lengths))[1]
        for lane, length in enumerate(lengths):
            before = _lane(state, lane) or model.initial(1)
            left = model(tokens[lane : lane + 1, :length], before)[1] if length else before
            what = f"{words}, lengths {lengths}, beside each lane read alone"
            agree_in_what_follows(model, select(after, slice(lane, lane + 1)), left, what, first_lane=lane)


def _padded(subject: Subject) -> Iterator[tuple[SequenceModel, Int[Tensor, "B T"], str, State | None, list[int]]]:
    """Right-padded readings: model, tokens, from where in words and as a state, and lengths; 0 only with a state."""
    model = subject.make()
    time = time_of(model)
    tokens = some_tokens(5, time)
    uneven = [7, 0, time - 3, 1, 7], [time, 3, 8, 1, 5]
    if Capability.STATEFUL not in model.capabilities:
        yield model, tokens, f"5 lanes of {time} tokens read from state=None", None, uneven[1]
        return
    for words, state in [*beginnings(model, 5), ("after 5 tokens", used(model, 5))]:
        for lengths in uneven:
            yield model, tokens, f"5 lanes of {time} tokens read {words}", state, lengths


@law("Lanes that are all empty leave the state as it was.", Capability.STATEFUL)
def empty_lanes_leave_the_state(subject: Subject) -> None:
    model = subject.make()
    state = used(model)
    hidden, after = model(some_tokens(LANES, 4), state, torch.zeros(LANES, dtype=torch.long))
    if tuple(hidden.shape) != (LANES, 4, model.dim):
        raise Broken(f"lengths [0, 0, 0]: hidden states {tuple(hidden.shape)} instead of {(LANES, 4, model.dim)}")
    agree_in_what_follows(model, after, state, "lengths [0, 0, 0]")


@law("A lane that is reset begins anew, and the others go on bit for bit.", Capability.STATEFUL)
def reset_is_of_one_lane(subject: Subject) -> None:
    model = subject.make()
    tokens, state, starts = some_tokens(LANES, 6), used(model), torch.tensor([False, True, False])
    going_on, fresh = model(tokens, state)[0], model(tokens, model.initial(LANES))[0]
    hidden = model(tokens, reset(state, starts))[0]
    agree_in_bits(torch.where(starts.view(-1, 1, 1), going_on, hidden), going_on, "lane 1 of 3 was reset: the others")
    _agree_with_fresh(model, hidden[starts], fresh[starts], "lane 1 of 3 was reset, beside a new one", first_lane=1)
    if torch.equal(going_on[starts], fresh[starts]):
        raise Broken("lane 1: after 5 tokens the model reads on as if it had read nothing: its state does nothing")


@law("A reset makes good a state that is no number.", Capability.STATEFUL)
def reset_survives_nan(subject: Subject) -> None:
    model = subject.make()
    tokens = some_tokens(LANES, 6)
    state = used(model)
    for name, value in state.items():
        if value.is_floating_point():
            state[name] = torch.full_like(value, torch.nan)
    hidden = model(tokens, reset(state, torch.ones(LANES, dtype=torch.bool)))[0]
    fresh = model(tokens, model.initial(LANES))[0]
    _agree_with_fresh(model, hidden, fresh, "all lanes reset from a state of NaN")


def _agree_with_fresh(
    model: SequenceModel,
    hidden: Float[Tensor, "B T D"],
    fresh: Float[Tensor, "B T D"],
    what: str,
    first_lane: int = 0,
) -> None:
    """Equal bit for bit; near, where the state of nothing may have another shape than one that was reset."""
    exactly = Capability.UNCONDITIONAL in model.capabilities
    agree(hidden, fresh, what, tolerance=0.0 if exactly else TOLERANCE, first_lane=first_lane)


@law(
    "begin(source) goes on from the source as from a prefix.",
    Capability.CONDITIONAL | Capability.UNCONDITIONAL,
)
def source_is_a_prefix(subject: Subject) -> None:
    model = subject.make()
    tokens = some_tokens(LANES, 12)
    whole = model(tokens)[0]
    hidden = model(tokens[:, 8:], model.begin(tokens[:, :8]))[0]
    agree(hidden, whole[:, 8:], "4 tokens after a source of 8, beside all 12 read at once")


@law("Another source leads to other hidden states.", Capability.CONDITIONAL)
def source_matters(subject: Subject) -> None:
    model = subject.make()
    source, tokens = some_tokens(LANES, 8), some_tokens(LANES, 4, seed=1)
    one = model(tokens, model.begin(source))[0]
    two = model(tokens, model.begin((source + 1) % (VOCAB_SIZE + SPECIALS)))[0]
    nowhere((one == two).all(-1), "two sources (3, 8) that differ everywhere give the same hidden state")


@law("Padding of a source changes nothing, and an empty source is the beginning.", Capability.CONDITIONAL)
def source_is_read_by_its_length(subject: Subject) -> None:
    model = subject.make()
    source, tokens = some_tokens(5, 9), some_tokens(5, 4, seed=1)
    for lengths in ([7, 0, 9, 1, 7], [4, 3, 2, 1, 5]):
        state = model.begin(source, torch.tensor(lengths))
        hidden = model(tokens, state)[0]
        for lane, length in enumerate(lengths):
            own = slice(lane, lane + 1)
            alone = model.begin(source[own, :length]) if length else model.initial(1)
            what = f"sources (5, 9) of lengths {lengths}, beside each source read alone"
            agree(hidden[own], model(tokens[own], alone)[0], f"{what}: 4 tokens after it", first_lane=lane)
            agree_in_what_follows(model, select(state, own), alone, what, first_lane=lane)


@law("Every weight that is trained takes part in the hidden states.")
def every_weight_takes_part(subject: Subject) -> None:
    model = subject.make()
    model(some_tokens(LANES, time_of(model)), starting(model, LANES))[0].sum().backward()
    idle = [name for name, value in model.named_parameters() if value.requires_grad and value.grad is None]
    if idle:
        raise Broken(f"no gradient reaches {', '.join(idle)}")


@law("First weights are a function of the seed alone.")
def first_weights_follow_the_seed(subject: Subject) -> None:
    def drawn(seed: int) -> Float[Tensor, " N"]:
        return torch.cat([weight.detach().flatten() for weight in subject.draw(seed).parameters()])

    first = drawn(1)
    torch.rand(5)
    if not torch.equal(drawn(1), first):
        raise Broken("made twice with seed 1, it has other weights the second time")
    if torch.equal(drawn(2), first):
        raise Broken("made with seeds 1 and 2, it has the same weights")


@law("Chance, such as dropout, acts in training only, and follows torch's seed.")
def chance_acts_in_training_only(subject: Subject) -> None:
    model = subject.make() if subject.make_with_dropout is None else subject.make_with_dropout()
    tokens = some_tokens(LANES, 6)

    def read(model: SequenceModel, seed: int) -> Float[Tensor, "B T D"]:
        torch.manual_seed(seed)
        return model(tokens, starting(model, LANES))[0]

    agree_in_bits(read(model, 1), read(subject.make(), 2), "in evaluation, with dropout and without")
    model.train()
    agree_in_bits(read(model, 1), read(model, 1), "in training, read twice with one seed")
    if subject.make_with_dropout is not None and torch.equal(read(model, 1), read(model, 2)):
        raise Broken("in training with dropout=0.5, two seeds give the same hidden states")


@law("Under autocast the state keeps the precision of the weights.", Capability.STATEFUL)
def state_keeps_its_precision(subject: Subject) -> None:
    model = subject.make().float()
    tokens = some_tokens(LANES, 6)
    with torch.autocast("cpu", torch.bfloat16):
        state = starting(model, LANES) or model.initial(LANES)
        for reading in ("first", "second"):
            hidden, state = model(tokens, state)
            nowhere(~hidden.isfinite(), f"the {reading} chunk of 6 tokens in bfloat16: hidden states are no numbers")
            for name, value in state.items():
                if value.is_floating_point() and value.dtype != torch.float32:
                    raise Broken(
                        f'state["{name}"] is {value.dtype} after the {reading} chunk, with torch.float32 weights'
                    )
