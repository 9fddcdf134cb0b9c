"""What a run has come to: the summary's figures, and the lines that say them to a person."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from seqtrain.data.sources.base import SPLITS
from seqtrain.files.checked import open_checked
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import ExampleTask
from seqtrain.tasks.baselines.counts import baselines, xz_baselines
from seqtrain.terminal import pasted
from seqtrain.training.cost import Cost

if TYPE_CHECKING:
    from seqtrain.training.data import Data
    from seqtrain.training.session import Session

MAX_SAMPLE_BYTES = 1 << 20

WORDS = {
    "uniform": "every token as likely",
    "unigram": "how often each token is",
    "bigram": "which token follows which",
    "xz": "xz -9 of this text alone",
    "xz_given_train": "xz -9 given the training text",
    "majority": "always the most frequent label",
    "naive_bayes": "naive Bayes on words and pairs of neighbours",
    "left_bigram": "which token follows its left neighbour",
    "copy": "the source as its own translation",
    "nearest": "the translation of the most similar training source",
}
"""What each baseline knows."""

NAMES = {
    "bigram": "the bigram",
    "xz": "xz",
    "xz_given_train": "xz given the training text",
    "majority": "the most frequent label",
    "naive_bayes": "naive Bayes",
    "unigram": "the unigram",
    "left_bigram": "the bigram",
    "copy": "copying the source",
    "nearest": "the nearest training source",
}
"""Baselines that a result is held against, in words."""

EXAMPLES = {"MaskedLM": "'TEXT WITH A [MASK]'"}
"""What a task can be asked, where any text will not do."""

UNITS = {"loss": "nats", "bits_per_byte": "bits per byte", "accuracy": "accuracy", "bleu": "BLEU", "chrf": "chrF"}


def begun(session: Session, cost: Cost) -> dict[str, Any]:
    """What is known of a training before its first step: its size and cost, and what its numbers will mean."""
    task = session.learner.task
    return {
        "parameters": cost.parameters,
        "padding": cost.padding,
        **({} if session.max_steps is None else {"max_steps": session.max_steps}),
        "flops_per_token": cost.flops_per_token,
        "context": context(session.data),
        "monitor": list(task.monitor),
        "signatures": dict(task.signatures),
        "task": type(task).__name__,
    }


def result(run: Run, session: Session, cost: Cost, say: Callable[[str], None]) -> dict[str, Any]:
    """The figures of a finished training."""
    seconds = session.recorder.elapsed()
    tokens = session.learner.progress.tokens
    best = session.checkpoints.best
    return {
        "metrics": {"validation": session.learner.metrics or newest(run, "validation")},
        "best": {"step": best["step"], "validation": {name: best[name] for name in best if name != "step"}},
        "baselines": {"validation": measured_baselines(session.data, "validation", say)},
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


def context(data: Data) -> dict[str, Any]:
    """What evaluation's numbers depend on, beside weights and text."""
    if isinstance(data.reader, ExampleTask):
        return {"max_length": data.batching.max_length}
    found = {"eval_lanes": data.plan("validation").lanes, "carry": data.tbptt.carry}
    if data.tbptt.carry and data.tbptt.reset == "never":
        return found  # a state goes on over all cuts
    return found | {name: getattr(data.tbptt.evaluation, name) for name in ("k1", "k2", "reset")}


def measured_baselines(data: Data, split: Any, say: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """What knows nothing of sequences, and, of a stream, what a compressor makes of the same text."""
    if isinstance(data.reader, ExampleTask):
        return data.reader.baselines(data.rows["train"], data.rows[split], data.vocabularies)
    found = baselines(data.corpora["train"], data.corpora[split], data.tokenizer.vocabulary)
    xz = xz_baselines(lambda: data.source.documents("train"), lambda: data.source.documents(split))
    if not xz:
        say("xz is left out: the text is too large to compress twice")
    return found | xz


def lines(run: Run) -> list[str]:
    """The end of a training, for a person: figures, what stands beside them, and what the model writes."""
    summary = run.summary
    metrics = summary["metrics"]["validation"]
    best = summary["best"]
    out = [
        "",
        f"run {run.path}: {summary['status']} after {summary['steps']:,} steps, {summary['tokens']:,} tokens, "
        f"{summary['seconds']:.0f} s ({summary['tokens_per_second']:,.0f} tokens/s), "
        f"{summary['parameters']['total']:,} parameters",
        f"validation  {words(metrics)}",
        f"best        {words(best['validation'])} at step {best['step']:,}",
        "beside it, on the same text:",
    ]
    for name, values in summary["baselines"]["validation"].items():
        shown = "  ".join(f"{values[key]:8.3f} {UNITS.get(key, key)}" for key in sorted(values, key=_order))
        out.append(f"  {name:15}{shown:48} {WORDS.get(name, '')}")
    out += verdict(best["validation"], summary["baselines"]["validation"], *summary["monitor"])
    unknown = summary["unknown"].get("validation", 0)
    if unknown and "bits_per_byte" in metrics:
        out.append(f"{unknown:,} validation tokens are <unk>: bits per byte do not count what they hide")
    samples = sorted(run.path.glob("samples/step-*.txt"))
    if samples:
        with open_checked(samples[-1]) as file:
            text = file.read(MAX_SAMPLE_BYTES).decode("utf-8", "replace")
        out += ["sample:", *(f"  | {line}" for line in text.splitlines())]
    test = f"{pasted('seqtrain', 'evaluate', run.path)} --split test; " if "test" in summary["splits"] else ""
    out += [f"{name} is {signature}" for name, signature in summary["signatures"].items()]
    return [*out, f"go on: {test}{pasted('seqtrain', 'predict', run.path)} {EXAMPLES.get(summary['task'], 'TEXT')}"]


def words(metrics: dict[str, float]) -> str:
    """Metrics in one line."""
    return ", ".join(f"{value:.4f} {UNITS.get(name, name.replace('_', ' '))}" for name, value in metrics.items())


def verdict(metrics: dict[str, float], known: dict[str, dict[str, float]], monitor: str, mode: str) -> list[str]:
    """How the result stands to each baseline, in words: in bits per byte where they are known, else by the monitor."""
    name, sign = ("bits_per_byte", 1) if "bits_per_byte" in metrics else (monitor, 1 if mode == "min" else -1)
    out = []
    for baseline, values in known.items():
        if name in values and baseline in NAMES:
            gap = sign * (values[name] - metrics[name])
            unit = UNITS.get(name, name.replace("_", " "))
            shown = f"{abs(gap):.3f}"
            how = f"{shown} {unit} {'better' if gap > 0 else 'worse'} than" if float(shown) else "no better than"
            out.append(f"{how} {NAMES[baseline]}")
    return ["That is " + ", ".join(out) + "."] if out else []


def _order(name: str) -> int:
    return 0 if name == "bits_per_byte" else 1
