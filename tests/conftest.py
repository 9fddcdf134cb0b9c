"""What tests share: commands run in processes forked from one preloaded server, and the shared data sets."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import seqtrain as package
from seqtrain.distributed.fork_server import Child, ForkServer

REPOSITORY = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "pytorch_lightning", "hydra", "datasets", "tokenizers", "matplotlib.figure", "rich.progress", "wandb")
SECONDS = 120.0  # that a command may take

Changes = dict[str, str | None]


@dataclass(frozen=True)
class Answer:
    """How a command ended: exit status (-9 where signal 9 ended it), standard output and error, seconds it took."""

    rc: int
    out: str
    err: str
    seconds: float


@dataclass(frozen=True)
class Seqtrain:
    """Runs `seqtrain ...`: call it for a whole command, or `start` one to watch and kill it."""

    server: ForkServer
    environment: dict[str, str]

    def __call__(self, *args: str, cwd: Path | str, env: Changes | None = None, timeout: float = SECONDS) -> Answer:
        """Runs the command to its end in `cwd`; `env` changes the default environment, None takes a name away."""
        result = self.server.run(args, cwd=cwd, env=self._changed(env), timeout=timeout)
        return Answer(result.rc, result.stdout, result.stderr, result.seconds)

    def start(self, *args: str, cwd: Path | str, env: Changes | None = None) -> Child:
        """Starts the command in `cwd`."""
        return self.server.popen(args, cwd=cwd, env=self._changed(env))

    def _changed(self, env: Changes | None) -> dict[str, str]:
        changed = {**self.environment, **(env or {})}
        return {name: value for name, value in changed.items() if value is not None}


def own_modules() -> list[str]:
    """Every module of seqtrain."""
    return [module.name for module in pkgutil.walk_packages(package.__path__, "seqtrain.")]


@pytest.fixture(autouse=True)
def _trusted_working_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put PYTHONSAFEPATH back after a command in this process: children of later tests import beside their scripts."""
    monkeypatch.setenv("PYTHONSAFEPATH", "")  # so that it is put back, also where it was not set before
    monkeypatch.delenv("PYTHONSAFEPATH")


@pytest.fixture(scope="session")
def seqtrain_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a command: a cache of its own, one thread, no network, no colours."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("SEQTRAIN_", "WANDB_", "MLFLOW_"))
    }
    return {
        **kept,
        "SEQTRAIN_CACHE": str(tmp_path_factory.mktemp("cache")),
        "WANDB_MODE": "offline",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "MPLCONFIGDIR": str(tmp_path_factory.mktemp("matplotlib")),
        "NO_COLOR": "1",
    }


@pytest.fixture(scope="session")
def server(seqtrain_environment: dict[str, str]) -> Iterator[ForkServer]:
    """A fork server that has imported every module of seqtrain and what they rest on, and composed a config once."""
    with ForkServer([*HEAVY, *own_modules(), "seqtrain.config.check:warm"], env=seqtrain_environment) as server:
        yield server


@pytest.fixture(scope="session")
def seqtrain(server: ForkServer, seqtrain_environment: dict[str, str]) -> Seqtrain:
    """`seqtrain("train", "model=lstm", cwd=folder)` gives rc, out, err and seconds; `seqtrain.start(...)` a process."""
    return Seqtrain(server, seqtrain_environment)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of shared data sets; a test that needs it is skipped where it is not there."""
    root = Path(os.environ.get("SEQTRAIN_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"{root} is not there: set SEQTRAIN_SHARED_DATA to the folder of shared data sets")
    return root
