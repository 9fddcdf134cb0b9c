"""`seqtrain contract`: what a model promises, held to law by law, with the first counterexample in words."""

from __future__ import annotations

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
class Small:
    """A model to be made small: its name, and the options that it is made with."""

    name: str
    options: dict[str, Any]
    shrunk: dict[str, int]  # what was not asked for

    def make(self, seed: int, **changes: Any) -> SequenceModel:
        """The model, with weights drawn from a seed; UserError where it cannot be made."""
        from omegaconf import OmegaConf

        from seqtrain.models.contract import VOCAB_SIZE
        from seqtrain.training.model_and_task import make_model

        config = OmegaConf.create({"seed": seed, "model": {**self.options, **changes}})
        try:
            return make_model(config, VOCAB_SIZE)
        except UserError as fault:
            raise UserError(*(f"{line}{self._remedy()}" for line in fault.lines)) from None
        except Exception as error:
            words = f"model={self.name}: cannot be made: {type(error).__name__}: {error}"
            raise UserError(f"{words}{self._remedy()}") from error

    def _remedy(self) -> str:
        small = " ".join(f"model.{key}={value}" for key, value in self.shrunk.items())
        return f" (made small, with {small}; give what must be otherwise)" if small else ""


def main(argv: list[str]) -> int:
    """The command."""
    parser = Parser(
        "contract",
        "Make a model small, in float64, and check all that it promises, law by law.\n"
        "OVERRIDE chooses the model (model=gru) or sets an option of it (model.num_layers=3).\n"
        "Exit code 0: every law that it owes holds; 1: one does not.",
        "seqtrain contract model=mine --config-dir my_configs --trust my_package",
    )
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    parser.add_argument(
        "--config-dir", action="append", default=[], type=Path, help="a folder with configs of your own"
    )
    options = parser.parse_intermixed_args(argv)
    small = compose(options.overrides, options.config_dir)
    subject, promised = _subject(small)

    from seqtrain.models.contract import judge

    if not options.json:
        shown = " ".join(f"{key}={value}" for key, value in small.shrunk.items())
        promises = ", ".join(_names(promised)) or "nothing"
        print(f"model={small.name}{f' with {shown}' if shown else ''}, in float64, promises {promises}")
    verdicts = []
    for verdict in judge(subject):
        verdicts.append(verdict)
        for line in [_record(verdict)] if options.json else _lines(verdict, promised):
            print(line, flush=True)
    broken = [verdict for verdict in verdicts if verdict.counterexample is not None]
    if not options.json:
        print(_total(verdicts))
    return 1 if broken else 0


def compose(overrides: Sequence[str], config_dirs: Sequence[Path]) -> Small:
    """The model that the overrides ask for, small where they do not say how large; UserError for what is wrong in
    them."""
    from omegaconf import OmegaConf

    from seqtrain.config import check
    from seqtrain.config.instantiate import plain

    composed = check.compose(overrides, config_dirs)
    options = plain(composed.config.model)
    if faults := check.signature_faults(OmegaConf.create({"model": options})):
        raise UserError(*(line for fault in faults for line in fault.lines))
    name = composed.choices["model"]
    if "dim" not in options:
        raise UserError(f"model={name}: has no option dim, the width of what its front end gives; add it")

    from seqtrain.models.contract import SMALL

    given = {check.key_of(text) for text in overrides}
    shrunk = {key: value for key, value in SMALL.items() if key in options and f"model.{key}" not in given}
    return Small(name, {**options, **shrunk}, shrunk)


def _subject(small: Small) -> tuple[Subject, Capability]:
    """The model as the laws ask it, and what it promises; UserError where it cannot be asked."""
    from seqtrain.models.base import Capability
    from seqtrain.models.contract import LEAST_LENGTH, Subject, prepare

    model = small.make(seed=0)
    try:
        promised = model.capabilities
    except AttributeError:
        promised = None
    if not isinstance(promised, Capability):
        raise UserError(
            f"model={small.name}: does not say what it promises; set its `capabilities`, as CAUSAL | STATEFUL"
        )
    if model.max_length is not None and model.max_length < LEAST_LENGTH:
        raise UserError(f"model.max_length={model.max_length}: the laws read more; give {LEAST_LENGTH} or more")
    subject = Subject(
        make=lambda: prepare(small.make(seed=0)),
        make_with_dropout=(lambda: prepare(small.make(seed=0, dropout=0.5))) if "dropout" in small.options else None,
        draw=small.make,
    )
    return subject, promised


def _names(promise: Capability) -> list[str]:
    return [str(flag.name) for flag in promise]


def _record(verdict: Verdict) -> str:
    """A verdict as JSON."""
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
    """A verdict in words: one line, and one more for a counterexample."""
    lacking = ", ".join(_names(verdict.law.promise & ~promised))
    yield f"{verdict.status:{COLUMN}}{verdict.law.sentence}{f' ({lacking})' if lacking else ''}"
    if verdict.counterexample is not None:
        yield f"{'':{COLUMN}}{printable(verdict.counterexample)}"


def _total(verdicts: list[Verdict]) -> str:
    statuses = [verdict.status for verdict in verdicts]
    count = {status: statuses.count(status) for status in ("holds", "does not hold", "not promised")}
    return ", ".join(f"{status}: {number}" for status, number in count.items())
