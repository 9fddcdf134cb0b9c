"""Keep memory freed by a training step in the process: the next step asks for as much again."""

from __future__ import annotations

import ctypes
import os
import platform

# Parameters of glibc's `mallopt` (man 3 mallopt), and the largest block that it can keep in its heap.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MAX_MMAP_THRESHOLD = 32 * 2**20  # bytes
MAX_KEPT = 2**30  # bytes of free memory at the end of the heap
OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory, up to a gibibyte, instead of returning it to the system.

    The tensors of a step are freed at its end. If they are returned, the system has to provide each of their pages
    again and fill it with zeros in the next step, which took a quarter of the step of an LSTM in bf16
    (docs/benchmarks.md).

    Returns:
        True if glibc keeps it now. False if the C library is another one, or if the environment sets this already.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in OWN_SETTINGS):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # In this order: the second one alone would give every larger block its own pages, and halve the speed.
    return bool(mallopt(M_MMAP_THRESHOLD, MAX_MMAP_THRESHOLD) and mallopt(M_TRIM_THRESHOLD, MAX_KEPT))
