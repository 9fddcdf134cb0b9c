"""Laws of the built wheel: installed, it works from any folder, with a user's own package beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqtrain.distributed.fork_server import ForkServer
from seqtrain.runs.directory import Run
from tests.conftest import REPOSITORY, Seqtrain
from tests.support import user
from tests.support.tiny import OPTIONS, corpus

PARTS = ("seqtrain", "conf", "pyproject.toml", "README.md", "LICENSE")
pytestmark = pytest.mark.long

TRAIN = ("train", *OPTIONS, "trainer.max_steps=4", "trainer.threads=1")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds nothing but the installed wheel; built without a network."""
    source, dist, library = (tmp_path_factory.mktemp(name) for name in ("source", "dist", "library"))
    for name in PARTS:
        part = REPOSITORY / name
        if part.is_dir():
            shutil.copytree(part, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(part, source)
    offline = ("--no-deps", "--no-index", "--quiet", "--disable-pip-version-check")
    _pip("wheel", *offline, "--no-build-isolation", "--wheel-dir", str(dist), str(source))
    _pip("install", *offline, "--target", str(library), *map(str, dist.glob("*.whl")))
    return library


def _pip(*args: str) -> None:
    answer = subprocess.run([sys.executable, "-m", "pip", *args], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr


@pytest.fixture(scope="module")
def wheel(installed: Path, seqtrain_environment: dict[str, str]) -> Iterator[Seqtrain]:
    """Runs commands of the installed wheel alone: neither the repository nor the working directory is looked into."""
    environment = {**seqtrain_environment, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    with ForkServer(["torch", "pytorch_lightning", "hydra", "rich.progress"], env=environment) as server:
        yield Seqtrain(server, environment)


def test_an_installed_wheel_trains_resumes_evaluates_and_predicts_from_an_empty_folder(
    wheel: Seqtrain, tmp_path: Path
) -> None:
    corpus(tmp_path)
    for args in (
        (*TRAIN, "run_dir=run"),
        ("resume", "run", "trainer.max_steps=6"),
        ("evaluate", "run", "--split", "test"),
        ("predict", "run", "line", "--length", "5"),
    ):
        answer = wheel(*args, cwd=tmp_path)
        assert answer.rc == 0, (args, answer.err)
    assert Run(tmp_path / "run").summary.steps == 6


def test_every_group_of_the_configuration_is_in_the_wheel(installed: Path) -> None:
    shipped = {path.relative_to(installed / "seqtrain" / "conf") for path in installed.glob("seqtrain/conf/**/*.yaml")}
    assert shipped == {path.relative_to(REPOSITORY / "conf") for path in REPOSITORY.glob("conf/**/*.yaml")}
    code = {path.relative_to(installed) for path in installed.glob("seqtrain/**/*.py")} - {Path("seqtrain/conf")}
    assert code >= {path.relative_to(REPOSITORY) for path in REPOSITORY.glob("seqtrain/**/*.py")}


def test_a_package_of_the_user_trains_outside_the_repository_if_it_is_trusted(
    wheel: Seqtrain, installed: Path, tmp_path: Path
) -> None:
    mine = user.package(corpus(tmp_path))
    (tmp_path / "my_package" / "__init__.py").write_text(
        "import sys, seqtrain\nprint('imported with', seqtrain.__file__, file=sys.stderr)\n"
    )
    env: dict[str, str | None] = {"PYTHONPATH": f"{installed}:{mine['PYTHONPATH']}"}
    args = (*TRAIN, *user.OPTIONS, "run_dir=run")
    refused = wheel(*args, cwd=tmp_path, env=env)
    assert refused.rc == 2
    assert refused.err.startswith("error: model._target_=my_package.mine.Mine: not a target that may run")
    assert "add --trust my_package" in refused.err
    assert "imported with" not in refused.err
    assert not (tmp_path / "run").exists()
    trained = wheel(*args, *user.TRUST, cwd=tmp_path, env=env)
    assert trained.rc == 0, trained.err
    assert f"imported with {installed / 'seqtrain' / '__init__.py'}" in trained.err
    for opening in (("predict", "run", "--length", "3"), ("evaluate", "run"), ("resume", "run", "trainer.max_steps=6")):
        answer = wheel(*opening, cwd=tmp_path, env=env)
        assert (answer.rc, "--trust my_package" in answer.err) == (2, True), (opening, answer.err)
        assert "imported with" not in answer.err
        answer = wheel(*opening, *user.TRUST, cwd=tmp_path, env=env)
        assert answer.rc == 0, (opening, answer.err)
    assert Run(tmp_path / "run").summary.trust == ["my_package"]
