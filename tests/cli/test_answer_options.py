"""Laws of what predict asks of a run: the options that were given, and else the defaults that its help names."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from seqtrain.cli import predict
from seqtrain.tasks.base import Task
from seqtrain.tasks.masked_lm import MaskedLM
from seqtrain.tasks.next_token import NextToken
from seqtrain.tasks.predictors import Predictor
from seqtrain.tasks.sentiment import Sentiment
from seqtrain.tasks.translation import Translation


def options(*args: str) -> Any:
    return predict._parser().parse_intermixed_args(["run", *args])


def answering(task: type[Task], *args: str) -> predict.Answering:
    """What predict makes of a run of this task, whose predictors keep what they are asked for."""
    calls: list[dict[str, Any]] = []

    def kept(kind: type[Predictor[Any]]) -> Predictor[Any]:
        class Kept(kind):  # type: ignore[valid-type, misc]
            def predict(self, texts: Any, *, first: int = 0, **given: Any) -> Any:
                calls.append({**self.takes, **given, "first": first})
                return [{"text": text} for text in texts]

            longest = None

        return Kept(SimpleNamespace(beam=1), SimpleNamespace())  # type: ignore[arg-type]

    opened: Any = SimpleNamespace(
        task=SimpleNamespace(name=task.name, predictors=task.predictors),
        predictor=lambda name: kept(task.predictors[name or next(iter(task.predictors))]),
    )
    found = predict.Answering(opened, options(*args))
    found.calls = calls  # type: ignore[attr-defined]
    return found


DEFAULTS = {
    **{"length": 200, "temperature": 0.8, "top_k": None, "top_p": None, "greedy": False, "seed": 0},
    **{"stop": (), "num_samples": 1, "repetition_penalty": 1.0},
}


TYPED = {
    (): {},
    ("--length", "9", "--temperature", "0.3", "--top-k", "4"): {"length": 9, "temperature": 0.3, "top_k": 4},
    ("--top-p", "0.6", "--seed", "5"): {"top_p": 0.6, "seed": 5},
    ("--greedy",): {"greedy": True},
    ("--stop", "x", "--stop", "yz"): {"stop": ["x", "yz"]},
    ("--num-samples", "2", "--repetition-penalty", "1.5"): {"num_samples": 2, "repetition_penalty": 1.5},
}


def test_an_answer_is_asked_for_as_typed() -> None:
    for args, changes in TYPED.items():
        asked: Any = answering(NextToken, *args)
        assert asked.answer(["a", "b"]) == [{"text": "a"}, {"text": "b"}]
        asked.answer(["c"])
        assert asked.calls == [DEFAULTS | changes | {"first": first} for first in (0, 2)], args
    for task, args, given in (
        (MaskedLM, (), {"top_k": 5}),
        (MaskedLM, ("--top-k", "2"), {"top_k": 2}),
        (Translation, (), {"beam": None, "length_penalty": None}),
        (Translation, ("--beam", "4", "--length-penalty", "0"), {"beam": 4, "length_penalty": 0.0}),
    ):
        asked = answering(task, *args)
        asked.answer(["a"])
        assert asked.calls == [given | {"first": 0}], args


def test_the_help_names_the_defaults() -> None:
    told = " ".join(predict._parser().format_help().split())
    for flag, name in (("--length N", "length"), ("--temperature T", "temperature"), ("--seed SEED", "seed")):
        default = NextToken.predictors["continue"].takes[name]
        assert re.search(rf"{flag} next_token: [^-]*\b{default} by default", told), flag
    assert f"show K tokens for each mask, {MaskedLM.predictors['fill'].takes['top_k']} by default" in told


def test_scores_and_labels_are_said_with_their_units() -> None:
    nothing: Any = SimpleNamespace()
    answer = {"loss": 1.5, "unknown": 1, "tokens": [{"text": "a", "bits": 2.25}, {"text": "é", "bits": 4.0}]}
    said = NextToken.predictors["score"](nothing, nothing).words({**answer, "bits_per_byte": 2.0833})
    assert said.splitlines() == [
        "1.5000 nats a token, 2.0833 bits per byte, 2 tokens; <unk>, whose spelling is not counted: 1",
        "   2.250 bits  a",
        "   4.000 bits  é",
    ]
    pseudo = MaskedLM.predictors["score"](nothing, nothing).words({**answer, "pseudo_perplexity": 4.48168})
    assert pseudo.startswith("1.5000 nats a token, pseudo-perplexity 4.482, 2 tokens")
    probs = {"good": 0.5, "so so": 0.3, "bad": 0.15, "awful": 0.05}
    words = Sentiment.predictors["classify"](nothing, nothing).words(
        {"text": "fine", "label": "good", "probabilities": probs}
    )
    assert words == "good 50.0%  so so 30.0%  bad 15.0%: fine"
