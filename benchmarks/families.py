"""The table of docs/families.md: train each variant on each task, keep a row of each run, write the page from the rows.

    python -m benchmarks.families train
    python -m benchmarks.families page

Rows stand in docs/families.csv. `train` may be killed at any time, and go on later, on another machine too: it leaves
out what has a row, and resumes a run that has a checkpoint. First each variant is trained at every rate, for a third of
the steps (of recall for all); the rate that is best on validation is then trained with seeds that were not looked at
before, and only these are compared, on the test split.
"""

from __future__ import annotations

import argparse
import csv
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

ROOT = Path(__file__).parents[1]
PAGE, RECORD = ROOT / "docs" / "families.md", ROOT / "docs" / "families.csv"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
RATES = (1e-3, 3e-3, 1e-2)
SEARCHED, JUDGED = (1,), (11, 12, 13)  # seeds: of the search for a rate, and of the verdict
TASKS = ("parity", "s3", "recall", "a5", "copy", "z60", "adding", "stdlib")
VARIANTS = {
    "lstm": ["model.mixers=[lstm]"],
    "gated_delta": ["model.mixers=[gated_delta]"],
    "gated_delta, betas 2": ["model.mixers=[gated_delta]", "model.options.gated_delta.betas=2"],
    "gated_delta, betas 2, householders 2": [
        "model.mixers=[gated_delta]",
        "model.options.gated_delta.betas=2",
        "model.options.gated_delta.householders=2",
    ],
    "mamba2": ["model.mixers=[mamba2]"],
    "attention": ["model.mixers=[attention]"],
    "min_gru": ["model.mixers=[min_gru]"],
    "slstm": ["model.mixers=[slstm]"],
    "mlstm": ["model.mixers=[mlstm]"],
    "kda, betas 2": ["model.mixers=[kda]", "model.options.kda.betas=2"],
    "mamba3": ["model.mixers=[mamba3]"],
    "gated_delta + attention": ["model.mixers=[gated_delta,attention]"],
}
KEY = ("task", "part", "variant", "rate", "seed")
COLUMNS = (*KEY, "measure", "better", "value", "loss", "steps", "parameters", "state", "tokens", "flops", "seconds")

Row = dict[str, str]


class Record:
    """The rows of docs/families.csv, one for each run that has ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.rows = self._read()

    def _read(self) -> list[Row]:
        if not self.path.exists():
            return []
        with self.path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def find(self, **wanted: object) -> list[Row]:
        """Return the rows whose cells are those wanted."""
        return [row for row in self.rows if all(row[name] == str(value) for name, value in wanted.items())]

    def add(self, row: Row) -> None:
        """Keep a row, and write the file with it."""
        with self.lock:
            self.rows = [*self._read(), row]  # another process may have added rows
            order = {name: place for place, name in enumerate((*TASKS, "search", "verdict", *VARIANTS))}
            keys = ("task", "part", "variant")
            self.rows.sort(key=lambda row: (*(order[row[key]] for key in keys), float(row["rate"]), int(row["seed"])))
            part = self.path.with_suffix(".part")
            with part.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(self.rows)
            part.replace(self.path)


def train(out: Path, record: Record, task: str, part: str, variant: str, rate: float, seed: int) -> None:
    """Train one run, or what is left of it, unless it has a row; measure it, keep its row, remove its directory.

    Raises:
        subprocess.CalledProcessError: A command failed; its lines are on standard error.
    """
    key = {"task": task, "part": part, "variant": variant, "rate": f"{rate:g}", "seed": str(seed)}
    if record.find(**key):
        return
    folder = out / task / part / f"{variant.replace(' ', '').replace(',', '-')}_{rate:g}_{seed}"
    if summary(folder).get("status") != "finished":
        if list(folder.glob("checkpoints/*.ckpt")):
            seqtrain("resume", str(folder))
        else:
            shutil.rmtree(folder, ignore_errors=True)  # killed before its first checkpoint
            words = [f"optimizer.lr={rate:g}", f"seed={seed}", f"run_dir={folder}", *VARIANTS[variant]]
            fixed = ["model.num_layers=2", "trainer.threads=1", "logger=none"]
            if part == "search":
                experiment = yaml.safe_load((ROOT / f"conf/experiment/families_{task}.yaml").read_text("utf-8"))
                # Of recall all steps: after a third of them no rate had taught gated_delta anything.
                steps = experiment["trainer"]["max_steps"] // (1 if task == "recall" else 3)
                fixed += [f"trainer.max_steps={steps}", f"trainer.validate_every={steps}"]
            seqtrain("train", f"experiment=families_{task}", *words, *fixed)
    if part == "verdict":
        seqtrain("evaluate", str(folder), "--split", "test")
    record.add(row_of(folder, key))
    shutil.rmtree(folder)


def row_of(folder: Path, key: Row) -> Row:
    """Return the row of a run: its figure of test, or of validation in the search, and what it cost."""
    facts = summary(folder)
    path = folder / "evaluations.jsonl"
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    validation = facts["metrics"]["validation"]
    figures = next((line["metrics"] for line in reversed(lines) if line["split"] == "test"), validation)
    measure = facts["compared_by"]
    costs = {name: f"{facts[name]:.6g}" for name in ("steps", "state", "tokens", "flops", "seconds") if name in facts}
    return {
        **key,
        "measure": measure,
        "better": facts["measures"][measure]["better"],
        "value": f"{figures[measure]:.6g}",
        "loss": f"{validation['loss']:.6g}",
        "parameters": str(facts["parameters"]["total"]),
        **costs,
    }


def summary(folder: Path) -> dict[str, Any]:
    """Return what a run says of itself; empty before it has begun."""
    path = folder / "summary.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def seqtrain(*words: str) -> str:
    """Run a command of this environment's seqtrain; return what it printed."""
    command = [sys.executable, "-m", "seqtrain", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def best_rate(rows: list[Row]) -> float:
    """Return the rate of least validation loss, on average over seeds; not of accuracy, of which several may be 1."""
    losses: dict[float, list[float]] = {}
    for row in rows:
        losses.setdefault(float(row["rate"]), []).append(float(row["loss"]))
    return min(losses, key=lambda rate: statistics.mean(losses[rate]))


def train_cell(out: Path, record: Record, task: str, variant: str) -> None:
    """Search the rate of one variant on one task, then train the runs of the verdict."""
    known = record.find(task=task, part="verdict", variant=variant)
    if known:  # its rate was chosen; runs from before this file left no rows of the search
        rate = float(known[0]["rate"])
    else:
        for each in RATES:
            for seed in SEARCHED:
                train(out, record, task, "search", variant, each, seed)
        rate = best_rate(record.find(task=task, part="search", variant=variant))
    for seed in JUDGED:
        train(out, record, task, "verdict", variant, rate, seed)


def train_all(out: Path, record: Record, cells: Iterable[tuple[str, str]], workers: int) -> None:
    """Train cells side by side, one thread each; say what failed, and go on."""

    def one(cell: tuple[str, str]) -> None:
        try:
            train_cell(out, record, *cell)
            line = "done"
        except subprocess.CalledProcessError as error:
            line = f"failed: {' '.join(error.cmd[2:])}"
        print(": ".join(cell), line, flush=True)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, cells))


def table(record: Record) -> Iterator[str]:
    """Yield the lines of the page's table: a row a variant, a column a task, then each task's verdict."""
    judged = record.find(part="verdict")
    tasks = [task for task in TASKS if any(row["task"] == task for row in judged)]
    cells = [(row["task"], row["variant"]) for row in judged]
    done = sum(cells.count(each) == len(JUDGED) for each in set(cells))
    yield f"{done} of {len(TASKS) * len(VARIANTS)} cells have all {len(JUDGED)} seeds; without a spread it is one."
    yield ""
    yield "| variant | " + " | ".join(tasks) + " | seconds |"
    yield "|---" * (len(tasks) + 2) + "|"
    for variant in VARIANTS:
        rows = [row for row in judged if row["variant"] == variant]
        if rows:
            figures = (cell([row for row in rows if row["task"] == task]) for task in tasks)
            seconds = statistics.median(float(row["seconds"]) for row in rows)
            yield f"| {variant} | {' | '.join(figures)} | {seconds:.0f} |"
    for task in tasks:
        first, *rest = (row for row in judged if row["task"] == task)
        if all(row["variant"] == first["variant"] for row in rest):
            continue
        options = ["--from", str(RECORD.relative_to(ROOT)), "--where", f"task={task}", "--where", "part=verdict"]
        # The column has another name on each task; compare prints the name of the column.
        options += ["--metric", "value", "--better", first["better"]]
        yield from ["", f"### {task}: {first['measure']}", "", "```", f"seqtrain compare {' '.join(options)}", ""]
        yield from verdict(seqtrain("compare", *options))
        yield "```"


def verdict(printed: str) -> Iterator[str]:
    """Yield the lines of `seqtrain compare` from its table of variants on: the rows are in the file."""
    lines = printed.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("variant ") and " seeds " in line)
    yield from lines[begin:]


def cell(rows: list[Row]) -> str:
    """Return mean and spread of the figure that a task is compared by, over seeds."""
    found = [float(row["value"]) for row in rows]
    if not found:
        return ""
    spread = f" ± {statistics.stdev(found):.3f}" if len(found) > 1 else ""
    return f"{statistics.mean(found):.3f}{spread}"


def write_page(record: Record) -> None:
    """Put the table into the page, between its marks."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(table(record)) + f"\n{END}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "page"])
    parser.add_argument("--out", type=Path, default=Path("outputs/families"), help="directories of runs on their way")
    parser.add_argument("--task", action="append", choices=TASKS)
    parser.add_argument("--variant", action="append", choices=VARIANTS)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    record = Record(RECORD)
    if given.what == "page":
        write_page(record)
        return
    cells = [(task, variant) for task in given.task or TASKS for variant in given.variant or VARIANTS]
    train_all(given.out, record, cells, given.workers)


if __name__ == "__main__":
    main()
