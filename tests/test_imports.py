"""The layering of the package, read from its sources: who may know whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import seqtrain
from seqtrain import build, check, checkpoint
from seqtrain.commands.written_config import config_text
from seqtrain.data.rows import Vocabularies
from seqtrain.data.tokenizer import Byte
from seqtrain.runs import Run

ROOT = Path(seqtrain.__file__).parent
MODULES = {
    ".".join(("seqtrain", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
    if "conf" not in path.relative_to(ROOT).parts
}
NAMES = {*MODULES, "seqtrain.conf"}

MAY_IMPORT = {
    "faults": "",
    "terminal": "",
    "interface": "",
    "layers": "interface",
    "models": "interface layers",
    "optim": "interface layers task",
    "carried": "interface",
    "sums": "task",
    "task": "data interface",
    "tasks": "interface task metrics generate data",
    "metrics": "",
    "data": "checked_files files plain_yaml",
    "generate": "interface",
    "cost": "interface task data",
    "checked_files": "",
    "git_commit": "checked_files",
    "files": "checked_files",
    "folders": "files",
    "records": "checked_files",
    "safety": "checked_files files plain_yaml",
    "listing": "checked_files files folders runs",
    "runs": "checked_files files folders records safety identity",
    "checkpoint": "files checkpoint_limits identity",
    "export": "checked_files data files folders runs safety",
    "plain_yaml": "",
    "provenance": "git_commit",
    "identity": "files nodes",
    "checkpoint_limits": "",
    "checkpoint_check": "expected identity interface learner optim",
    "expected": "checkpoint identity",
    "processes": "",
    "group": "processes",
    "strategies": "processes",
    "twins": "checkpoint launch runs",
    "learner": "carried data interface optim processes runs strategies sums task",
    "transfer": "interface task",
    "callbacks": "checked_files build learner nodes sums runs checkpoint files generate data interface layers metrics "
    "processes provenance sweeps attention_maps task",
    "options": "ranges",
    "ranges": "",
    "signatures": "",
    "targets": "signatures",
    "conf_files": "safety checked_files plain_yaml",
    "nodes": "",
    "schema": "conf_files nodes options ranges safety signatures targets",
    "check": "conf_files nodes schema targets",
    "preflight": "data files folders options processes safety targets",
    "launch": "fork_server",
    "fork_server": "launch processes",
    "sweeps": "build check checked_files conf_files files folders launch listing metrics nodes processes ranges runs "
    "safety schema",
    "build": "check checkpoint cost data export files interface layers options processes runs safety strategies "
    "targets task transfer learner callbacks checkpoint_check expected identity",
    "budget": "build check cost options ranges",
    "comparison": "checked_files files listing metrics runs sweeps",
    "effects": "build check task",
    "pairs": "build check conf data interface task metrics transfer",
    "report": "checked_files build cost data runs task",
    "embedding": "data interface task",
    "attention_page": "",
    "attention_maps": "attention_page build data files interface layers runs task tasks",
    "uses": "attention_maps build data embedding generate interface layers task tasks",
    "commands": "checked_files api attention_maps budget build callbacks check checkpoint comparison cost data "
    "effects embedding export files group launch learner listing options pairs preflight processes provenance records "
    "ranges report runs safety sweeps targets task twins uses working_folder identity",
    "api": "attention_maps build callbacks check commands data embedding generate interface ranges runs task tasks "
    "uses",
    "working_folder": "processes",
    "": "api working_folder",
}
"""What each part may import of seqtrain, beside itself, faults and terminal; the last one is the package."""

ONLY = {
    "pytorch_lightning": ("checkpoint_check", "learner", "strategies", "callbacks", "build.session", "build.trainer"),
    "hydra": ("build.objects", "check", "conf_files", "schema", "preflight", "sweeps", "commands"),
    "omegaconf": (
        "budget",
        "build",
        "check",
        "conf_files",
        "effects",
        "pairs",
        "schema",
        "preflight",
        "sweeps",
        "commands",
    ),
    "wandb": ("callbacks.wandb_sink",),
    "mlflow": ("callbacks.sinks", "callbacks.mlflow_sink"),
    "datasets": ("data.hub",),
    "tokenizers": ("data",),
    "babel": ("data",),
    "sacrebleu": ("metrics",),
    "scipy": ("comparison",),
    "plotly": ("comparison.page",),
    "optuna": ("sweeps.search", "sweeps.space", "sweeps.study", "callbacks.pruning"),
    "matplotlib": ("callbacks", "attention_maps"),
    "lightning": (),
}
"""Who may know a package."""

BATCHES = {f"seqtrain.data.{name}" for name in ("stream", "examples", "loader", "masking")}
"""The part of data that holds tensors."""

TASKS_KNOW = "baselines encoding examples masking naive_bayes nearest rows stream"
"""What of data tasks may import: rows, what is made of them, and what is simply counted in them."""

KNOW_TASKS = {"seqtrain.api", "seqtrain.uses"}
"""What a trained run can be used for, beside being measured: each task's own words for it; a new task has none."""

HEAVY = {"torch", "pytorch_lightning", "datasets", "wandb", "matplotlib"}
"""What a command must not import before it knows that there is work to do."""


def imported(module: str, *, at_once: bool = False) -> Iterator[str]:
    """Modules that a module names in imports: all of them, or only those that importing it imports."""
    tree = ast.parse(MODULES[module].read_text("utf-8"))
    for node in _executed(tree) if at_once else ast.walk(tree):
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


def part(module: str) -> str:
    """seqtrain.data.plan -> data"""
    return module.removeprefix("seqtrain").lstrip(".").partition(".")[0]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_part_may(module: str) -> None:
    assert part(module) in MAY_IMPORT, f"{module}: say in MAY_IMPORT what it may import"
    allowed = {part(module), "faults", "terminal", *MAY_IMPORT[part(module)].split()}
    parts = {part(name) for name in imported(module) if name.split(".")[0] == "seqtrain"}
    assert parts <= allowed


@pytest.mark.parametrize("module", MODULES)
def test_a_package_is_known_only_to_whom_it_concerns(module: str) -> None:
    inside = module.removeprefix("seqtrain").lstrip(".")
    for name in imported(module):
        homes = ONLY.get(name.split(".")[0])
        assert homes is None or any(f"{inside}.".startswith(f"{home}.") for home in homes), f"{module} imports {name}"


def test_tasks_know_of_data_what_it_is_and_not_where_it_comes_from() -> None:
    known = {name for module in MODULES if part(module) == "tasks" for name in imported(module) if part(name) == "data"}
    assert known <= {f"seqtrain.data.{name}" for name in TASKS_KNOW.split()}


def test_only_batches_of_data_need_torch() -> None:
    data = [module for module in MODULES if part(module) == "data"]
    knowing = {module for module in data if "torch" in {name.split(".")[0] for name in imported(module)}}
    assert knowing == BATCHES


def test_callbacks_know_build_by_its_types_only() -> None:
    for module in (module for module in MODULES if part(module) == "callbacks"):
        assert "build" not in {part(name) for name in imported(module, at_once=True)}, module


@pytest.mark.parametrize("group", ["models", "tasks"])
def test_a_file_of_a_model_or_a_task_stands_alone(group: str) -> None:
    own = {name for name in MODULES if part(name) == group} - {f"seqtrain.{group}"}
    assert len(own) > 3
    for module in MODULES.keys() - KNOW_TASKS:
        assert not own & set(imported(module)) - {module}, f"{module}: only a config names {group}"


def test_faults_are_found_before_anything_heavy_is_imported() -> None:
    session = {"seqtrain.commands.session", "seqtrain.commands.run_data"}  # imported once all faults are told
    commands = [module for module in MODULES if part(module) == "commands" and module not in session]
    sources = [module for module in MODULES if part(module) == "data" and module not in BATCHES]
    loaded = closure(*commands, *sources, "seqtrain.check", "seqtrain.preflight", "seqtrain.runs", "seqtrain.launch")
    assert {name.split(".")[0] for name in loaded} & HEAVY == set()


def test_the_reader_of_sources_sees_what_it_should() -> None:
    assert "torch" in closure("seqtrain.models.gpt")
    assert "pytorch_lightning" in closure("seqtrain.learner")
    assert "pytorch_lightning" not in closure("seqtrain.build")
    assert "seqtrain.learner" in set(imported("seqtrain.build.session"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with an untrained model, as a training leaves it."""
    text = tmp_path / "text.txt"
    text.write_text("Some text.\n" * 9)
    small = ("model=gru", "model.dim=8", "tokenizer=byte", "data=text", f"data.path={text}")
    config = check.compose(small).config
    tokenizer = Byte().train([])
    vocabularies = Vocabularies(tokenizer, tokenizer)
    model, _ = build.make_pair(config, vocabularies, ())
    run = Run.create(tmp_path / "run")
    run.write_config(config_text(config))
    vocabularies.save(run.path)
    run.write_summary({"hashes": vocabularies.hashes})
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    saved = {"state_dict": weights, "global_step": 1, "seqtrain": {"run": run.identity}}
    checkpoint.save(saved, run.checkpoints / checkpoint.step_name(1))
    run.close()
    return run.path


CHILD = """
import sys
from seqtrain.commands.cli import main
assert "torch" not in sys.modules, "importing seqtrain imports torch"
assert main(["predict", sys.argv[1], "Some", "--length", "3", "--json"]) == 0
assert main(["predict", sys.argv[1], "Some text", "--score", "--json"]) == 0
assert "torch" in sys.modules
heavy = {"pytorch_lightning", "lightning", "datasets", "wandb"} & {name.split(".")[0] for name in sys.modules}
assert not heavy, heavy
"""


def test_predict_imports_no_lightning_datasets_or_wandb(run: Path) -> None:
    answer = subprocess.run([sys.executable, "-c", CHILD, str(run)], capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    assert len(answer.stdout.splitlines()) == 2
