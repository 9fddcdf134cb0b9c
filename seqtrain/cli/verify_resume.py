"""`seqtrain verify-resume`: train twice, kill one of the two at random moments, and compare them bit by bit."""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqtrain.cli.arguments import Parser, bounded
from seqtrain.config.options import read_budget
from seqtrain.config.ranges import SEED, Range
from seqtrain.config.trust import trust_words
from seqtrain.distributed.fork_server import ForkServer
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.terminal import pasted

# Defaults that make the training short, and its checkpoints and records frequent.
SHORT = ("trainer.max_steps=40", "trainer.validate_every=15", "trainer.checkpoint_every=5", "trainer.log_every=1")

# Packages that the fork server imports once for all trainings, in addition to our own modules.
HEAVY = ("torch", "pytorch_lightning", "hydra", "datasets", "tokenizers")


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "verify-resume",
        "Train twice, the second time with kills (SIGKILL) at random moments and resumes, and compare bit by bit:\n"
        "weights, optimizer, carried state, every record. OVERRIDE as for `seqtrain train`; defaults:\n"
        f"{' '.join(SHORT)} logger=none. Exit code 0: equal; 1: not equal.",
        "seqtrain verify-resume model=gpt trainer.accumulate=4 --kills 10",
    )
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    parser.add_config_dir()
    parser.add_argument("--kills", type=bounded(Range(1, 10_000, whole=True)), default=5)
    parser.add_argument("--seed", type=bounded(SEED), default=0, help="seed for the times of the kills")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave both runs here: DIR/twin and DIR/killed")
    options = parser.parse_intermixed_args(argv)
    return verify(options)


def verify(options: argparse.Namespace) -> int:
    """Train both runs and print whether they end with the same bits; return 0 if they do, else 1."""
    words = shortened(options.overrides)
    _check(words, options.config_dir)
    words += trust_words()
    for path in options.config_dir:
        words += ["--config-dir", str(path)]
    if options.keep is not None:
        result = _train_both(words, _make_empty(options.keep), options)
    else:
        with tempfile.TemporaryDirectory(prefix="seqtrain-verify-", ignore_cleanup_errors=True) as folder:
            result = _train_both(words, Path(folder), options)
    if options.json:
        print(json.dumps(result))
    else:
        print("\n".join(_lines(result)))
    return 0 if result["equal"] else 1


def _train_both(words: list[str], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train DIR/twin and DIR/killed below the folder, and compare them."""
    from seqtrain.runs import resume_check

    here, start = Path.cwd(), time.monotonic()
    own = [module.name for module in pkgutil.walk_packages([str(Path(__file__).parents[1])], "seqtrain.")]
    # Each kill needs a new process: forking it from one that has imported everything saves most of the start time.
    with ForkServer([*HEAVY, *own, "seqtrain.config.check:warm"]) as server:

        def launch(*given: str, cwd: Path) -> object:
            # In the command's working folder: paths of data may be relative to it.
            return server.popen(given, cwd=here, env={**os.environ, "WANDB_MODE": "disabled"})

        say(f"training the twin: {pasted('seqtrain', 'train', *words)}")
        twin = resume_check.trained(launch, words, folder)  # type: ignore[arg-type]
        kills = resume_check.killed_and_resumed(
            launch,  # type: ignore[arg-type]
            words,
            folder,
            kills=options.kills,
            seed=options.seed,
            trusted=trust_words(),
        )
    difference = resume_check.difference(twin, folder / "killed")
    return {
        "equal": difference is None,
        "difference": difference,
        "kills": kills,
        "records": len(resume_check.records(twin)),
        "seconds": time.monotonic() - start,
    }


def _lines(result: dict[str, Any]) -> list[str]:
    verdict = f"NOT equal: {result['difference']}"
    if result["equal"]:
        verdict = f"equal to the bit: weights, optimizer, carried state, result and all {result['records']} records"
    moments = ", ".join(map(_moment, result["kills"]))
    return [f"killed {len(result['kills'])} times, at: {moments}", f"{verdict} ({result['seconds']:.0f} s)"]


def _moment(step: int) -> str:
    """Return the time of a kill in words; it may be before the first step."""
    return "before the first step" if step < 0 else f"step {step}"


def shortened(overrides: Sequence[str]) -> list[str]:
    """Return the overrides, with the defaults of SHORT for options that they do not set."""
    from seqtrain.config.check import key_of

    given = {key_of(word) for word in overrides}
    extra = [word for word in (*SHORT, "logger=none") if key_of(word) not in given]
    return [*extra, *overrides]


def _check(args: Sequence[str], config_dirs: Sequence[Path]) -> None:
    """Raise UserError for everything that `seqtrain train` would refuse, before training starts."""
    from seqtrain.config import check, preflight

    config = check.compose(args, config_dirs).config
    if config.run_dir is not None:
        raise UserError(
            f"run_dir={config.run_dir}: both runs have their own folders; use --keep DIR to keep them in DIR"
        )
    if config.dry_run:
        raise UserError("dry_run=true: trains nothing, so nothing can be resumed; leave it out")
    if config.trainer.max_seconds is not None or "seconds" in read_budget(config.budget):
        raise UserError("trainer.max_seconds: runs that end by the clock are never equal; use trainer.max_steps")
    preflight.check_machine_and_data(config)  # otherwise the twin would fail only after seconds of imports


def _make_empty(folder: Path) -> Path:
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"--keep {folder}: exists already and is not empty; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()
