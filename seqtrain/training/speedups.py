"""Patches of other packages for speed, each with its measured gain; SEQTRAIN_SPEEDUPS=0 leaves them out.

Imports: Lightning needs two classes of torchmetrics. That package imports all of its metrics at once, and for them
scipy.signal, matplotlib and, if installed, transformers. Here it provides these two classes, and is imported
completely when anything else is requested. Python's garbage collector is off during these imports: it would scan all
that was imported, again and again, and find nothing.

Memory: the process keeps what a training step frees, because the next step requests as much again.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import logging
import os
import platform
import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

METRICS = "torchmetrics"
# The classes that Lightning imports, and their modules.
PARTS = {"Metric": "torchmetrics.metric", "MetricCollection": "torchmetrics.collections"}


def enabled() -> bool:
    """Return True unless SEQTRAIN_SPEEDUPS=0 leaves out everything in this file."""
    return os.environ.get("SEQTRAIN_SPEEDUPS") != "0"


def quicken_imports() -> None:
    """Make later imports of these packages in this process faster.

    Measured over four interleaved pairs of `train` with two steps: otherwise 1.9 times the processor time.
    """
    if enabled() and not any(isinstance(finder, QuickFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, QuickFinder())


class QuickFinder(MetaPathFinder):
    """Finder that locates these packages as usual and gives them another loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in LOADERS:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = LOADERS[fullname](spec.loader)
        return spec


class QuickLoader(Loader):
    """Loader that wraps a package's own loader while the package is loaded."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module now names its own loader, which others use to read its files.
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader
        self.load(module)

    @abstractmethod
    def load(self, module: ModuleType) -> None:
        """Fill the module."""


class WithoutCollector(QuickLoader):
    """Loader that disables the garbage collector; it never scans the loaded objects later."""

    def load(self, module: ModuleType) -> None:
        with _without_collector():
            self.loader.exec_module(module)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    if not gc.isenabled():  # within another package, or disabled by the user
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class InParts(QuickLoader):
    """Loader that provides a part of a module, and loads the whole if anything else is requested."""

    def load(self, module: ModuleType) -> None:
        def attribute(name: str) -> Any:
            part = self.part(name)
            if part is not None:
                return part
            if name.startswith("__"):  # requested from any module, as by `inspect`
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            self.whole(module)
            return getattr(module, name)

        self.begin(module)
        module.__getattr__ = attribute  # type: ignore[method-assign]

    def whole(self, module: ModuleType) -> None:
        """Load the whole module, once."""
        if module.__dict__.pop("__getattr__", None) is not None:
            self.loader.exec_module(module)

    @abstractmethod
    def begin(self, module: ModuleType) -> None:
        """Set the attributes that exist from the beginning."""

    def part(self, name: str) -> Any:
        """Return the value of this name before the whole is loaded; None: load the whole."""
        return None


class TwoClasses(InParts):
    """torchmetrics with the two classes that Lightning uses."""

    def begin(self, module: ModuleType) -> None:
        from importlib.metadata import version  # imported here: it imports email and csv, not needed without Lightning

        # Attributes that its modules use from the package.
        module.__version__ = version(METRICS)  # type: ignore[attr-defined]
        module._logger = logging.getLogger(METRICS)  # type: ignore[attr-defined]

    def part(self, name: str) -> Any:
        if name not in PARTS:
            return None
        importlib.import_module(f"{METRICS}.utilities")  # metric.py alone would be a circular import
        return getattr(importlib.import_module(PARTS[name]), name)


class NothingDrawn(InParts):
    """torchmetrics' plots. matplotlib, which takes half a second to import, is only imported when one is drawn."""

    def begin(self, module: ModuleType) -> None:
        def draw(*args: Any, **options: Any) -> Any:
            self.whole(module)
            return module.plot_single_or_multi_val(*args, **options)

        # Attributes that the two classes use: a function that their `plot` calls, and annotations.
        module.plot_single_or_multi_val = draw  # type: ignore[attr-defined]
        module._AX_TYPE = module._PLOT_OUT_TYPE = object  # type: ignore[attr-defined]


LOADERS: dict[str, type[QuickLoader]] = {
    "torch": WithoutCollector,
    "torch._dynamo": WithoutCollector,
    "lightning_fabric": WithoutCollector,
    "pytorch_lightning": WithoutCollector,
    METRICS: TwoClasses,
    f"{METRICS}.utilities.plot": NothingDrawn,
}

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
        True if glibc keeps it now. False if the C library is another one, or if the environment sets or refuses it.
    """
    given = any(name in os.environ for name in OWN_SETTINGS)
    if given or not enabled() or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # In this order: the second one alone would give every larger block its own pages, and halve the speed.
    return bool(mallopt(M_MMAP_THRESHOLD, MAX_MMAP_THRESHOLD) and mallopt(M_TRIM_THRESHOLD, MAX_KEPT))
