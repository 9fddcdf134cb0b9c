"""Memory that one step frees is there for the next one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

STEPS = """
import resource, sys, torch
from seqtrain.training.allocation import keep_freed_memory
kept = "keep" in sys.argv and keep_freed_memory()
def step():
    tensors = [torch.ones(2**20) for _ in range(8)]  # 4 MiB each
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
    assert faults()[1] > PAGES_OF_A_STEP  # what this is for
    kept, count = faults("keep")
    assert kept
    assert count < PAGES_OF_A_STEP / 10


def test_what_the_environment_says_of_memory_stays() -> None:
    assert not faults("keep", MALLOC_TRIM_THRESHOLD_="1000000")[0]
