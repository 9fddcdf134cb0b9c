"""Laws of what predict asks of a run: the options that were given, and else the defaults that its help names."""

from __future__ import annotations

import re
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from seqtrain.cli import predict
from seqtrain.cli.answers import Classes, Continuations, Fillings, Scores, Translations
from seqtrain.errors import Fault
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.translation import Translation


class Asked:
    """A run that keeps what it is asked for."""

    def __init__(self, task: type) -> None:
        self.task = task
        self.calls: list[dict[str, Any]] = []

    def continue_texts(self, texts: list[str], **options: Any) -> list[str]:
        self.calls.append(options)
        return [f"{text}!" for text in texts]

    def fill(self, texts: list[str], **options: Any) -> list[dict[str, Any]]:
        self.calls.append(options)
        return [{"filled": text, "masks": []} for text in texts]

    def translate(self, texts: list[str], **options: Any) -> list[str]:
        self.calls.append(options)
        return [text.upper() for text in texts]

    def cuts(self, text: str, use: str) -> bool:
        return False


def options(*args: str) -> Any:
    return predict._parser().parse_intermixed_args(["run", *args])


DEFAULTS = {"length": 200, "temperature": 0.8, "top_k": None, "top_p": None, "seed": 0}


@pytest.mark.parametrize(
    ("args", "changes"),
    [
        ((), {}),
        (("--length", "9", "--temperature", "0.3", "--top-k", "4"), {"length": 9, "temperature": 0.3, "top_k": 4}),
        (("--top-p", "0.6", "--seed", "5"), {"top_p": 0.6, "seed": 5}),
        (("--greedy",), {"temperature": 0.0}),
    ],
)
def test_a_continuation_is_asked_for_as_typed(args: tuple[str, ...], changes: dict[str, Any]) -> None:
    run: Any = Asked(NextToken)
    answers = Continuations(run, options(*args))
    assert answers.answer(["a", "b"]) == [{"prompt": "a", "text": "a!"}, {"prompt": "b", "text": "b!"}]
    answers.answer(["c"])
    expected = DEFAULTS | changes
    assert run.calls == [expected, expected | {"seed": expected["seed"] + 2}]


def test_the_help_names_the_defaults() -> None:
    told = " ".join(predict._parser().format_help().split())
    for flag, default in (("--length N", 200), ("--temperature T", 0.8), ("--seed SEED", 0)):
        assert re.search(rf"{flag} next_token: [^-]*\b{default} by default", told), flag
    assert "show K tokens for each mask, 5 by default" in told


@pytest.mark.parametrize(("args", "top_k"), [((), 5), (("--top-k", "2"), 2)])
def test_masks_are_filled_with_as_many_as_typed(args: tuple[str, ...], top_k: int) -> None:
    run: Any = Asked(MaskedLM)
    Fillings(run, options(*args)).answer(["a"])
    assert run.calls == [{"top_k": top_k}]


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        ((), {"beam": None, "length_penalty": None}),
        (("--beam", "4", "--length-penalty", "0"), {"beam": 4, "length_penalty": 0.0}),
    ],
)
def test_a_translation_is_searched_for_as_typed(args: tuple[str, ...], asked: dict[str, Any]) -> None:
    run: Any = Asked(Translation)
    found = Translations(run, options(*args)).answer(["a", "b"])
    assert found == [{"source": "a", "translation": "A"}, {"source": "b", "translation": "B"}]
    assert run.calls == [asked]


@pytest.mark.parametrize(
    "args", [("--temperature", "0.5"), ("--seed", "7"), ("--top-k", "3"), ("--top-p", "0.9", "--seed", "0")]
)
def test_what_greedy_choice_does_not_look_at_is_refused_each_in_one_line(args: tuple[str, ...]) -> None:
    run: Any = Asked(NextToken)
    with pytest.raises(Fault) as told:
        Continuations(run, options("--greedy", *args))
    assert [line.partition(":")[0] for line in told.value.lines] == sorted(args[::2], reverse=True)
    assert all("with --greedy nothing is drawn" in line for line in told.value.lines)


@pytest.mark.parametrize(("typed", "of_the_run", "taken"), [("1", 4, False), ("4", 1, True), (None, 1, False)])
def test_a_length_penalty_without_a_beam_is_refused(typed: str | None, of_the_run: int, taken: bool) -> None:
    run: Any = SimpleNamespace(task=SimpleNamespace(beam=of_the_run))
    given = ["--length-penalty", "3", *(["--beam", typed] if typed else [])]
    with nullcontext() if taken else pytest.raises(Fault, match=r"^--length-penalty: with a beam of 1"):
        Translations(run, options(*given))


def test_scores_and_labels_are_said_with_their_units() -> None:
    run: Any = SimpleNamespace(task=NextToken)
    answer = {"loss": 1.5, "unknown": 1, "tokens": [{"text": "a", "bits": 2.25}, {"text": "é", "bits": 4.0}]}
    said = Scores(run, options("--score")).words({**answer, "bits_per_byte": 2.0833})
    assert said.splitlines() == [
        "1.5000 nats a token, 2.0833 bits per byte, 2 tokens; 1 are <unk>, whose spelling no number counts",
        "   2.250 bits  a",
        "   4.000 bits  é",
    ]
    pseudo = Scores(run, options("--score")).words({**answer, "pseudo_perplexity": 4.48168})
    assert pseudo.startswith("1.5000 nats a token, pseudo-perplexity 4.482, 2 tokens")
    chances = {"good": 0.5, "so so": 0.3, "bad": 0.15, "awful": 0.05}
    words = Classes(run, options()).words({"text": "fine", "label": "good", "probabilities": chances})
    assert words == "good 50.0%  so so 30.0%  bad 15.0%: fine"
