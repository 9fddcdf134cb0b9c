"""GRU-D against its equations, step by step and value by value, and in chunks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from seqtrain.errors import UserError
from seqtrain.models.base import reset
from seqtrain.models.gru_d import GRUD
from seqtrain.models.layers.front_ends import ValueProjection
from tests.support.model_cases import assert_near

MASKED = (True, False, True)  # of three channels, beside one column that is known ahead
CHANNELS, MASKS, DIM, LANES, TIME = 3, 2, 4, 2, 9


def make() -> GRUD:
    torch.manual_seed(0)
    front = ValueProjection(num_features=CHANNELS + 2 * MASKS + 1, dim=DIM, masked=MASKED)
    model = GRUD(embed=front, dim=DIM, dropout=0.0).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.eval()


def features() -> tuple[Tensor, Tensor, Tensor]:
    """Features as data=series gives them: values, masks and times; and the gaps of the paper, of lanes from nothing."""
    values = torch.randn(LANES, TIME, CHANNELS + 1, dtype=torch.float64)
    seen = torch.rand(LANES, TIME, MASKS) < 0.5
    since, gaps = torch.zeros(2, LANES, TIME, MASKS, dtype=torch.float64)
    for lane in range(LANES):
        for mask in range(MASKS):
            for time in range(TIME):
                before = since[lane, time - 1, mask] if time else 0.0
                gaps[lane, time, mask] = before + 1
                since[lane, time, mask] = 0.0 if seen[lane, time, mask] else before + 1
    channels = values[..., :CHANNELS].clone()
    channels[..., [0, 2]] *= seen
    return torch.cat([channels, seen, since.log1p(), values[..., CHANNELS:]], -1), seen, gaps


def reference(model: GRUD, x: Tensor, seen: Tensor, gaps: Tensor) -> Tensor:
    """The equations of Che et al. (2018), number by number; the gates are those of torch's GRU."""
    own = dict(model.named_parameters())
    rate, bias = own["input_rate"], own["input_bias"]
    lanes = []
    for lane in range(LANES):
        hidden = torch.zeros(DIM, dtype=torch.float64)
        last: list[Tensor] = [torch.zeros((), dtype=torch.float64)] * MASKS
        rows = []
        for time in range(TIME):
            gap, read = gaps[lane, time], list(x[lane, time].unbind())
            for mask, channel in enumerate((0, 2)):
                if seen[lane, time, mask]:
                    last[mask] = read[channel]
                else:
                    decay = torch.exp(-torch.clamp(rate[mask] * gap[mask] + bias[mask], min=0))
                    read[channel] = decay * last[mask]  # and (1 - decay) times the mean, which is 0
            decay = torch.exp(-torch.clamp(own["state_rates.weight"] @ gap + own["state_rates.bias"], min=0))
            hidden = decay * hidden
            embedded = own["embed.linear.weight"] @ torch.stack(read) + own["embed.linear.bias"]
            given = own["layer.weight_ih_l0"] @ embedded + own["layer.bias_ih_l0"]
            held = own["layer.weight_hh_l0"] @ hidden + own["layer.bias_hh_l0"]
            r, z = (given + held)[: 2 * DIM].sigmoid().chunk(2)
            new = torch.tanh(given[2 * DIM :] + r * held[2 * DIM :])
            hidden = (1 - z) * new + z * hidden
            rows.append(hidden)
        lanes.append(torch.stack(rows))
    return torch.stack(lanes)


def test_hidden_states_and_gradients_are_those_of_the_equations() -> None:
    model, (x, seen, gaps) = make(), features()
    x.requires_grad_()
    inputs = [x, *model.parameters()]
    one, two = model(x)[0], reference(model, x, seen, gaps)
    assert_near(one, two, 1e-10)
    weights = torch.randn_like(one)
    given, expected = (torch.autograd.grad((each * weights).sum(), inputs, allow_unused=True) for each in (one, two))
    for mine, other in zip(given[1:], expected[1:], strict=True):
        assert mine.abs().max() > 0
        assert_near(mine, other, 1e-10)
    assert_near(given[0][..., :CHANNELS], expected[0][..., :CHANNELS], 1e-10)


def test_chunks_equal_the_whole_though_values_miss_across_a_cut() -> None:
    model, (x, _, _) = make(), features()
    whole, end = model(x)
    for cuts in ([4], list(range(1, TIME))):
        state, parts = None, []
        for begin, stop in zip([0, *cuts], [*cuts, TIME], strict=True):
            hidden, state = model(x[:, begin:stop], state)
            parts.append(hidden)
        assert_near(torch.cat(parts, 1), whole, 1e-12)
        assert_near(state, end, 1e-12)
    fresh = reset(end, torch.tensor([True, True]))
    assert_near(model(x, fresh)[0], whole, 1e-12)


def test_padding_leaves_state_and_hidden_states_of_real_steps() -> None:
    model, (x, _, _) = make(), features()
    lengths = torch.tensor([3, TIME])
    hidden, state = model(x, None, lengths)
    alone, left = model(x[:1, :3])
    assert_near(hidden[:1, :3], alone, 1e-12)
    assert_near({name: value[:1] for name, value in state.items()}, left, 1e-12)


def test_what_is_never_seen_again_fades_to_the_mean() -> None:
    model, (x, _, _) = make(), features()
    with torch.no_grad():
        model.input_rate.fill_(1.0)
        model.input_bias.zero_()
    x = x[:1, :2].clone()
    x[0, 0, 0] = 1.0
    x[0, :, CHANNELS : CHANNELS + MASKS] = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    x[0, 1, CHANNELS + MASKS : CHANNELS + 2 * MASKS] = math.log1p(50)
    read = model._filled(x, model.initial(1))[0]
    assert read[0, 0, 0] == 1
    assert abs(read[0, 1, 0]) < 1e-20


def test_patches_are_refused() -> None:
    front = ValueProjection(num_features=4, dim=DIM, masked=(True,), patch=2)
    with pytest.raises(UserError, match=r"task.patch: model=gru_d reads missing values step by step"):
        GRUD(embed=front, dim=DIM, dropout=0.0)
