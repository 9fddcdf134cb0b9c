"""Laws of generation: cached = uncached = batched = single, and draws that follow the distribution."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from seqtrain.models.base import Capability, SequenceModel
from seqtrain.models.decoding import continue_tokens, pick
from tests.support.model_cases import START, TABLE, VOCABULARY, Case, cases, mixtures_long, next_token, some_tokens

WAYS = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.3},
    "top-k": {"temperature": 1.3, "top_k": 3},
    "top-p": {"temperature": 1.3, "top_p": 0.6},
}
PROMPTS = [[START], [START, 3, 1, 4, 1, 5, 2, 6, 5, 3], [START, 2, 6]]
STATEFUL = pytest.mark.parametrize(
    "case", mixtures_long(cases(Capability.STATEFUL | Capability.UNCONDITIONAL)), ids=str
)
LEARNED = [
    case for case in cases(Capability.STATEFUL | Capability.UNCONDITIONAL) if ("positions", "learned") in case.options
]


def scores_of(model: SequenceModel):
    return partial(next_token(model).logits, model)


def generated(model: SequenceModel, prompts: list[list[int]], num_tokens: int, **options) -> list[list[int]]:
    tokens = list(continue_tokens(model, scores_of(model), prompts, num_tokens=num_tokens, **options))
    assert len(tokens) == num_tokens
    return torch.stack(tokens, 1).tolist()


def uncached(model: SequenceModel, prompt: list[int], num_tokens: int, *, seed: int, **options) -> list[int]:
    """Reads everything anew for each token, from the part of the past that `continue_tokens` promises to read."""
    draws = torch.rand(num_tokens, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    limit = model.max_length
    read, out = prompt[-limit:] if limit else prompt, []
    choice = {"temperature": 1.0, "top_k": None, "top_p": None} | options
    for draw in draws:
        if limit and len(read) > limit:
            read = read[-(limit // 2) :]
        with torch.no_grad():
            hidden = model(torch.tensor([read]))[0][:, -1]
        token = int(pick(scores_of(model)(hidden), draw[None], **choice))
        read, out = [*read, token], [*out, token]
    return out


@STATEFUL
@pytest.mark.parametrize("way", WAYS)
def test_cached_generation_equals_uncached(case: Case, way: str) -> None:
    model = case.make()
    for seed, prompt in enumerate(PROMPTS[:2]):
        (cached,) = generated(model, [prompt], 20, seed=seed, **WAYS[way])
        assert cached == uncached(model, prompt, 20, seed=seed, **WAYS[way])


@STATEFUL
@pytest.mark.parametrize("way", WAYS)
def test_batched_generation_equals_single(case: Case, way: str) -> None:
    model = case.make()
    together = generated(model, PROMPTS, 20, seed=5, **WAYS[way])
    alone = [generated(model, [prompt], 20, seed=5 + lane, **WAYS[way])[0] for lane, prompt in enumerate(PROMPTS)]
    assert together == alone
    assert way == "greedy" or len({tuple(lane) for lane in together}) == len(PROMPTS)


@pytest.mark.parametrize("case", mixtures_long(LEARNED), ids=str)
@pytest.mark.parametrize("way", ["greedy", "sampled"])
def test_generation_goes_on_past_the_table_of_learned_positions(case: Case, way: str) -> None:
    model = case.make()
    prompts = [*PROMPTS, [START, *[1, 2] * TABLE]]  # the last one is longer than the table
    together = generated(model, prompts, 3 * TABLE, **WAYS[way])
    for lane, prompt in enumerate(prompts):
        assert together[lane] == uncached(model, prompt, 3 * TABLE, seed=lane, **WAYS[way])


@STATEFUL
def test_only_target_tokens_are_generated_and_a_seed_repeats_them(case: Case) -> None:
    model = case.make()
    once = generated(model, [[START]], 30, temperature=5.0, seed=1)
    assert {token for lane in once for token in lane} <= set(range(VOCABULARY))
    assert once == generated(model, [[START]], 30, temperature=5.0, seed=1)
    assert once != generated(model, [[START]], 30, temperature=5.0, seed=2)


def test_generation_draws_nothing_from_the_global_generator() -> None:
    model = Case("lstm", ()).make()
    before = torch.random.get_rng_state()
    generated(model, [[START]], 5)
    assert torch.equal(torch.random.get_rng_state(), before)


SCORES = torch.tensor([0.0, 2.0, -1.0, 1.0, 2.5, -3.0, 0.5]).double()


def picked(num: int = 20_000, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Shares of each token over evenly spaced draws."""
    draws = (torch.arange(num).double() + 0.5) / num
    tokens = pick(SCORES.expand(num, -1), draws, temperature, top_k, top_p)
    return tokens.bincount(minlength=len(SCORES)) / num


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_their_probability_says(temperature: float) -> None:
    expected = (SCORES / temperature).softmax(0)
    torch.testing.assert_close(picked(temperature=temperature).double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("top_k", [1, 2, 3, 6, 7, 100])
def test_top_k_draws_from_the_k_likeliest_only(top_k: int) -> None:
    kept = SCORES.topk(min(top_k, len(SCORES))).indices
    expected = torch.zeros(len(SCORES)).double().index_copy(0, kept, SCORES[kept].softmax(0))
    torch.testing.assert_close(picked(top_k=top_k).double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("top_p", [1e-9, 0.3, 0.6, 0.9, 0.99, 1.0])
def test_top_p_draws_from_the_smallest_set_that_reaches_p(top_p: float) -> None:
    probs, order = SCORES.softmax(0).sort(descending=True)
    size = next(n for n in range(1, len(SCORES) + 1) if float(probs[:n].sum()) >= top_p - 1e-12)
    expected = torch.zeros(len(SCORES)).double().index_copy(0, order[:size], probs[:size] / probs[:size].sum())
    torch.testing.assert_close(picked(top_p=top_p).double(), expected, rtol=0, atol=1e-4)


def test_no_draw_leaves_the_allowed_tokens_however_near_to_the_edge() -> None:
    edges = torch.tensor([0.0, 1e-300, 1 - 2.0**-53]).double()
    for top_k, top_p in ((None, None), (1, None), (3, None), (None, 0.5), (3, 0.9)):
        allowed = picked(top_k=top_k, top_p=top_p) > 0
        assert allowed[pick(SCORES.expand(3, -1), edges, 1.0, top_k, top_p)].all()


def test_a_temperature_of_0_takes_the_likeliest_and_low_ones_come_near_it() -> None:
    assert picked(temperature=0.0)[4] == 1
    assert picked(temperature=1e-6)[4] == 1


@pytest.mark.parametrize("window", [3, 8, 40])
@pytest.mark.parametrize("positions", ["rotary", "none"])
def test_a_text_longer_than_any_buffer_goes_on_as_forward_does(window: int, positions: str) -> None:
    """Keys are written in place: what is moved, forgotten or reused must be what `forward` sees at each token."""
    model = Case("gpt", (("attention_window", window), ("positions", positions))).make()
    prompts = some_tokens(3, 6)
    lengths = torch.tensor([6, 2, 4])
    text = some_tokens(3, 150, seed=5)
    with torch.no_grad():
        state = model(prompts, None, lengths)[1]
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
