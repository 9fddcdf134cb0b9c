"""Speedups change no result: imported packages are the same, memory that a step frees is kept for the next one."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from seqtrain.training import speedups
from tests.conftest import REPOSITORY

IMPORTED = """
import gc, sys
from seqtrain.training import speedups

speedups.quicken_imports()
speedups.quicken_imports()  # once is enough
import pytorch_lightning
from pytorch_lightning.core import module

assert gc.isenabled()
assert "torchmetrics.classification" not in sys.modules, "all metrics were imported"
assert "scipy.signal" not in sys.modules
assert "matplotlib" not in sys.modules
import torchmetrics

assert module.Metric is torchmetrics.Metric
assert "torchmetrics.classification" not in sys.modules
metric = torchmetrics.MeanMetric()  # asks for more than Lightning does
metric.update(3.0)
assert metric.compute() == 3.0
assert isinstance(metric, module.Metric)
assert module.MetricCollection is torchmetrics.MetricCollection
from torchmetrics import functional

assert torchmetrics.functional is functional
assert torchmetrics.__spec__.loader is torchmetrics.__loader__
assert type(torchmetrics.__loader__).__name__ == "SourceFileLoader"
assert torchmetrics.__version__ == torchmetrics.__about__.__version__
assert not hasattr(torchmetrics, "no_such_metric")
"""

DRAWN = """
import sys
from seqtrain.training import speedups

speedups.quicken_imports()
import pytorch_lightning
from torchmetrics import Metric
import torch

class Last(Metric):
    def __init__(self):
        super().__init__()
        self.add_state("last", torch.tensor(0.0))

    def update(self, value):
        self.last = torch.tensor(value)

    def compute(self):
        return self.last

metric = Last()
metric.update(3.0)
assert "matplotlib" not in sys.modules
figure, axes = metric._plot()  # what `plot` of its metrics is
from matplotlib.figure import Figure

assert isinstance(figure, Figure)
assert axes.has_data()
assert metric._plot(ax=axes)[1] is axes
from torchmetrics.utilities.plot import plot_confusion_matrix, plot_single_or_multi_val

assert plot_single_or_multi_val.__module__ == "torchmetrics.utilities.plot"
"""

LEFT = """
import atexit, sys, threading, time
from seqtrain import terminal

atexit.register(print, "at exit")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print("result", end=" ")
terminal.leave(3)
"""


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)


@pytest.mark.long
def test_lightning_and_torchmetrics_are_what_they_are_without_it() -> None:
    done = python(IMPORTED)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_metric_draws_as_it_does_without_it() -> None:
    done = python(DRAWN)
    assert done.returncode == 0, done.stderr


def test_a_process_leaves_when_its_threads_have_ended_and_all_is_written() -> None:
    done = python(LEFT)
    assert (done.returncode, done.stdout, done.stderr) == (3, "result thread\nat exit\n", "")


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


MAKE = """
import sys
from seqtrain.config import check
from seqtrain.training.model_and_task import make_model, on_meta

models = [(["lstm"], None), (["gpt"], None), (["bert"], None), (["encoder_decoder", "task=translation"], 50)]
for words, target in models:
    with on_meta():
        model = make_model(check.compose([f"model={words[0]}", *words[1:]]).config, 50, target_vocab_size=target)
    assert all(weight.is_meta for weight in model.parameters()), words
assert "torch._dynamo" not in sys.modules, "torch's compiler was imported"
"""


@pytest.mark.long
def test_a_model_on_the_meta_device_is_made_without_torch_s_compiler() -> None:
    done = python(MAKE)
    assert done.returncode == 0, done.stderr[-500:]
