"""The state that is carried from chunk to chunk, by slices of the lanes, and joined over processes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from seqtrain.models.base import State, detach, reset, select


class CarriedState:
    """The state that one stage carries from chunk to chunk, by slice of the global lanes."""

    def __init__(self) -> None:
        self.slices: dict[tuple[int, int], State] = {}

    def take(self, lanes: slice) -> State | None:
        """The state of these lanes, or None where nothing is carried yet."""
        return self.slices.get((lanes.start, lanes.stop))

    def put(self, lanes: slice, state: State) -> None:
        self.slices[lanes.start, lanes.stop] = detach(state)

    def on_cpu(self) -> dict[tuple[int, int], State]:
        """The slices, to be told to other processes."""
        return {key: {name: value.cpu() for name, value in state.items()} for key, state in self.slices.items()}

    def forget_broken(self) -> None:
        """Puts the lanes whose state is no number back at nothing read; the others keep theirs."""
        for lanes, state in self.slices.items():
            sound = [value.isfinite().unsqueeze(-1).flatten(1).all(1) for value in state.values()]
            self.slices[lanes] = reset(state, ~torch.stack(sound).all(0))

    def spread(self, state: State, slices: list[slice], device: torch.device) -> None:
        """Takes a whole state apart into the slices of this layout."""
        self.slices = {}
        for lanes in slices if state else ():
            self.slices[lanes.start, lanes.stop] = {
                name: value.to(device) for name, value in select(state, lanes).items()
            }


def joined(slices: Sequence[dict[tuple[int, int], State]]) -> State:
    """The state of all lanes in order, whatever slices of them each process has read."""
    every = {key: state for one in slices for key, state in one.items()}
    parts = [every[key] for key in sorted(every)]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]} if parts else {}
