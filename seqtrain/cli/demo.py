"""`seqtrain demo`: shows a claim of theory by an experiment, with its numbers, its picture and a verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from seqtrain.analysis import demo
from seqtrain.analysis.demo import Bench, Demo, Findings
from seqtrain.cli.arguments import Parser, bounded, finish_failed, say
from seqtrain.config.ranges import Range
from seqtrain.errors import UserError, did_you_mean
from seqtrain.files.atomic import write_text
from seqtrain.terminal import pasted

MAX_SEEDS = 100
SHOWN_DIGITS = 4


def main(argv: list[str]) -> int:
    """The command."""
    parser = Parser(
        "demo",
        "Show a claim of theory by an experiment: its numbers, a picture, and what they say of the claim.\n"
        "Without NAME: what there is. Runs are kept in FOLDER/runs, and taken from there by a second call.",
        "seqtrain demo order",
    )
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("--seeds", type=bounded(Range(1, MAX_SEEDS, whole=True)), default=1, metavar="N")
    parser.add_out("outputs/demo")
    options = parser.parse_args(argv)
    if options.name is None:
        return _list(options.json)
    if options.name not in demo.names():
        raise UserError(f"{options.name}: no such demonstration{did_you_mean(options.name, demo.names())}")
    chosen = demo.load(options.name)
    folder = options.out / options.name
    return finish_failed(lambda: _show(options.name, chosen, folder, options.seeds, options.json))


def _list(as_json: bool) -> int:
    for name in demo.names():
        claim = demo.load(name).claim
        if as_json:
            print(json.dumps({"name": name, "claim": claim}))
        else:
            print(f"{name:18}{claim}")
    return 0


def _show(name: str, chosen: Demo, folder: Path, seeds: int, as_json: bool) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    say(f"claim: {chosen.claim}")
    findings = chosen.run(Bench(folder, _trainer(folder / "runs"), say, seeds))
    record = {"name": name, "claim": chosen.claim, "seeds": seeds, **findings.record()}
    file = folder / f"{name}.json"
    write_text(file, json.dumps(record, indent=1) + "\n")
    if as_json:
        print(json.dumps(record))
    else:
        print("\n".join([*_table(findings), "", findings.verdict]))
    for path in (file, *(folder / picture for picture in findings.pictures)):
        say(f"written: {path}")
    return 0


def _table(findings: Findings) -> list[str]:
    """The rows as text, each column as wide as its widest cell."""
    if not findings.rows:
        return []
    header = list(findings.rows[0])
    cells = [header]
    for row in findings.rows:
        cells.append([_cell(value) for value in row.values()])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return lines


def _cell(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:.{SHOWN_DIGITS}g}"
    return str(value)


def _trainer(folder: Path) -> demo.Train:
    """Trains runs below a folder."""

    def train(name: str, *overrides: str) -> Path:
        from seqtrain.runs.directory import CONFIG, Run

        path = folder / name
        words = [*overrides, f"run_dir={path}", "logger=none"]
        # Kept beside the run: its summary knows the newest command alone, which of a killed one is a resume.
        asked = folder / f"{name}.overrides.json"
        # A call that was killed at once leaves an empty folder, which `train` takes; what else there is, it refuses.
        if not (path / CONFIG).exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_text(asked, json.dumps(overrides) + "\n")
            say(f"trains: {pasted('seqtrain', 'train', *words)}")
            _start(words)
            return path
        if _read(asked) != list(overrides):
            raise UserError(f"{path}: other options made this run; remove it, or give another --out")
        if Run.open(path).summary.status != "finished":
            _resume(path)
        return path

    return train


def _start(words: Sequence[str]) -> None:
    from seqtrain.cli.start import Request, start
    from seqtrain.config import check

    composed = check.compose(list(words), ())
    start(composed.config, composed.choices, Request(list(words), (), ("seqtrain", "train", *words)))


def _resume(path: Path) -> None:
    from seqtrain.cli.resume import resume

    say(f"resumes: {path}")
    resume(str(path), [], ("seqtrain", "resume", str(path)))


def _read(file: Path) -> object:
    """What a JSON file holds; None where there is no such file, or no JSON in it."""
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
