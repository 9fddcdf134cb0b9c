"""Kill every kind of run by SIGKILL: `make kills` prints a table and the command that reproduces each loss."""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.kills import kinds
from benchmarks.kills.campaign import Campaign, Story, stories
from benchmarks.kills.kinds import KINDS, Kind
from seqtrain.distributed.fork_server import ForkServer
from tests.conftest import HEAVY, REPOSITORY, own_modules


@contextlib.contextmanager
def campaign(folder: Path, seed: int) -> Iterator[Campaign]:
    """A campaign in a folder, with its files and the server that its commands fork from."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SEQTRAIN_", "WANDB_"))}
    env = {**kept, "SEQTRAIN_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled"}
    env["PYTHONPATH"] = str(REPOSITORY)
    modules = [*HEAVY, *own_modules(), "benchmarks.kills.hook"]
    with ForkServer(modules, target="benchmarks.kills.hook:main", env=env) as server:
        yield Campaign(server, folder, env | kinds.files(folder), seed)


def available(name: str) -> list[Kind]:
    """The kinds of this name, or all that this installation can run."""
    missing = importlib.util.find_spec("optuna") is None
    return [kind for kind in KINDS.values() if name in ("", kind.name) and not (kind.is_search and missing)]


def table(found: dict[str, list[tuple[int, Story]]]) -> list[str]:
    """A row a kind, and their sum."""
    rows = ["| kind | runs | kills | equal | not equal | refused | failed |", "|---|---|---|---|---|---|---|"]
    total: collections.Counter[str] = collections.Counter()
    for name, told in found.items():
        counts = collections.Counter(story.verdict for _, story in told)
        counts |= {"runs": len(told), "kills": sum(len(story.kills) for _, story in told)}  # type: ignore[operator]
        total += counts
        rows.append(_row(name, counts))
    return [*rows, _row("all", total)]


def _row(name: str, counts: collections.Counter[str]) -> str:
    columns = ("runs", "kills", "equal", "not equal", "refused", "failed")
    return f"| {name} | {' | '.join(str(counts[column]) for column in columns)} |"


def main() -> int:
    """Kills, tells, and gives 1 where a run ended otherwise than its twin."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="kills in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="kinds at a time")
    parser.add_argument("--kind", default="", choices=("", *KINDS), metavar="KIND", help="this one alone")
    parser.add_argument("--run", type=int, help="of that kind this run alone, to see what happened to it")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave twins and runs that differ here")
    options = parser.parse_args()
    if options.run is not None and not options.kind:
        parser.error("--run needs --kind")
    chosen, printing, began = available(options.kind), threading.Lock(), time.monotonic()
    found: dict[str, list[tuple[int, Story]]] = {kind.name: [] for kind in chosen}
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kills-")))
        folder.mkdir(parents=True, exist_ok=True)
        place = stack.enter_context(campaign(folder.absolute(), options.seed))

        def work(kind: Kind) -> None:
            share = -(-options.count // len(chosen))
            one = options.run is not None
            told = [(options.run, place.story(kind, options.run))] if one else stories(place, kind, share)
            for number, story in told:
                found[kind.name].append((number, story))
                if story.verdict != "equal" or one:
                    of_kind = f"--kind {shlex.quote(kind.name)} --run {number}"
                    again = f"python -m benchmarks.kills --seed {options.seed} {of_kind}"
                    lines = [f"{kind.name}: {story.verdict}: {story.reason}", *story.kills, again]
                    with printing:
                        print("\n    ".join(lines), flush=True)

        with ThreadPoolExecutor(options.jobs) as pool:
            for ended in [pool.submit(work, kind) for kind in chosen]:
                if error := ended.exception():
                    print(f"error: {error}", file=sys.stderr)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print("\n".join(table(found)))
    print(f"seed {options.seed}, commit {commit}, {time.monotonic() - began:.0f} s")
    return int(not all(found.values()) or any(story.verdict != "equal" for told in found.values() for _, story in told))


if __name__ == "__main__":
    sys.exit(main())
