"""Which devices compute in bf16 by themselves: emulation does not count, for it is slower than float32."""

from __future__ import annotations

import functools

import torch


@functools.cache
def has_bf16_units(device_type: str) -> bool:
    """Whether products in bf16 are faster than in float32 on this machine's devices of this type, `cpu` or `cuda`."""
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
