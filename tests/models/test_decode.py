"""Laws of decoding targets: cached = uncached = batched = single, and what beam search promises."""

from __future__ import annotations

import math
from functools import cache, partial
from itertools import product

import pytest
import torch
from torch import Tensor

from seqtrain.errors import NonFinite
from seqtrain.models.base import Capability, SequenceModel
from seqtrain.models.decoding import decode, pick
from seqtrain.tasks.translation import target_embedding
from seqtrain.training.model_and_task import make_model
from tests.support.model_cases import START, VOCABULARY, Case, cases, mixtures_long, some_tokens

PROMISES = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL
TRANSLATING = [case for case in cases(PROMISES) if ("bidirectional", False) not in case.options]
CASES = pytest.mark.parametrize("case", mixtures_long(TRANSLATING), ids=str)
PLAIN = pytest.mark.parametrize("case", [case for case in TRANSLATING if not case.options], ids=str)
SOURCES = [some_tokens(length, seed=length) for length in (6, 1, 3, 6, 2)]
LIMITS = [7, 3, 1, 9, 8]


def scores_of(model: SequenceModel):
    return partial(target_embedding(model).logits, end=True)


def decoded(model: SequenceModel, sources: list[Tensor], limits: list[int], *, spare: int = 0, logits=None, **options):
    """Targets of sources that are padded together with all kinds of tokens, and `spare` more."""
    lengths = torch.tensor([len(source) for source in sources])
    padded = some_tokens(len(sources), int(lengths.max()) + spare, seed=99)
    for lane, source in zip(padded, sources, strict=True):
        lane[: len(source)] = source
    with torch.no_grad():
        state = model.begin(padded, None if bool((lengths == padded.shape[1]).all()) else lengths)
    end = target_embedding(model).start
    return decode(
        model, logits or scores_of(model), state, start=end, end=end, max_tokens=torch.tensor(limits), **options
    )


@torch.no_grad()
def chances_after(model: SequenceModel, source: Tensor, target: list[int]) -> Tensor:
    """log p (V+1,) of what follows a target, of which everything is read anew."""
    start = target_embedding(model).start
    hidden, _ = model(torch.tensor([[start, *target]]), model.begin(source[None]))
    return scores_of(model)(hidden[0, -1]).log_softmax(-1)


def greedy(model: SequenceModel, source: Tensor, limit: int) -> list[int]:
    """By the definition, without a cache."""
    target: list[int] = []
    while len(target) < limit:
        token = int(chances_after(model, source, target).argmax())
        if token == START:
            break
        target.append(token)
    return target


def beam_search(model: SequenceModel, source: Tensor, limit: int, beam: int, length_penalty: float) -> list[int]:
    """By the definition, without a cache, and without stopping before the beam is empty."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for step in range(1, limit + 1):
        longer = [
            (before + prob, [*target, token])
            for before, target in live
            for token, prob in enumerate(chances_after(model, source, target).tolist())
        ]
        longer = sorted(longer, key=lambda found: -found[0])[: beam - len(finished)]
        ended = [found for found in longer if found[1][-1] == START or step == limit]
        live = [found for found in longer if found not in ended]
        finished += [(prob / step**length_penalty, target) for prob, target in ended]
        if not live:
            break
    target = max(finished, key=lambda found: found[0])[1]
    return target[:-1] if target[-1] == START else target


@CASES
def test_cached_greedy_decoding_equals_uncached_and_a_beam_of_1(case: Case) -> None:
    model = case.make()
    for source, limit in zip(SOURCES, LIMITS, strict=True):
        expected = greedy(model, source, limit)
        assert decoded(model, [source], [limit]) == [expected]
        assert beam_search(model, source, limit, 1, 1.0) == expected


@CASES
def test_cached_beam_search_equals_uncached_that_never_stops_early(case: Case) -> None:
    model = case.make()
    for source, limit, penalty in zip(SOURCES[:3], (7, 9, 5), (-0.5, 0.6, 2.0), strict=True):
        expected = beam_search(model, source, limit, 3, penalty)
        assert decoded(model, [source], [limit], beam=3, length_penalty=penalty) == [expected]


@CASES
@pytest.mark.parametrize("beam", [1, 3])
def test_batched_decoding_equals_single_however_sources_are_padded(case: Case, beam: int) -> None:
    model = case.make()
    alone = [decoded(model, [s], [limit], beam=beam)[0] for s, limit in zip(SOURCES, LIMITS, strict=True)]
    assert decoded(model, SOURCES, LIMITS, beam=beam) == alone
    assert decoded(model, SOURCES, LIMITS, spare=2, beam=beam) == alone


@cache
def tiny(case: Case) -> SequenceModel:
    """The model with three words."""
    model = make_model(case.config(), 3).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return model


@PLAIN
@pytest.mark.parametrize("length_penalty", [-0.5, 0.0, 1.0, 2.0])
def test_a_beam_that_holds_everything_is_exhaustive_search(case: Case, length_penalty: float) -> None:
    model, longest, end = tiny(case), 4, 3
    sources = [torch.tensor([0, 2, 4]), torch.tensor([1, 1, 4])]
    whole = torch.tensor(list(product(range(3), repeat=longest)))  # (81, 4), and all others are prefixes of these
    hypotheses = [[*h, end] for n in range(longest) for h in product(range(3), repeat=n)] + whole.tolist()
    expected = []
    for source in sources:
        with torch.no_grad():
            state = model.begin(source.expand(len(whole), -1))
            tokens = torch.cat([torch.full((len(whole), 1), end), whole[:, :-1]], 1)
            probs = scores_of(model)(model(tokens, state)[0]).log_softmax(-1)  # (81, 4, 4)
        logits = []
        for hypothesis in hypotheses:
            row = whole.tolist().index(hypothesis[:-1] + [0] * (longest + 1 - len(hypothesis)))
            log_p = sum(float(probs[row, n, token]) for n, token in enumerate(hypothesis))
            logits.append(log_p / len(hypothesis) ** length_penalty)
        best = hypotheses[max(range(len(logits)), key=logits.__getitem__)]
        expected.append([token for token in best if token != end])
    options = {"beam": len(hypotheses), "length_penalty": length_penalty}
    assert decoded(model, sources, [longest] * 2, **options) == expected


def test_lengths_are_what_the_penalty_makes_them() -> None:
    """So that the laws above are not about answers that are all alike."""
    sums = {
        penalty: sum(
            len(decoded(tiny(case), [torch.tensor([0, 2, 4])], [4], beam=121, length_penalty=penalty)[0])
            for case in TRANSLATING
            if not case.options
        )
        for penalty in (-0.5, 1.0, 2.0)
    }
    assert sums[-0.5] < sums[1.0] < sums[2.0]


def test_targets_of_the_laws_above_end_early_and_late() -> None:
    found = [target for case in TRANSLATING for target in decoded(case.make(), SOURCES, LIMITS)]
    full = sum(len(target) == limit for target, limit in zip(found, LIMITS * len(TRANSLATING), strict=True))
    assert 0.1 < full / len(found) < 0.9


@PLAIN
@pytest.mark.parametrize("beam", [1, 3])
def test_lanes_that_are_done_are_read_no_more(case: Case, beam: int) -> None:
    model, read = case.make(), []

    def counted(hidden: Tensor) -> Tensor:
        read.append(len(hidden))
        return scores_of(model)(hidden)

    alone = [decoded(model, [s], [n], logits=counted, beam=beam)[0] for s, n in zip(SOURCES, LIMITS, strict=True)]
    if beam == 1:
        assert sum(read) == sum(min(len(target) + 1, n) for target, n in zip(alone, LIMITS, strict=True))
    single, _ = sum(read), read.clear()
    decoded(model, SOURCES, LIMITS, logits=counted, beam=beam)
    assert sum(read) == single


def test_equal_chances_go_to_the_lower_tokens() -> None:
    model = Case("gru", ()).make()
    state = model.begin(SOURCES[0][None])
    for beam in (1, 2, 3):
        (target,) = decode(
            model,
            lambda hidden: hidden.new_zeros(len(hidden), VOCABULARY + 1),
            state,
            start=START,
            end=START,
            max_tokens=torch.tensor([4]),
            beam=beam,
        )
        assert target == [0, 0, 0, 0]


@PLAIN
@pytest.mark.parametrize("beam", [1, 3])
def test_decoding_leaves_the_state_as_it_was_and_no_graph(case: Case, beam: int) -> None:
    model = case.make()
    state = model.begin(torch.stack([SOURCES[0], SOURCES[3]]))
    before = {name: value.clone() for name, value in state.items()}
    options = {"start": START, "end": START, "max_tokens": torch.tensor([5, 4]), "beam": beam}
    once = decode(model, scores_of(model), state, **options)
    assert all(torch.equal(value, before[name]) for name, value in state.items())
    assert decode(model, scores_of(model), state, **options) == once


@pytest.mark.parametrize(("beam", "limit"), [(0, 3), (-1, 3), (2, 0), (1, 0)])
def test_a_beam_or_a_limit_below_1_is_refused(beam: int, limit: int) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        decoded(Case("gru", ()).make(), SOURCES[:1], [limit], beam=beam)


def test_a_model_of_weights_that_are_no_numbers_is_told() -> None:
    model = Case("gru", ()).make()
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, math.nan)
    for beam in (1, 3):
        with pytest.raises(NonFinite):
            decoded(model, SOURCES, LIMITS, beam=beam)


@pytest.mark.parametrize(
    ("length_penalty", "expected"),
    [(-0.5, [0]), (0.0, [0]), (2.0, [0] * 9), (-5.0, [])],
)
def test_what_beam_search_finds_in_a_language_that_can_be_reckoned(length_penalty: float, expected: list[int]) -> None:
    """First 0 or the end; then mostly the end, otherwise 0 for good.

    log p is -0.94 of nothing, -0.62 of one 0 and the end, and -2.81 of nine.
    """
    first, second, later = [0.6, 0.01, 0.39], [0.1, 1e-9, 0.9], [1.0, 1e-9, 1e-9]
    script = iter([first, second, *[later] * 7])
    model = Case("gru", ()).make()
    (target,) = decode(
        model,
        lambda hidden: torch.tensor(next(script)).double().log().expand(len(hidden), -1),
        model.begin(SOURCES[0][None]),
        start=2,
        end=2,
        max_tokens=torch.tensor([9]),
        beam=3,
        length_penalty=length_penalty,
    )
    assert target == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_token_is_taken_from_scores_that_are_no_numbers(value: float, temperature: float) -> None:
    with pytest.raises(NonFinite, match="scores of the next token are no numbers"):
        pick(torch.tensor([[0.0, value]]), torch.tensor([0.5]), temperature, None, None)
