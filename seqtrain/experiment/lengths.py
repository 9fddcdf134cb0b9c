"""The held-out data of a run at other lengths: newly drawn examples, or windows of its text."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from seqtrain.data.batching.example_plan import distinct_of_all
from seqtrain.data.batching.plan import Chunk
from seqtrain.data.batching.stream import EvalLoader
from seqtrain.data.sources.base import Split
from seqtrain.errors import UserError
from seqtrain.experiment.data import open_with_data
from seqtrain.models.base import PIECE, reads_in_pieces
from seqtrain.training.data import make_data
from seqtrain.training.splits import Data, ExampleData, StreamData

if TYPE_CHECKING:
    from seqtrain.inference.opened import Opened

DRAWN = 2**20  # approximate number of tokens drawn for each length
TOGETHER = 2**14  # tokens per batch: bounds memory, changes no result
UNCUT = 2**31  # more tokens than any example has


@runtime_checkable
class DrawsLengths(Protocol):
    """A source that draws examples of any length."""

    def at_length(self, split: Split, length: int, most: int) -> Mapping[str, Any]:
        """Return options of `data` that give a split at most `most` examples of this length."""
        ...


class Windows:
    """The plan of an evaluation on windows of one length. Each window is a lane that starts from an empty state.

    Every position is a target. The end of a document that is shorter than a window is not read.
    """

    def __init__(self, documents: Int[np.ndarray, " offsets"], length: int, piece: int) -> None:
        """Cut documents, or one whole text, into windows of `length` tokens that are read `piece` tokens at a time."""
        begins = [np.arange(begin, end - length + 1, length) for begin, end in pairwise(documents)]
        self.begin = np.concatenate(begins)
        self.lanes = len(self.begin)
        self.length = length
        self.piece = piece
        self.steps = -(-length // piece)

    def chunk(self, epoch: int, step: int) -> Chunk:
        """Return the piece of each window that is read in this step."""
        read = step * self.piece
        count = min(self.piece, self.length - read)
        return Chunk(self.begin + read, np.full(self.lanes, count), np.full(self.lanes, step == 0))


@dataclass
class AtLength:
    """The data of one length, ready for evaluation."""

    length: int
    data: Data
    loader: Any
    carry: bool  # True if state is carried from batch to batch
    size: dict[str, int | None]  # for the record: number of tokens, and of examples or windows


def open_at_lengths(
    path: str, split: Split, checkpoint: str, lengths: Sequence[int], batch_size: int | None
) -> tuple[Opened, list[AtLength]]:
    """Open a run, and its data at each length.

    Args:
        path: The run's directory.
        split: "train" (for a text only), "validation" or "test".
        checkpoint: "best" or "last".
        lengths: Lengths in tokens of a text, or in the unit of a source that draws its examples.
        batch_size: Examples or windows per batch; None: as many as fit in `TOGETHER` tokens.

    Raises:
        UserError: If the run's data cannot be drawn at other lengths, or a length exceeds its model or text.
    """
    opened, data = open_with_data(path, split, checkpoint)
    is_text = isinstance(data, StreamData) and not opened.task.reads_values()
    if not (is_text or isinstance(data.source, DrawsLengths)):
        raise UserError(
            f"--lengths: the examples of run {path} have fixed lengths; use a run on data that is drawn from a "
            "seed (parity, group_words, copy, recall, induction, adding), or of task=next_token on a text"
        )
    if not is_text and split == "train":
        raise UserError("--split train: --lengths draws new examples, never those of train; use validation")
    found = {}
    for length in sorted(lengths, reverse=True):  # report a length that is too large before measuring any
        make = _windows if is_text else _drawn
        found[length] = make(opened, data, split, length, batch_size)
    return opened, [found[length] for length in lengths]


def _windows(opened: Opened, data: Data, split: Split, length: int, batch_size: int | None) -> AtLength:
    """Return the windows of a text, or of its documents if the run resets its state at the start of each."""
    assert isinstance(data, StreamData)
    _check_room(opened, length, length)
    stream = data.batcher(split)
    documents, holder = stream.documents[[0, -1]], f"the {split} split"
    if data.tbptt.reset == "document":
        documents, holder = stream.documents, f"the longest document of the {split} split"
    most = int(np.diff(documents).max())
    if length > most:
        raise UserError(f"--lengths {length}: {holder} has {most} tokens; give at most {most}")
    carry = reads_in_pieces(opened.model, length)
    plan = Windows(documents, length, PIECE if carry else length)
    loader = EvalLoader(stream, plan, batch_size=batch_size or max(1, TOGETHER // plan.piece))
    size = {"tokens": plan.lanes * length, "eval_lanes": None, "examples": plan.lanes}
    return AtLength(length, data, loader, carry, size)


def _drawn(opened: Opened, data: Data, split: Split, length: int, batch_size: int | None) -> AtLength:
    """Return examples of a length, drawn with the run's own seed and vocabularies."""
    assert isinstance(data.source, DrawsLengths)
    config = copy.deepcopy(opened.config)
    options = {"max_length": UNCUT, "batch_tokens": TOGETHER}
    options |= data.source.at_length(split, length, max(1, DRAWN // length))
    config.data.update(options)
    try:
        drawn = make_data(config, [split], lambda line: None, opened.preprocessor)
    except UserError as fault:
        raise UserError(f"--lengths {length}: {fault}") from None
    if isinstance(drawn, ExampleData):
        _check_room(opened, length, int(distinct_of_all(drawn.batcher(split).lengths).rows.max()))
    size = {"tokens": drawn.rows[split].num_tokens, **drawn.size(split)}
    return AtLength(length, drawn, drawn.eval_loader(split, batch_size), drawn.tbptt.carry, size)


def _check_room(opened: Opened, length: int, tokens: int) -> None:
    """Raise UserError if the model cannot read an example of `tokens` tokens, special tokens included."""
    most = opened.model.max_length
    if most is not None and tokens > most:
        raise UserError(
            f"--lengths {length}: an example has {tokens} tokens, but the model has positions for {most}; give at most "
            f"{most - (tokens - length)}"
        )
