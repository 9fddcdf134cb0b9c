"""Reach of the gradient of a loss: the norm of d loss_t / d x_(t-j) by the distance j.

The loss at one position is the task's loss with all other targets removed. This works for any task whose targets are
at positions, or at the end of an example. A stream is read by the same function as in training.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from seqtrain.analysis.recording import INPUT, Recorded, prepared, recording
from seqtrain.data.batching.examples import ExampleBatch
from seqtrain.data.batching.plan import Chunk, StreamPlan
from seqtrain.data.batching.stream import IGNORED, Stream
from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel, State, reset
from seqtrain.tasks.base import LossTerms, Task
from seqtrain.training.accumulators import LOSS
from seqtrain.training.carried_state import CarriedState, read_batch


class Placed(NamedTuple):
    """A recorded forward pass and the position of its first input in each lane."""

    reading: Recorded  # empty: a forward pass without a gradient
    begin: Int[np.ndarray, " B"]
    count: Int[np.ndarray, " B"]  # number of inputs without padding


@dataclass
class Measured:
    """Norms by distance, as sums for each unit: a lane of one chunk, or an example. Units are nearly independent."""

    distances: Int[np.ndarray, " J"]  # from an input to a later loss; below 0: the input comes after the loss
    layers: list[str] = field(default_factory=list)
    norms: list[Float[np.ndarray, "L J"]] = field(default_factory=list)
    pairs: list[Float[np.ndarray, " J"]] = field(default_factory=list)  # number of counted pairs of loss and input
    reached: list[Float[np.ndarray, " J"]] = field(default_factory=list)  # number of those with a path for the gradient
    losses: int = 0
    origin: str = ""  # description of the input at distance 0
    unit: str = "token"  # unit of the distance
    left_out: list[str] = field(default_factory=list)  # layers that read in another order, so have no distance

    def add(self, norms: dict[str, Float[np.ndarray, " J"]], pairs: np.ndarray, reached: np.ndarray) -> None:
        """Add one loss as a separate unit."""
        if not self.layers:
            self.layers = list(norms)
        self.norms.append(np.stack([norms[name] for name in self.layers]))
        self.pairs.append(pairs.astype(float))
        self.reached.append(reached.astype(float))
        self.losses += 1


def measure_stream(
    model: SequenceModel, task: Task, stream: Stream, plan: StreamPlan, *, farthest: int, samples: int
) -> Measured:
    """Measure the norms of a stream that is cut as in the plan, and read as in training.

    Args:
        model: Measured as a copy in float64, without dropout.
        task: Defines the loss.
        stream: The text or series to read.
        plan: Plan of one stage: lanes, cut, resets.
        farthest: Largest distance; distances from 0 to this one are measured.
        samples: Maximum number of loss positions in each lane.

    Returns:
        Sums for each lane of each chunk. A pair of a loss and an input counts if both are real and there is no reset
        between them: no start of a lane, and no start of a document where documents reset. Pairs separated by the cut
        count, as exactly 0.

    Raises:
        UserError: If the stream is too short for one loss.
    """
    model, task = prepared(model), _in_training(task)
    setattr(model, "read_documents", partial(_read_by_columns, model))  # noqa: B010  # on a copy, for this measurement
    measured = Measured(np.arange(farthest + 1), origin="the newest input before the target")
    if getattr(task, "direction", None) == "backward":
        measured.origin += ", in the order of reading, which is backward"
    lanes = slice(0, plan.lanes)
    carried = CarriedState()
    kept: deque[Placed] = deque()
    first = plan.chunk(0, 0).begin
    wanted = _steps(plan, farthest, samples)
    with recording(model) as recorder:
        measured.left_out = recorder.left_out
        for step in range(max(wanted) + 1):
            chunk = plan.chunk(0, step)
            batch = stream.batch(chunk, lanes)
            measured.unit = unit(batch)
            before = copy.copy(carried.slices)
            # One forward pass per measured loss, each from the same initial state.
            width = batch.targets.shape[1]  # less than k1 at the end of the data
            places = sorted({place * width // plan.tbptt.k1 for place in wanted.get(step, [])})
            for place in places or [None]:
                carried.slices = copy.copy(before)
                recorder.readings = []
                own = batch if place is None else with_one_target(batch, torch.full((len(batch.targets),), place))
                terms, _ = read_batch(model, task, own, carried if plan.carry else None)
                now = _placed(recorder.readings, chunk)
                if place is not None:
                    real = present(batch.targets)[:, place].numpy()
                    losses = chunk.begin + place
                    origin = _origins(plan, stream, losses, first)
                    _add(measured, terms, task, [*kept, *now], losses, real, origin)
            kept.extend(now)
            while kept and (kept[0].begin + kept[0].count + farthest < chunk.begin).all():
                kept.popleft()
    if not measured.losses:
        raise UserError("data: validation has no position with a loss to measure; enlarge it")
    return measured


def measure_examples(
    model: SequenceModel, task: Task, batch: ExampleBatch, *, k2: int, farthest: int, samples: int, both_ways: bool
) -> Measured:
    """Measure the norms of examples that are read separately.

    Args:
        model: Measured as a copy in float64, without dropout.
        task: Defines the loss.
        batch: Examples whose targets are at positions, or one for each example at its end.
        k2: Tokens at the end of an example that gradients reach, if the task cuts it.
        farthest: Largest distance to measure.
        samples: Maximum number of losses in each example.
        both_ways: Also measure inputs after a target, at distances below 0.

    Raises:
        UserError: If the model does not read the positions of the batch.
    """
    model, task = prepared(model), _in_training(task)
    lengths = batch.lengths.numpy()
    width = batch.tokens.shape[1]
    at_positions = batch.targets.dim() > 1 and batch.targets.shape[1] == width > 1
    # There are no inputs after the end of an example.
    measured = Measured(np.arange(-farthest if both_ways and at_positions else 0, farthest + 1), unit=unit(batch))
    measured.origin = "the place of the target itself" if at_positions else "the last real input of an example"
    origin = np.zeros_like(lengths)
    with recording(model) as recorder:
        measured.left_out = recorder.left_out
        if not at_positions:
            terms, _ = task.evaluate(model, batch, None)
            now = _ended(recorder.readings, lengths, width, k2)
            ends = now[-1].begin + now[-1].count - 1
            # Leave out examples without a target: their zeros would lower the mean.
            answered = present(batch.targets).reshape(len(lengths), -1).any(1).numpy()
            _add(measured, terms, task, now, ends, answered, origin)
            if not measured.losses:
                raise UserError("data: none of the measured examples has a target; give more examples")
            return measured
        known = present(batch.targets).numpy()
        for share in (np.arange(samples) + 0.5) / samples:
            losses, real = chosen(known, share)
            recorder.readings = []
            terms, _ = task.evaluate(model, with_one_target(batch, torch.from_numpy(losses)), None)
            now = _ended(recorder.readings, lengths, width, k2)
            _add(measured, terms, task, now, losses, real, origin)
    return measured


def _in_training(task: Task) -> Task:
    """Return a copy of the task with the loss of training, but without its dropout."""
    task = prepared(task)
    task.training = True
    return task


def _steps(plan: StreamPlan, farthest: int, samples: int) -> dict[int, list[int]]:
    """Return the measured positions of each chosen chunk, evenly spread and including the last position."""
    k1 = plan.tbptt.k1
    # Start late enough that all distances are covered, so that the cut limits them and not the start of the text.
    first = min(-(-farthest // k1), plan.steps - 1)
    num_chunks = min(max(1, samples // 8), plan.steps - first)
    places = min(max(1, samples // num_chunks), k1)
    found = {}
    for number in range(num_chunks):
        step = first + number * (plan.steps - first) // num_chunks
        # In a long text use nearby chunks: they are as good as distant ones, and cost less.
        step = min(step, first + 2 * number)
        stride = k1 / places
        shift = stride * number / num_chunks
        found[step] = sorted({int(k1 - 1 - shift - stride * place) for place in range(places)})
    return found


def _origins(plan: StreamPlan, stream: Stream, losses: np.ndarray, first: np.ndarray) -> Int[np.ndarray, " B"]:
    """Return the start of each lane's context: its first token, or that of the document if documents reset."""
    if plan.tbptt.reset != "document":
        return first
    return stream.documents[np.searchsorted(stream.documents, losses, side="right") - 1]


def _placed(readings: Sequence[Recorded], chunk: Chunk) -> list[Placed]:
    """Return the readings of a chunk and its warm-up, with their positions."""
    chunks, placed, rest, missing = (*chunk.warmup_chunks, chunk), [], list(readings), 0
    for each in chunks:
        time, width = 0, max(int(each.count.max()), 1)
        while time < width and rest:  # several if documents begin inside the chunk
            size = rest[0][INPUT].shape[1]
            placed.append(Placed(rest.pop(0), each.begin + time, (each.count - time).clip(0, size)))
            time += size
        missing += abs(width - time)
    if rest or missing:
        raise UserError(
            f"model: it calls its front end {len(readings)} times for {len(chunks)} chunks, so the positions of its "
            "inputs are unknown"
        )
    return placed


def _read_by_columns(
    model: SequenceModel, tokens: Shaped[Tensor, "B T *F"], state: State, starts: Bool[Tensor, "B T"]
) -> tuple[Float[Tensor, "B T D"], State]:
    """Split the input where a document of any lane begins, so that hooks see all lanes at once."""
    hidden = []
    within = (starts[:, 1:].any(0).nonzero().squeeze(1) + 1).tolist()
    for begin, end in pairwise([0, *within, tokens.shape[1]]):
        out, state = model(tokens[:, begin:end], reset(state, starts[:, begin]))
        hidden.append(out)
    return torch.cat(hidden, 1), state


def _ended(readings: Sequence[Recorded], lengths: np.ndarray, width: int, k2: int) -> list[Placed]:
    """Return the reading of an example that gradients can reach; it ends with the example.

    Args:
        readings: Readings of the model.
        lengths: Real inputs of each example.
        width: Length of the batch, including padding.
        k2: Tokens at the end of an example that gradients reach.
    """
    live = [reading for reading in readings if reading[INPUT].requires_grad]
    if len(live) != 1:
        raise UserError(f"model: it reads each example {len(live)} times with a gradient, so distances are ambiguous")
    read = live[0][INPUT].shape[1]
    if read > width:
        raise UserError("task: it reads more than its examples, so distances from their end are undefined")
    if len(readings) > 1:  # tokens before the last k2 were read without a gradient
        begin = np.maximum(lengths - k2, 0)
        return [Placed({}, np.zeros_like(lengths), begin), Placed(live[0], begin, lengths - begin)]
    count = lengths if read == width else -(-lengths * read // width)  # several time steps are read as one
    return [Placed(live[0], np.zeros_like(lengths), count)]


def _add(
    measured: Measured,
    terms: LossTerms,
    task: Task,
    readings: Sequence[Placed],
    losses: Int[np.ndarray, " B"],
    real: Bool[np.ndarray, " B"],
    origin: Int[np.ndarray, " B"],
) -> None:
    """Add the gradients of one loss in each lane.

    Args:
        measured: Gets one unit for each lane with a real loss.
        terms: Loss terms of the batch.
        task: Names the term to differentiate.
        readings: Readings with their positions.
        losses: Position of the loss in each lane.
        real: True for lanes that have a loss.
        origin: Start of each lane's context.
    """
    # If the loss has several terms, use the one at positions or, in a third-party task, the first.
    name = LOSS if LOSS in terms else task.differentiated[0]
    names = list(dict.fromkeys(key for each in readings for key in each.reading))
    tensors = []
    for each in readings:
        for key in each.reading:
            tensors.append(each.reading[key])
    # Lanes are independent, so the gradient of the sum contains the gradient of each lane's own loss.
    gradients = iter(torch.autograd.grad(terms[name][0], tensors, allow_unused=True))
    size = len(measured.distances)
    shape = (len(losses), size)
    norms = {key: np.zeros(shape) for key in names}
    pairs, reached = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for each in readings:
        if not each.reading:
            lanes, _, index = _pairs(each, int(each.count.max()), measured.distances, losses, origin)
            pairs[lanes, index] = True
        for key, tensor in each.reading.items():
            gradient = next(gradients)
            # A gradient of None means that there is no path, as reported by autograd itself.
            lanes, time, index = _pairs(each, tensor.shape[1], measured.distances, losses, origin)
            pairs[lanes, index] = True
            if gradient is not None:
                # A position that is read twice has a gradient in one forward pass only, so norms can be added.
                norms[key][lanes, index] += _norm(gradient).numpy()[lanes, time]
                reached[lanes, index] = True
    for lane in np.flatnonzero(real):
        measured.add({key: norms[key][lane] for key in names}, pairs[lane], reached[lane])


def _norm(gradient: Float[Tensor, "B T D"]) -> Float[Tensor, "B T"]:
    """Return the norm at each position, scaled to avoid underflow of small squares: 0 means that there is no path."""
    largest = gradient.abs().amax(-1, keepdim=True)
    scaled = torch.where(largest > 0, gradient / largest, 0.0)
    return largest.squeeze(-1) * scaled.norm(dim=-1)


def _pairs(
    placed: Placed, width: int, distances: np.ndarray, losses: np.ndarray, origin: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lane and time of each input that counts, and the index of its distance."""
    time = np.arange(width)
    position = placed.begin[:, None] + time  # (B, T)
    distance = losses[:, None] - position
    counts = (time < placed.count[:, None]) & (position >= origin[:, None])
    counts &= (distance >= distances[0]) & (distance <= distances[-1])
    lanes, times = np.nonzero(counts)
    return lanes, times, distance[lanes, times] - distances[0]


# -- targets of a batch, one at a time ---------------------------------------------------------------------------


def unit(batch: Any) -> str:
    """Return the unit of distance in words, as the model reads its input."""
    # A patch of several rows is one step, because the model reads it as one.
    return "time step" if batch.tokens.is_floating_point() else "token"


def present(targets: Tensor) -> Bool[Tensor, "B T"]:
    """Return a mask of the positions that have a target."""
    found = ~targets.isnan() if targets.is_floating_point() else targets != IGNORED
    return found.flatten(2).any(2) if found.dim() > 2 else found


def with_one_target(batch: Any, places: Int[Tensor, " B"]) -> Any:
    """Return the batch with only one target in each lane, the one at its given position."""
    targets = batch.targets
    blank = torch.full_like(targets, torch.nan if targets.is_floating_point() else IGNORED)
    lanes = torch.arange(len(targets))
    blank[lanes, places] = targets[lanes, places]
    own = copy.copy(batch)
    own.targets = blank
    return own


def chosen(present: Bool[np.ndarray, "B T"], share: float) -> tuple[Int[np.ndarray, " B"], Bool[np.ndarray, " B"]]:
    """Return for each example the target at this share of its targets, and whether it has any."""
    count = present.sum(1)
    wanted = np.minimum((count * share).astype(int), np.maximum(count - 1, 0))
    ordered = np.argsort(~present, axis=1, kind="stable")  # positions with a target come first, in order
    return ordered[np.arange(len(count)), wanted], count > 0
