"""Each law of the contract is seen to fail, for its own reason, on a model that breaks it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models import contract
from seqtrain.models.base import Capability, SequenceModel, State, read_by_length
from seqtrain.models.contract import LAWS, Broken, Subject, judge, prepare, verdict_of
from seqtrain.models.laws.agreement import agree
from seqtrain.models.layers.front_ends import TokenEmbedding

DIM = 8


class Sound(SequenceModel):
    """An Elman network without anything that could go wrong."""

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL

    def __init__(self, *, embed: nn.Module, dim: int, dropout: float) -> None:
        super().__init__()
        self.embed, self.dim = embed, dim
        self.over = nn.Linear(dim, dim)
        self.dropout = nn.Dropout(dropout)

    def initial(self, batch: int) -> State:
        return {"hidden": self.over.weight.new_zeros(batch, self.dim)}

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        state = self.initial(len(tokens)) if state is None else state
        return self.read(tokens, state) if lengths is None else read_by_length(self.read, tokens, state, lengths)

    def read(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        hidden = state["hidden"]
        steps = []
        for x in self.dropout(self.embed(tokens)).unbind(1):
            hidden = (self.over(hidden) + x).tanh()
            steps.append(hidden)
        return torch.stack(steps, 1), {"hidden": hidden.to(state["hidden"].dtype)}

    def flops_per_token(self, length: int, carried: bool) -> float:
        return 2.0 * self.dim**2


class Bag(Sound):
    """Every hidden state is the mean of all tokens."""

    capabilities = Capability.BIDIRECTIONAL | Capability.UNCONDITIONAL

    def initial(self, batch: int) -> State:
        return {}

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        x = self.dropout(self.over(self.embed(tokens)))
        ends = torch.full((len(x),), x.shape[1]) if lengths is None else lengths
        real = (torch.arange(x.shape[1]) < ends.unsqueeze(1)).unsqueeze(-1)
        return ((x * real).sum(1) / ends.unsqueeze(1)).unsqueeze(1).expand_as(x), {}


BROKEN: list[tuple[str, type[SequenceModel], str]] = []
"""Law, model, and what its counterexample says."""


def breaks(law: str, words: str) -> Callable[[type[SequenceModel]], type[SequenceModel]]:
    """Enters a model among the broken ones."""

    def enter(model: type[SequenceModel]) -> type[SequenceModel]:
        BROKEN.append((law, model, words))
        return model

    return enter


@breaks("long_texts_are_read", "300 tokens cut at 200: hidden states after the cut: lane 0, position 55, unit 0")
class LooksFarFromTheStart(Sound):
    """Beyond a place of its reading, not of the text, all is halved."""

    def read(self, tokens, state):
        hidden, after = super().read(tokens, state)
        return torch.cat([hidden[:, :255], hidden[:, 255:] / 2], 1), after


@breaks("one_direction", "promises both of CAUSAL and BIDIRECTIONAL")
class BothWays(Sound):
    capabilities = Sound.capabilities | Capability.BIDIRECTIONAL


@breaks("encoding_is_reading", "3 of 24 tokens are real: `encode` of lane 1: position 0, unit 0")
class EncodesBackwards(Sound):
    def encode(self, source, lengths=None):
        return super().encode(source.flip(1), lengths)


@breaks("last_is_the_last", "3 tokens read: `last`: lane 0, position 0, unit 0")
class FirstForLast(Sound):
    def last(self, tokens):
        return self(tokens)[0][:, :1]


@breaks("one_direction", "promises neither")
class NoWay(Sound):
    capabilities = Capability.UNCONDITIONAL


@breaks("shape_of_hidden_states", r"\(3, 24, 7\) instead of \(3, 24, 8\), where dim=8")
class Narrow(Sound):
    def read(self, tokens, state):
        hidden, state = super().read(tokens, state)
        return hidden[..., 1:], state


@breaks("shape_of_hidden_states", r"in torch.float32 from weights in torch.float64")
class Coarse(Sound):
    def read(self, tokens, state):
        hidden, state = super().read(tokens, state)
        return hidden.float(), state


@breaks("shape_of_hidden_states", r"not finite at lane 0, position 0, unit 0")
class Endless(Sound):
    def read(self, tokens, state):
        hidden, state = super().read(tokens, state)
        return hidden / 0, state


@breaks("nothing_read", r"state=None and from initial\(3\): lane 0, position 0, unit 0: .* shape \(3, 24, 8\)")
class NothingIsOne(Sound):
    def forward(self, tokens, state=None, lengths=None):
        return super().forward(tokens, {"hidden": self.initial(len(tokens))["hidden"] + 1} if state is None else state)


@breaks("nothing_kept", "read from state=None, and again after other tokens were read: lane 0, position 0")
class Keeper(Sound):
    kept: State | None = None

    def forward(self, tokens, state=None, lengths=None):
        hidden, self.kept = super().forward(tokens, self.kept if state is None else state, lengths)
        return hidden, self.kept


@breaks("state_is_flat", r'initial\(3\)\["layers"\] is of type dict, not a tensor')
class Nested(Sound):
    def initial(self, batch):
        return {"layers": super().initial(batch)}

    def read(self, tokens, state):
        hidden, after = super().read(tokens, state["layers"])
        return hidden, {"layers": after}


@breaks("state_is_flat", r"initial\(3\) is tuple, not a dict of tensors")
class Pair(Sound):
    def initial(self, batch):
        return (super().initial(batch)["hidden"],)


@breaks("state_is_flat", r'"hidden"\] has shape \(1, 3, 8\): its first dimension is not the batch')
class LayersFirst(Sound):
    def initial(self, batch):
        return {"hidden": super().initial(batch)["hidden"].unsqueeze(0)}

    def read(self, tokens, state):
        hidden, after = super().read(tokens, {"hidden": state["hidden"][0]})
        return hidden, {"hidden": after["hidden"].unsqueeze(0)}


@breaks("state_is_flat", r'initial\(3\)\["hidden"\] is not 0 at lane 0, index 0')
class BeginsAtOne(Sound):
    def initial(self, batch):
        return {"hidden": super().initial(batch)["hidden"] + 1}


class Remembers(Sound):
    """Attends to all that it has read, and does not mask what was reset."""

    def initial(self, batch):
        return {"read": self.over.weight.new_zeros(batch, 0, self.dim)}

    def read(self, tokens, state):
        x = self.over(self.dropout(self.embed(tokens)))
        seen = torch.cat([state["read"], x], 1)
        before = state["read"].shape[1]
        means = [seen[:, : before + end].softmax(1).mean(1) + x[:, end - 1] for end in range(1, x.shape[1] + 1)]
        return torch.stack(means, 1), {"read": seen}


@breaks(
    "state_keeps_its_shape", r"initial\(3\) holds \{'read': \(3, 0, 8\)\}, and after 5 tokens \{'read': \(3, 5, 8\)\}"
)
class Grows(Remembers):
    pass


@breaks("reset_survives_nan", "all lanes reset from a state of NaN: lane 0, position 0, unit 0")
class ZerosCount(Remembers):
    pass


@breaks("state_is_left_alone", r'state\["hidden"\] after a reading from it: lane 0, index 0')
class InPlace(Sound):
    def read(self, tokens, state):
        hidden, after = super().read(tokens, state)
        return hidden, {"hidden": state["hidden"].copy_(after["hidden"].detach())}


@breaks("state_is_left_alone", "the buffer kept holds the given state")
class Buffered(Sound):
    def __init__(self, **options):
        super().__init__(**options)
        self.register_buffer("kept", torch.zeros(1))

    def read(self, tokens, state):
        self.kept = state["hidden"]
        return super().read(tokens, state)


@breaks("chunks_equal_the_whole", r"24 tokens read from state=None, cut at \[1\]: hidden states: lane 0, position 1")
class Forgets(Sound):
    def read(self, tokens, state):
        hidden, after = super().read(tokens, state)
        return hidden, {"hidden": after["hidden"] * 0.99}


@breaks(
    "gradients_flow_through_the_state", r"gradient of embed.weight, .* cut at \[7, 11\]: index 0, index 0: 0 instead of"
)
class Detaches(Sound):
    def read(self, tokens, state):
        hidden, after = super().read(tokens, state)
        return hidden, {"hidden": after["hidden"].detach()}


@breaks(
    "gradient_reaches_the_first_input",
    "24 tokens: the hidden state of position 23 depends on the token at position 0, but gives it no gradient",
)
class DetachesEachStep(Sound):
    def read(self, tokens, state):
        hidden = state["hidden"]
        steps = []
        for x in self.dropout(self.embed(tokens)).unbind(1):
            hidden = (self.over(hidden.detach()) + x).tanh()
            steps.append(hidden)
        return torch.stack(steps, 1), {"hidden": hidden}


@breaks("gradient_reaches_the_first_input", "the hidden state of position 6 depends on the token at position 0")
class DetachesFarTokens(Sound):
    """Sees the six tokens before each, and learns from the nearest three of them."""

    def read(self, tokens, state):
        x = self.over(self.embed(tokens))
        hidden = x
        for distance in range(1, 7):
            far = F.pad(x, (0, 0, distance, 0))[:, : x.shape[1]]
            hidden = hidden + (far if distance < 4 else far.detach()) / distance
        return hidden, state


@breaks(
    "no_token_sees_a_later_one", "tokens changed from position 1 on: earlier hidden states: lane 0, position 0, unit 0"
)
class Peeks(Sound):
    def read(self, tokens, state):
        hidden, after = super().read(tokens, state)
        return hidden + 1e-6 * hidden.roll(-1, 1), after


@breaks("no_token_sees_a_later_one", "another token at position 1 gives the same hidden state at lane 0")
class Lags(Sound):
    def read(self, tokens, state):
        hidden, after = super().read(tokens, state)
        return torch.cat([state["hidden"].unsqueeze(1), hidden[:, :-1]], 1), after


@breaks("every_token_sees_every_other", "hidden state 0 is the same for every token at position 1")
class OneWay(Sound):
    capabilities = Capability.BIDIRECTIONAL | Capability.UNCONDITIONAL


class Apart(Sound):
    """A sum over what was read, forwards in one half of the units and backwards in the other."""

    capabilities = Capability.BIDIRECTIONAL | Capability.UNCONDITIONAL | Capability.SEPARABLE

    def initial(self, batch):
        return {}

    def forward(self, tokens, state=None, lengths=None):
        return torch.cat(self.directions(tokens, lengths), -1), {}

    def directions(self, tokens, lengths=None):
        there, back = self.over(self.embed(tokens)).tanh().chunk(2, -1)
        ends = torch.full((len(tokens),), tokens.shape[1]) if lengths is None else lengths
        real = (torch.arange(tokens.shape[1]) < ends.unsqueeze(1)).unsqueeze(-1)
        return there.cumsum(1), (back * real).flip(1).cumsum(1).flip(1)


@breaks("directions_are_halves", r"forward hidden states are \(3, 24, 8\) instead of \(3, 24, 4\)")
class WholeDirections(Apart):
    def directions(self, tokens, lengths=None):
        there, back = super().directions(tokens, lengths)
        return torch.cat([there, there], -1), torch.cat([back, back], -1)


@breaks("directions_see_one_side", "forward, tokens changed from position 1 on: hidden states read before it: lane 0")
class ForwardLooksAhead(Apart):
    def directions(self, tokens, lengths=None):
        there, back = super().directions(tokens, lengths)
        return there + back, back


@breaks("directions_see_one_side", "backward, tokens changed from position 1 on: hidden states read before it: lane 0")
class BackwardLooksBack(Apart):
    def directions(self, tokens, lengths=None):
        there, back = super().directions(tokens, lengths)
        return there, back + there


@breaks("directions_see_one_side", "backward: another token at position 1 gives the same hidden state at lane 0")
class BackwardLags(Apart):
    def directions(self, tokens, lengths=None):
        there, back = super().directions(tokens, lengths)
        return there, F.pad(back, (0, 0, 0, 1))[:, 1:]


@breaks("directions_without_padding", "backward, compared with each lane read alone: lane 1, position 0, unit 0")
class DirectionsReadPadding(Apart):
    def directions(self, tokens, lengths=None):
        return super().directions(tokens)


@breaks("directions_reach_every_weight", "no gradient reaches extra")
class IdleWeight(Apart):
    def __init__(self, *, embed, dim, dropout):
        super().__init__(embed=embed, dim=dim, dropout=dropout)
        self.extra = nn.Parameter(torch.zeros(1))

    def forward(self, tokens, state=None, lengths=None):
        return super().forward(tokens, state, lengths)[0] * self.extra, {}


@breaks("lanes_are_independent", r"selected as lanes \[2, 0, 2, 1\]: hidden states: lane 0, position 0, unit 0")
class Mixes(Sound):
    def read(self, tokens, state):
        hidden, after = super().read(tokens, state)
        return hidden - hidden.mean(0), after


@breaks(
    "padding_changes_nothing",
    r"lengths \[24, 3, 8, 1, 5\], compared with each lane read alone: lane 1, position 0, unit 0",
)
class ReadsPadding(Bag):
    def forward(self, tokens, state=None, lengths=None):
        return super().forward(tokens)


@breaks("state_is_that_after_lengths", r'lengths \[7, 0, 21, 1, 7\], .*: state\["hidden"\]: lane 0, index 0')
class IgnoresLengths(Sound):
    def forward(self, tokens, state=None, lengths=None):
        return super().forward(tokens, state)


@breaks("empty_lanes_leave_the_state", r'lengths \[0, 0, 0\]: state\["hidden"\]: lane 0, index 0')
class EmptyIsNew(Sound):
    def forward(self, tokens, state=None, lengths=None):
        if lengths is not None and not lengths.any():
            return super().forward(tokens)[0], self.initial(len(tokens))
        return super().forward(tokens, state, lengths)


@breaks("reset_is_of_one_lane", "lane 1 of 3 was reset: the others: lane 0, position 0, unit 0")
class SharesState(Sound):
    def read(self, tokens, state):
        return super().read(tokens, {"hidden": state["hidden"] - state["hidden"].mean(0)})


@breaks("reset_is_of_one_lane", "reset lane 1 of 3, compared with a new one: lane 1, position 0, unit 0")
class KnowsANewBatch(Sound):
    def read(self, tokens, state):
        return super().read(tokens, state if state["hidden"].any() else {"hidden": state["hidden"] + 1})


@breaks("reset_is_of_one_lane", "its state has no effect")
class Stateless(Sound):
    def read(self, tokens, state):
        return super().read(tokens, self.initial(len(tokens)))


class NoSource(Sound):
    """Forgets what it was to go on from."""

    def begin(self, source, lengths=None):
        return self.initial(len(source))


@breaks(
    "source_is_a_prefix", "4 tokens after a source of 8, compared with all 12 read at once: lane 0, position 0, unit 0"
)
class NoPrefix(NoSource):
    pass


@breaks("source_matters", r"give the same hidden state at lane 0, position 0; shape \(3, 4\)")
class AnySource(NoSource):
    pass


@breaks("source_is_read_by_its_length", r"lengths \[7, 0, 9, 1, 7\], .*: 4 tokens after it: lane 0, position 0, unit 0")
class WholeSource(Sound):
    def begin(self, source, lengths=None):
        return super().begin(source)


@breaks("every_weight_takes_part", "no gradient reaches unread")
class Idle(Sound):
    def __init__(self, **options):
        super().__init__(**options)
        self.unread = nn.Parameter(torch.zeros(1))


@breaks("first_weights_follow_the_seed", "created twice with seed 1, the model has different weights")
class Drifts(Sound):
    made = 0

    def __init__(self, **options):
        super().__init__(**options)
        Drifts.made += 1  # pyright: ignore[reportAttributeAccessIssue]
        nn.init.constant_(self.over.bias, Drifts.made)  # pyright: ignore[reportAttributeAccessIssue]


@breaks("first_weights_follow_the_seed", "created with seeds 1 and 2, the model has the same weights")
class AlwaysOne(Sound):
    def __init__(self, **options):
        super().__init__(**options)
        for weight in self.parameters():
            nn.init.ones_(weight)


@breaks("chance_acts_in_training_only", "in evaluation, with dropout and without: lane 0, position 0")
class AlwaysDrops(Sound):
    def read(self, tokens, state):
        hidden, after = super().read(tokens, state)
        return F.dropout(hidden, self.dropout.p, training=True), after


@breaks("chance_acts_in_training_only", "in training, read twice with one seed: lane 0, position 0")
class OwnChance(Sound):
    drawn = torch.Generator().manual_seed(0)

    def read(self, tokens, state):
        hidden, after = super().read(tokens, state)
        return hidden + self.training * torch.rand(hidden.shape, generator=self.drawn), after


@breaks("chance_acts_in_training_only", "in training with dropout=0.5, two seeds give the same hidden states")
class NeverDrops(Sound):
    def __init__(self, **options):
        super().__init__(**options | {"dropout": 0.0})


@breaks("state_keeps_its_precision", r'state\["hidden"\] is torch.bfloat16 after the first chunk')
class LowState(Sound):
    def read(self, tokens, state):
        hidden, after = super().read(tokens, state)
        return hidden, {"hidden": after["hidden"].bfloat16()}


def subject(model: type[SequenceModel]) -> Subject:
    """A model of this file for the laws."""

    def draw(seed: int, dropout: float = 0.0) -> SequenceModel:
        torch.manual_seed(seed)
        embed = TokenEmbedding(vocab_size=contract.VOCAB_SIZE, dim=DIM, specials=contract.SPECIALS)
        return model(embed=embed, dim=DIM, dropout=dropout)  # type: ignore[call-arg]

    return Subject(lambda: prepare(draw(0)), lambda: prepare(draw(0, 0.5)), draw)


@pytest.mark.parametrize("model", [Sound, Bag])
def test_a_sound_model_keeps_all_that_it_promises(model: type[SequenceModel]) -> None:
    verdicts = list(judge(subject(model)))
    assert [verdict.law for verdict in verdicts] == LAWS
    for law, status, counterexample in verdicts:
        assert status == ("holds" if law.promise in model.capabilities else "not promised"), counterexample
        assert counterexample is None


def test_each_law_fails_on_a_model_that_breaks_it_and_says_where() -> None:
    laws = {law.name: law for law in LAWS}
    assert {name for name, _, _ in BROKEN} == set(laws)
    for name, model, words in BROKEN:
        found = verdict_of(laws[name], subject(model)).counterexample or "holds"
        assert re.search(words, found), f"{name} on {model.__name__}: {found}"


def test_a_hidden_state_owes_no_gradient_to_what_it_does_not_see() -> None:
    class Window(Sound):
        def read(self, tokens, state):
            x = self.over(self.embed(tokens))
            return x + F.pad(x, (0, 0, 1, 0))[:, : x.shape[1]], state

    verdicts = {verdict.law.name: verdict.status for verdict in judge(subject(Window))}
    assert verdicts["gradient_reaches_the_first_input"] == "holds"


def test_a_counterexample_names_the_first_place_and_the_largest_difference() -> None:
    expected = torch.zeros(3, 9, 8)
    found = expected.clone()
    found[1, 7, 2], found[2, 0, 0] = 0.25, -2.0
    with pytest.raises(Broken) as broken:
        agree(found, expected, "hidden states")
    assert str(broken.value) == (
        "hidden states: lane 1, position 7, unit 2: 0.25 instead of 0, off by 0.25; "
        "2 of 216 values differ, by 2 at most; shape (3, 9, 8)"
    )


def test_an_error_of_the_model_breaks_the_laws_that_meet_it_and_names_its_line() -> None:
    class Refuses(Sound):
        def forward(self, tokens, state=None, lengths=None):
            if lengths is not None:
                raise NotImplementedError("no lengths\nyet")
            return super().forward(tokens, state)

    verdicts = {law.name: (status, words) for law, status, words in judge(subject(Refuses))}
    status, words = verdicts["padding_changes_nothing"]
    assert status == "does not hold"
    assert re.fullmatch(
        r"raises NotImplementedError: no lengths yet \(test_broken_contracts.py, line \d+\)", str(words)
    )
    assert verdicts["chunks_equal_the_whole"] == ("holds", None)


def test_a_model_that_large_weights_drive_out_of_range_is_judged_with_its_own() -> None:
    class Logarithm(Sound):
        def __init__(self, **options):
            super().__init__(**options)
            self.scale = nn.Parameter(torch.ones(self.dim))

        def read(self, tokens, state):
            hidden, after = super().read(tokens, state)
            return hidden * self.scale.log().exp(), after

    made = subject(Logarithm).make()
    assert (made.scale == 1).all()  # pyright: ignore[reportAttributeAccessIssue]
    assert [verdict.status for verdict in judge(subject(Logarithm)) if verdict.status == "does not hold"] == []
