"""Protection against code and settings in the working folder, which may be untrusted."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from seqtrain.distributed.ranks import rank_info

SETTINGS = "matplotlibrc"


def distrust() -> None:
    """Stop Python processes started here from importing from the working folder; hide its matplotlib settings.

    Without this, a child would import `json` from there before the standard library's. PYTHONPATH still applies.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    shield_matplotlib()


def shield_matplotlib() -> None:
    """Make matplotlib, when it is imported, read the user's settings but not those of the working folder.

    They would name programs (text.usetex runs LaTeX) and modules (backend), and no option excludes them.
    """
    if "matplotlib" not in sys.modules and not any(isinstance(finder, _Matplotlib) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Matplotlib())


class _Matplotlib(MetaPathFinder):
    """Finder that locates matplotlib as usual and hides the settings of the working folder while it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == "matplotlib" else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with _hidden_settings():
                execute(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def _hidden_settings() -> Iterator[None]:
    """Hide settings in the working folder from `os.path.exists`, by which matplotlib asks for their name.

    The working folder itself is not changed: it is the same for all threads, which may be writing by relative paths.
    """
    exists = os.path.exists
    if os.path.lexists(SETTINGS) and rank_info().first:
        line = f"{SETTINGS} of the working folder is not read; `export MATPLOTLIBRC=./{SETTINGS}` has it read"
        print(line, file=sys.stderr, flush=True)
    os.path.exists = lambda path: path != SETTINGS and exists(path)  # type: ignore[assignment]
    try:
        yield
    finally:
        os.path.exists = exists
