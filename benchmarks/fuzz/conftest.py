"""What fuzz tests share: a fork server whose commands are bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.fuzz.law import Law
from seqtrain.distributed.fork_server import ForkServer
from tests.conftest import HEAVY, REPOSITORY, own_modules, seqtrain_environment  # noqa: F401  # a fixture


@pytest.fixture(scope="session")
def law(seqtrain_environment: dict[str, str]) -> Iterator[Law]:  # noqa: F811
    """`law.flaw("train", ..., cwd=folder, untouched=folders)` says what is wrong with how a command ends, or None."""
    env = {**seqtrain_environment, "CUDA_VISIBLE_DEVICES": ""}
    modules = [*HEAVY, *own_modules(), "benchmarks.fuzz.law"]
    with ForkServer(modules, target="benchmarks.fuzz.law:target", env=env | {"PYTHONPATH": str(REPOSITORY)}) as server:
        yield Law(server, env)
