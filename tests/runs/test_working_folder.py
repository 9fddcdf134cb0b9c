"""The working folder may be a stranger's: no Python of ours imports from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import joblib
import pytest

from seqtrain.cli.main import main
from seqtrain.distributed.fork_server import ForkServer

MODULES = (
    *("csv", "email", "json", "pickle", "random", "signal", "socket", "struct", "tempfile", "threading", "traceback"),
    *("numpy", "torch", "hydra", "sitecustomize", "usercustomize", "joblib", "cloudpickle"),
)
PACKAGES = ("seqtrain", "hydra_plugins/evil")


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What code of the working folder would leave, if any of it ran; the process stands in that folder."""
    folder, trace = tmp_path / "folder", tmp_path / "trace"
    code = f"open({str(trace)!r}, 'a').write(__name__ + ' ')\n"
    for name in (*MODULES, *(f"{package}/__init__" for package in PACKAGES)):
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    monkeypatch.chdir(folder)
    return trace


def test_the_server_that_commands_are_forked_from_imports_nothing_of_the_working_folder(trace: Path) -> None:
    with ForkServer(["json", "hydra.core.plugins"]) as server:
        answer = server.run(["--version"], timeout=60)
    assert (answer.rc, trace.exists()) == (0, False), answer.stderr


def test_the_workers_of_joblib_import_nothing_of_the_working_folder(trace: Path, capsys) -> None:
    main(["--version"])
    assert joblib.Parallel(n_jobs=2, timeout=60)(joblib.delayed(abs)(number) for number in (-1, -2)) == [1, 2]
    joblib.externals.loky.get_reusable_executor().shutdown(wait=True)  # pyright: ignore[reportAttributeAccessIssue]
    assert not trace.exists()


def test_the_command_as_a_module_imports_the_standard_library_from_where_it_is(trace: Path) -> None:
    for name in (*MODULES, *(f"{package}/__init__" for package in PACKAGES)):
        if name not in ("csv", "email"):  # python -m itself imports the others, before any code of ours
            Path(f"{name}.py").unlink()
    Path("seqtrain").rmdir()
    command = [sys.executable, "-m", "seqtrain", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.startswith("seqtrain")
    assert not trace.exists()


def test_what_pythonpath_names_is_imported_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (tmp_path / "my_package.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    main(["--version"])
    subprocess.run([sys.executable, "-c", "import my_package"], timeout=60, check=True)
