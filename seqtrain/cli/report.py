"""What a run has come to: the summary's figures, and the lines that say them to a person."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from seqtrain.data.sources.base import SPLITS
from seqtrain.files.checked import open_checked
from seqtrain.runs import measures
from seqtrain.runs.directory import Run
from seqtrain.runs.summary import Summary
from seqtrain.terminal import pasted
from seqtrain.training.cost import Cost

if TYPE_CHECKING:
    from seqtrain.training.session import Session

MAX_SAMPLE_BYTES = 1 << 20


def begun(session: Session, cost: Cost) -> dict[str, Any]:
    """What is known of a training before its first step: its size and cost, and what its numbers will mean."""
    return {
        "parameters": cost.parameters,
        "padding": cost.padding,
        **({} if session.max_steps is None else {"max_steps": session.max_steps}),
        "flops_per_token": cost.flops_per_token,
        "context": session.data.context(),
    }


def result(run: Run, session: Session, cost: Cost) -> dict[str, Any]:
    """The figures of a finished training."""
    seconds = session.recorder.elapsed()
    tokens = session.learner.progress.tokens
    best = session.checkpoints.best
    return {
        "metrics": {"validation": session.learner.metrics or newest(run, "validation")},
        "best": {"step": best["step"], "validation": {name: best[name] for name in best if name != "step"}},
        "baselines": {"validation": session.data.baselines("validation")},
        "splits": [split for split in SPLITS if session.data.source.has(split)],
        "steps": session.trainer.global_step,
        "ended_by": ended_by(session),
        "tokens": tokens,
        "skipped": session.learner.progress.skipped,
        "flops": cost.flops_per_token * tokens,
        "seconds": round(seconds, 3),
        "tokens_per_second": speed(run, tokens / max(seconds, 1e-9)),
        "unknown": {
            split: sum(corpus.num_unknown for corpus in rows.columns.values())
            for split, rows in session.data.rows.items()
        },
    }


def ended_by(session: Session) -> Literal["seconds", "steps", "early_stopping"]:
    """What ended the training."""
    if session.deadline is not None and session.deadline.met:
        return "seconds"
    return "steps" if session.trainer.global_step == session.max_steps else "early_stopping"


def speed(run: Run, otherwise: float) -> float:
    """Tokens a second of training: the median of the records, so that validation and pauses do not count."""
    speeds = [record["tokens_per_second"] for record in run.metrics() if "tokens_per_second" in record]
    return statistics.median(speeds) if speeds else otherwise


def newest(run: Run, split: str) -> dict[str, float]:
    """The last recorded metrics of a split."""
    prefix = f"{split}/"
    for record in reversed(run.metrics()):
        found = {key.removeprefix(prefix): value for key, value in record.items() if key.startswith(prefix)}
        if found:
            return found
    return {}


def lines(run: Run) -> list[str]:
    """The end of a training, for a person: figures, what stands beside them, and what the model writes."""
    summary = run.summary
    metrics = summary.metrics["validation"]
    best = summary.best
    out = [
        "",
        f"run {run.path}: {summary.status} after {summary.steps:,} steps, {summary.tokens:,} tokens, "
        f"{summary.seconds:.0f} s ({summary.tokens_per_second:,.0f} tokens/s), "
        f"{summary.parameters['total']:,} parameters",
        f"validation  {words(metrics, summary)}",
        f"best        {words(best['validation'], summary)} at step {best['step']:,}",
        "beside it, on the same text:",
    ]
    out += [*baseline_lines(summary), *verdict(summary)]
    unknown = (summary.unknown or {}).get("validation", 0)
    if unknown and "bits_per_byte" in metrics:
        out.append(f"{unknown:,} validation tokens are <unk>: bits per byte do not count what they hide")
    samples = sorted(run.path.glob("samples/step-*.txt"))
    if samples:
        with open_checked(samples[-1]) as file:
            text = file.read(MAX_SAMPLE_BYTES).decode("utf-8", "replace")
        out += ["sample:", *(f"  | {line}" for line in text.splitlines())]
    trusted = [word for package in summary.trust for word in ("--trust", package)]
    test = f"{pasted('seqtrain', 'evaluate', run.path, *trusted)} --split test; " if "test" in summary.splits else ""
    out += [f"{name} is {signature}" for name, signature in (summary.signatures or {}).items()]
    return [*out, f"go on: {test}{pasted('seqtrain', 'predict', run.path, *trusted)} {summary.example_text}"]


def words(metrics: dict[str, float], summary: Summary) -> str:
    """Metrics in one line."""
    return ", ".join(f"{value:.4f} {measures.unit(summary, name)}" for name, value in metrics.items())


def baseline_lines(summary: Summary) -> Iterator[str]:
    """One line for each baseline: its numbers, the one that runs are compared by first, and what it knows."""
    first = measures.compared_by(summary)
    for name, values in summary.baselines["validation"].items():
        ordered = sorted(values, key=lambda metric: metric != first)
        shown = "  ".join(f"{values[metric]:8.3f} {measures.unit(summary, metric)}" for metric in ordered)
        yield f"  {name:15}{shown:48} {summary.baseline_words.get(name, {}).get('knows', '')}"


def verdict(summary: Summary) -> list[str]:
    """How the best result stands to each baseline, in words, in the metric that runs are compared by."""
    metrics, known = summary.best["validation"], summary.baselines["validation"]
    name = measures.compared_by(summary)
    sign = -1 if measures.better(summary, name) == "max" else 1
    out = []
    for baseline, values in known.items():
        called = summary.baseline_words.get(baseline, {}).get("name")
        if called and name in values and name in metrics:
            gap = sign * (values[name] - metrics[name])
            shown = f"{abs(gap):.3f}"
            how = "better" if gap > 0 else "worse"
            words = f"{shown} {measures.unit(summary, name)} {how} than" if float(shown) else "no better than"
            out.append(f"{words} {called}")
    return ["That is " + ", ".join(out) + "."] if out else []
