"""Runs that initialise a run: one with matching weights, or a forward and a backward run together."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from seqtrain.config.check import group_of, key_of
from seqtrain.config.options import origin_words, origins
from seqtrain.data.preprocess import Preprocessor
from seqtrain.errors import UserError, first_few
from seqtrain.models.base import Capability, SequenceModel, Weights, name_of
from seqtrain.models.layers.side_by_side import DIRECTIONS
from seqtrain.tasks.base import Say, Task

if TYPE_CHECKING:
    from seqtrain.data.values.scaling import Scaling
    from seqtrain.inference.opened import Opened

ADAPTER_LR = 1e-3  # recommended minimum: twenty times that of a fully trained pretrained model (docs/results.md)


@runtime_checkable
class TwoDirections(Protocol):
    """A model that can be initialised with two one-directional models."""

    def from_directions(self, forwards: Weights, backwards: Weights) -> Weights:
        """Return new weights by name; weights of the two without a counterpart here have names with a space.

        Args:
            forwards: Weights by name of the model that reads from the first token.
            backwards: Weights by name of the model that reads from the last token.

        Raises:
            UserError: The two do not fit.
        """
        ...


def from_directions(model: SequenceModel, forwards: Weights, backwards: Weights) -> Weights:
    """Return weights that combine two models; raise UserError if the model does not read in both directions."""
    if not isinstance(model, TwoDirections) or Capability.BIDIRECTIONAL not in model.capabilities:
        raise UserError(
            f"init_from: model={name_of(model)} cannot be initialised with two runs, one per direction; models that "
            "can: elmo, and lstm, gru or rnn with model.bidirectional=true"
        )
    return model.from_directions(forwards, backwards)


@dataclass(frozen=True)
class Origin:
    """The run, or the two runs, that initialise a run."""

    words: str  # `init_from` as written
    runs: Sequence[Opened]

    @classmethod
    def open(cls, init_from: str | Sequence[str]) -> Origin:
        """Open the runs that `init_from` names.

        Raises:
            UserError: A path is not a run, or two runs do not read in the two directions.
        """
        from seqtrain.inference.opened import open_run

        # Loaded and checked once: weights, tokenizers and hashes all come from these.
        runs = [open_run(path) for path in origins(init_from)]
        if len(runs) == 2:
            _check_directions(runs)
        return cls(origin_words(init_from), runs)

    @property
    def hash(self) -> str:
        """Hash of all their weights and preprocessors."""
        if len(self.runs) == 1:
            return self.runs[0].hash
        both = " ".join(run.hash for run in self.runs)
        return hashlib.blake2b(both.encode(), digest_size=16).hexdigest()

    @property
    def lineage(self) -> list[str]:
        """Hashes of all runs whose weights these derive from, their own first."""
        hashes = [run.hash for run in self.runs]
        for opened in self.runs:
            summary = opened.run.summary
            # A run of an older version recorded only its parent.
            hashes += summary.lineage or ([] if summary.parent is None else [summary.parent])
        return list(dict.fromkeys(hashes))

    def weights(self, model: SequenceModel) -> dict[str, Tensor]:
        """Return weights named `model.*` and `task.*`; those of two runs are converted to fit this model."""
        states = [run.model.state_dict() for run in self.runs]
        if len(states) == 1:
            return _named(states[0], self.runs[0].task)
        found = {}
        for name, value in from_directions(model, states[0], states[1]).items():
            found[f"model.{name}"] = value
        # Heads of language models fit no other task; they are listed so that the log names them as left behind.
        for direction, opened in zip(DIRECTIONS, self.runs, strict=True):
            for name in opened.task.state_dict():
                found[f"task.{name} of the {direction} run"] = opened.task.state_dict()[name]
        return found

    def has_head_of(self, task: Task, preprocessor: Preprocessor, say: Say) -> bool:
        """Return True if the weights were trained for a task of this class and its labels, so that the head fits."""
        # With two runs, neither head is that of this task.
        if len(self.runs) != 1 or type(self.runs[0].task) is not type(task):
            return False
        theirs, ours = self.runs[0].preprocessor.labels, preprocessor.labels
        if theirs != ours:  # as many labels have a head of the same shape, whose rows have another meaning
            say(f"init_from: that run's labels are {first_few(theirs)}, and not {first_few(ours)}: the head is new")
        return theirs == ours

    def check_inputs(self, ours: Scaling | None, say: Say) -> None:
        """Raise UserError if series have their columns in another order; say if they have other columns."""
        theirs = self.runs[0].preprocessor.series
        if ours is None or theirs is None or (there := _inputs(theirs)) == (here := _inputs(ours)):
            return
        if sorted(there) == sorted(here):
            named = {
                "columns": (theirs.columns, ours.columns),
                "known_columns": (theirs.known_columns, ours.known_columns),
                "time_features": (theirs.features, ours.features),
            }
            key, order = next((key, one) for key, (one, other) in named.items() if one != other)
            raise UserError(
                f"init_from={self.words}: that run has its columns in another order, and weights belong to a place; "
                f"set data.{key}=[{','.join(order)}]"
            )
        if len(there) == len(here):
            say(f"init_from: weights of {first_few(there)} are taken for {first_few(here)}, in this order")

    @property
    def each(self) -> str:
        """The paths and directions of two runs, as text. Empty for a single run."""
        if len(self.runs) == 1:
            return ""
        words = [f"{opened.run.path} ({name})" for name, opened in zip(DIRECTIONS, self.runs, strict=True)]
        return f" of {' and '.join(words)}"


def shared_preprocessor(init_from: str | Sequence[str]) -> Preprocessor:
    """Return the preprocessor of the runs, which must share one tokenizer.

    Raises:
        UserError: The runs have different tokenizers: token 7 of one is another word in the other.
    """
    from seqtrain.inference.opened import open_origin

    found: dict[str, Preprocessor] = {}
    for path in origins(init_from):
        run = open_origin(path)
        found[path] = Preprocessor.load(run.path, run.summary.hashes)
    first, *others = found.values()
    for other in others:
        if other.hashes.get("tokenizer") != first.hashes.get("tokenizer"):
            raise UserError(
                f"init_from={origin_words(init_from)}: the two runs have different tokenizers; train the second on the "
                "data and with the tokenizer options of the first"
            )
    return first


def take_tokenizer(config: DictConfig) -> None:
    """Replace the tokenizer of the config by that of `config.init_from`.

    For two runs the first one's is used; their equality is checked when they are loaded.

    Raises:
        UserError: There is no such run, or its config is invalid.
    """
    from seqtrain.inference.opened import checked_config, open_origin

    config.tokenizer = checked_config(open_origin(origins(config.init_from)[0])).tokenizer


def take_model(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """Set the model's options to those of the run in `config.init_from`, except options on the command line.

    Dropout keeps the task's recommendation if that run had none: without dropout on much text, it says nothing about
    this task. Nothing changes if another model was given, or if two runs initialise a model of two directions.

    Returns:
        Lines that say what has changed.

    Raises:
        UserError: There is no such run, or its config is invalid.
    """
    from seqtrain.inference.opened import checked_config, open_origin

    runs = origins(config.init_from)
    if len(runs) != 1:
        return []
    theirs = checked_config(open_origin(runs[0])).model
    typed = {key_of(word).removeprefix("model.") for word in overrides if group_of(word) == "model"}
    if "model" in typed and theirs._target_ != config.model._target_:
        return []
    kept = set(typed) if theirs.get("dropout") else {*typed, "dropout"}
    chosen = {key: value for key, value in OmegaConf.to_container(config.model, resolve=False).items() if key in kept}  # type: ignore[union-attr]
    if "_recommend_" not in theirs:
        chosen["_recommend_"] = config.model.get("_recommend_", {})
    elif config.get("adapter") is not None:
        chosen["_recommend_"] = {"lr": max(theirs["_recommend_"].get("lr", 0.0), ADAPTER_LR)}
    if config.model == {**theirs, **chosen}:
        return []
    config.model = {**theirs, **chosen}
    return [f"model: from {runs[0]}, with its options"]


def _inputs(scaling: Scaling) -> list[str]:
    """Return the name of each input of a model of series, in groups."""
    columns = ["value"] if scaling.apart else scaling.columns
    masks = [f"mask of {name}" for name, masked in zip(columns, scaling.read_masks, strict=True) if masked]
    return [*columns, *masks, *scaling.known_columns, *scaling.features]


def _named(state: dict[str, Any], task: Task) -> dict[str, Tensor]:
    weights = {f"model.{name}": value for name, value in state.items()}
    return weights | {f"task.{name}": value for name, value in task.state_dict().items()}


def _check_directions(runs: Sequence[Opened]) -> None:
    """Raise UserError unless the first run reads forwards and the second backwards: swapped, they fit but are wrong."""
    lines = []
    for direction, opened in zip(DIRECTIONS, runs, strict=True):
        found = getattr(opened.task, "direction", None)
        if found != direction:
            words = f"reads {found}" if found else f"is of task={opened.task.name()}, which has no single direction"
            lines.append(f"{opened.run.path} {words}")
    if lines:
        raise UserError(
            f"init_from: the first of two runs must read forward and the second backward (task=next_token "
            f"task.direction=backward): {' and '.join(lines)}"
        )
