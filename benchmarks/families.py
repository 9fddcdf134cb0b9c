"""The table of docs/families.md: train every variant on every task, then write the page from the runs.

    python -m benchmarks.families train --out outputs/families
    python -m benchmarks.families page --out outputs/families

`train` may be killed at any time: begun again, it leaves out what has finished and resumes what has not. First each
variant is trained at every rate, for a third of the steps; the rate that is best on validation is then trained with
seeds that were not looked at before, and only these are compared, on the test split.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

PAGE = Path(__file__).parents[1] / "docs" / "families.md"
CONF = Path(__file__).parents[1] / "conf"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
RATES = (1e-3, 3e-3, 1e-2)
SEARCHED, JUDGED = (1,), (11, 12, 13)  # seeds: of the search for a rate, and of the verdict
TASKS = ("parity", "s3", "recall", "a5", "copy", "z60", "adding", "stdlib")
VARIANTS = {
    "lstm": ["model.mixers=[lstm]"],
    "gated_delta": ["model.mixers=[gated_delta]"],
    "gated_delta, betas 2": ["model.mixers=[gated_delta]", "model.options.gated_delta.betas=2"],
    "mamba2": ["model.mixers=[mamba2]"],
    "attention": ["model.mixers=[attention]"],
    "min_gru": ["model.mixers=[min_gru]"],
    "slstm": ["model.mixers=[slstm]"],
    "mlstm": ["model.mixers=[mlstm]"],
    "kda, betas 2": ["model.mixers=[kda]", "model.options.kda.betas=2"],
    "mamba3": ["model.mixers=[mamba3]"],
    "gated_delta + attention": ["model.mixers=[gated_delta,attention]"],
}


def folder_of(out: Path, task: str, part: str, variant: str, rate: float, seed: int) -> Path:
    """Return the run directory of one training."""
    return out / task / part / f"{slug(variant)}_{rate:g}_{seed}"


def slug(variant: str) -> str:
    """Return a variant's name in names of folders."""
    return variant.replace(" ", "").replace(",", "-")


def summary(folder: Path) -> dict[str, Any]:
    """Return what a run says of itself; empty before it has begun."""
    path = folder / "summary.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def test_figures(folder: Path) -> dict[str, float]:
    """Return what `seqtrain evaluate --split test` has measured of a run; empty if it has not."""
    path = folder / "evaluations.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    return next((line["metrics"] for line in reversed(lines) if line["split"] == "test"), {})


def train(folder: Path, task: str, variant: str, rate: float, seed: int, *, test: bool) -> None:
    """Train one run, or what is left of it, and evaluate it on the test split if asked.

    Raises:
        subprocess.CalledProcessError: A command failed; its lines are on standard error.
    """
    if summary(folder).get("status") != "finished":
        if list(folder.glob("checkpoints/*.ckpt")):
            seqtrain("resume", str(folder))
        else:
            shutil.rmtree(folder, ignore_errors=True)  # killed before its first checkpoint
            words = [f"optimizer.lr={rate:g}", f"seed={seed}", f"run_dir={folder}", f"run.label={json.dumps(variant)}"]
            fixed = ["model.num_layers=2", "trainer.threads=1", "logger=none"]
            if not test:
                experiment = yaml.safe_load((CONF / "experiment" / f"families_{task}.yaml").read_text("utf-8"))
                steps = experiment["trainer"]["max_steps"] // 3
                fixed += [f"trainer.max_steps={steps}", f"trainer.validate_every={steps}"]
            seqtrain("train", f"experiment=families_{task}", *VARIANTS[variant], *fixed, *words)
    if test and not test_figures(folder):
        seqtrain("evaluate", str(folder), "--split", "test")


def seqtrain(*words: str) -> str:
    """Run a command of this environment's seqtrain; return what it printed."""
    command = [sys.executable, "-m", "seqtrain", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def best_rate(out: Path, task: str, variant: str) -> float:
    """Return the rate whose runs have the least loss of validation, on average over the seeds of the search."""
    losses = {}  # not accuracies, of which several may be 1
    for rate in RATES:
        found = [summary(folder_of(out, task, "rates", variant, rate, seed)) for seed in SEARCHED]
        losses[rate] = statistics.mean(each["metrics"]["validation"]["loss"] for each in found)
    return min(losses, key=lambda rate: losses[rate])


def train_cell(out: Path, task: str, variant: str) -> None:
    """Search the rate of one variant on one task, then train the runs of the verdict."""
    for rate in RATES:
        for seed in SEARCHED:
            train(folder_of(out, task, "rates", variant, rate, seed), task, variant, rate, seed, test=False)
    rate = best_rate(out, task, variant)
    for seed in JUDGED:
        train(folder_of(out, task, "judged", variant, rate, seed), task, variant, rate, seed, test=True)


def train_all(out: Path, cells: Iterable[tuple[str, str]], workers: int) -> None:
    """Train cells side by side, one thread each; say what failed, and go on."""
    lock = threading.Lock()

    def one(cell: tuple[str, str]) -> None:
        try:
            train_cell(out, *cell)
            line = "done"
        except subprocess.CalledProcessError as error:
            line = f"failed: {' '.join(error.cmd[2:])}"
        with lock:
            print(": ".join(cell), line, flush=True)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, cells))


def table(out: Path) -> Iterator[str]:
    """Yield the lines of the page's table: a row a variant, a column a task, then each task's verdict."""
    tasks = [task for task in TASKS if (out / task / "judged").is_dir()]
    yield "| variant | " + " | ".join(tasks) + " | seconds |"
    yield "|---" * (len(tasks) + 2) + "|"
    for variant in VARIANTS:
        folders = {task: sorted((out / task / "judged").glob(f"{slug(variant)}_*")) for task in tasks}
        measured = [folder for found in folders.values() for folder in found if test_figures(folder)]
        if measured:
            seconds = statistics.median(summary(folder)["seconds"] for folder in measured)
            yield f"| {variant} | {' | '.join(map(cell, folders.values()))} | {seconds:.0f} |"
    for task in tasks:
        yield from ["", f"### {task}", "", "```"]
        yield from seqtrain("compare", str(out / task / "judged"), "--split", "test").splitlines()
        yield "```"


def cell(folders: list[Path]) -> str:
    """Return mean and spread of the test figure that a task is compared by, over seeds."""
    found = [test_figures(folder)[summary(folder)["compared_by"]] for folder in folders if test_figures(folder)]
    if not found:
        return ""
    spread = f" ± {statistics.stdev(found):.3f}" if len(found) > 1 else ""
    return f"{statistics.mean(found):.3f}{spread}"


def write_page(out: Path) -> None:
    """Put the table into the page, between its marks."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(table(out)) + f"\n{END}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "page"])
    parser.add_argument("--out", type=Path, default=Path("outputs/families"))
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--variant", action="append", choices=VARIANTS)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    if given.what == "page":
        write_page(given.out)
        return
    cells = [(task, variant) for task in given.task or TASKS for variant in given.variant or VARIANTS]
    train_all(given.out, cells, given.workers)


if __name__ == "__main__":
    main()
