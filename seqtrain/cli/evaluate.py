"""`seqtrain evaluate`: measure a run on a split, each token once."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from seqtrain.cli.arguments import Parser, bounded, several
from seqtrain.config.ranges import RANGES
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import plain_json
from seqtrain.runs.directory import Run
from seqtrain.runs.evaluations import EVALUATIONS, Evaluation, Kept, keep, kept
from seqtrain.runs.measures import compared_by, unit
from seqtrain.runs.provenance import commit

if TYPE_CHECKING:
    from seqtrain.data.preprocess import Preprocessor, Rows
    from seqtrain.inference.opened import Opened
    from seqtrain.runs.summary import Summary
    from seqtrain.tasks.base import Reduced
    from seqtrain.training.learner import Learner
    from seqtrain.training.splits import Data

WIDTH = 10  # characters of a column


@runtime_checkable
class TaskChance(Protocol):
    """A task that knows the metrics of a random guess."""

    def chance(self, split: Rows, preprocessor: Preprocessor) -> dict[str, float]:
        """Return the expected metrics of a random guess among the possible answers; empty if they are unknown."""
        ...


@runtime_checkable
class Tabulates(Protocol):
    """A task whose metrics can be shown in parts."""

    def breakdown(self, totals: Reduced) -> dict[str, dict[str, float]]:
        """Return tables, such as a metric by length: the title of each, and a number for each row."""
        ...


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "evaluate",
        "Measure a run on its validation split, or on its test split, which training never reads.",
        "seqtrain evaluate outputs/2026-11-21_02-04-00_next_token_lstm --split test",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--split", default="validation", choices=("train", "validation", "test"))
    parser.add_argument("--checkpoint", default="best", choices=("best", "last"))
    parser.add_argument(
        "--batch-size",
        type=bounded(RANGES["data.eval_batch_size"]),
        help="lanes or examples read at a time: changes memory and speed, but no result",
    )
    parser.add_argument(
        "--baselines",
        action="store_true",
        help="also measure simple baselines, fitted to train, on the same split",
    )
    parser.add_argument(
        "--lengths",
        type=several(RANGES["data.longest"]),
        metavar="N,N,...",
        help="measure at each of these lengths, in tokens: on newly drawn examples, or on windows of the text",
    )
    parser.add_argument(
        "--intervals",
        action="store_true",
        help="point forecasts: also measure the coverage of conformal intervals, made from the validation split",
    )
    parser.add_argument(
        "--origins",
        type=bounded(RANGES["data.longest"]),
        metavar="N",
        help="forecast from each of the last N origins of the split, with all history before it, next to baselines",
    )
    options = parser.parse_args(argv)
    if options.origins is not None:
        _evaluate_origins(options)
        return 0
    if options.lengths is not None:
        _evaluate_lengths(options)
        return 0
    # Separately: the mean over test sets would have no meaning.
    for name in (_test_sets(options.run) if options.split == "test" else []) or [None]:
        result = evaluate(
            options.run,
            options.split,
            options.checkpoint,
            options.batch_size,
            test_set=name,
            with_baselines=options.baselines,
            with_intervals=options.intervals,
        )
        if name is None:
            _keep_and_tell(result, options, options.split)
        else:
            _keep_and_tell(result | {"test_set": name}, options, f"test set {name}")
    return 0


def _evaluate_lengths(options: Namespace) -> None:
    """Measure a split at several lengths, and print a row for each."""
    from seqtrain.experiment.lengths import open_at_lengths

    if options.baselines:
        raise UserError("--baselines: has no effect with --lengths; leave one of them out")
    split, checkpoint, batch_size = options.split, options.checkpoint, options.batch_size
    lengths = tuple(dict.fromkeys(options.lengths))
    opened, found = open_at_lengths(options.run, split, checkpoint, lengths, batch_size)
    for number, at in enumerate(found):
        learner = _measured(opened, at.data, split, at.loader, at.carry)
        result, words = _result(options.run, split, checkpoint, opened, at.data, learner, at.size), []
        result["length"] = at.length
        if split == "test":  # under its own name: a result at one length is not the result of the test split
            result, words = kept_in_run(result | {"test_set": f"length {at.length}"}, batch_size)
        if options.json:
            print(plain_json(result), flush=True)
        else:
            cells = {name: f"{result[name]:,}" for name in ("length", "examples", "tokens")}
            # Significant digits: far beyond the trained length a perplexity may be of any size.
            cells |= {name: f"{value:.6g}" for name, value in result["metrics"].items()}
            if not number:
                print(f"{split} at each length ({checkpoint} checkpoint, step {opened.step:,})")
                print("  ".join(f"{name:>{WIDTH}}" for name in cells))
            print("  ".join(f"{cell:>{max(WIDTH, len(name))}}" for name, cell in cells.items()), flush=True)
        for line in words:
            say(line)


def _evaluate_origins(options: Namespace) -> None:
    """Measure forecasts at the last origins of a split, and print a row for each and one for all."""
    from seqtrain.experiment.rolling_origins import MODEL, roll

    for name in ("baselines", "lengths", "batch_size", "intervals"):
        if getattr(options, name):
            raise UserError(f"--{name.replace('_', '-')}: has no effect with --origins; leave one of them out")
    found = roll(options.run, options.split, options.checkpoint, options.origins, say)
    rows, summary = found.data.rows[options.split], found.opened.run.summary
    result: dict[str, Any] = {
        **{"run": str(options.run), "split": options.split, "checkpoint": options.checkpoint},
        **{"step": found.opened.step, "hash": rows.hash, "tokens": rows.num_tokens, "eval_lanes": None},
        "examples": len(found.by_origin),
    }
    words: list[str] = []
    shown = compared_by(summary)
    for number, (origin, metrics) in enumerate(found.rows()):
        others = {name: each for name, each in metrics.items() if name != MODEL}
        row = {**result, "origin": origin, "metrics": metrics[MODEL], "baselines": others}
        if options.split == "test" and metrics is found.whole:
            row, words = kept_in_run(row | {"test_set": f"last {options.origins} origins"}, None)
        if options.json:
            print(plain_json(row))
            continue
        if not number:
            print(f"{options.split}, {unit(summary, shown)} ({options.checkpoint} checkpoint, step {result['step']:,})")
            print("  ".join(["origin".ljust(2 * WIDTH), *(f"{name:>{WIDTH}}" for name in metrics)]))
        cells = [f"{each[shown]:>{max(WIDTH, len(name))}.4f}" for name, each in metrics.items()]
        print("  ".join([origin.ljust(2 * WIDTH), *cells]))
    for line in words:
        say(line)


def _result(
    path: str, split: Any, checkpoint: str, opened: Opened, data: Data, learner: Learner, size: dict[str, int | None]
) -> dict[str, Any]:
    """Return the metrics of a split and what they depend on, with `chance` if the task knows it."""
    result = {
        "run": str(path),
        "split": split,
        "checkpoint": checkpoint,
        "step": opened.step,
        "metrics": learner.metrics,
        **size,
        "hash": data.rows[split].hash,
    }
    if isinstance(opened.task, TaskChance) and (chance := opened.task.chance(data.rows[split], opened.preprocessor)):
        result["chance"] = chance
    return result


def _keep_and_tell(result: dict[str, Any], options: Namespace, name: str) -> None:
    """Print the metrics. Keep those of a test split in the run."""
    words = []
    if options.split == "test":  # repeated evaluations of this split bias choices, so they are counted
        result, words = kept_in_run(result, options.batch_size)
    _tell(result, options, name)
    for line in words:
        say(line)


def _test_sets(path: str) -> list[str]:
    """Return the names of a run's test sets; empty if it has only one."""
    named = Run.open(path).config.get("data", {}).get("test_paths")
    return list(named) if isinstance(named, dict) else []


def _tell(result: dict[str, Any], options: Namespace, name: str) -> None:
    """Print the metrics of a split or of a test set."""
    if options.json:
        print(plain_json(result))
    else:
        from seqtrain.experiment import report

        # The number of lanes changes the context of each token, so the metrics are printed with it.
        lanes, examples = result["eval_lanes"], result["examples"]
        size = f" on {lanes} lanes" if lanes else f", {examples:,} examples"
        where = f"step {result['step']:,}, {result['tokens']:,} tokens{size}"
        summary = Run(Path(options.run)).summary
        metrics = report.words(result["metrics"], summary)
        print(f"{name}: {metrics} ({options.checkpoint} checkpoint, {where})")
        for line in _beside(result, summary):
            print(line)


def _beside(result: dict[str, Any], summary: Summary) -> Iterator[str]:
    """Yield lines that help to read the metrics: baselines, chance, and the numbers of parts of the split."""
    from seqtrain.experiment import report

    known = result.get("baselines", {})
    yield from report.baseline_lines(summary, known)
    yield from report.verdict(summary, result["metrics"], known)
    if "chance" in result:
        yield f"chance: {report.words(result['chance'], summary)}"
    for share, found in result.get("intervals", {}).items():
        steps = found["by_step"]
        yield (
            f"interval of {share} %: covers {found['coverage']:.1%} ({steps[0]:.1%} at the first step ahead, "
            f"{steps[-1]:.1%} at the last), mean width {found['width']:.4g}"
        )
    for table, parts in result.get("breakdown", {}).items():
        yield f"{table}: {', '.join(f'{part} {value:.4f}' for part, value in parts.items())}"


def evaluate(
    path: str,
    split: Any,
    checkpoint: str,
    batch_size: int | None,
    *,
    callbacks: Sequence[Any] = (),
    test_set: str | None = None,
    with_baselines: bool = False,
    with_intervals: bool = False,
) -> dict[str, Any]:
    """Return the metrics of a split and what they depend on: step of the checkpoint, lanes, hash of the text.

    Args:
        path: The run's directory.
        split: "train", "validation" or "test".
        checkpoint: "best" or "last".
        batch_size: Lanes or examples per batch; None for the run's own.
        callbacks: Lightning callbacks that observe the evaluation.
        test_set: Name in `data.test_paths`, if there are several test sets.
        with_baselines: Read train as well, and add the metrics of baselines.
        with_intervals: Read validation as well, and add the coverage of intervals made from its errors.
    """
    from seqtrain.experiment.data import leak_of, may_leak, open_with_data

    if with_intervals and split == "validation":
        raise UserError(
            "--intervals: are made from the validation split and cover it by construction; use --split test"
        )
    opened, data = open_with_data(path, split, checkpoint, test_set=test_set, with_train=with_baselines)
    leak = None
    if split == "test" and may_leak(data.source):
        leak = leak_of(opened.run, split, data.rows[split])
    loader = data.eval_loader(split, batch_size)
    learner = _measured(opened, data, split, loader, data.tbptt.carry, callbacks)
    size = {"tokens": data.rows[split].num_tokens, **data.size(split)}
    result = _result(path, split, checkpoint, opened, data, learner, size)
    if isinstance(opened.task, Tabulates) and (tables := opened.task.breakdown(learner.totals)):
        result["breakdown"] = tables
    if with_baselines:
        result["baselines"] = data.baselines_or_none(split)
    if with_intervals:
        from seqtrain.experiment.conformal import covered, intervals_of

        result["intervals"] = covered(opened, data.rows[split], intervals_of(path, checkpoint, say))
    return result if leak is None else result | {"leak": leak}


def _measured(
    opened: Opened, data: Data, split: Any, loader: Any, carry: bool, callbacks: Sequence[Any] = ()
) -> Learner:
    """Return the learner of a run after one pass over a loader, with the metrics and the sums behind them."""
    # Both import Lightning, which takes seconds: errors in the data are reported first.
    from seqtrain.training.learner import Learner
    from seqtrain.training.trainer import make_trainer, trainer_options

    options = trainer_options(opened.config)
    learner = Learner(
        model=opened.model,
        task=opened.task,
        carry=carry,
        lanes=loader.plan.lanes,
        facts=data.facts(),
        seed=opened.config.seed,
        recompute=data.tbptt.recompute,
        eval_precision=options.eval_precision,
    )
    learner.split = split
    # One process, however many the run was trained with.
    trainer = make_trainer(options, 1, [*callbacks], [], opened.run.path)
    trainer.validate(learner, loader, verbose=False)
    return learner


SPENT = "a choice made since then makes this result optimistic"


def kept_in_run(result: dict[str, Any], batch_size: int | None) -> tuple[dict[str, Any], list[str]]:
    """Keep the result of `evaluate` on the test split in the run's directory.

    Args:
        result: Result of `seqtrain.cli.evaluate.evaluate`; its optional `test_set` is the name of the set.
        batch_size: Option of the command.

    Returns:
        The result with `look`, the number of this evaluation, and `kept`, True if the run recorded it; and lines to
        print. If the run cannot be written, only the count is lost.
    """
    run = Path(result["run"])
    evaluation = Evaluation(
        split=result["split"],
        checkpoint=result["checkpoint"],
        step=result["step"],
        metrics=result["metrics"],
        hash=result["hash"],
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit(Path.cwd()),
        options={
            "batch_size": batch_size,
            "eval_lanes": result["eval_lanes"],
            "examples": result["examples"],
            "tokens": result["tokens"],
        },
        leak=result.get("leak"),
        baselines=result.get("baselines", {}),
        test_set=result.get("test_set"),
    )
    # The result is printed even if the file cannot be written: the test split has been evaluated.
    before, reason = Kept(), ""
    try:
        before = kept(run)
        keep(run, evaluation)
    except OSError as error:
        reason = error.strerror or str(error)
    except UserError as error:
        reason = str(error)
    # Counted from the file, which also has the evaluations of other days and people.
    test_set = evaluation.test_set
    look = before.looks(test_set=test_set) + 1
    name = "test split" if test_set is None else f"test set {test_set}"
    lines = [f"{name} evaluated {look} time{'s' * (look > 1)}"]
    if look > 1:
        lines[0] += f" (first on {before.of('test', test_set)[0].date[:10]}): {SPENT}"
    if before.unreadable:
        lines.append(f"{run / EVALUATIONS}: {before.unreadable} unreadable lines, which do not count as evaluations")
    if reason:
        lines.append(
            f"nothing was kept in {run} ({reason}): this evaluation is not counted, and compare cannot show its result"
        )
    return {**result, "look": look, "kept": not reason}, lines
