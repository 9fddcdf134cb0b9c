"""What the tests under SLURM share: one cluster, and the script of docs/slurm.md."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.slurm.cluster import Cluster, slurm


@pytest.fixture(scope="session")
def cluster(seqtrain_environment: dict[str, str]) -> Iterator[Cluster]:
    """A SLURM of two nodes, whose jobs find the `seqtrain` of this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{seqtrain_environment['PATH']}"
    with slurm(seqtrain_environment | {"PATH": path}) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def script() -> str:
    """The one script that docs/slurm.md shows."""
    (found,) = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", (REPOSITORY / "docs" / "slurm.md").read_text(), re.DOTALL)
    return found
