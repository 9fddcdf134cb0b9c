"""`seqtrain demo`: test a claim of theory by an experiment; print its numbers, a picture and a verdict."""

from __future__ import annotations

import json
from argparse import Namespace

from seqtrain.analysis import demo
from seqtrain.analysis.demo import Bench, Findings
from seqtrain.cli.arguments import Parser, bounded, say
from seqtrain.cli.kept_runs import trainer
from seqtrain.cli.measured import Measured, written
from seqtrain.config.ranges import Range
from seqtrain.errors import UserError, did_you_mean

MAX_SEEDS = 100
SHOWN_DIGITS = 4
PRECISION = "trainer.precision=32-true"  # a verdict must not depend on whether the machine has bf16 units


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    options = _options(argv)
    if options.name is None:
        return _list(options.json)
    return _show(options).tell()


def measured(argv: list[str]) -> Measured:
    """Run the named demonstration and return its result, which `main` prints."""
    return _show(_options(argv))


def _options(argv: list[str]) -> Namespace:
    parser = Parser(
        "demo",
        "Show a claim of theory by an experiment: its numbers, a picture, and what they say of the claim.\n"
        "Without NAME: what there is. Runs are kept in FOLDER/runs, and taken from there by a second call.",
        "seqtrain demo order",
    )
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("--seeds", type=bounded(Range(1, MAX_SEEDS, whole=True)), metavar="N", help="(default: 1)")
    parser.add_out("outputs/demo")
    options = parser.parse_args(argv)
    if options.name is None and options.seeds is not None:
        raise UserError(f"--seeds {options.seeds}: of which demonstration? `seqtrain demo` lists them")
    if "=" in (options.name or ""):
        raise UserError(f"{options.name}: a demonstration has its own models and takes no overrides; leave it out")
    if options.name is not None and options.name not in demo.names():
        raise UserError(f"{options.name}: no such demonstration{did_you_mean(options.name, demo.names())}")
    return options


def _list(as_json: bool) -> int:
    for name in demo.names():
        claim = demo.load(name).claim
        if as_json:
            print(json.dumps({"name": name, "claim": claim}))
        else:
            print(f"{name:18}{claim}")
    return 0


def _show(options: Namespace) -> Measured:
    name, seeds = options.name, options.seeds or 1
    chosen = demo.load(name)
    folder = options.out / name
    folder.mkdir(parents=True, exist_ok=True)
    findings = chosen.run(Bench(folder, trainer(folder / "runs", PRECISION), say, seeds))
    record = {"name": name, "claim": chosen.claim, "seeds": seeds, **findings.record()}
    lines = [f"claim: {chosen.claim}", "", *_table(findings), "", findings.verdict]
    return written(folder, name, record, lines, list(findings.pictures), options)


def _table(findings: Findings) -> list[str]:
    """Format the rows as text, each column as wide as its widest cell."""
    # A demonstration may have a picture and a sentence alone.
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
