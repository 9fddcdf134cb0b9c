"""`seqtrain predict`: apply a run to texts: continue, fill in, classify, translate or score them."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from seqtrain.api import load
from seqtrain.cli import predict_seen, predict_series
from seqtrain.cli.answer_options import add_answer_options, as_typed, given, own_options, refuse_not_taken
from seqtrain.cli.arguments import Parser
from seqtrain.cli.lines import Line, batches, check_apart, check_lines, from_arguments, from_file, open_file
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import atomic
from seqtrain.files.untrusted import check_output

if TYPE_CHECKING:
    from seqtrain.inference.opened import Opened


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_intermixed_args(argv)
    if predict_seen.asked(options):
        return predict_seen.main(options)
    path: Path | None = options.input
    check_apart(path, options.output)  # before either of them is opened
    if options.output is not None:
        check_output("--output", options.output)
    arriving: Iterable[list[Line]] = ()
    if path is not None:  # opened first: to load a model takes seconds, and the file may not be there
        arriving = from_file(open_file(path), path)

    opened = load(options.run, trust=options.trust, checkpoint=options.checkpoint).opened
    if opened.task.reads_values():
        return predict_series.main(opened, options, _output)
    if path is not None:
        check_lines(path)
    if options.plot is not None:
        raise UserError(f"--plot {options.plot}: task={opened.task.name()} forecasts no series; leave it out")
    answering = Answering(opened, options)
    texts = options.texts
    if not texts and path is None:
        if answering.predictor.needs_text:
            raise UserError("predict: needs a text; give TEXT or --input FILE (- is standard input)")
        texts = [""]  # from nothing
    bad = asked = 0
    with _output(options.output) as out:
        for batch in batches(itertools.chain([list(from_arguments(texts))], arriving), answering.predictor.at_a_time):
            bad += _answer(answering, batch, out, options.json)
            asked += len(batch)
        if not asked:  # a pipe tells only at its end; an empty file was refused before
            raise UserError("standard input: is empty; give texts, one a line")
        if options.output is not None and bad == asked:
            raise UserError(f"--output {options.output}: not written, since no text was answered; mend the texts")
    answering.closing()
    return 2 if bad else 0


def _parser() -> Parser:
    parser = Parser(
        "predict",
        "What a run makes of texts, by its task. Texts come from the arguments and from the lines of --input.\n"
        "On a terminal control characters of an answer are spelled out; in a file or a pipe it is as it is.\n"
        "  next_token    continues them by sampling; without any, starts from nothing; with --score measures them\n"
        "  masked_lm     fills in each [MASK]; with --score measures them, each token hidden in turn\n"
        "  bidirectional_lm  with --score measures them, in both directions\n"
        "  sentiment, regress, tag  say their labels, their numbers, a label for each word\n"
        "  translation   translates them\n"
        "  forecast      continues the series of --input, a table of csv, tsv, parquet or jsonl\n"
        "A third-party task answers in its own way; --option sets its options.",
        "seqtrain predict outputs/2026-11-21_02-04-00_next_token_lstm 'def main(' --length 100 --temperature 0.7",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--input", type=Path, metavar="FILE", help="a text a line; - is standard input")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the answers go; standard output by default")
    parser.add_argument("--checkpoint", default="best", choices=("best", "last"))
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="forecast: draw history and what comes after: FILE.png or .svg"
    )
    parser.add_argument(
        "--attention",
        type=Path,
        metavar="FILE",
        help="draw where the model looks in the one TEXT: FILE.png",
    )
    parser.add_argument(
        "--gates",
        type=Path,
        metavar="FILE",
        help="draw what the gates of an LSTM or a GRU do in the one TEXT: FILE.png",
    )
    add_answer_options(parser)
    return parser


class Answering:
    """A predictor of the run's task with the given options."""

    def __init__(self, opened: Opened, options: argparse.Namespace) -> None:
        """Choose the predictor; raise UserError for options that it does not take or that have no effect."""
        self.opened = opened
        by = None  # the task's first predictor
        if options.score:
            by = "score"
            if by not in opened.task.predictors:
                raise UserError(f"--score: task={opened.task.name()} measures no tokens; leave it out")
        self.predictor = opened.predictor(by)
        self.options = {name: getattr(options, name) for name in given(options)}
        words = self._words(options.score)
        refuse_not_taken(self.options, self.predictor.takes, words, scores="score" in opened.task.predictors)
        self.options |= own_options(options.option, self.predictor.takes, words)
        self.answered = 0  # texts so far
        self.cut = 0  # those of them of which only the beginning was read
        self._refuse_without_effect()

    def _words(self, score: bool) -> str:
        """Return the name of the predictor for messages. Another predictor of the same run may take other options."""
        words = f"task={self.opened.task.name()}"
        if score:
            words += " --score"
        return words

    def _refuse_without_effect(self) -> None:
        """Raise UserError for valid options that have no effect beside the others, as --seed with --greedy."""
        reasons = self.predictor.without_effect(self.options)
        lines = [f"{as_typed(name)}: {reasons[name]}" for name in self.options if name in reasons]
        if lines:
            raise UserError(*lines)

    def answer(self, texts: list[str]) -> Sequence[dict[str, Any]]:
        """Return the answer to each text."""
        from seqtrain.tasks.hooks import check_answers  # here: it imports torch

        self.cut += sum(map(self.predictor.cuts, texts))
        # The place among all texts makes the seed of each, so that no number depends on how the batches were cut.
        answers = self.predictor.predict(texts, first=self.answered, **self.options)
        check_answers(self.predictor, texts, answers)
        self.answered += len(texts)
        return answers

    def closing(self) -> None:
        """Print on standard error, once, how many texts were truncated."""
        if self.cut:
            longest = self.opened.config.data.max_length
            say(f"{self.cut:,} texts are longer than data.max_length={longest} tokens: their beginning alone was read")


def _answer(answering: Answering, batch: list[Line], out: TextIO, as_json: bool) -> int:
    """Answer texts in order; return the number of texts that could not be answered."""
    reasons = [line.reason or answering.predictor.reason(line.text) for line in batch]
    good = [line.text for line, reason in zip(batch, reasons, strict=True) if reason is None]
    answers = iter(answering.answer(good) if good else [])
    for line, reason in zip(batch, reasons, strict=True):
        if reason is not None:
            line.report(reason)
            if as_json:
                print(_json({**line.place, "error": reason}), file=out)
            continue
        answer = next(answers)
        if not as_json:
            print(answering.predictor.words(answer), file=out)
        elif "line" in line.place:
            print(_json({"line": line.place["line"], **answer}), file=out)
        else:
            print(_json(answer), file=out)
    out.flush()  # who reads a pipe gets each batch as it is answered
    return len(batch) - len(good)


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Open the destination of the answers. A file is written whole, or left unchanged if the block raises."""
    if path is None:
        yield sys.stdout
        return
    try:
        if path.exists() and not path.is_file():  # a pipe or a device takes the answers as they come
            with path.open("w", encoding="utf-8") as file:
                yield file
            return
        with atomic(Path(os.path.realpath(path))) as whole:  # behind a link, which stays
            file = io.TextIOWrapper(whole, encoding="utf-8")
            yield file
            file.detach()  # what is written is flushed, and `atomic` closes
    except OSError as error:
        raise UserError(f"--output {path}: {error.strerror}") from None
