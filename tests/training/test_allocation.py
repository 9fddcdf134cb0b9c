"""Memory that one step frees is there for the next one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from seqtrain.training import speedups
from tests.conftest import REPOSITORY

STEPS = """
import ctypes, resource, sys
from seqtrain.training.speedups import M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, keep_freed_memory
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.mallopt(M_TRIM_THRESHOLD, 0)  # all is handed back: by itself glibc does so at some sizes and not at others
library.mallopt(M_MMAP_THRESHOLD, 2**17)
kept = "keep" in sys.argv and keep_freed_memory()
def step():
    blocks = [library.malloc(2**22) for _ in range(8)]
    for block in blocks:
        ctypes.memset(block, 1, 2**22)
    for block in reversed(blocks):
        library.free(ctypes.c_void_p(block))
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES_OF_A_STEP = 8 * 4 * 2**20 // os.sysconf("SC_PAGE_SIZE")


def faults(*words: str, **environment: str) -> tuple[bool, int]:
    """Whether freed memory is kept, and how often ten steps that allocate alike asked the system for a page."""
    surroundings = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    command = [sys.executable, "-c", STEPS, *words]
    said = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True).stdout.split()
    return said[0] == "1", int(said[1])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have settings of their own")
def test_a_step_gets_the_memory_that_the_one_before_it_freed() -> None:
    assert faults()[1] > PAGES_OF_A_STEP
    kept, count = faults("keep")
    assert kept
    assert count < PAGES_OF_A_STEP / 10


def test_what_the_environment_says_of_memory_stays() -> None:
    assert not faults("keep", MALLOC_TRIM_THRESHOLD_="1000000")[0]


def test_the_switch_leaves_out_all_that_only_makes_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTRAIN_SPEEDUPS", "0")
    monkeypatch.setattr(sys, "meta_path", [])
    speedups.quicken_imports()
    assert sys.meta_path == []
    assert not speedups.keep_freed_memory()
    monkeypatch.delenv("SEQTRAIN_SPEEDUPS")
    speedups.quicken_imports()
    assert len(sys.meta_path) == 1
