"""`seqtrain predict`: lets a run continue text, or says how surprising a text is to it."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from seqtrain.commands.arguments import Parser, bounded
from seqtrain.faults import Fault

if TYPE_CHECKING:
    from seqtrain.api import Trained

BATCH = 32  # texts continued side by side


def main(argv: list[str]) -> int:
    """The command."""
    parser = Parser(
        "predict",
        "Continue text by sampling, or with --score measure it. Texts come from the arguments and from the lines of\n"
        "--input; without any, generation starts from nothing.",
        "seqtrain predict outputs/2026-11-21_02-04-00_next_token_lstm 'def main(' --length 100 --temperature 0.7",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--input", type=Path, metavar="FILE", help="a text a line; - is standard input")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the answers go; standard output by default")
    parser.add_argument("--checkpoint", default="best", choices=("best", "last"))
    count = bounded(int, 1, 2**31, "a whole number above 0")
    parser.add_argument("--length", type=count, default=200, metavar="N", help="tokens to add")
    parser.add_argument("--temperature", type=bounded(float, 1e-6, 1e6, "a number above 0"), default=0.8)
    parser.add_argument("--top-k", type=count, metavar="K", help="draw from the K likeliest tokens only")
    parser.add_argument(
        "--top-p", type=bounded(float, 1e-9, 1, "in (0, 1]"), metavar="P", help="draw from the likeliest that make up P"
    )
    parser.add_argument("--greedy", action="store_true", help="always the likeliest token")
    parser.add_argument("--seed", type=bounded(int, 0, 2**32, "a whole number from 0"), default=0)
    parser.add_argument("--score", action="store_true", help="loss, bits per byte and surprisal of each token")
    options = parser.parse_intermixed_args(argv)
    texts = list(_texts(options.texts, options.input))
    if options.score and not any(texts):
        raise Fault("predict --score: needs a text that is not empty; give TEXT or --input FILE")

    from seqtrain.api import load

    trained = load(options.run, trust=options.trust, checkpoint=options.checkpoint)
    with _output(options.output) as file:
        for answer in _scores(trained, texts) if options.score else _continuations(trained, texts, options):
            print(json.dumps(answer, ensure_ascii=False) if options.json else _lines(answer), file=file, flush=True)
    return 0


def _texts(arguments: list[str], path: Path | None) -> Iterator[str]:
    """The texts of the arguments, then the lines of the file."""
    yield from arguments
    if path is None:
        return
    if str(path) == "-":
        yield from (line.rstrip("\n") for line in sys.stdin)
        return
    try:
        yield from path.read_text("utf-8").splitlines()
    except OSError as error:
        raise Fault(f"--input {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Fault(f"--input {path}: byte {error.start} is not UTF-8; convert the file") from None


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise Fault(f"--output {path}: {error.strerror}") from None
    with file:
        yield file


def _continuations(trained: Trained, texts: list[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    texts = texts or [""]
    for begin in range(0, len(texts), BATCH):
        batch = texts[begin : begin + BATCH]
        answers = trained.continue_texts(
            batch,
            length=options.length,
            temperature=0.0 if options.greedy else options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            seed=options.seed + begin,
        )
        yield from ({"prompt": prompt, "text": text} for prompt, text in zip(batch, answers, strict=True))


def _scores(trained: Trained, texts: list[str]) -> Iterator[dict[str, Any]]:
    for number, text in enumerate(texts, 1):
        if text:
            yield trained.score(text)
        else:
            print(f"text {number} is empty and has no score", file=sys.stderr)


def _lines(answer: dict[str, Any]) -> str:
    """An answer for a person."""
    if "prompt" in answer:
        return answer["prompt"] + answer["text"]
    count = len(answer["tokens"])
    head = f"{answer['loss']:.4f} nats a token, {answer['bits_per_byte']:.4f} bits per byte, {count} tokens"
    if answer["unknown"]:
        head += f"; {answer['unknown']} are <unk>, whose spelling bits per byte do not count"
    return "\n".join([head, *(f"{token['bits']:8.3f} bits  {token['text']}" for token in answer["tokens"])])
