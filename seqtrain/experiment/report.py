"""The result of a run: the values in its summary, and the lines that print them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from seqtrain.data.sources.base import SPLITS
from seqtrain.files.checked import open_checked
from seqtrain.runs import leaks, measures
from seqtrain.runs.directory import Run
from seqtrain.runs.summary import Summary
from seqtrain.terminal import pasted
from seqtrain.training.clipping import of_records
from seqtrain.training.cost import Cost

if TYPE_CHECKING:
    from seqtrain.data.preprocess import Rows
    from seqtrain.training.session import Session

MAX_SAMPLE_BYTES = 1 << 20
MAX_COVERAGE_GAP = 0.05


def before_training(session: Session, cost: Cost) -> dict[str, Any]:
    """Return the summary entries known before the first step: size, cost, and context of the tokens."""
    figures: dict[str, Any] = {"parameters": cost.parameters, "padding": cost.padding}
    if cost.state is not None:
        figures["state"] = cost.state
    if session.max_steps is not None:
        figures["max_steps"] = session.max_steps
    figures["flops_per_token"] = cost.flops_per_token
    figures["context"] = session.data.context()
    return figures


def result(run: Run, session: Session, cost: Cost) -> dict[str, Any]:
    """Return the summary entries of a finished training."""
    seconds = session.recorder.elapsed()
    tokens = session.learner.progress.tokens
    joules = sum(record.get("system/joules", 0.0) for record in run.metrics())
    best = dict(session.checkpoints.best)
    best_step = best.pop("step")
    # An attempt that did not validate, such as one resumed at the last step, takes the metrics from the records.
    metrics = session.learner.metrics or newest(run, "validation")
    return {
        "metrics": {"validation": metrics},
        "best": {"step": best_step, "validation": best},
        "baselines": {"validation": session.data.baselines_or_none("validation")},
        "splits": [split for split in SPLITS if session.data.source.has(split)],
        "steps": session.trainer.global_step,
        "ended_by": ended_by(session),
        "tokens": tokens,
        "skipped": session.learner.progress.skipped,
        "clipped": of_records(run.metrics(), session.recorder.every, session.trainer.global_step),
        "flops": cost.flops_per_token * tokens,
        "seconds": round(seconds, 3),
        **({"joules": round(joules, 1)} if joules else {}),
        "tokens_per_second": speed(run, tokens / max(seconds, 1e-9)),
        "unknown": {split: _num_unknown(rows) for split, rows in session.data.rows.items()},
    }


def _num_unknown(rows: Rows) -> int:
    """Count the <unk> tokens of a split, in all its columns."""
    return sum(corpus.num_unknown for corpus in rows.columns.values())


def ended_by(session: Session) -> Literal["seconds", "steps", "early_stopping"]:
    """Return what ended the training."""
    # First: a run that met its deadline is extended by max_seconds, even if that was also its last step.
    if session.deadline is not None and session.deadline.met:
        return "seconds"
    return "steps" if session.trainer.global_step == session.max_steps else "early_stopping"


def speed(run: Run, otherwise: float) -> float:
    """Return the training speed in tokens per second, or `otherwise` if no record has it."""
    # The median, because a record around a validation, a checkpoint or a pause is slow.
    speeds = [record["tokens_per_second"] for record in run.metrics() if "tokens_per_second" in record]
    return statistics.median(speeds) if speeds else otherwise


def newest(run: Run, split: str) -> dict[str, float]:
    """Return the last recorded metrics of a split."""
    prefix = f"{split}/"  # one file contains records of training and of validations
    for record in reversed(run.metrics()):
        metrics = {key.removeprefix(prefix): value for key, value in record.items() if key.startswith(prefix)}
        if metrics:
            return metrics
    return {}


def lines(run: Run) -> list[str]:
    """Return the lines printed at the end of a training: metrics, baselines, and a sample from the model."""
    summary = run.summary
    metrics = summary.metrics["validation"]
    best = summary.best
    steps = "1 step" if summary.steps == 1 else f"{summary.steps:,} steps"
    early = f" (early stopping{_stopping_words(run)})" if summary.ended_by == "early_stopping" else ""
    out = [
        "",
        f"run {run.path}: {summary.status} after {steps}{early}, {summary.tokens:,} tokens, "
        f"{summary.seconds:.0f} s ({summary.tokens_per_second:,.0f} tokens/s), "
        f"{summary.parameters['total']:,} parameters",
        f"validation  {words(metrics, summary)}",
        f"best        {words(best['validation'], summary)} at step {best['step']:,}",
    ]
    known = summary.baselines["validation"]
    if known:
        out.append("baselines on the same data:")
    out += [*baseline_lines(summary, known), *verdict(summary, best["validation"], known)]
    gap = best["validation"].get("coverage80_gap", 0.0)
    if gap > MAX_COVERAGE_GAP:
        out.append(f"do not rely on the 80 % interval: the share of values inside it is off by {gap:.0%}")
    out += [*leaks.notes(summary), *_unknown_line(summary), *_clipped_line(summary), *_sample_lines(run)]
    out += [f"{name} is {signature}" for name, signature in (summary.signatures or {}).items() if name in metrics]
    trusted = [word for package in summary.trust for word in ("--trust", package)]
    commands = []
    if "test" in summary.splits:
        commands.append(f"{pasted('seqtrain', 'evaluate', run.path, *trusted)} --split test")
    if summary.example_text:
        commands.append(f"{pasted('seqtrain', 'predict', run.path, *trusted)} {summary.example_text}")
    else:  # a task without predictions
        commands.append(f"{pasted('seqtrain', 'embed', run.path, *trusted)} --input FILE --output FILE.parquet")
    return [*out, f"next: {'; '.join(commands)}"]


def _stopping_words(run: Run) -> str:
    """Return the criterion of early stopping; empty if the record does not show that its patience ran out."""
    node = run.config["callbacks"].get("early_stopping") or {}
    monitor, patience, least = node.get("monitor", ""), node.get("patience", 3), abs(node.get("min_delta") or 0.0)
    sign = -1 if node.get("mode", "min") == "max" else 1
    best, waited = math.inf, 0
    for record in run.metrics():
        if (value := record.get(monitor)) is not None:
            is_better = sign * value + least < best  # as Lightning decides
            best, waited = (sign * value, 0) if is_better else (best, waited + 1)
    if waited < patience:  # another kind of callback, or a value that is nan
        return ""
    by = f" by more than {least:g}" if least else ""
    validations = "the last validation" if patience == 1 else f"the last {patience} validations"
    return f": {monitor} no better than {sign * best:.4f}{by} in {validations}"


def _unknown_line(summary: Summary) -> Iterator[str]:
    unknown = (summary.unknown or {}).get("validation", 0)
    # <unk> may replace any text, so a vocabulary with more of it looks better than it is.
    if unknown and any(measures.tokenizer_free(summary, name) for name in summary.metrics["validation"]):
        yield f"{unknown:,} validation tokens are <unk>: bits per byte do not count what they hide"


def _clipped_line(summary: Summary) -> Iterator[str]:
    """Yield how often the gradient was clipped; nothing for runs without clipping or without a count."""
    clipped = summary.clipped or {}
    share = clipped.get("share")
    if not isinstance(share, float):
        return
    by = clipped.get("by")
    much = f", where their norm was {by:.3g} times the limit on average" if isinstance(by, float) else ""
    yield f"gradients were clipped in {share:.1%} of the updates{much} (trainer.grad_clip)"


def _sample_lines(run: Run) -> Iterator[str]:
    """Yield the model's sample of the last validation."""
    samples = sorted(run.path.glob("samples/step-*.txt"))
    if not samples:
        return
    with open_checked(samples[-1]) as file:
        text = file.read(MAX_SAMPLE_BYTES).decode("utf-8", "replace")
    yield "sample:"
    for line in text.splitlines():
        yield f"  | {line}"


def words(metrics: dict[str, float], summary: Summary) -> str:
    """Format metrics in one line."""
    return ", ".join(f"{value:.4f} {measures.unit(summary, name)}" for name, value in metrics.items())


def baseline_lines(summary: Summary, known: Mapping[str, dict[str, float]]) -> Iterator[str]:
    """Yield a line for each baseline in `known`: its metrics, the main one first, and the information that it uses."""
    first = measures.compared_by(summary)
    for name, values in known.items():
        # A dict keeps the position of a repeated key, so `first` comes first and the others keep their order.
        ordered = {first: values[first], **values} if first in values else values
        numbers = "  ".join(f"{value:8.3f} {measures.unit(summary, metric)}" for metric, value in ordered.items())
        yield f"  {name:15}{numbers:48} {summary.baseline_words.get(name, {}).get('knows', '')}"


def verdict(summary: Summary, metrics: Mapping[str, float], known: Mapping[str, dict[str, float]]) -> list[str]:
    """Return a sentence that compares a run with each baseline by the main metric.

    Args:
        summary: Summary of the run.
        metrics: The run's metrics, by name.
        known: The metrics of each baseline, by its name.
    """
    name = measures.compared_by(summary)
    out = []
    for baseline, values in known.items():
        called = summary.baseline_words.get(baseline, {}).get("name")
        if called and name in values and not math.isnan(metrics.get(name, math.nan)):
            gap = values[name] - metrics[name]  # above 0: the run's value is smaller
            if measures.better(summary, name) == "max":
                gap = -gap
            out.append(f"{_gap_words(gap, measures.unit(summary, name))} {called}")
    if not out:
        return []
    return [f"That is {', '.join(out)}."]


def _gap_words(gap: float, unit: str) -> str:
    size = f"{abs(gap):.3f}"
    if not float(size):  # compare the rounded gap: "0.000 better" would mean nothing
        return "no better than"
    how = "better" if gap > 0 else "worse"
    return f"{size} {unit} {how} than"
