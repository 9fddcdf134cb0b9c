"""Devices that compute bf16 in hardware. Emulation does not count: it is slower than float32."""

from __future__ import annotations

import functools

import torch


@functools.cache
def has_bf16_units(device_type: str) -> bool:
    """Return True if bf16 products are faster than float32 on this machine's `device_type`, `cpu` or `cuda`."""
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
