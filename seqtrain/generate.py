"""Generation from any model with state: greedy, temperature, top-k (Fan et al. 2018), top-p (Holtzman et al. 2020)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from seqtrain.interface import SequenceModel


def continue_tokens(
    model: SequenceModel,
    scores: Callable[[Tensor], Tensor],
    prompts: list[list[int]],
    *,
    num_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> Iterator[Tensor]:
    """Yields `num_tokens` times the next token of every prompt: (B,), on the CPU.

    `scores` maps hidden states (B, D) to scores (B, V); temperature 0 is greedy. Each prompt draws from its own
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
            token = pick(scores(hidden), draws[:, step].to(device), temperature, top_k, top_p)
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


def pick(scores: Tensor, draw: Tensor, temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
    """One token of each row of scores (B, V) by inverting the distribution's sum at `draw` (B,) in [0, 1)."""
    if temperature == 0:
        return scores.argmax(-1)
    order = scores.double().div(temperature).sort(dim=-1, descending=True, stable=True)
    chances = order.values.softmax(-1)
    if top_k is not None:
        chances[:, top_k:] = 0
    if top_p is not None:
        # Keeps the smallest set that reaches top_p: all whose predecessors have not reached it yet.
        chances[(chances.cumsum(-1) - chances) >= top_p] = 0
    sums = chances.cumsum(-1)
    place = torch.searchsorted(sums, (draw * sums[:, -1]).unsqueeze(1), right=True).squeeze(1)
    place = place.clamp(max=(chances > 0).sum(-1) - 1)
    return order.indices.gather(1, place.unsqueeze(1)).squeeze(1)


def _read(model: SequenceModel, prompts: list[list[int]], device: torch.device) -> tuple[Tensor, dict[str, Tensor]]:
    """The hidden state of each prompt's last token, and the state after it."""
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    tokens = torch.zeros(len(prompts), int(lengths.max()), dtype=torch.long, device=device)
    for lane, prompt in enumerate(prompts):
        tokens[lane, : len(prompt)] = torch.tensor(prompt, device=device)
    even = bool((lengths == lengths[0]).all())
    hidden, state = model(tokens, model.initial(len(prompts)), None if even else lengths)
    return hidden[torch.arange(len(prompts), device=device), lengths - 1], state
