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
        "Continue a run from its newest valid checkpoint, or from step 0 if there is none.\n"
        "trainer.max_steps extends it: schedules depend on the step and on max_steps, so from there on the learning\n"
        "rate is the same as in a run that was planned at this length.\n"
        "For a sweep, run its missing and unfinished trials; hydra/launcher= and hydra.launcher.* may change.",
        "seqtrain resume outputs/2026-11-21_02-04-00_next_token_lstm trainer.max_steps=3000",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help=f"one of {', '.join(MAY_CHANGE)}, logger.*")
    parser.add_argument(
        "--retry-failed", action="store_true", help="for a sweep: also run failed and refused trials again"
    )
    options = parser.parse_intermixed_args(argv)
    if is_sweep(Path(options.run)):
        return sweep.resume(
            Path(options.run), options.overrides, retry_failed=options.retry_failed, as_json=options.json
        )
    if options.retry_failed:
        parser.error("--retry-failed is for sweeps")

    # Not in `resume`, which trials call, too: they were checked by the command that runs their sweep.
    sweep.check_run(Run.open(options.run), options.overrides)
    return finish(resume(options.run, options.overrides, ("seqtrain", "resume", *argv)), options.json)
