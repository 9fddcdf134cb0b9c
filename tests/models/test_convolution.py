"""Convolutions along time equal torch's, whatever the layout of what they read."""

from __future__ import annotations

from itertools import product

import torch
from torch.nn import functional as F

from seqtrain.models.layers.convolution import convolve


def test_a_convolution_and_its_gradients_are_torchs() -> None:
    for (dilation, groups), last in product([(1, 1), (3, 1), (1, 6), (2, 3)], (False, True)):
        torch.manual_seed(0)
        x = torch.randn(2, 11, 6).transpose(1, 2) if last else torch.randn(2, 6, 11)
        parts = [part.double().requires_grad_() for part in (x, torch.randn(12, 6 // groups, 3), torch.randn(12))]
        x, weight, bias = parts
        ours = convolve(x, weight, bias, dilation=dilation, groups=groups)
        theirs = F.conv1d(x, weight, bias, dilation=dilation, groups=groups)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)
        pairs = (torch.autograd.grad(each.square().sum(), parts) for each in (ours, theirs))
        for one, other in zip(*pairs, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
