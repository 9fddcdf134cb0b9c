"""Reach of gradients in a model on the data of its run: measured, fitted, and described in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from omegaconf import DictConfig

from seqtrain.analysis.gradient_decay import FADED, Decay, decay_of, mean_norms, mirrored, spectral_radii
from seqtrain.analysis.gradient_reach import Measured, measure_examples, measure_stream
from seqtrain.data.batching.example_plan import distinct_of_all
from seqtrain.data.batching.plan import TBPTT, StreamPlan
from seqtrain.errors import UserError
from seqtrain.inference.opened import open_run
from seqtrain.models.base import Capability, SequenceModel
from seqtrain.runs.directory import Run
from seqtrain.tasks.base import Say, Task
from seqtrain.training.data import make_data
from seqtrain.training.model_and_task import make_model, make_pair, make_task, on_meta
from seqtrain.training.splits import Data, StreamData

Pair = tuple[SequenceModel, Task]

MAX_DEFAULT = 256  # tokens; --distance may be larger
LANES = 8
EXAMPLES = 16
ANY_SIZE = 2  # a vocabulary size that is large enough to build a task
GEOMETRIC = 0.98  # smallest r2 of a geometric decay


@dataclass(frozen=True)
class Options:
    """Options of the measurement."""

    distance: int | None  # the largest one; None: beyond the cut, as far as is cheap
    samples: int  # losses per lane or example
    whole: bool  # True: measure the model itself, without the truncation of training


@dataclass(frozen=True)
class Subject:
    """The data and the cut for which the gradient of one configuration is measured."""

    data: Data
    tbptt: TBPTT  # truncation of this measurement
    cut: int | None  # the smallest distance that no gradient can reach; None if nothing is cut
    farthest: int

    @property
    def can_be_whole(self) -> bool:
        """True if the model can be measured without the cut, that is, on a stream. Examples are cut by their task."""
        return isinstance(self.data, StreamData)

    def measure(self, model: SequenceModel, task: Task, samples: int) -> Measured:
        """Measure the norms of one model, trained or not."""
        if isinstance(self.data, StreamData):
            stream = self.data.batcher("validation")
            documents = self.data.documents("validation")
            lanes = min(LANES, self.data.batching.lanes, int(documents[-1]))
            plan = StreamPlan(documents=documents, lanes=lanes, tbptt=self.tbptt, seed=self.data.seed, shuffle=False)
            return measure_stream(model, task, stream, plan, farthest=self.farthest, samples=samples)
        batch = self.data.sample("validation", EXAMPLES)
        both_ways = Capability.CAUSAL not in model.capabilities
        return measure_examples(
            model, task, batch, k2=self.tbptt.k2, farthest=self.farthest, samples=samples, both_ways=both_ways
        )


@runtime_checkable
class WithoutDistance(Protocol):
    """A task that may have losses without a single distance from the input."""

    def no_distance(self) -> str | None:
        """Return the reason, or None if each loss has one distance."""
        ...


def refuse_unplaced(task: Task) -> None:
    """Raise UserError if a loss of the task has no single distance to its inputs."""
    reason = task.no_distance() if isinstance(task, WithoutDistance) else None
    if reason is not None:
        raise UserError(
            f"task={task.name()}: {reason}, so a loss has no single distance to the input; measure another task, such "
            "as task=next_token"
        )


def check_task(config: DictConfig) -> None:
    """Check the task of a config in the same way, before data is read.

    Raises:
        UserError: See `refuse_unplaced`.
    """
    # The meta device computes nothing and takes no memory.
    with on_meta():
        refuse_unplaced(make_task(config, make_model(config, ANY_SIZE), ANY_SIZE))


def subject_of(data: Data, task: Task, model: SequenceModel, options: Options) -> Subject:
    """Return what to measure on this data.

    Args:
        data: Data of a run.
        task: Its task, which `refuse_unplaced` accepts.
        model: Its model.
        options: Options of the measurement.

    Raises:
        UserError: If a loss has no distance to its inputs, or the cut cannot be removed as asked.
    """
    # A third-party task may read several texts without implementing `no_distance`.
    if len(data.rows["validation"].columns) > 1:
        raise UserError(f"task={task.name()}: it reads several texts, so a loss has no single distance to them")
    tbptt = data.tbptt
    if isinstance(data, StreamData):
        default = tbptt.k2 + max(tbptt.k2 // 2, 8)
        if options.whole:
            default = 2 * tbptt.k2
        farthest = options.distance or min(default, max(MAX_DEFAULT, tbptt.k2 + 8))
        if not options.whole:
            return Subject(data, replace(tbptt, jitter="none"), tbptt.k2, farthest)
        # One chunk of twice the distance, so that losses in its second half are measured without a cut.
        width = 2 * farthest
        if model.max_length is not None and width > model.max_length:
            raise UserError(
                f"--whole: reads {width} tokens at once for --distance {farthest}, but the model reads at most "
                f"{model.max_length}; give --distance {model.max_length // 2}"
            )
        return Subject(data, replace(tbptt, k1=width, k2=width, jitter="none"), None, farthest)
    examples: Any = data.batcher("validation")
    longest = int(distinct_of_all(examples.lengths).rows.max())
    cuts = task.needs_whole is None and longest > tbptt.k2
    if cuts and options.whole:
        raise UserError(f"--whole: task={task.name()} itself cuts at tbptt.k2; measure tbptt.k2={longest} instead")
    cut = tbptt.k2 if cuts else None
    farthest = options.distance or min(longest - 1, MAX_DEFAULT if cut is None else 2 * cut)
    return Subject(data, tbptt, cut, max(min(farthest, longest - 1), 1))


def open_subject(path: Path | str, checkpoint: str, say: Say) -> tuple[DictConfig, Data, dict[str, Pair]]:
    """Return the config, the validation data and the models of a run: trained, and untrained from its seed.

    Args:
        path: The run's directory.
        checkpoint: "best" or "last".
        say: Called with each line about the data.

    Raises:
        UserError: If the run cannot be opened, its losses have no distance, or its data has changed.
    """
    Run.open(path)  # raises for an export, which does not record its data
    opened = open_run(path, checkpoint)
    refuse_unplaced(opened.task)
    data = make_data(opened.config, ("validation",), say, opened.preprocessor)
    known = opened.run.summary.hashes.get("validation")
    if known is not None and known != data.rows["validation"].hash:
        raise UserError(f"{path}: the text of validation has changed since the run was trained; restore it")
    untrained = make_pair(opened.config, opened.preprocessor)
    return opened.config, data, {"untrained": untrained, "trained": (opened.model, opened.task)}


def record_of(measured: Measured, decay: Decay, model: SequenceModel) -> dict[str, Any]:
    """Return all numbers of one model for JSON; None for missing ones."""
    every, with_path, share = mean_norms(measured)
    behind = decay_behind(measured)
    return {
        "losses": measured.losses,
        "distance_0": measured.origin,
        "unit": measured.unit,
        "distance": measured.distances.tolist(),
        "layers": measured.layers,
        "layers_left_out": measured.left_out,
        "norm": [_plain(row) for row in every],
        "norm_with_path": [_plain(row) for row in with_path],
        "share_with_path": _plain(share),
        "decay": asdict(decay),
        "decay_behind": None if behind is None else asdict(behind),
        "spectral_radius": spectral_radii(model),
    }


def decay_behind(measured: Measured) -> Decay | None:
    """Return the decay over the inputs after a loss, at distances below 0, or None if none was measured."""
    if measured.distances[0] == 0:
        return None
    return decay_of(mirrored(measured))


def _plain(row: np.ndarray) -> list[float | None]:
    return [float(value) if math.isfinite(value) else None for value in row]


def decay_words(decay: Decay, unit: str = "token") -> str:
    """Format the numbers of a decay in one line.

    Args:
        decay: The decay.
        unit: Name of one step of the distance.
    """
    if decay.rate is None or decay.fitted is None:
        return "too few distances with a gradient for a fit"
    first, last = decay.fitted
    error = "" if decay.rate_error is None else f" +- {decay.rate_error:.2g}"
    words = f"times {decay.rate:.4g}{error} a {unit} (fit over {first} to {last}, r2 {decay.r2:.3f})"
    if decay.r2 is not None and decay.r2 < GEOMETRIC:
        words += ", which is not geometric"
    half_life = f"more than {decay.measured_to - decay.start} {unit}s"
    if decay.half_life is not None:
        half_life = f"{decay.half_life:.3g} {unit}s"
    faded = f"not within {decay.measured_to} {unit}s"
    if decay.faded is not None:
        faded = f"from {decay.faded} {unit}s on"
    return f"{words}; half-life {half_life}; below {FADED:g} of its start {faded}"


def flat_numbers(records: Mapping[str, Mapping[str, Any]], cut: int | None) -> dict[str, float]:
    """Return the numbers that a page may quote, by name. Those of a model begin with its name."""
    numbers: dict[str, float] = {} if cut is None else {"k2": float(cut)}
    for name, record in records.items():
        for place, decay in ((name, record["decay"]), (f"{name}_behind", record["decay_behind"])):
            for key in ("rate", "rate_error", "r2", "half_life", "faded"):
                if decay is not None and decay[key] is not None:
                    numbers[f"{place}_{key}"] = float(decay[key])
        radii = record["spectral_radius"]
        if len(radii) == 1:
            numbers[f"{name}_spectral_radius"] = next(iter(radii.values()))
        if cut is not None:
            beyond = []
            for at, norm in zip(record["distance"], record["norm"][0], strict=True):
                if at >= cut and norm is not None:
                    beyond.append(norm)
            # Distances without a measurement do not count as 0.
            if beyond:
                numbers[f"{name}_largest_beyond_k2"] = max(beyond)
    return numbers


def measure_all(subject: Subject, made: Mapping[str, Pair], samples: int) -> dict[str, tuple[Measured, Decay]]:
    """Measure each model; return the measurement and the decay by its name."""
    found = {}
    for name, (model, task) in made.items():
        measured = subject.measure(model, task, samples)
        found[name] = measured, decay_of(measured)
    return found
