"""`seqtrain resume`: continue an interrupted run or sweep, or extend a finished run."""

from __future__ import annotations

from pathlib import Path

from seqtrain.cli import sweep
from seqtrain.cli.arguments import Parser, finish
from seqtrain.experiment.resume import resume
from seqtrain.runs.directory import Run
from seqtrain.runs.identity import MAY_CHANGE
from seqtrain.sweeps.folder import is_sweep


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "resume",
        "Go on with a run from its newest good checkpoint, or from step 0 if there is none.\n"
        "trainer.max_steps extends it: schedules are functions of the step and of max_steps, so from there on the\n"
        "learning rate is what it would have been had the run been planned that long from the start.\n"
        "Of a sweep, the trials that are missing or unfinished are run; hydra/launcher=, hydra.launcher.* may change.",
        "seqtrain resume outputs/2026-11-21_02-04-00_next_token_lstm trainer.max_steps=3000",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help=f"one of {', '.join(MAY_CHANGE)}, logger.*")
    parser.add_argument("--retry-failed", action="store_true", help="of a sweep: run again what failed or was refused")
    options = parser.parse_intermixed_args(argv)
    if is_sweep(Path(options.run)):
        return sweep.resume(
            Path(options.run), options.overrides, retry_failed=options.retry_failed, as_json=options.json
        )
    if options.retry_failed:
        parser.error("--retry-failed is for sweeps")

    # Here and not in `resume`, which trials call, too: the command that runs their sweep has checked them.
    sweep.check_run(Run.open(options.run), options.overrides)
    return finish(resume(options.run, options.overrides, ("seqtrain", "resume", *argv)), options.json)
