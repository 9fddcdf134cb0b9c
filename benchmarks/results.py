"""Run the commands behind the figures of README.md and docs/results.md again: `make results`.

`results.yaml` lists them. An entry names the page, the row of a table that shows its figures, the command, and what
the row shows, from left to right, as templates such as `accuracy {metrics.validation.accuracy:.3f}`. Keys are those of
the run's summary.json, of the answers of `then` commands (`then.0.bleu`) and `seconds` of the whole command. `100*key`
scales.

Each entry writes its figures, with commit and machine, into docs/results.json and into its row. A figure that moved by
more than its seeds explain is printed and makes the exit code 1. The spread comes from the entry's own seeds, or from
an earlier `--seeds 3`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from seqtrain.runs.provenance import environment

REPOSITORY = Path(__file__).parent.parent
ENTRIES = Path(__file__).parent / "results.yaml"
RECORD = REPOSITORY / "docs" / "results.json"
SLOW = 600  # seconds; an entry that took longer runs by name only
FIGURE = re.compile(r"\{(?:(\d+)\*)?([\w.-]+):([^}]*)\}")
NUMBER = r"-?[\d,]*\d(?:\.\d+)?"
SIGNIFICANT = 3.0  # standard errors of a difference

Figures = dict[str, list[float]]  # of each key a value for each seed


def entries() -> list[dict[str, Any]]:
    """Return the entries of results.yaml, in order."""
    return yaml.safe_load(ENTRIES.read_text("utf-8"))


def shown(template: str, figures: Figures) -> str:
    """Return a template with its figures, means over seeds; `key_sd` is the standard deviation over them."""

    def fill(match: re.Match[str]) -> str:
        factor, key, spec = match.groups()
        values = figures[key.removesuffix("_sd")]
        value = statistics.stdev(values) if key.endswith("_sd") else statistics.mean(values)
        return format(float(factor or 1) * value, spec)

    return FIGURE.sub(fill, template)


def row_of(entry: dict[str, Any], text: str) -> str:
    """Return the one line of a page that shows the figures of an entry."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {entry['row']}")]
    return line


def updated(text: str, entry: dict[str, Any], figures: Figures) -> str:
    """Return a page with these figures in the row of an entry."""
    old = new = row_of(entry, text)
    begin = len(entry["row"])
    for template in entry["shows"]:
        parts = FIGURE.split(template)[::4]  # the words between the figures
        match = re.compile(NUMBER.join(re.escape(part) for part in parts)).search(new, begin)
        if match is None:
            raise ValueError(f"{entry['page']}: the row of {entry['name']} has nothing like {template!r}: {old}")
        filled = shown(template, figures)
        new = new[: match.start()] + filled + new[match.end() :]
        begin = match.start() + len(filled) - 1  # the bar that ends a cell begins the next one
    return text.replace(old, new)


def moved(entry: dict[str, Any], before: Figures, after: Figures, spread: dict[str, float]) -> Iterator[str]:
    """Yield a line for each shown figure that seeds do not explain; seconds are those of a machine, and left out."""
    for template in entry["shows"]:
        for _, key, _ in FIGURE.findall(template):
            if key == "seconds" or key.endswith("_sd"):
                continue
            old, new = statistics.mean(before[key]), statistics.mean(after[key])
            error = spread.get(key, 0.0) * math.sqrt(1 / len(before[key]) + 1 / len(after[key]))
            if abs(new - old) > max(SIGNIFICANT * error, 1e-6 * abs(old)):
                known = f"{abs(new - old) / error:.1f} standard errors" if error else "spread over seeds unknown"
                yield f"{entry['name']}: {key} {old:.4g} -> {new:.4g} ({known})"


def run(entry: dict[str, Any], folder: Path, seeds: int) -> Figures:
    """Run an entry's command once for each seed; return its figures. A single seed is the command's own."""
    figures: Figures = {}
    for seed in range(1, seeds + 1):
        own = seed == 1 and entry.get("seeds", 1) == 1
        name = entry["name"] if own else f"{entry['name']}_{seed}"
        words = [*shlex.split(entry["run"]), "logger=none", f"run_dir={name}", *([] if own else [f"seed={seed}"])]
        begin = time.monotonic()
        if not (folder / name / "finished.txt").exists():
            answer(words, folder)
            (folder / name / "finished.txt").write_text(f"{time.monotonic() - begin:.1f}")
        found = json.loads((folder / name / "summary.json").read_text("utf-8"))
        found["seconds"] = float((folder / name / "finished.txt").read_text())
        found["then"] = [answer(shlex.split(line.replace("{run}", name)), folder) for line in entry.get("then", [])]
        for key, value in flat(found):
            figures.setdefault(key, []).append(value)
    return figures


def answer(words: list[str], folder: Path) -> Any:
    """Run a command in the folder; return what it printed, read as JSON where it is."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    print("$", shlex.join(words), flush=True)
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode}: {done.stderr[-2000:]}")
    try:
        return json.loads(done.stdout)
    except ValueError:
        return done.stdout


def flat(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number of nested values with its keys, dots between them."""
    if isinstance(value, dict | list):
        for name, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(below, f"{key}.{name}" if key else str(name))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield key, float(value)


def used(entry: dict[str, Any]) -> set[str]:
    """Return the keys of the figures that an entry shows."""
    return {key.removesuffix("_sd") for template in entry["shows"] for _, key, _ in FIGURE.findall(template)}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Run the commands behind the figures of the pages again.")
    parser.add_argument("names", nargs="*", help=f"entries to run; without: all that took at most {SLOW} s")
    parser.add_argument(
        "--seeds", type=int, default=0, help="measure the spread of one-seed entries with so many seeds"
    )
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "data", help="folder of data sets")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "outputs" / f"results_{date.today()}")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.data.is_dir() and not (options.folder / "data").exists():
        (options.folder / "data").symlink_to(options.data.resolve())
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    lines: list[str] = []
    unknown = set(options.names) - {entry["name"] for entry in entries()}
    if unknown:
        parser.error(f"no entry is named {', '.join(sorted(unknown))}; names stand in {ENTRIES.name}")
    for entry in entries():
        kept = record.get(entry["name"], {})
        if options.names and entry["name"] not in options.names:
            continue
        if not options.names and (kept.get("seconds", 0) > SLOW or entry.get("by_name")):
            print(f"{entry['name']}: longer than {SLOW} s, runs by name only")
            continue
        if "data/" in entry["run"] and not options.data.is_dir():
            print(f"{entry['name']}: no data; name its folder with --data")
            continue
        seeds = entry.get("seeds", 1)
        found = run(entry, options.folder, max(options.seeds, seeds))
        spread = dict(kept.get("spread", {}))
        spread |= {key: statistics.stdev(found[key]) for key in used(entry) if len(found[key]) > 1}
        figures = {key: found[key][:seeds] for key in used(entry)}
        if "figures" in kept:
            lines += moved(entry, kept["figures"], figures, spread)
        page = REPOSITORY / entry["page"]
        page.write_text(updated(page.read_text("utf-8"), entry, figures), "utf-8")
        made = environment()
        record[entry["name"]] = {
            "figures": figures,
            "spread": spread,
            "seconds": round(sum(found["seconds"][:seeds]), 1),
            "commit": made["commit"],
            "machine": f"{made['cpu']}, {made['cores']} cores, torch {made['versions']['torch']}",
        }
        RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print("\n".join(["moved by more than seeds explain:", *lines] if lines else ["no figure moved"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
