"""`seqtrain contract`: check each promise (law) of a model or a task; print the first counterexample to each."""

from __future__ import annotations

import collections
import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.cli.arguments import Parser
from seqtrain.errors import UserError
from seqtrain.terminal import printable

if TYPE_CHECKING:
    from seqtrain.models.base import Capability, SequenceModel
    from seqtrain.models.contract import Subject, Verdict

COLUMN = len("does not hold") + 2


@dataclass(frozen=True)
class SmallModel:
    """A model to be made at a small size: its name and its options."""

    name: str
    options: dict[str, Any]
    shrunk: dict[str, int]  # sizes that the user did not set

    def make(self, seed: int, **changes: Any) -> SequenceModel:
        """Return the model with weights drawn from a seed; raise UserError if it cannot be made."""
        from omegaconf import OmegaConf

        from seqtrain.models.contract import VOCAB_SIZE
        from seqtrain.training.model_and_task import make_model

        config = OmegaConf.create({"seed": seed, "model": {**self.options, **changes}})
        try:
            return make_model(config, VOCAB_SIZE)
        except UserError as fault:
            raise UserError(*(f"{line}{self._remedy()}" for line in fault.lines)) from None
        except Exception as error:  # a model of the user's may raise anything
            words = f"model={self.name}: cannot be made: {type(error).__name__}: {error}"
            raise UserError(f"{words}{self._remedy()}") from error

    def _remedy(self) -> str:
        # Some models may not support these sizes together, so the message lists them for the user to override.
        small = " ".join(f"model.{key}={value}" for key, value in self.shrunk.items())
        return f" (made small, with {small}; override what the model cannot use)" if small else ""


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "contract",
        "Make a small model in float64 and check each of its promises; with task=..., check a task.\n"
        "OVERRIDE chooses the model (model=gru) or sets one of its options (model.num_layers=3). A task is checked on\n"
        "a few examples of its data, so overrides of data, tokenizer and tbptt apply, too.\n"
        "Exit code 0: every promised law holds; 1: a law does not hold.",
        "seqtrain contract model=mine --config-dir my_configs --trust my_package",
    )
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    parser.add_config_dir()
    options = parser.parse_intermixed_args(argv)

    from seqtrain.cli import task_contract  # which imports Hydra

    overrides, folders = options.overrides, options.config_dir
    if task_contract.names_task(overrides):
        task_contract.check_overrides(overrides, task_contract.FOR_TASKS)
        task, words = task_contract.subject_of(overrides, folders)

        from seqtrain.models.base import Capability
        from seqtrain.tasks import contract as of_tasks

        return _print_verdicts(f"{words}, in float64", of_tasks.judge(task), Capability.NONE, options.json)
    task_contract.check_overrides(overrides, task_contract.FOR_MODELS)
    small = compose(overrides, folders)
    subject, promised = _subject(small)

    from seqtrain.models.contract import judge  # imports torch: typing errors are reported before

    return _print_verdicts(_heading(small, promised), judge(subject), promised, options.json)


def _print_verdicts(heading: str, judged: Iterator[Verdict], promised: Capability, as_json: bool) -> int:
    """Print each verdict as soon as it is known, since one may take seconds; return the exit code."""
    if not as_json:
        print(heading)
    verdicts: list[Verdict] = []
    for verdict in judged:
        verdicts.append(verdict)
        if as_json:
            print(_record(verdict), flush=True)
        else:
            print("\n".join(_lines(verdict, promised)), flush=True)
    if not as_json:
        print(_total(verdicts))
    return int(any(verdict.counterexample is not None for verdict in verdicts))


def _heading(small: SmallModel, promised: Capability) -> str:
    name = f"model={small.name}"
    if small.shrunk:
        name += " with " + " ".join(f"{key}={value}" for key, value in small.shrunk.items())
    return f"{name}, in float64, promises {', '.join(_names(promised)) or 'nothing'}"


def compose(overrides: Sequence[str], config_dirs: Sequence[Path]) -> SmallModel:
    """Return the model that the overrides choose, with small sizes where they set none.

    Raises:
        UserError: If the overrides are wrong.
    """
    from omegaconf import OmegaConf

    from seqtrain.config import check
    from seqtrain.config.instantiate import plain

    composed = check.compose(overrides, config_dirs)
    options = plain(composed.config.model)
    faults = check.signature_faults(OmegaConf.create({"model": options}))
    if faults:
        raise UserError(*itertools.chain.from_iterable(fault.lines for fault in faults))
    name = composed.choices["model"]
    if "dim" not in options:
        # The front end is made before the model, and needs its width.
        raise UserError(f"model={name}: has no option dim, the width of its front end; add it")

    from seqtrain.models.contract import SMALL

    given = {check.key_of(text) for text in overrides}
    shrunk = {key: SMALL[key] for key in SMALL if key in options and f"model.{key}" not in given}
    return SmallModel(name, {**options, **shrunk}, shrunk)


def _subject(small: SmallModel) -> tuple[Subject, Capability]:
    """Return the model as the laws test it, and its promises; raise UserError if it cannot be tested."""
    from seqtrain.models.base import Capability
    from seqtrain.models.contract import LEAST_LENGTH, Subject

    model = small.make(seed=0)
    try:
        promised = model.capabilities
    except AttributeError:  # the base class declares it without a value
        promised = None
    if not isinstance(promised, Capability):
        raise UserError(
            f"model={small.name}: does not declare its promises; set `capabilities`, such as CAUSAL | STATEFUL"
        )
    if model.max_length is not None and model.max_length < LEAST_LENGTH:
        raise UserError(f"model.max_length={model.max_length}: too short for the laws; give {LEAST_LENGTH} or more")
    make_with_dropout = None
    if "dropout" in small.options:
        make_with_dropout = functools.partial(_prepared, small, dropout=0.5)
    make = functools.partial(_prepared, small)
    return Subject(make=make, make_with_dropout=make_with_dropout, draw=small.make), promised


def _prepared(small: SmallModel, **changes: Any) -> SequenceModel:
    """Return the model of seed 0 as the laws test it. Each law gets its own identical copy."""
    from seqtrain.models.contract import prepare

    return prepare(small.make(seed=0, **changes))


def _names(promise: Capability) -> list[str]:
    return [str(flag.name) for flag in promise]


def _record(verdict: Verdict) -> str:
    """Return a verdict as JSON."""
    return json.dumps(
        {
            "law": verdict.law.name,
            "sentence": verdict.law.sentence,
            "promise": _names(verdict.law.promise),
            "status": verdict.status,
            "counterexample": verdict.counterexample,
        }
    )


def _lines(verdict: Verdict, promised: Capability) -> Iterator[str]:
    """Yield a verdict in words: one line, and a second line for a counterexample."""
    line = f"{verdict.status:{COLUMN}}{verdict.law.sentence}"
    lacking = _names(verdict.law.promise & ~promised)  # why a law is not checked
    if lacking:
        line += f" ({', '.join(lacking)})"
    yield line
    if verdict.counterexample is not None:
        yield f"{'':{COLUMN}}{printable(verdict.counterexample)}"


def _total(verdicts: list[Verdict]) -> str:
    counts = collections.Counter(verdict.status for verdict in verdicts)
    return ", ".join(f"{status}: {counts[status]}" for status in ("holds", "does not hold", "not promised"))
