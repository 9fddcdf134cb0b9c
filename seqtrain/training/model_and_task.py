"""Creation of model and task for a preprocessor, and checks of both before the data is read."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn
from torch.overrides import TorchFunctionMode

from seqtrain.config.instantiate import make
from seqtrain.config.targets import resolve
from seqtrain.data.preprocess import Preprocessor
from seqtrain.data.sources.base import Source
from seqtrain.errors import UserError
from seqtrain.models.base import SequenceModel
from seqtrain.models.layers.front_ends import TokenEmbedding, ValueProjection
from seqtrain.tasks.base import Task


class _WithoutDraws(TorchFunctionMode):
    """Mode that skips drawing normal numbers into tensors on the meta device."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        # To draw nothing, torch would first import its compiler: a second and 69 MiB at each start. The functions of
        # nn.init arrive here under their own names; the functions that they call do not.
        if func in (torch.Tensor.normal_, nn.init.normal_):
            drawn = args[0] if args else kwargs["tensor"]
            if drawn.is_meta:
                return drawn
        return func(*args, **kwargs)


@contextlib.contextmanager
def on_meta() -> Iterator[None]:
    """Create everything in this block on the meta device."""
    with torch.device("meta"), _WithoutDraws():
        yield


def make_pair(
    config: DictConfig, preprocessor: Preprocessor, label_counts: tuple[int, ...] = ()
) -> tuple[SequenceModel, Task]:
    """Return model and task for this preprocessor, in the precision that a checkpoint keeps.

    Args:
        config: Config of the run.
        preprocessor: Its vocabularies, labels and features determine the sizes.
        label_counts: Count of each label in train, if known.
    """
    size = preprocessor.tokenizer.vocab_size
    series = preprocessor.series
    values: dict[str, Any] = (
        {} if series is None else {"num_features": series.num_features, "masked": series.read_masks}
    )
    target_size = None if preprocessor.shared else preprocessor.target_tokenizer.vocab_size
    specials = 1 if task_class(config).streams else 3  # start; for examples also separator and mask
    model = make_model(config, size, specials=specials, target_vocab_size=target_size, **values)
    task = make_task(config, model, size, preprocessor=preprocessor, label_counts=label_counts)
    if config.trainer.precision == "64-true":  # Lightning would convert only after loading a checkpoint
        return model.double(), task.double()
    return model, task


def make_model(
    config: DictConfig,
    vocab_size: int,
    *,
    specials: int = 3,
    target_vocab_size: int | None = None,
    num_features: int | None = None,
    masked: Sequence[bool] = (),
) -> SequenceModel:
    """Return the model with its embedding, or two with `target_vocab_size`; weights are drawn with `config.seed`.

    Args:
        config: Config of the run.
        vocab_size: Number of tokens of the vocabulary.
        specials: Special tokens at the end of the vocabulary.
        target_vocab_size: Number of tokens of the target vocabulary. None: source and target share one.
        num_features: Values of a time step, for a task that reads values. None: one.
        masked: For each channel of a time step, True if it has a mask of missing values.
    """
    torch.manual_seed(config.seed)  # here, so that the weights do not depend on earlier random numbers
    embed_dim = config.model.get("embed_dim")
    sizes = {"dim": config.model.dim, "specials": specials, "embed_dim": embed_dim}
    if "task" in config and reads_values(config):
        written = writes_text(config)
        if embed_dim is not None and not written:
            raise UserError(f"model.embed_dim={embed_dim}: applies to tokens, but the task reads values; leave it out")
        # A patch of time steps is read as one.
        patch = config.task.get("patch", 1)
        size = (num_features or 1) * patch
        options = {"dim": config.model.dim, "masked": masked, "patch": patch, "as_tokens": written}
        values = ValueProjection(num_features=size, **options)
        words = TokenEmbedding(vocab_size=target_vocab_size or vocab_size, **sizes) if written else values
        return make(config.model, embed=values, target_embed=words)
    embed = target_embed = TokenEmbedding(vocab_size=vocab_size, **sizes)
    if target_vocab_size is not None:  # else source and target share tokens and vectors
        target_embed = TokenEmbedding(vocab_size=target_vocab_size, **sizes)
    return make(config.model, embed=embed, target_embed=target_embed)


def make_task(
    config: DictConfig,
    model: SequenceModel,
    vocab_size: int,
    *,
    preprocessor: Preprocessor | None = None,
    label_counts: tuple[int, ...] = (),
) -> Task:
    """Return the task with its head for this model.

    Args:
        config: Config of the run.
        model: Model whose width the head fits.
        vocab_size: Tokens of the vocabulary.
        preprocessor: Determines labels and target vocabulary. None: a task with two labels, to check compatibility.
        label_counts: Count of each label in train, if known.
    """
    labels, target_vocab_size = ("0", "1"), vocab_size
    if preprocessor is not None:
        labels, target_vocab_size = preprocessor.labels, preprocessor.target_tokenizer.vocab_size
    # The arguments of any task besides its options; `make` passes those that its constructor takes.
    return make(
        config.task,
        dim=model.dim,
        embed_dim=config.model.get("embed_dim"),
        bptt_length=config.tbptt.k2,
        carry=config.tbptt.carry,
        max_length=config.data.max_length,
        vocab_size=vocab_size,
        target_vocab_size=target_vocab_size,
        preprocessor=preprocessor,
        labels=labels,
        label_counts=label_counts,
    )


def task_class(config: DictConfig) -> type[Task]:
    """Return the class of the task."""
    return resolve(config.task._target_)


@runtime_checkable
class ReadsEither(Protocol):
    """A task of texts that also reads series of values, if the data contains them."""

    # Fields of the rows that it then reads, instead of `fields`. With `target` it writes a text.
    value_fields: ClassVar[tuple[str, ...]]


def reads_values(config: DictConfig) -> bool:
    """Return True if the task reads real values of this data instead of tokens."""
    task = task_class(config)
    if task.reads_values() or not isinstance(task, ReadsEither):
        return task.reads_values()
    return holds_values(config)


def writes_text(config: DictConfig) -> bool:
    """Return True if the task reads real values of this data, and writes text."""
    return reads_values(config) and "target" in getattr(task_class(config), "value_fields", ())


def said(config: DictConfig) -> dict[str, Any]:
    """Return the summary's description of the task and its data before the training begins."""
    words = dict(task_class(config).said())
    if reads_values(config) and not task_class(config).reads_values():
        words["example_text"] = "--input FILE"
    return words


def holds_values(config: DictConfig) -> bool:
    """Return True if the data holds series of values."""
    target = OmegaConf.select(config, "data._target_")
    return target is not None and "values" in getattr(resolve(target), "fields", ())


def fields_of(task: Task | type[Task], source: Source) -> tuple[str, ...]:
    """Return the fields of a source's rows that a task reads."""
    if isinstance(task, ReadsEither) and "values" in source.fields:
        return task.value_fields
    return task.fields


def check_optimizer(config: DictConfig) -> None:
    """Raise UserError for values that optimizer or schedule reject once they have weights; one weight is tried."""
    argument: Any = [{"params": [torch.nn.Parameter(torch.zeros(1, 1))], "role": "hidden"}]
    for group in ("optimizer", "schedule"):
        made = make(config[group])
        # An optimizer is a partial that takes weights, a torch schedule one that takes the optimizer. seqtrain's own
        # schedules are complete.
        if isinstance(made, functools.partial):
            found = {"lr": 1.0} if made.keywords.get("lr") == "auto" else {}  # known once the data is read
            try:
                made = made(argument, **found)
            except ValueError as error:
                raise UserError(f"{group}: {error}") from None
        argument = made
