"""A peer: an LSTM or GRU, and the loop that a person would write for it; the state is carried, and cut off behind."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.peers import turns

State = tuple[Tensor, Tensor] | Tensor


class Model(nn.Module):
    """torch's fused LSTM, or GRU of three gates, and a head that shares the embedding's weights."""

    def __init__(self, *, vocab_size: int, dim: int, num_layers: int, gates: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.core = {3: nn.GRU, 4: nn.LSTM}[gates](dim, dim, num_layers, batch_first=True)
        self.head = nn.Linear(dim, vocab_size, bias=False)
        nn.init.normal_(self.embed.weight, std=dim**-0.5)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor, state: State | None) -> tuple[Tensor, State]:
        hidden, state = self.core(self.embed(tokens), state)
        return self.head(hidden), state


def train(work: turns.Work) -> None:
    """Trains on all batches; one step each."""
    model = Model(**work.sizes)
    optimizer = turns.adamw(model)
    state = None
    work.ready(model)
    for batch in work:
        with work.autocast():
            logits, state = model(batch["tokens"], state)
            loss = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), ignore_index=-100)
        # The gradient reaches back to the begin of this chunk.
        state = state.detach() if isinstance(state, Tensor) else (state[0].detach(), state[1].detach())
        turns.update(model, optimizer, loss)


if __name__ == "__main__":
    train(turns.from_command_line())
