"""The stack of convolutions against sums over taps written out, and how far it sees."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqtrain.models.cnn import CNN
from tests.support.model_cases import Case, assert_near, some_tokens

KINDS = [(2, True), (3, True), (4, True), (3, False), (5, False)]  # kernel_size, causal


def made(kernel_size: int, causal: bool, **options: int) -> CNN:
    model = Case("cnn", (("kernel_size", kernel_size), ("causal", causal))).make(**options)
    assert isinstance(model, CNN)
    return model


def taps(convolution: nn.Conv1d, x: list[Tensor], causal: bool, dilation: int) -> list[Tensor]:
    """The convolution of vectors x, position by position; nothing stands outside them."""
    weight, bias = convolution.parameters()
    kernel_size = weight.shape[2]
    out = []
    for place in range(len(x)):
        first = place - (kernel_size - 1) * dilation // (1 if causal else 2)
        reads = [(tap, first + tap * dilation) for tap in range(kernel_size)]
        out.append(bias + sum(weight[:, :, tap] @ x[index] for tap, index in reads if 0 <= index < len(x)))
    return out


def test_hidden_states_equal_sums_over_taps() -> None:
    tokens, lengths = some_tokens(2, 15), torch.tensor([15, 9])
    for kernel_size, causal in KINDS:
        model = made(kernel_size, causal)
        hidden = model(tokens, None, lengths)[0]
        for lane, length in enumerate(lengths.tolist()):
            x = list(model.embed(tokens[lane, :length]))
            for layer, (norm, (first, second)) in enumerate(zip(model.norms, model.blocks, strict=False)):  # type: ignore[misc]
                inner = taps(first, [norm(vector) for vector in x], causal, 2**layer)
                inner = taps(second, [F.gelu(vector) for vector in inner], causal, 2**layer)
                x = [vector + more for vector, more in zip(x, inner, strict=True)]
            assert_near(hidden[lane, :length], torch.stack([model.norms[-1](vector) for vector in x]), 1e-12)


def test_a_hidden_state_sees_its_receptive_field_and_no_further() -> None:
    for (kernel_size, causal), num_layers in product(KINDS, (1, 3)):
        model = made(kernel_size, causal, num_layers=num_layers)
        assert model.receptive_field == 1 + 2 * (kernel_size - 1) * (2**num_layers - 1)
        width = 2 * model.receptive_field + 1
        embedded = model.embed(some_tokens(1, width)).detach().requires_grad_()
        model.embed = nn.Identity()
        (gradient,) = torch.autograd.grad(model(embedded)[0][0, width // 2].sum(), embedded)
        seen = gradient[0].abs().sum(-1).nonzero().flatten().tolist()
        back = model.receptive_field - 1 if causal else model.receptive_field // 2
        assert (min(seen), max(seen)) == (width // 2 - back, width // 2 + (0 if causal else back)), (
            kernel_size,
            causal,
        )
