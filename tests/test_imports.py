"""The layering of the package, read from its sources: who may know whom."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import seqtrain
from tests.support.untrained_runs import NEXT_TOKEN, make_run

ROOT = Path(seqtrain.__file__).parent
MODULES = {
    ".".join(("seqtrain", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
    if "conf" not in path.relative_to(ROOT).parts
}
NAMES = {*MODULES, "seqtrain.conf"}

MAY_IMPORT = {
    "__main__": "cli",
    "errors": "",
    "terminal": "",
    "files": "",
    "distributed": "",
    "models": "",
    "data": "files",
    "tasks": "models data",
    "config": "files data distributed",
    "runs": "files data distributed config",
    "training": "files data distributed config conf runs models tasks inference sweeps",
    "hub": "files data config runs models tasks training",
    "inference": "files data config runs models tasks training hub",
    "analysis": "experiment files data distributed config runs models tasks training inference",
    "sweeps": "files distributed config runs tasks training",
    "compare": "files config runs sweeps tasks",
    "api": "experiment config training inference sweeps compare analysis",
    "experiment": "files data distributed config runs models tasks training inference",
    "cli": "experiment files data distributed config conf runs models tasks training inference analysis sweeps compare "
    "api hub",
    "": "api runs",
}
"""What each room may import of seqtrain, beside itself, errors and terminal; the last one is the package."""

ONLY = {
    "pytorch_lightning": ("training", "distributed.strategies"),
    "hydra": ("config", "cli", "sweeps"),
    "omegaconf": ("experiment", "config", "cli", "sweeps", "training", "analysis", "inference.opened", "hub.convert"),
    "wandb": ("training.loggers.wandb_logger",),
    "mlflow": ("training.loggers",),
    "trackio": ("training.loggers",),
    "datasets": ("data.sources.hub",),
    "onnx": ("hub.onnx_export",),
    "onnx_ir": ("hub.onnx_export",),
    "onnxruntime": ("hub.onnx_export",),
    "tokenizers": ("data.tokenizers", "data.corpus", "data.preprocess"),
    "babel": ("data.sources",),
    "sacrebleu": ("tasks.metrics",),
    "scipy": ("analysis", "compare", "tasks.baselines", "tasks.metrics", "tasks.forecast_heads", "tasks.regress"),
    "plotly": ("compare.page", "compare.compared"),
    "pandas": ("data.values.blocks", "compare.records", "compare.compared", "compare.paper_table"),
    "IPython": ("training.callbacks.progress",),
    "optuna": ("sweeps.search", "sweeps.study", "training.callbacks.pruning", "compare.importance"),
    "sklearn": ("tasks.baselines.texts", "inference.probing", "inference.probes"),
    "matplotlib": (
        "analysis",
        "training.callbacks",
        "training.loggers",
        "inference.attention_maps",
        "inference.forecast_plot",
        "inference.gates",
    ),
    "lightning": (),
}
"""Who may know a package."""

WITH_TORCH = {f"seqtrain.data.batching.{name}" for name in ("stream", "examples", "loader", "masking", "values")}
"""The part of data that holds tensors."""

TASKS_KNOW = (
    "data.batching.",
    "data.values.",
    "data.preprocess",
    "data.sources.base",  # LabelKind
    "data.tokenizers.encoding",
    "data.corpus",
    "data.cache",
)
"""What of data tasks may import: rows and batches, not where they come from."""

SHARED = {
    *(f"seqtrain.models.{name}" for name in ("base", "contract", "decoding", "stepper")),
    *(
        f"seqtrain.tasks.{name}"
        for name in (
            "base",
            "chain",
            "contract",
            "forecast_heads",
            "hooks",
            "least_squares",
            "masked_text",
            "numbered",
            "output",
            "predictors",
            "tagged",
        )
    ),
}
"""What stands in the rooms of models and tasks and is neither."""

LATE = {
    ("seqtrain.cli.main", "importlib.metadata"),
    ("seqtrain.training.speedups", "importlib.metadata"),
    ("seqtrain.cli.compare", "seqtrain.compare.page.report"),
    ("seqtrain.cli.sweep", "seqtrain.compare.table"),
    ("seqtrain.cli.train", "seqtrain.cli.sweep"),
    ("seqtrain.cli.train", "seqtrain.sweeps.attempts"),
    ("seqtrain.experiment.data", "seqtrain.inference.opened"),
    ("seqtrain.experiment.story", "seqtrain.training.rehearsal"),
    ("seqtrain.tasks.least_squares", "seqtrain.tasks.baselines.autoregression"),
    ("seqtrain.tasks.least_squares", "seqtrain.tasks.baselines.forecasts"),
    ("seqtrain.inference.opened", "seqtrain.hub.convert"),
    ("seqtrain.training.origins", "seqtrain.inference.opened"),
    ("seqtrain.training.callbacks.samples", "seqtrain.inference.forecast_plot"),
    ("seqtrain.distributed.strategies", "torch.distributed.fsdp"),
    ("seqtrain.distributed.strategies", "torch.distributed.checkpoint"),
}
"""Imports inside functions that bring no other package and yet cost start-up time, or may not be there."""

HEAVY = {"torch", "pytorch_lightning", "datasets", "wandb", "matplotlib"}
"""What a command must not import before it knows that there is work to do."""


@functools.cache
def imported(module: str, *, at_once: bool = False) -> tuple[str, ...]:
    """Modules that a module names in imports: all of them, or only those that importing it imports."""
    tree = ast.parse(MODULES[module].read_text("utf-8"))
    return tuple(_named(module, _executed(tree) if at_once else ast.walk(tree)))


def late(module: str) -> set[str]:
    """Modules that a module imports inside functions."""
    tree = ast.parse(MODULES[module].read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {name for function in functions for name in _named(module, ast.walk(function))}


def _named(module: str, nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            base = node.module or ""
            yield from (name if (name := f"{base}.{alias.name}") in NAMES else base for alias in node.names)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Statements that run on import: not in functions, not under TYPE_CHECKING."""
    for child in ast.iter_child_nodes(node):
        for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not for_types and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _executed(child)


def closure(*modules: str) -> set[str]:
    """All that is imported, of seqtrain and of others, once these modules are."""
    found, waiting = set(), list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        if name in MODULES:
            packages = [name.rpartition(".")[0]] if "." in name else []
            waiting += [*imported(name, at_once=True), *packages]
    return found


def room(module: str) -> str:
    """seqtrain.data.batching.plan -> data"""
    return module.removeprefix("seqtrain").lstrip(".").partition(".")[0]


def test_a_module_imports_only_what_its_room_may() -> None:
    for module in MODULES:
        assert room(module) in MAY_IMPORT, f"{module}: say in MAY_IMPORT what it may import"
        allowed = {room(module), "errors", "terminal", *MAY_IMPORT[room(module)].split()}
        rooms = {room(name) for name in imported(module) if name.split(".")[0] == "seqtrain"}
        assert rooms <= allowed, module


def test_only_what_starts_the_program_names_the_command_line() -> None:
    naming = {module for module, path in MODULES.items() if "seqtrain.cli" in path.read_text("utf-8")}
    assert {module for module in naming if room(module) != "cli"} == {
        "seqtrain.__main__",
        "seqtrain.distributed.fork_server",
    }


def test_no_import_is_part_of_a_cycle() -> None:
    waiting = {module: set(imported(module)) & MODULES.keys() - {module} for module in MODULES}
    for module in waiting:  # what types alone need is no import
        waiting[module] &= set(imported(module, at_once=True)) | late(module)
    while free := {module for module, known in waiting.items() if not known & waiting.keys()}:
        for module in free:
            del waiting[module]
    assert sorted(waiting) == []


def test_a_package_is_known_only_to_whom_it_concerns() -> None:
    for module in MODULES:
        inside = module.removeprefix("seqtrain").lstrip(".")
        for name in imported(module):
            homes = ONLY.get(name.split(".")[0])
            known = homes is None or any(f"{inside}.".startswith(f"{home}.") for home in homes)
            assert known, f"{module} imports {name}"


PRIVATE = re.compile(r"^from ((?!seqtrain)\S*\._\w\S*) import", re.MULTILINE)


def test_private_modules_of_other_packages_are_four() -> None:
    found = [name for path in MODULES.values() for name in PRIVATE.findall(path.read_text("utf-8"))]
    assert sorted(found) == [
        "hydra._internal.config_loader_impl",
        "hydra._internal.core_plugins.file_config_source",
        "hydra._internal.utils",
        "torch.utils._python_dispatch",
    ]


def test_tasks_know_of_data_what_it_is_and_not_where_it_comes_from() -> None:
    known = {name for module in MODULES if room(module) == "tasks" for name in imported(module) if room(name) == "data"}
    assert [name for name in known if not name.startswith(tuple(f"seqtrain.{part}" for part in TASKS_KNOW))] == []


def test_only_batches_of_data_need_torch() -> None:
    data = [module for module in MODULES if room(module) == "data"]
    knowing = {module for module in data if "torch" in {name.split(".")[0] for name in imported(module)}}
    assert knowing == WITH_TORCH


ASKS_ITS_KIND = re.compile(r"is(?:instance|subclass)\([^\n]*\b\w*(?:Task|Model)\b")


def test_nobody_asks_which_task_or_model_it_is() -> None:
    asking = {module: ASKS_ITS_KIND.findall(path.read_text("utf-8")) for module, path in MODULES.items()}
    assert [module for module, found in asking.items() if found and room(module) not in ("tasks", "models")] == []


def test_a_file_of_a_model_or_a_task_stands_alone() -> None:
    own = {name for name in MODULES if name.rpartition(".")[0] in ("seqtrain.models", "seqtrain.tasks")} - SHARED
    own -= {name for name in own if MODULES[name].name == "__init__.py"}
    assert len(own) > 12
    for module in MODULES:
        if not module.startswith("seqtrain.models.parts."):  # the parts of a model may be models themselves
            assert not own & set(imported(module)) - {module}, f"{module}: only a config names a model or a task"


def test_faults_are_found_before_anything_heavy_is_imported() -> None:
    commands = [module for module in MODULES if room(module) == "cli"]
    sources = [module for module in MODULES if room(module) == "data" and module not in WITH_TORCH]
    loaded = closure(
        *commands,
        *sources,
        "seqtrain.config.check",
        "seqtrain.config.preflight",
        "seqtrain.runs.directory",
        "seqtrain.distributed.fork_server",
    )
    assert {name.split(".")[0] for name in loaded} & HEAVY == set()


@pytest.mark.long
def test_an_import_stands_inside_a_function_for_start_up_time_or_against_a_cycle_only() -> None:
    needless = []
    for module in MODULES:
        at_once = _others(closure(module))
        for name in late(module):
            found = closure(name)
            if not (_others(found) - at_once or module in found or (module, name) in LATE):
                needless.append(f"{module} imports {name}")
    assert needless == []


def _others(modules: set[str]) -> set[str]:
    """Packages that are neither ours nor Python's own."""
    return {name.split(".")[0] for name in modules} - {"seqtrain"} - sys.stdlib_module_names


CHILD = """
import sys
from seqtrain.cli.main import main
assert "torch" not in sys.modules, "importing seqtrain imports torch"
assert main(["predict", sys.argv[1], "Some", "--length", "3", "--json"]) == 0
assert main(["predict", sys.argv[1], "Some text", "--score", "--json"]) == 0
assert "torch" in sys.modules
heavy = {"pytorch_lightning", "lightning", "datasets", "wandb"} & {name.split(".")[0] for name in sys.modules}
assert not heavy, heavy
"""


@pytest.mark.long
def test_predict_imports_no_lightning_datasets_or_wandb(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", *NEXT_TOKEN)
    answer = subprocess.run([sys.executable, "-c", CHILD, str(run)], capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    assert len(answer.stdout.splitlines()) == 2
