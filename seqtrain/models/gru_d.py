"""GRU-D (Che et al. 2018, arXiv 1606.01865): a GRU whose inputs and state decay while values are missing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from seqtrain.errors import UserError
from seqtrain.models.base import Capability, SequenceModel, State, read_by_length
from seqtrain.models.layers.recurrence import run_fused


class GRUD(SequenceModel):
    """One layer of h_t = GRU(embed(x'_t, m_t), exp(-max(0, W d_t + b)) h_{t-1}).

    m_t tells which values were observed at step t, and d_t how many steps earlier each was last observed. A missing
    value is read as x'_t = exp(-max(0, w d_t + c)) x, with x its last observed value: it decays to 0, the mean of
    train. d_t is linear in time here, while the data's features contain its logarithm.

    For tokens, and for series without missing values in train, the model is a GRU.
    """

    capabilities = Capability.CAUSAL | Capability.STATEFUL | Capability.CONDITIONAL | Capability.UNCONDITIONAL

    def __init__(self, *, embed: nn.Module, dim: int, dropout: float) -> None:
        """Build the model. Raise UserError for patches of several time steps."""
        super().__init__()
        if getattr(embed, "patch", 1) > 1:
            raise UserError("task.patch: model=gru_d reads missing values step by step; use task.patch=1")
        self.embed = embed
        self.dim = dim
        self.dropout = nn.Dropout(dropout)
        self.layer = nn.GRU(dim, dim, batch_first=True)
        # For real values: C channels, M of them with a mask. Features are C values, M masks, M logarithms of time, then
        # others.
        masked: Sequence[bool] = getattr(embed, "masked", ())
        self.num_channels, self.num_masked = len(masked), sum(masked)
        if self.num_masked:
            places = [channel for channel, is_masked in enumerate(masked) if is_masked]
            self.register_buffer("places", torch.tensor(places), persistent=False)
            # Positive, because a negative initial rate would have no gradient.
            self.input_rate = nn.Parameter(torch.empty(self.num_masked).uniform_(0, dim**-0.5))
            self.input_bias = nn.Parameter(torch.zeros(self.num_masked))
            self.state_rates = nn.Linear(self.num_masked, dim)

    def simpler(self) -> str | None:
        """Return a line if nothing decays, so that the model is a GRU."""
        return None if self.num_masked else "model=gru_d is a GRU here: it reads no mask of missing values"

    def initial(self, batch: int) -> State:
        like = next(self.layer.parameters())
        state = {"hidden": like.new_zeros(batch, self.dim)}
        if self.num_masked:
            state["last"] = like.new_zeros(batch, self.num_masked)  # last observed values
            state["since"] = like.new_zeros(batch, self.num_masked)  # logarithm of 1 + the number of steps since then
        return state

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *F"],
        state: State | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], State]:
        if state is None:
            state = self.initial(len(tokens))
        return read_by_length(self._read, tokens, state, lengths)

    def _read(self, tokens: Shaped[Tensor, "B T *F"], state: State) -> tuple[Float[Tensor, "B T D"], State]:
        """Read tokens, or features, without padding."""
        if not self.num_masked:
            x = self.dropout(self.embed(tokens))
            hidden, (after,) = run_fused(self.layer, x, [state["hidden"].unsqueeze(1)])
            return self.dropout(hidden), {"hidden": after.squeeze(1).to(state["hidden"].dtype)}
        features, gaps, new = self._filled(tokens, state)
        x = self.dropout(self.embed(features)).to(state["hidden"].dtype)
        kept = torch.exp(-self.state_rates(gaps).relu())
        hidden, steps = state["hidden"], []
        for step, keep in zip(x.unbind(1), kept.unbind(1), strict=True):
            hidden = torch.gru_cell(step, keep * hidden, *self.layer.all_weights[0])
            steps.append(hidden)
        new["hidden"] = hidden.to(state["hidden"].dtype)
        return self.dropout(torch.stack(steps, 1)), new

    def _filled(
        self, features: Float[Tensor, "B T F"], state: State
    ) -> tuple[Float[Tensor, "B T F"], Float[Tensor, "B T M"], State]:
        """Return the features with decayed missing values, the steps since each value was last observed, and the state.

        The state lacks `hidden`.
        """
        begin = self.num_channels
        values = features.index_select(-1, self.places)  # type: ignore[arg-type]
        seen, since = features[..., begin:].split(self.num_masked, -1)[:2]
        is_seen = seen > 0
        before = torch.cat([state["since"].unsqueeze(1).to(since.dtype), since[:, :-1]], 1)
        gaps = torch.where(is_seen, before.expm1() + 1, since.expm1())
        # The newest observed value is at the highest index so far; index 0 is the value of the state.
        place = torch.arange(1, values.shape[1] + 1, device=values.device)[:, None]
        newest = torch.where(is_seen, place, 0).cummax(1).values
        known = torch.cat([state["last"].unsqueeze(1).to(values.dtype), values], 1)
        last = known.gather(1, newest)
        faded = last * torch.exp(-(self.input_rate * gaps + self.input_bias).relu())
        read = torch.where(is_seen, values, faded.to(values.dtype))
        after = {"last": last[:, -1].to(state["last"].dtype), "since": since[:, -1].to(state["since"].dtype)}
        return features.index_copy(-1, self.places, read), gaps, after  # type: ignore[arg-type]

    def sequential_steps(self, length: int) -> int:
        return length

    def longest_path(self, length: int) -> int:
        return length

    def flops_per_token(self, length: int, carried: bool) -> float:
        return super().flops_per_token(1, carried)  # each token costs the same; torch counts step by step
