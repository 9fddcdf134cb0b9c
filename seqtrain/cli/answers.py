"""What predict answers, task by task: as values, and in words."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from seqtrain.cli.arguments import say
from seqtrain.errors import Fault

if TYPE_CHECKING:
    from seqtrain.api import Trained
    from seqtrain.inference.predict import Translation, Use

NOT_DONE = {
    "length": "adds no tokens",
    "temperature": "draws nothing",
    "top_k": "does not choose among tokens",
    "top_p": "draws nothing",
    "greedy": "draws nothing",
    "seed": "draws nothing",
    "score": "measures no tokens",
    "beam": "does not search",
    "length_penalty": "does not search",
}
"""Why an option makes no sense where it is not taken; their default is None."""


class Answers(ABC):
    """What a run says to texts."""

    use: ClassVar[Use]
    takes: ClassVar[tuple[str, ...]]  # of the options in NOT_DONE
    cut = 0  # texts of which only the beginning was read

    def __init__(self, trained: Trained, options: argparse.Namespace) -> None:
        """Fault for options that make no sense here."""
        from seqtrain.inference.predict import task_name

        self.trained = trained
        self.options = options
        task = f"task={task_name(trained.task)}{' --score' if self.use == 'score' else ''}"
        known = ", ".join(map(flag, self.takes)) or "none of these options"
        useless = [name for name in given(options) if name not in self.takes]
        if useless:
            raise Fault(*(f"{flag(name)}: {task} {NOT_DONE[name]}; it takes {known}" for name in useless))
        idle = self.idle()
        useless = [name for name in given(options) if name in idle]
        if useless:
            raise Fault(*(f"{flag(name)}: {idle[name]}" for name in useless))

    def idle(self) -> dict[str, str]:
        """Options that it takes and that change nothing beside the others, each with the reason and the remedy."""
        return {}

    def reason(self, text: str) -> str | None:
        """Why there is no answer to this text."""
        return self.trained.reason(text, self.use)

    @abstractmethod
    def answer(self, texts: list[str]) -> Sequence[dict[str, Any]]:
        """The answer to each text, with the text itself."""

    @abstractmethod
    def words(self, answer: dict[str, Any]) -> str:
        """An answer for a person."""

    def closing(self) -> None:
        """Tells on standard error, once, what there is to tell of all answers."""
        if self.cut:
            longest = self.trained.config["data"]["max_length"]
            say(f"{self.cut:,} texts are longer than data.max_length={longest} tokens: their beginning alone was read")


class Continuations(Answers):
    """A text goes on; each has a seed of its own, by its place, so that a batch changes nothing."""

    use = "continue"
    takes = ("length", "temperature", "top_k", "top_p", "greedy", "seed", "score")
    begun = 0  # texts so far

    def idle(self) -> dict[str, str]:
        if not self.options.greedy:
            return {}
        reason = "with --greedy nothing is drawn, the likeliest token is taken; leave one of them out"
        return dict.fromkeys(("temperature", "top_k", "top_p", "seed"), reason)

    def answer(self, texts: list[str]) -> Sequence[dict[str, Any]]:
        options = self.options
        answers = self.trained.continue_texts(
            texts,
            length=options.length or 200,
            temperature=0.0 if options.greedy else options.temperature or 0.8,
            top_k=options.top_k,
            top_p=options.top_p,
            seed=(options.seed or 0) + self.begun,
        )
        self.begun += len(texts)
        return [{"prompt": prompt, "text": text} for prompt, text in zip(texts, answers, strict=True)]

    def words(self, answer: dict[str, Any]) -> str:
        return answer["prompt"] + answer["text"]


class Scores(Answers):
    """How surprising a text is, token by token."""

    use = "score"
    takes = ("score",)

    def answer(self, texts: list[str]) -> Sequence[dict[str, Any]]:
        return [{"text": text, **self.trained.score(text)} for text in texts]

    def words(self, answer: dict[str, Any]) -> str:
        if "bits_per_byte" in answer:
            second = f"{answer['bits_per_byte']:.4f} bits per byte"
        else:
            second = f"pseudo-perplexity {answer['pseudo_perplexity']:.4g}"
        head = f"{answer['loss']:.4f} nats a token, {second}, {len(answer['tokens'])} tokens"
        if answer["unknown"]:
            head += f"; {answer['unknown']} are <unk>, whose spelling no number counts"
        return "\n".join([head, *(f"{token['bits']:8.3f} bits  {token['text']}" for token in answer["tokens"])])


class Fillings(Answers):
    """The likeliest words for each [MASK]."""

    use = "fill"
    takes = ("top_k", "score")

    def answer(self, texts: list[str]) -> Sequence[dict[str, Any]]:
        answers = self.trained.fill(texts, top_k=self.options.top_k or 5)
        return [{"text": text, **answer} for text, answer in zip(texts, answers, strict=True)]

    def words(self, answer: dict[str, Any]) -> str:
        best = [
            f"  {number}: "
            + "  ".join(f"{each['token'].strip() or repr(each['token'])} {each['probability']:.1%}" for each in mask)
            for number, mask in enumerate(answer["masks"], 1)
        ]
        return "\n".join([answer["filled"], *best])


class Classes(Answers):
    """The label of a text, with how likely each is."""

    use = "classify"
    takes = ()
    shown = 3  # labels, in words

    def answer(self, texts: list[str]) -> Sequence[dict[str, Any]]:
        self.cut += sum(self.trained.cuts(text, self.use) for text in texts)
        return [{"text": text, **found} for text, found in zip(texts, self.trained.classify(texts), strict=True)]

    def words(self, answer: dict[str, Any]) -> str:
        likeliest = list(answer["probabilities"].items())[: self.shown]
        return f"{'  '.join(f'{label} {chance:.1%}' for label, chance in likeliest)}: {answer['text']}"


class Translations(Answers):
    """The translation of a text."""

    use = "translate"
    takes = ("beam", "length_penalty")

    def idle(self) -> dict[str, str]:
        if self.options.length_penalty is None:
            return {}
        beam = self.options.beam or cast("Translation", self.trained.task).beam
        if beam > 1:
            return {}
        return {"length_penalty": "with a beam of 1 the likeliest token is taken, whatever the length; give --beam 4"}

    def answer(self, texts: list[str]) -> Sequence[dict[str, Any]]:
        self.cut += sum(self.trained.cuts(text, self.use) for text in texts)
        found = self.trained.translate(texts, beam=self.options.beam, length_penalty=self.options.length_penalty)
        return [{"source": source, "translation": text} for source, text in zip(texts, found, strict=True)]

    def words(self, answer: dict[str, Any]) -> str:
        return " ".join(answer["translation"].split("\n"))  # a line for a line


def answers(trained: Trained, options: argparse.Namespace) -> Answers:
    """What the run's task answers; Fault for a task that predict does not know, and for options it has no use for."""
    from seqtrain.inference import predict

    task = trained.task
    if not isinstance(task, predict.ExampleTask):
        return (Scores if options.score else Continuations)(trained, options)
    if isinstance(task, predict.MaskedLM):
        return (Scores if options.score else Fillings)(trained, options)
    if isinstance(task, predict.Sentiment):
        return Classes(trained, options)
    if isinstance(task, predict.Translation):
        return Translations(trained, options)
    raise Fault(f"predict: run {trained.directory} is of task={type(task).__name__}, for which it has no answers")


def given(options: argparse.Namespace) -> list[str]:
    """Names of those options that were given."""
    return [name for name in NOT_DONE if getattr(options, name) is not None and getattr(options, name) is not False]


def flag(name: str) -> str:
    """An option as it is typed."""
    return f"--{name.replace('_', '-')}"
