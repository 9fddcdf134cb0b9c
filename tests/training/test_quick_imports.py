"""Packages that the command line imports faster are the same packages."""

from __future__ import annotations

import subprocess
import sys

import pytest

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

NO_COLLECTION = """
import gc
from seqtrain.training import speedups

speedups.quicken_imports()
passes = []
gc.callbacks.append(lambda phase, info: passes.append(phase))
import torch

assert len(passes) < 4, len(passes)  # torch alone causes hundreds
assert gc.isenabled() and gc.get_freeze_count() > 10_000
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


@pytest.mark.long
def test_nothing_is_collected_while_torch_is_imported() -> None:
    done = python(NO_COLLECTION)
    assert done.returncode == 0, done.stderr


def test_a_process_leaves_when_its_threads_have_ended_and_all_is_written() -> None:
    done = python(LEFT)
    assert (done.returncode, done.stdout, done.stderr) == (3, "result thread\nat exit\n", "")
