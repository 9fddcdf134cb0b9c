"""Generation from any model with state.

Continuations: greedy, temperature, top-k (Fan et al. 2018), top-p (Holtzman et al. 2020). Targets of a source: greedy
and beam search (Graves 2012; Sutskever et al. 2014) with the length penalty that Wu et al. (2016) start from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqtrain.models.base import SequenceModel, State, select


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
) -> Iterator[Int[Tensor, " B"]]:
    """Yields `num_tokens` times the next token of every prompt: (B,), on the CPU.

    `logits` maps hidden states (B, D) to scores (B, V); temperature 0 is greedy. Each prompt draws from its own
    generator, so that a batch gives what its prompts alone would give. A prompt holds at least the start token.
    """
    device = next(model.parameters()).device
    draws = torch.stack(
        [
            torch.rand(num_tokens, generator=torch.Generator().manual_seed(seed + lane), dtype=torch.float64)
            for lane in range(len(prompts))
        ]
    )
    limit = model.max_length
    read = [prompt[-limit:] if limit else list(prompt) for prompt in prompts]  # what each lane's state has seen
    with torch.no_grad():
        hidden, state = _read(model, read, device)
        for step in range(num_tokens):
            token = pick(logits(hidden), draws[:, step].to(device), temperature, top_k, top_p)
            yield token.cpu()
            if step + 1 == num_tokens:
                return
            for lane, value in zip(read, token.tolist(), strict=True):
                lane.append(value)
            if limit is not None and max(map(len, read)) > limit:
                # The table of positions is full: such a lane goes on from the newer half of what it held.
                read = [lane[-max(limit // 2, 1) :] if len(lane) > limit else lane for lane in read]
                hidden, state = _read(model, read, device)
            else:
                out, state = model(token.unsqueeze(1), state)
                hidden = out[:, -1]


def pick(
    logits: Float[Tensor, "B V"],
    draw: Float[Tensor, " B"],
    temperature: float,
    top_k: int | None,
    top_p: float | None,
) -> Int[Tensor, " B"]:
    """One token of each row of scores by inverting the distribution's sum at `draw` in [0, 1)."""
    if temperature == 0:
        return logits.argmax(-1)
    order = logits.double().div(temperature).sort(dim=-1, descending=True, stable=True)
    probs = order.values.softmax(-1)
    if top_k is not None:
        probs[:, top_k:] = 0
    if top_p is not None:
        # Keeps the smallest set that reaches top_p: all whose predecessors have not reached it yet.
        probs[(probs.cumsum(-1) - probs) >= top_p] = 0
    sums = probs.cumsum(-1)
    place = torch.searchsorted(sums, (draw * sums[:, -1]).unsqueeze(1), right=True).squeeze(1)
    place = place.clamp(max=(probs > 0).sum(-1) - 1)
    return order.indices.gather(1, place.unsqueeze(1)).squeeze(1)


def _read(model: SequenceModel, prompts: list[list[int]], device: torch.device) -> tuple[Float[Tensor, "B D"], State]:
    """The hidden state of each prompt's last token, and the state after it."""
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    tokens = torch.zeros(len(prompts), int(lengths.max()), dtype=torch.long, device=device)
    for lane, prompt in enumerate(prompts):
        tokens[lane, : len(prompt)] = torch.tensor(prompt, device=device)
    unpadded = bool((lengths == lengths[0]).all())
    hidden, state = model(tokens, model.initial(len(prompts)), None if unpadded else lengths)
    return hidden[torch.arange(len(prompts), device=device), lengths - 1], state


Read = Callable[[Int[Tensor, " N"], State], tuple[Float[Tensor, "N V+1"], State]]
"""One more token of each lane, and the state before it, to scores with the end last, and the state after it."""


def decode(
    model: SequenceModel,
    logits: Callable[[Float[Tensor, "N D"]], Float[Tensor, "N V+1"]],
    state: State,
    *,
    start: int,
    end: int,
    max_tokens: Int[Tensor, " B"],
    beam: int = 1,
    length_penalty: float = 1.0,
) -> list[list[int]]:
    """The best target of each lane of a state that `model.begin` gave, without `start` and `end`.

    `logits` maps hidden states (N, D) to scores (N, V+1) with the `end` last. A target is at most `max_tokens` long,
    its end included, and is judged by log p / length**length_penalty; one that found no end by then counts as it is.
    A beam of 1 is greedy. Ties go to the better beam, then to the lower token. Raises ValueError for a beam or a
    `max_tokens` below 1.
    """
    if beam < 1 or int(max_tokens.min()) < 1:
        raise ValueError(f"beam={beam}, max_tokens={max_tokens.tolist()}: must be at least 1")

    def read(tokens: Int[Tensor, " N"], state: State) -> tuple[Float[Tensor, "N W"], State]:
        hidden, state = model(tokens.unsqueeze(1), state)
        return logits(hidden[:, -1]), state

    with torch.no_grad():
        if beam == 1:
            return _greedy(read, state, start, end, max_tokens)
        return _beam_search(read, state, start, end, max_tokens, beam, length_penalty)


def _greedy(read: Read, state: State, start: int, end: int, limits: Int[Tensor, " B"]) -> list[list[int]]:
    """The likeliest token again and again, until the end or the limit of each lane."""
    lanes = torch.arange(len(limits), device=limits.device)  # those that go on
    tokens = limits.new_full((len(limits), int(limits.max()) + 1), end)
    newest = torch.full_like(limits, start)
    for step in range(tokens.shape[1] - 1):
        logits, state = read(newest, state)
        newest = logits.argmax(-1)
        tokens[lanes, step] = newest
        open = (newest != end) & (step + 1 < limits[lanes])
        if not open.all():
            lanes, newest, state = lanes[open], newest[open], select(state, open)
        if not len(lanes):
            break
    return [target[: target.index(end)] for target in tokens.tolist()]


def _beam_search(
    read: Read,
    state: State,
    start: int,
    end: int,
    limits: Int[Tensor, " B"],
    beam: int,
    length_penalty: float,
) -> list[list[int]]:
    """The best finished hypothesis of each lane; one that finishes leaves its place in the beam empty.

    A lane stops when none of its live hypotheses can beat the best finished one: log p only falls, so the most that a
    hypothesis can come to is its log p so far over the kindest length.
    """
    lanes = torch.arange(len(limits), device=limits.device)  # those that go on
    answers: list[list[int]] = [[] for _ in lanes]
    tokens = limits.new_full((len(limits), 1, 1), start)  # (N, W, T): W hypotheses in each of N lanes
    log_probs = torch.zeros(len(limits), 1, dtype=torch.double, device=limits.device)  # log p; -inf: no hypothesis
    best = log_probs.new_full((len(limits),), -torch.inf)
    places = torch.full_like(limits, beam)  # that are not empty
    for step in range(1, int(limits.max()) + 1):
        logits, state = read(tokens[..., -1].flatten(), state)
        longer = log_probs.unsqueeze(-1) + logits.log_softmax(-1).unflatten(0, log_probs.shape)  # (N, W, V+1)
        log_probs, index = _largest(longer.flatten(1), beam)
        parents, newest = index // logits.shape[-1], index % logits.shape[-1]
        tokens = torch.cat([tokens.gather(1, parents.unsqueeze(-1).expand(-1, -1, step)), newest.unsqueeze(-1)], -1)
        log_probs[torch.arange(beam, device=lanes.device) >= places.unsqueeze(1)] = -torch.inf
        finished = (newest == end) | (limits.unsqueeze(1) == step)
        found, which = (log_probs.masked_fill(~finished, -torch.inf) / step**length_penalty).max(1)
        better = found > best
        for lane in better.nonzero().flatten().tolist():
            answers[int(lanes[lane])] = tokens[lane, which[lane], 1:].tolist()
        best = torch.where(better, found, best)
        places = places - (finished & (log_probs > -torch.inf)).sum(1)
        log_probs[finished] = -torch.inf
        kindest = limits.double() if length_penalty > 0 else step + 1
        open = best < log_probs.amax(1) / kindest**length_penalty
        if not open.any():
            break
        beams = torch.arange(len(lanes), device=lanes.device).unsqueeze(1) * longer.shape[1] + parents
        state = select(state, beams[open].flatten())
        lanes, limits, tokens, log_probs, best, places = (
            part[open] for part in (lanes, limits, tokens, log_probs, best, places)
        )
    return [answer[:-1] if answer[-1:] == [end] else answer for answer in answers]


def _largest(values: Float[Tensor, "N M"], count: int) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
    """The `count` largest of each row, in order, and their indices; `values` loses them.

    Of equals the first come first, which topk leaves open.
    """
    found = []
    for _ in range(count):
        found.append(values.max(1))
        values.scatter_(1, found[-1].indices.unsqueeze(1), -torch.inf)
    return torch.stack([each.values for each in found], 1), torch.stack([each.indices for each in found], 1)
