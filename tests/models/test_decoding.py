"""Laws of generation and of decoding targets: cached = uncached = batched = single, draws, and what a beam promises."""

from __future__ import annotations

import math
from functools import cache, partial
from itertools import product

import pytest
import torch
from torch import Tensor

from seqtrain.errors import NonFinite
from seqtrain.models.base import Capability, SequenceModel
from seqtrain.models.decoding import continue_tokens, decode, pick
from seqtrain.tasks.translation import target_embedding
from seqtrain.training.model_and_task import make_model
from tests.support.model_cases import START, TABLE, VOCABULARY, Case, next_token, some_tokens, unmixed

# -- texts that go on --------------------------------------------------------------------------------------------

WAYS = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.3},
    "top-k": {"temperature": 1.3, "top_k": 3},
    "top-p": {"temperature": 1.3, "top_p": 0.6},
}
PROMPTS = [[START], [START, 3, 1, 4, 1, 5, 2, 6, 5, 3], [START, 2, 6]]
WRITERS = unmixed(Capability.STATEFUL | Capability.UNCONDITIONAL)
LEARNED = [case for case in WRITERS if ("positions", "learned") in case.options]


def generated(model: SequenceModel, prompts: list[list[int]], num_tokens: int, **options) -> list[list[int]]:
    scores = partial(next_token(model).logits, model)
    tokens = list(continue_tokens(model, scores, prompts, num_tokens=num_tokens, **options))
    assert len(tokens) == num_tokens
    return torch.stack(tokens, 1).tolist()


def uncached(model: SequenceModel, prompt: list[int], num_tokens: int, *, seed: int, **options) -> list[int]:
    """Reads everything anew for each token, from the part of the past that `continue_tokens` promises to read."""
    draws = torch.rand(num_tokens, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    limit, task = model.max_length, next_token(model)
    read, out = prompt[-limit:] if limit else prompt, []
    choice = {"temperature": 1.0, "top_k": None, "top_p": None} | options
    for draw in draws:
        if limit and len(read) > limit:
            read = read[-(limit // 2) :]
        with torch.no_grad():
            hidden = model(torch.tensor([read]))[0][:, -1]
        token = int(pick(task.logits(model, hidden), draw[None], **choice))
        read, out = [*read, token], [*out, token]
    return out


@pytest.mark.parametrize("case", WRITERS, ids=str)
def test_generation_batched_or_single_equals_uncached(case: Case) -> None:
    model = case.make()
    for way, options in WAYS.items():
        together = generated(model, PROMPTS, 20, seed=5, **options)
        assert together == [uncached(model, each, 20, seed=5 + lane, **options) for lane, each in enumerate(PROMPTS)]
        assert generated(model, PROMPTS[1:2], 20, seed=6, **options) == together[1:2], way
        assert way == "greedy" or len({tuple(lane) for lane in together}) == len(PROMPTS)


@pytest.mark.parametrize("case", LEARNED, ids=str)
def test_generation_goes_on_past_the_table_of_learned_positions(case: Case) -> None:
    model = case.make()
    prompts = [*PROMPTS, [START, *[1, 2] * TABLE]]  # the last one is longer than the table
    together = generated(model, prompts, 3 * TABLE, **WAYS["sampled"])
    for lane, prompt in enumerate(prompts):
        assert together[lane] == uncached(model, prompt, 3 * TABLE, seed=lane, **WAYS["sampled"])


def test_only_target_tokens_are_generated_and_a_seed_repeats_them_without_the_global_generator() -> None:
    model = Case("lstm", ()).make()
    before = torch.random.get_rng_state()
    once = generated(model, [[START]], 60, temperature=5.0, seed=1)
    assert {token for lane in once for token in lane} <= set(range(VOCABULARY))
    assert once == generated(model, [[START]], 60, temperature=5.0, seed=1)
    assert once != generated(model, [[START]], 60, temperature=5.0, seed=2)
    assert torch.equal(torch.random.get_rng_state(), before)


# -- draws -------------------------------------------------------------------------------------------------------

SCORES = torch.tensor([0.0, 2.0, -1.0, 1.0, 2.5, -3.0, 0.5]).double()


def picked(num: int = 20_000, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Shares of each token over evenly spaced draws."""
    draws = (torch.arange(num).double() + 0.5) / num
    tokens = pick(SCORES.expand(num, -1), draws, temperature, top_k, top_p)
    return tokens.bincount(minlength=len(SCORES)) / num


def test_tokens_are_drawn_as_often_as_their_probability_among_the_likeliest_says() -> None:
    probs, order = SCORES.softmax(0).sort(descending=True)
    kept = [({"top_k": top_k}, min(top_k, len(SCORES)), 1.0) for top_k in (1, 3, 100)]
    kept += [({"temperature": temperature}, len(SCORES), temperature) for temperature in (0.5, 2.0)]
    for top_p in (1e-9, 0.6, 0.9, 1.0):
        size = next(n for n in range(1, len(SCORES) + 1) if float(probs[:n].sum()) >= top_p - 1e-12)
        kept.append(({"top_p": top_p}, size, 1.0))
    for options, size, temperature in kept:
        chosen = order[:size]
        expected = torch.zeros(len(SCORES)).double()
        expected[chosen] = (SCORES[chosen] / temperature).softmax(0)
        found = picked(**options).double()
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4, msg=f"{options}: {found}, not {expected}")
    assert picked(temperature=0.0)[4] == picked(temperature=1e-6)[4] == 1


def test_no_draw_leaves_the_allowed_tokens_however_near_to_the_edge() -> None:
    edges = torch.tensor([0.0, 1e-300, 1 - 2.0**-53]).double()
    for top_k, top_p in ((None, None), (1, None), (3, None), (None, 0.5), (3, 0.9)):
        allowed = picked(top_k=top_k, top_p=top_p) > 0
        assert allowed[pick(SCORES.expand(3, -1), edges, 1.0, top_k, top_p)].all()


def test_no_token_is_taken_from_scores_that_are_no_numbers() -> None:
    for value, temperature in product((math.nan, math.inf), (0.0, 1.0)):
        with pytest.raises(NonFinite, match="scores of the next token are not finite"):
            pick(torch.tensor([[0.0, value]]), torch.tensor([0.5]), temperature, None, None)
    model = Case("gru", ()).make()
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, math.nan)
    for beam in (1, 3):
        with pytest.raises(NonFinite):
            decoded(model, SOURCES, LIMITS, beam=beam)


# -- buffers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [3, 8, 40])
def test_a_text_longer_than_any_buffer_goes_on_as_forward_does(window: int) -> None:
    """Keys are written in place: what is moved, forgotten or reused must be what `forward` sees at each token."""
    for positions in ("rotary", "none"):
        model = Case("gpt", (("attention_window", window), ("positions", positions))).make()
        text = some_tokens(3, 150, seed=5)
        with torch.no_grad():
            state = model(some_tokens(3, 6), None, torch.tensor([6, 2, 4]))[1]
            stepper = model.stepper(state)
            expected = model(text, state)[0]
            for place in range(text.shape[1]):
                hidden = stepper.read(text[:, place])
                torch.testing.assert_close(hidden, expected[:, place], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("window", [4, 30])
def test_rows_that_branch_again_and_again_go_on_as_their_own_whole_text_does(window: int) -> None:
    model = Case("gpt", (("attention_window", window),)).make()
    sources, lengths = some_tokens(2, 7), torch.tensor([7, 3])
    draw = torch.Generator().manual_seed(0)
    width = 1
    texts = [[] for _ in range(2)]  # of each row, the tokens behind its source
    with torch.no_grad():
        stepper = model.stepper(model.begin(sources, lengths), branches=True)
        for step in range(40):
            newest = some_tokens(2 * width, 1, seed=step).flatten()
            texts = [[*text, int(token)] for text, token in zip(texts, newest, strict=True)]
            hidden = stepper.read(newest)
            for row, text in enumerate(texts):
                lane = row // width
                source = sources[lane, : lengths[lane]]
                whole = model(torch.cat([source, torch.tensor(text)])[None])[0]
                torch.testing.assert_close(hidden[row], whole[0, -1], rtol=1e-9, atol=1e-9)
            rows = torch.arange(2).unsqueeze(1) * width + torch.randint(0, width, (2, 3), generator=draw)
            stepper.keep(rows)
            texts = [texts[int(row)] for row in rows.flatten()]
            width = 3


# -- targets of sources ------------------------------------------------------------------------------------------

PROMISES = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL
TRANSLATING = [case for case in unmixed(PROMISES) if ("bidirectional", False) not in case.options]
PLAIN = [case for case in TRANSLATING if not case.options]
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
    before = {name: value.clone() for name, value in state.items()}
    end, logits = target_embedding(model).start, logits or scores_of(model)
    found = decode(model, logits, state, start=end, end=end, max_tokens=torch.tensor(limits), **options)
    assert all(torch.equal(value, before[name]) for name, value in state.items()), "the state is left as it was"
    return found


@torch.no_grad()
def chances_after(model: SequenceModel, source: Tensor, target: list[int]) -> Tensor:
    """log p (V+1,) of what follows a target, of which everything is read anew."""
    start = target_embedding(model).start
    hidden, _ = model(torch.tensor([[start, *target]]), model.begin(source[None]))
    return scores_of(model)(hidden[0, -1]).log_softmax(-1)


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


@pytest.mark.parametrize("case", TRANSLATING, ids=str)
def test_decoding_equals_its_definition_single_or_batched_however_sources_are_padded(case: Case) -> None:
    """Greedy decoding is a beam of 1."""
    model = case.make()
    for beam, penalties in ((1, (1.0,) * 5), (3, (-0.5, 0.6, 2.0))):
        for source, limit, penalty in zip(SOURCES, LIMITS, penalties, strict=False):
            expected = beam_search(model, source, limit, beam, penalty)
            assert decoded(model, [source], [limit], beam=beam, length_penalty=penalty) == [expected]
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


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_a_beam_that_holds_everything_is_exhaustive_search(case: Case) -> None:
    model, longest, end = tiny(case), 4, 3
    sources = [torch.tensor([0, 2, 4]), torch.tensor([1, 1, 4])]
    whole = torch.tensor(list(product(range(3), repeat=longest)))  # (81, 4), and all others are prefixes of these
    hypotheses = [[*h, end] for n in range(longest) for h in product(range(3), repeat=n)] + whole.tolist()
    sums: list[list[float]] = []  # log p of each hypothesis, by source
    for source in sources:
        with torch.no_grad():
            state = model.begin(source.expand(len(whole), -1))
            tokens = torch.cat([torch.full((len(whole), 1), end), whole[:, :-1]], 1)
            probs = scores_of(model)(model(tokens, state)[0]).log_softmax(-1)  # (81, 4, 4)
        sums.append([])
        for hypothesis in hypotheses:
            row = whole.tolist().index(hypothesis[:-1] + [0] * (longest + 1 - len(hypothesis)))
            sums[-1].append(sum(float(probs[row, n, token]) for n, token in enumerate(hypothesis)))
    for penalty in (-0.5, 0.0, 1.0, 2.0):
        expected = []
        for log_p in sums:
            scores = [total / len(h) ** penalty for total, h in zip(log_p, hypotheses, strict=True)]
            expected.append([token for token in hypotheses[scores.index(max(scores))] if token != end])
        found = decoded(model, sources, [longest] * 2, beam=len(hypotheses), length_penalty=penalty)
        assert found == expected, f"length_penalty={penalty}"


def test_the_laws_above_are_not_about_answers_that_are_all_alike() -> None:
    short = [torch.tensor([0, 2, 4])], [4]
    sums = [
        sum(len(decoded(tiny(case), *short, beam=121, length_penalty=penalty)[0]) for case in PLAIN)
        for penalty in (-0.5, 1.0, 2.0)
    ]
    assert sums[0] < sums[1] < sums[2]
    found = [target for case in TRANSLATING for target in decoded(case.make(), SOURCES, LIMITS)]
    full = sum(len(target) == limit for target, limit in zip(found, LIMITS * len(TRANSLATING), strict=True))
    assert 0.1 < full / len(found) < 0.9


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_lanes_that_are_done_are_read_no_more(case: Case) -> None:
    model, read = case.make(), []

    def counted(hidden: Tensor) -> Tensor:
        read.append(len(hidden))
        return scores_of(model)(hidden)

    for beam in (1, 3):
        read.clear()
        alone = [decoded(model, [s], [n], logits=counted, beam=beam)[0] for s, n in zip(SOURCES, LIMITS, strict=True)]
        if beam == 1:
            assert sum(read) == sum(min(len(target) + 1, n) for target, n in zip(alone, LIMITS, strict=True))
        single, _ = sum(read), read.clear()
        decoded(model, SOURCES, LIMITS, logits=counted, beam=beam)
        assert sum(read) == single


def test_equal_chances_go_to_the_lower_tokens() -> None:
    model = Case("gru", ()).make()
    for beam in (1, 2, 3):
        same = decoded(
            model, SOURCES[:1], [4], beam=beam, logits=lambda hidden: hidden.new_zeros(len(hidden), VOCABULARY + 1)
        )
        assert same == [[0, 0, 0, 0]]


def test_a_beam_or_a_limit_below_1_is_refused() -> None:
    for beam, limit in ((0, 3), (-1, 3), (2, 0), (1, 0)):
        with pytest.raises(ValueError, match="must be at least 1"):
            decoded(Case("gru", ()).make(), SOURCES[:1], [limit], beam=beam)


def test_what_beam_search_finds_in_a_language_that_can_be_reckoned() -> None:
    """First 0 or the end; then mostly the end, otherwise 0 for good.

    log p is -0.94 of nothing, -0.62 of one 0 and the end, and -2.81 of nine.
    """
    first, second, later = [0.6, 0.01, 0.39], [0.1, 1e-9, 0.9], [1.0, 1e-9, 1e-9]
    model = Case("gru", ()).make()
    for length_penalty, expected in ((-0.5, [0]), (0.0, [0]), (2.0, [0] * 9), (-5.0, [])):
        script = iter([first, second, *[later] * 7])
        (target,) = decode(
            model,
            lambda hidden, script=script: torch.tensor(next(script)).double().log().expand(len(hidden), -1),
            model.begin(SOURCES[0][None]),
            start=2,
            end=2,
            max_tokens=torch.tensor([9]),
            beam=3,
            length_penalty=length_penalty,
        )
        assert target == expected, f"length_penalty={length_penalty}"


def test_a_finished_hypothesis_gives_its_place_in_the_beam_to_no_other() -> None:
    """After `0` and the end, one place of two is left: `0 0 0` takes it, and `0 0 1`, which would win, is dropped."""
    ending, other = [1e-9, 1e-9, 1.0], [0.45, 0.45, 0.1]
    script = iter([[[1.0, 1e-9, 1e-9]], [[0.3, 0.2, 0.5]] * 2, [[0.55, 0.45, 1e-9]] * 2, [other, ending]])
    model = Case("gru", ()).make()
    (target,) = decode(
        model,
        lambda hidden: torch.tensor(next(script)).double().log()[: len(hidden)],
        model.begin(SOURCES[0][None]),
        start=2,
        end=2,
        max_tokens=torch.tensor([4]),
        beam=2,
        length_penalty=1.6,
    )
    assert target == [0]
