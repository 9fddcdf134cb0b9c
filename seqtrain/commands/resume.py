"""`seqtrain resume`: goes on with a run or a sweep that was interrupted, or extends a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain import processes
from seqtrain.commands.arguments import Parser, finish, say
from seqtrain.faults import Fault, did_you_mean
from seqtrain.sweeps.folder import is_sweep

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from seqtrain.runs import Run

SAFE = (
    *("trainer.max_steps", "trainer.max_epochs", "trainer.max_seconds", "trainer.checkpoint_every"),
    *("trainer.log_every", "trainer.threads", "trainer.devices", "trainer.num_nodes", "data.workers"),
    "trainer.keep_last",
)
SAFE_GROUPS = ("logger.",)


def main(argv: list[str]) -> int:
    """The command."""
    parser = Parser(
        "resume",
        "Go on with a run from its newest good checkpoint, or from step 0 if there is none.\n"
        "trainer.max_steps extends it: schedules are functions of the step and of max_steps, so from there on the\n"
        "learning rate is what it would have been had the run been planned that long from the start.\n"
        "Of a sweep, the trials that are missing or unfinished are run; hydra/launcher=, hydra.launcher.* may change.",
        "seqtrain resume outputs/2026-11-21_02-04-00_next_token_lstm trainer.max_steps=3000",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help=f"one of {', '.join(SAFE)}, logger.*")
    parser.add_argument("--retry-failed", action="store_true", help="of a sweep: run the trials that failed, too")
    options = parser.parse_intermixed_args(argv)
    if is_sweep(Path(options.run)):
        from seqtrain.commands import sweep

        return sweep.resume(
            Path(options.run),
            options.overrides,
            tuple(options.trust),
            retry_failed=options.retry_failed,
            as_json=options.json,
        )
    if options.retry_failed:
        parser.error("--retry-failed is for sweeps")

    return finish(
        lambda: resume(options.run, options.overrides, tuple(options.trust), ("seqtrain", "resume", *argv)),
        options.json,
    )


def resume(path: str, overrides: list[str], trust: tuple[str, ...], command: tuple[str, ...]) -> Run:
    """Continues the run in `path`; Fault for changes that would make it another run, and if there is nothing to do."""
    from seqtrain import budget, build, check
    from seqtrain.checkpoint import newest_valid, step_of
    from seqtrain.commands import session
    from seqtrain.commands.train import Request, preflight
    from seqtrain.runs import Run

    with processes.joined() as here:
        run = Run.open(path)
        run.writes = here.first
        config = build.checked_config(run, trust)

        def ready() -> tuple[list[str], Path | None]:
            run.claim()
            budget.check_free(config, overrides)
            changed = _apply(config, overrides)
            config.run_dir = None  # of a new run only
            check.check_config(config, {}, trust=trust)
            preflight(config, Request(trust=trust))
            checkpoint = newest_valid(run.checkpoints, say, run=run.identity)
            _refuse_pointless(run, config, changed, 0 if checkpoint is None else step_of(checkpoint))
            return changed, checkpoint

        changed, checkpoint = processes.together(ready)
        step = 0 if checkpoint is None else step_of(checkpoint)
        for line in changed:
            say(line)
        say(f"run {run.path}: resumed from step {step}")

        def begin() -> None:
            with session.writing(run, f"`seqtrain resume {run.path}`"):
                run.write_summary(run.summary | {"status": "running"})  # first: what is finished is not gone on with
                run.write_config(session.config_text(config))
                run.resumed(step)

        processes.together(begin)
        session.sit(run, config, trust, command=command, checkpoint=checkpoint)
    return run


def _refuse_pointless(run: Run, config: DictConfig, changed: list[str], step: int) -> None:
    """Fault where there is nothing to go on from, or nothing left to do after `step`."""
    if not step and any(run.checkpoints.glob("step-*.ckpt")):
        raise Fault(
            f"run {run.path}: no checkpoint is sound; delete {run.checkpoints}/step-*.ckpt to begin again at step 0"
        )
    limit, summary = config.trainer.max_steps, run.summary
    if limit is not None and limit < step:
        raise Fault(f"trainer.max_steps={limit}: run {run.path} is at step {step} already")
    if summary.get("status") != "finished":
        return
    if summary.get("ended_by") == "early_stopping":
        raise Fault(f"run {run.path} is finished: early stopping ended it at step {step}, more steps change nothing")
    if config.budget is not None:
        raise Fault(f"run {run.path} is finished: its budget is spent; start a new run with another one")
    seconds, limit = summary.get("seconds", 0.0), config.trainer.max_seconds
    if summary.get("ended_by") == "seconds" and limit is not None and limit <= seconds:
        raise Fault(f"run {run.path} is finished: extend it with trainer.max_seconds=S above {seconds:g}")
    if not any(line.startswith("trainer.max_") for line in changed):
        raise Fault(f"run {run.path} is finished: extend it with trainer.max_steps=N above {step}")


def _apply(config: DictConfig, overrides: list[str]) -> list[str]:
    """Sets what may change; gives a line for each value that does."""
    from omegaconf import OmegaConf

    changed = []
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise Fault(f"{override}: expected key=value")
        if OmegaConf.select(config, key, default=Unset) is Unset:
            raise Fault(f"{key}: no such key in this run{did_you_mean(key, SAFE)}")
        if key not in SAFE and not key.startswith(SAFE_GROUPS):
            raise Fault(
                f"{key}: a resumed run keeps it, or it were another run; only {', '.join(SAFE)} and logger.* may change"
            )
        before, value = OmegaConf.select(config, key), _value(text)
        if before != value:
            OmegaConf.update(config, key, value)
            changed.append(f"{key}: {before} -> {value}")
    return changed


class Unset:
    """Stands for a key that is not there."""


def _value(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise Fault(f"{text}: no value that can be read; give a number, or text in quotes") from None
