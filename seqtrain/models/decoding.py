"""Generation from any model with state.

Continuations: greedy, temperature, top-k (Fan et al. 2018), top-p (Holtzman et al. 2020). Targets of a source: greedy
and beam search (Graves 2012; Sutskever et al. 2014), with the base form of the length penalty of Wu et al. (2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from seqtrain.errors import NonFinite
from seqtrain.models.base import SequenceModel, State
from seqtrain.models.stepper import Stepper

SEED_STRIDE = 1_000_003  # distance between the seeds of two samples of one prompt; a generator uses 32 bits of a seed


def continue_tokens(
    model: SequenceModel,
    logits: Callable[[Float[Tensor, "B D"]], Float[Tensor, "B V"]],
    prompts: list[list[int]],
    *,
    num_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    num_samples: int = 1,
    repetition_penalty: float = 1.0,
) -> Iterator[Int[Tensor, " L"]]:
    """Continue prompts token by token.

    Args:
        model: the model that reads the prompts.
        logits: maps hidden states (B, D) to scores (B, V).
        prompts: token ids of each prompt, with at least the start token.
        num_tokens: number of tokens to generate for each prompt.
        temperature: divides the scores; 0 is greedy.
        top_k: samples from this many likeliest tokens.
        top_p: samples from the smallest set of likeliest tokens whose probabilities sum to at least this.
        seed: seed of the random draws.
        num_samples: number of continuations per prompt; the first is the same as with num_samples=1.
        repetition_penalty: above 1, makes tokens that a text already contains less likely (Keskar et al. 2019).

    Yields:
        The next token of every continuation, `num_tokens` times: (L,), L = B * num_samples, on the CPU. The
        continuations of one prompt are adjacent.
    """
    device = next(model.parameters()).device
    draws = _uniforms(len(prompts), num_samples, num_tokens, seed)
    limit = model.max_length
    prompts = [prompt for prompt in prompts for _ in range(num_samples)]
    read = [_last(prompt, limit) for prompt in prompts]  # the tokens that each lane's state has seen
    with torch.no_grad():
        hidden, stepper = _read(model, read, device)
        held: Tensor | None = None
        for step in range(num_tokens):
            scores = logits(hidden)
            if repetition_penalty != 1:
                held = _held(prompts, scores) if held is None else held
                scores = penalized(scores, held, repetition_penalty)
            token = pick(scores, draws[:, step].to(device), temperature, top_k, top_p)
            if held is not None:
                held.scatter_(1, token.unsqueeze(1), True)
            yield token.cpu()
            if step + 1 == num_tokens:
                return
            for lane, value in zip(read, token.tolist(), strict=True):
                lane.append(value)
            if limit is not None and max(map(len, read)) > limit:
                # The table of positions is full: such a lane restarts from the newer half of its tokens. Half, so that
                # rereading happens rarely.
                for number, lane in enumerate(read):
                    if len(lane) > limit:
                        read[number] = _last(lane, max(limit // 2, 1))
                hidden, stepper = _read(model, read, device)
            else:
                hidden = stepper.read(token)


def penalized(scores: Float[Tensor, "L V"], held: Bool[Tensor, "L V"], penalty: float) -> Float[Tensor, "L V"]:
    """Divide the scores of tokens that a text contains by the penalty, or multiply them if they are negative."""
    return torch.where(held, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


def _held(prompts: list[list[int]], scores: Float[Tensor, "L V"]) -> Bool[Tensor, "L V"]:
    """Return a mask of the tokens that each prompt contains; special tokens have no score."""
    held = torch.zeros_like(scores, dtype=torch.bool)
    for lane, prompt in enumerate(prompts):
        held[lane, [token for token in prompt if token < scores.shape[1]]] = True
    return held


def _uniforms(
    lanes: int, num_samples: int, num_tokens: int, seed: int
) -> Float[Tensor, "{lanes*num_samples} {num_tokens}"]:
    """Draw numbers in [0, 1) with one generator per sample and lane, so that they do not depend on each other."""
    draws = torch.empty(lanes * num_samples, num_tokens, dtype=torch.float64)
    for row in range(len(draws)):
        lane, sample = divmod(row, num_samples)
        # A lane's seed is its index among the texts, so the seeds of samples are far from those of other texts.
        generator = torch.Generator().manual_seed(seed + lane + sample * SEED_STRIDE)
        draws[row] = torch.rand(num_tokens, generator=generator, dtype=torch.float64)
    return draws


def _last(tokens: list[int], count: int | None) -> list[int]:
    """Return a copy of the last `count` tokens, or of all tokens if None."""
    if count is None:
        return list(tokens)
    return tokens[-count:]


def _sound(scores: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """Return the scores; raise NonFinite for nan or inf, which would otherwise yield an arbitrary token silently."""
    if not bool((scores < torch.inf).all()):
        raise NonFinite("the scores of the next token are not finite: a weight is nan or inf, or the model overflows")
    return scores


def pick(
    logits: Float[Tensor, "B V"],
    draw: Float[Tensor, " B"],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
) -> Int[Tensor, " B"]:
    """Pick one token for each row of scores by inverting the cumulative distribution at `draw` in [0, 1)."""
    if temperature == 0:
        return _sound(logits).argmax(-1)
    # In float64, so that a sum over a large vocabulary still ends close to 1; the sort is stable, so ties are
    # reproducible.
    order = _sound(logits).double().div(temperature).sort(dim=-1, descending=True, stable=True)
    probs = order.values.softmax(-1)
    if top_k is not None:
        probs[:, top_k:] = 0
    if top_p is not None:
        # Keep the smallest set that reaches top_p: all tokens whose predecessors have not reached it yet.
        probs[(probs.cumsum(-1) - probs) >= top_p] = 0
    sums = probs.cumsum(-1)
    place = torch.searchsorted(sums, (draw * sums[:, -1]).unsqueeze(1), right=True).squeeze(1)
    # A draw close to 1 may round up to the whole sum, past the last token with a nonzero probability.
    place = place.clamp(max=(probs > 0).sum(-1) - 1)
    return order.indices.gather(1, place.unsqueeze(1)).squeeze(1)


def _read(model: SequenceModel, prompts: list[list[int]], device: torch.device) -> tuple[Float[Tensor, "B D"], Stepper]:
    """Read prompts; return the hidden state after each prompt's last token, and a stepper that continues from it."""
    rows = [torch.tensor(prompt, device=device) for prompt in prompts]
    tokens = pad_sequence(rows, batch_first=True)
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    # Prompts of one length are read in one dense call.
    unpadded = bool((lengths == lengths[0]).all())
    hidden, state = model(tokens, None, None if unpadded else lengths)
    return hidden[torch.arange(len(prompts), device=device), lengths - 1], model.stepper(state)


Logits = Callable[[Float[Tensor, "N D"]], Float[Tensor, "N V_and_end"]]
"""Maps hidden states to scores of the next token; the last score is the end's."""


def decode(
    model: SequenceModel,
    logits: Logits,
    state: State,
    *,
    start: int,
    end: int,
    max_tokens: Int[Tensor, " B"],
    beam: int = 1,
    length_penalty: float = 1.0,
) -> list[list[int]]:
    """Decode the best target of each lane. Ties go to the better previous hypothesis, then to the lower token id.

    Args:
        model: the model that continues from the state.
        logits: maps hidden states (N, D) to scores (N, V+1); the last score is the end's.
        state: the state from `model.begin`.
        start: id of the token before the first token of a target.
        end: id of the token that ends a target.
        max_tokens: maximum length of each target, including its end; a target without an end by then is returned as it
        is.
        beam: number of hypotheses kept per lane; 1 is greedy.
        length_penalty: the score of a target is log p / length**length_penalty.

    Returns:
        The tokens of each target, without `start` and `end`.

    Raises:
        ValueError: for a beam or a `max_tokens` below 1.
    """
    if beam < 1 or int(max_tokens.min()) < 1:
        raise ValueError(f"beam={beam}, max_tokens={max_tokens.tolist()}: must be at least 1")

    with torch.no_grad():
        stepper = model.stepper(state, branches=beam > 1)
        if beam == 1:
            return _greedy(stepper, logits, start, end, max_tokens)
        return _beam_search(stepper, logits, start, end, max_tokens, beam, length_penalty)


def _greedy(stepper: Stepper, logits: Logits, start: int, end: int, limits: Int[Tensor, " B"]) -> list[list[int]]:
    """Append the likeliest token repeatedly, until the end or the limit of each lane."""
    lanes = torch.arange(len(limits), device=limits.device)  # unfinished lanes; `newest` has these lanes
    # One column more than the longest target, so that each row contains an end.
    tokens = limits.new_full((len(limits), int(limits.max()) + 1), end)
    newest = torch.full_like(limits, start)
    for step in range(tokens.shape[1] - 1):
        newest = _sound(logits(stepper.read(newest))).argmax(-1)
        tokens[lanes, step] = newest
        going_on = (newest != end) & (step + 1 < limits[lanes])
        if not going_on.any():
            break
        if not going_on.all():
            lanes, newest = lanes[going_on], newest[going_on]
            stepper.keep(going_on.nonzero())
    return [target[: target.index(end)] for target in tokens.tolist()]


class _Beams(NamedTuple):
    """The unfinished lanes of a beam search, with W hypotheses in each of N; all tensors have these lanes."""

    lanes: Int[Tensor, " N"]  # indices in the batch
    limits: Int[Tensor, " N"]  # maximum tokens of a target
    places: Int[Tensor, " N"]  # beam positions not yet used by a finished hypothesis
    best: Float[Tensor, " N"]  # score of the best finished hypothesis
    tokens: Int[Tensor, "N W T"]
    log_probs: Float[Tensor, "N W"]  # float64; -inf where there is no hypothesis

    def select(self, mask: Bool[Tensor, " N"]) -> _Beams:
        """Select lanes by mask."""
        return _Beams(*[value[mask] for value in self])


def _beam_search(
    stepper: Stepper,
    logits: Logits,
    start: int,
    end: int,
    limits: Int[Tensor, " B"],
    beam: int,
    length_penalty: float,
) -> list[list[int]]:
    """Return the best finished hypothesis of each lane. A finished hypothesis leaves its position in the beam empty."""
    device = limits.device
    answers: list[list[int]] = [[] for _ in limits]
    none = torch.full((len(limits),), -torch.inf, dtype=torch.double, device=device)
    beams = _Beams(
        lanes=torch.arange(len(limits), device=device),
        limits=limits,
        places=torch.full_like(limits, beam),
        best=none,
        tokens=limits.new_full((len(limits), 1, 1), start),
        log_probs=torch.zeros(len(limits), 1, dtype=torch.double, device=device),
    )
    for step in range(1, int(limits.max()) + 1):
        scores = _sound(logits(stepper.read(beams.tokens[..., -1].flatten())))
        width = beams.tokens.shape[1]  # 1 before the first step, then `beam`
        beams, parents = _extend(beams, scores, beam)
        finished = (beams.tokens[..., -1] == end) | (beams.limits.unsqueeze(1) == step)
        values, which = (beams.log_probs.masked_fill(~finished, -torch.inf) / step**length_penalty).max(1)
        better = values > beams.best
        for lane in better.nonzero().flatten().tolist():
            answers[int(beams.lanes[lane])] = beams.tokens[lane, which[lane], 1:].tolist()
        beams = beams._replace(
            best=torch.where(better, values, beams.best),
            places=beams.places - (finished & (beams.log_probs > -torch.inf)).sum(1),
            log_probs=beams.log_probs.masked_fill(finished, -torch.inf),
        )
        going_on = _may_improve(beams, step, length_penalty)
        if not going_on.any():
            break
        # Rows are ordered by lane, then by hypothesis, as before this step.
        rows = torch.arange(len(parents), device=device).unsqueeze(1) * width + parents
        stepper.keep(rows[going_on])
        beams = beams.select(going_on)
    return [answer[:-1] if answer[-1:] == [end] else answer for answer in answers]


def _extend(beams: _Beams, logits: Float[Tensor, "M C"], beam: int) -> tuple[_Beams, Int[Tensor, "N {beam}"]]:
    """Return the likeliest hypotheses one token longer (C choices each), and the index of each parent."""
    num_lanes, width = beams.log_probs.shape
    # The best of a lane are among the best of each of its hypotheses, so only those are computed in float64.
    best, tokens = _largest(logits, min(beam, logits.shape[-1]))
    log_chances = (best - logits.logsumexp(-1, keepdim=True)).double()  # (N*W, k)
    longer = beams.log_probs.unsqueeze(-1) + log_chances.unflatten(0, (num_lanes, width))  # (N, W, k)
    log_probs, index = _first_largest(longer.flatten(1), beam)
    parents, newest = index // best.shape[-1], tokens.view(num_lanes, -1).gather(1, index)
    written = beams.tokens.gather(1, parents.unsqueeze(-1).expand(-1, -1, beams.tokens.shape[-1]))
    # A finished hypothesis keeps its position: only as many continue as there are positions left.
    taken = torch.arange(beam, device=index.device) >= beams.places.unsqueeze(1)
    log_probs = log_probs.masked_fill(taken, -torch.inf)
    return beams._replace(tokens=torch.cat([written, newest.unsqueeze(-1)], -1), log_probs=log_probs), parents


def _may_improve(beams: _Beams, step: int, length_penalty: float) -> Bool[Tensor, " N"]:
    """Return a mask of lanes in which an unfinished hypothesis may still beat the best finished one.

    log p can only decrease. So the upper bound of a hypothesis is its current log p divided by the most favourable
    length: the maximum length or, if length does not help, the length after the next step.
    """
    kindest = beams.limits.double() if length_penalty > 0 else step + 1
    return beams.best < beams.log_probs.amax(1) / kindest**length_penalty


def _largest(values: Float[Tensor, "N C"], count: int) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
    """Return the `count` largest values of each row, in order, and their indices. Ties go to the first."""
    # topk may return any of equal values, so one more value is taken to detect a tie at the edge.
    asked = min(count + 1, values.shape[1])
    largest, index = values.topk(asked, sorted=True)
    if asked > count and bool((largest[:, count - 1] == largest[:, count]).any()):
        return _first_largest(values, count)
    # topk's results are sorted by index first, so that a stable sort keeps equal values in order.
    index, order = index[:, :count].sort(1)
    largest, order = largest.gather(1, order).sort(dim=1, descending=True, stable=True)
    return largest, index.gather(1, order)


def _first_largest(values: Float[Tensor, "N C"], count: int) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
    """Sort all values and return the same as `_largest`, for few values or ties at the edge. Pad with -inf."""
    width = values.shape[1]
    if count > width:
        values = F.pad(values, (0, count - width), value=-torch.inf)
    largest, index = values.sort(dim=1, descending=True, stable=True)
    return largest[:, :count], index[:, :count].clamp(max=width - 1)
