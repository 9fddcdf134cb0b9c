"""Laws of hidden states: their form, and the inputs that they depend on."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqtrain.models.base import Capability, SequenceModel, State, detach, last_hidden, select
from seqtrain.models.laws.agreement import EXACT, Broken, agree, agree_in_bits, agree_in_state, nowhere
from seqtrain.models.laws.subject import (
    LANES,
    SPECIALS,
    VOCAB_SIZE,
    Subject,
    beginnings,
    lane_of,
    law,
    num_tokens,
    other_tokens,
    some_tokens,
    starting,
    states_to_read_from,
)
from seqtrain.models.layers.front_ends import TokenEmbedding

LONG_TIME = 300  # tokens: exceeds a table of positions that is too short, or a window that forgets


@law("The model promises one direction: either CAUSAL or BIDIRECTIONAL.")
def one_direction(subject: Subject) -> None:
    """Check that the model promises exactly one of CAUSAL and BIDIRECTIONAL."""
    promised = subject.make().capabilities
    if (Capability.BIDIRECTIONAL in promised) == (Capability.CAUSAL in promised):
        both = "both" if Capability.CAUSAL in promised else "neither"
        raise Broken(f"the model promises {both} of CAUSAL and BIDIRECTIONAL")


@law("Hidden states are (B, T, dim), finite, and in the precision of the weights.")
def shape_of_hidden_states(subject: Subject) -> None:
    """Check shape, precision and finiteness of the hidden states, also for one token of one lane."""
    model = subject.make()
    # One token of one lane reveals a `squeeze` too many.
    for batch, width in ((LANES, num_tokens(model)), (1, 1)):
        hidden = model(some_tokens(batch, width), starting(model, batch))[0]
        what = f"tokens ({batch}, {width}) give hidden states"
        expected = (batch, width, model.dim)
        if tuple(hidden.shape) != expected:
            raise Broken(f"{what} {tuple(hidden.shape)} instead of {expected}, where dim={model.dim}")
        if hidden.dtype != torch.float64:
            raise Broken(f"{what} in {hidden.dtype} from weights in torch.float64")
        nowhere(~hidden.isfinite(), f"{what} that are not finite")


@law("state=None is the same as initial(B).")
def nothing_read(subject: Subject) -> None:
    """Compare readings from state=None and from initial(B)."""
    model = subject.make()
    tokens = some_tokens(LANES, num_tokens(model))
    from_none = model(tokens, None)[0]
    from_initial = model(tokens, model.initial(LANES))[0]
    agree(from_none, from_initial, "hidden states from state=None and from initial(3)")


@law("`encode` gives the same hidden states as `forward` at real positions.", Capability.UNCONDITIONAL)
def encoding_is_reading(subject: Subject) -> None:
    """Compare `encode` with `forward` at the real positions of each lane."""
    model = subject.make()
    tokens = some_tokens(LANES, num_tokens(model))
    lengths = torch.tensor([1, 3, num_tokens(model)])
    encoded, hidden = model.encode(tokens, lengths), model(tokens, None, lengths)[0]
    for lane, length in enumerate(lengths.tolist()):
        what = f"{length} of {tokens.shape[1]} tokens are real: `encode` of lane {lane}"
        agree(encoded[lane, :length], hidden[lane, :length], what, axes=("position", "unit"), tolerance=EXACT)


@law("`last` gives the same last hidden state as `forward`.", Capability.UNCONDITIONAL)
def last_is_the_last(subject: Subject) -> None:
    """Compare `last` with the last hidden state of `forward`, for one, three and many tokens."""
    model = subject.make()
    # From a single token, which has no token before it, to more tokens than a small window holds.
    for width in (1, 3, num_tokens(model)):
        tokens = some_tokens(LANES, width)
        agree(last_hidden(model, tokens), model(tokens)[0][:, -1:], f"{width} tokens read: `last`", tolerance=EXACT)


@law("Reading does not change the model: the same tokens give the same bits again.")
def nothing_kept(subject: Subject) -> None:
    """Read the same tokens twice, with other tokens between; the bits must be equal."""
    model = subject.make()
    tokens, others = some_tokens(LANES, 6), some_tokens(LANES, 4, seed=3)
    for words, state in beginnings(model):
        first = model(tokens, state)[0]
        model(others, state)  # a model that kept something of these would read the next tokens differently
        agree_in_bits(model(tokens, state)[0], first, f"read {words}, and again after other tokens were read")


@law("A hidden state depends on its own token, and on no later one.", Capability.CAUSAL)
def no_token_sees_a_later_one(subject: Subject) -> None:
    """Change the tokens from a position on: earlier hidden states must not change, the one at the position must."""
    model = subject.make()
    tokens = some_tokens(LANES, num_tokens(model))
    for words, state in states_to_read_from(model):
        before = model(tokens, state)[0]
        for place in (1, 7, tokens.shape[1] - 1):
            other = torch.cat([tokens[:, :place], other_tokens(tokens[:, place:])], 1)
            changed = model(other, state)[0]
            what = f"read {words}, tokens changed from position {place} on: earlier hidden states"
            agree(changed[:, :place], before[:, :place], what, tolerance=EXACT)
            same = (changed[:, place] == before[:, place]).all(-1)  # (B,)
            nowhere(same, f"read {words}: another token at position {place} gives the same hidden state")


@law("Every hidden state depends on every token.", Capability.BIDIRECTIONAL)
def every_token_sees_every_other(subject: Subject) -> None:
    """Change one token at a time; every hidden state must change."""
    model = subject.make()
    width = 6  # few, because a convolution sees no further than its kernel reaches
    for place in range(width):
        tokens = some_tokens(1, width).repeat(VOCAB_SIZE + SPECIALS, 1)
        tokens[:, place] = torch.arange(len(tokens))  # lanes differ only in this token
        hidden = model(tokens, starting(model, len(tokens)))[0]
        change = (hidden - hidden[:1]).abs().amax((0, 2))  # (T,)
        same = (change <= EXACT).nonzero().flatten().tolist()
        if same:
            raise Broken(f"tokens (1, {width}): hidden state {same[0]} is the same for every token at position {place}")


@law("A gradient reaches the first input from the last hidden state that depends on it.")
def gradient_reaches_the_first_input(subject: Subject) -> None:
    """Check that the last hidden state that depends on the first token gives it a gradient."""
    model = subject.make()
    # Checked for a frozen front end too: the model does not decide whether it is trained.
    fronts = [module.weight.requires_grad_() for module in model.modules() if isinstance(module, TokenEmbedding)]
    tokens = 1 + some_tokens(LANES, num_tokens(model), vocab_size=VOCAB_SIZE + SPECIALS - 1)
    # Token 0 is only at the beginning, so only the first input gives its row of the front end a gradient.
    tokens[:, 0] = 0
    start = starting(model, LANES)
    state = None if start is None else detach(start)  # a source may hold token 0 too
    hidden = model(tokens, state)[0]
    changed = model(torch.cat([other_tokens(tokens[:, :1]), tokens[:, 1:]], 1), state)[0]
    # A window or a kernel may end before the last position: only a state that depends on the first token is checked.
    depends = ((changed - hidden).abs().amax((0, 2)) > EXACT).nonzero().flatten().tolist()
    if not depends or not fronts:
        return
    last = hidden[:, depends[-1]]
    # A separate weight for each unit: the plain sum of a layer norm's output has no gradient.
    loss = (last * torch.linspace(-1.0, 1.0, last.numel(), dtype=last.dtype).view_as(last)).sum()
    gradients = torch.autograd.grad(loss, fronts, allow_unused=True, materialize_grads=True)
    if not any(gradient[0].any() for gradient in gradients):
        raise Broken(
            f"{tokens.shape[1]} tokens: the hidden state of position {depends[-1]} depends on the token at position 0, "
            "but gives it no gradient"
        )


@law("Lanes are read independently of each other, in any order.")
def lanes_are_independent(subject: Subject) -> None:
    """Select lanes in another order, one of them twice; hidden states and states must be selected alike."""
    model = subject.make()
    tokens = some_tokens(LANES, 6)
    order = torch.tensor([2, 0, 2, 1])  # one of them twice: no result may depend on a lane's index
    for words, state in states_to_read_from(model):
        hidden, after = model(tokens, state)
        state = None if state is None else select(state, order)
        mixed, later = model(tokens[order], state)
        what = f"3 lanes of 6 tokens read {words}, selected as lanes [2, 0, 2, 1]"
        agree(mixed, hidden[order], f"{what}: hidden states")
        agree_in_state(later, select(after, order), what)


@law("Right padding changes no hidden state.")
def padding_changes_nothing(subject: Subject) -> None:
    """Compare each lane of a padded batch with the lane read alone."""
    for model, tokens, words, state, lengths in padded_readings(subject):
        hidden = model(tokens, state, torch.tensor(lengths))[0]
        expected = (*tokens.shape, model.dim)
        if tuple(hidden.shape) != expected:
            raise Broken(f"{words}, lengths {lengths}: hidden states {tuple(hidden.shape)} instead of {expected}")
        for lane, length in enumerate(lengths):
            if length:  # an empty lane has hidden states only at padding, where they are arbitrary
                alone = model(tokens[lane : lane + 1, :length], lane_of(state, lane))[0]
                what = f"{words}, lengths {lengths}, compared with each lane read alone"
                agree(hidden[lane : lane + 1, :length], alone, what, first_lane=lane)


@law("A long text is read like a short one.")
def long_texts_are_read(subject: Subject) -> None:
    """Read `LONG_TIME` tokens at once and cut in two; check shape, finiteness and agreement."""
    # With initial weights, which are small: large ones would amplify rounding errors over hundreds of steps.
    model = subject.draw(0).double().eval()
    time = LONG_TIME if model.max_length is None else min(LONG_TIME, model.max_length)
    tokens, start = some_tokens(LANES, time), starting(model, LANES)
    hidden = model(tokens, start)[0]
    if tuple(hidden.shape) != (LANES, time, model.dim):
        raise Broken(f"{time} tokens give hidden states {tuple(hidden.shape)}")
    nowhere(~hidden.isfinite(), f"{time} tokens give hidden states that are not finite")
    middle = time * 2 // 3
    first, state = model(tokens[:, :middle], start)
    if Capability.CAUSAL in model.capabilities:
        agree(first, hidden[:, :middle], f"the first {middle} of {time} tokens, read without the others")
    if Capability.STATEFUL in model.capabilities:
        last = model(tokens[:, middle:], state)[0]
        agree(last, hidden[:, middle:], f"{time} tokens cut at {middle}: hidden states after the cut")


Padded = tuple[SequenceModel, Int[Tensor, "B T"], str, State | None, list[int]]
"""A model, the tokens that it reads, a description of the reading, the start state, and the lengths of the lanes."""


def padded_readings(subject: Subject) -> Iterator[Padded]:
    """Yield right-padded readings, with lengths of 0 only for a model with state: an empty lane leaves it unchanged."""
    model = subject.make()
    time = num_tokens(model)
    tokens = some_tokens(5, time)
    # First with an empty lane, two lanes of equal length and no full one; then with a full lane.
    uneven = [7, 0, time - 3, 1, 7], [time, 3, 8, 1, 5]
    if Capability.STATEFUL not in model.capabilities:
        yield model, tokens, f"5 lanes of {time} tokens read from state=None", None, uneven[1]
        return
    for words, state in states_to_read_from(model, 5):
        for lengths in uneven:
            yield model, tokens, f"5 lanes of {time} tokens read {words}", state, lengths


@law("Every trainable weight influences the hidden states.")
def every_weight_takes_part(subject: Subject) -> None:
    """Check that each trainable weight gets a gradient from the sum of the hidden states."""
    model = subject.make()
    model(some_tokens(LANES, num_tokens(model)), starting(model, LANES))[0].sum().backward()
    # DistributedDataParallel fails at the second step if a weight got no gradient in the first.
    idle = [name for name, value in model.named_parameters() if value.requires_grad and value.grad is None]
    if idle:
        raise Broken(f"no gradient reaches {', '.join(idle)}")


@law("Initial weights depend on the seed alone.")
def first_weights_follow_the_seed(subject: Subject) -> None:
    """Draw initial weights twice with one seed and once with another; compare them."""

    def drawn(seed: int) -> Float[Tensor, " N"]:
        return torch.cat([weight.detach().flatten() for weight in subject.draw(seed).parameters()])

    first = drawn(1)
    torch.rand(5)  # advances torch's generator: weights drawn from it without a seed would differ now
    if not torch.equal(drawn(1), first):
        raise Broken("created twice with seed 1, the model has different weights the second time")
    if torch.equal(drawn(2), first):
        raise Broken("created with seeds 1 and 2, the model has the same weights")


@law("Randomness, such as dropout, acts in training only, and follows torch's seed.")
def chance_acts_in_training_only(subject: Subject) -> None:
    """Compare readings in evaluation and in training, with equal and with different seeds."""
    model = subject.make() if subject.make_with_dropout is None else subject.make_with_dropout()
    tokens = some_tokens(LANES, 6)

    def read(model: SequenceModel, seed: int) -> Float[Tensor, "B T D"]:
        torch.manual_seed(seed)
        return model(tokens, starting(model, LANES))[0]

    agree_in_bits(read(model, 1), read(subject.make(), 2), "in evaluation, with dropout and without")
    model.train()
    # Only torch's generators may be used: a resumed run restores no others.
    agree_in_bits(read(model, 1), read(model, 1), "in training, read twice with one seed")
    if subject.make_with_dropout is not None and torch.equal(read(model, 1), read(model, 2)):
        raise Broken("in training with dropout=0.5, two seeds give the same hidden states")
