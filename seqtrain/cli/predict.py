"""`seqtrain predict`: apply a run to texts: continue, fill in, classify, translate or score them."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, runtime_checkable

from seqtrain.api import Trained, load
from seqtrain.cli.answer_options import add_answer_options, as_typed, given, own_options, refuse_not_taken
from seqtrain.cli.arguments import Parser
from seqtrain.cli.lines import Line, batches, check_apart, check_lines, from_arguments, from_file, open_file
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError, first_few
from seqtrain.files.atomic import atomic
from seqtrain.files.untrusted import check_output

if TYPE_CHECKING:
    from seqtrain.inference.forecasts import Continued
    from seqtrain.inference.opened import Opened


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_intermixed_args(argv)
    if drawings := _drawings(options):
        return _draw_all(drawings, options)
    path: Path | None = options.input
    check_apart(path, options.output)  # before either of them is opened
    if options.output is not None:
        check_output("--output", options.output)
    arriving: Iterable[list[Line]] = ()
    if path is not None:  # opened first: a missing file is reported before the model is loaded, which takes seconds
        arriving = from_file(open_file(path), path)

    opened = load(options.run, trust=options.trust, checkpoint=options.checkpoint).opened
    reads_series = opened.preprocessor.series is not None
    if reads_series and not opened.answers_series:
        return _forecast(opened, options)
    if options.plot is not None:
        raise UserError(f"--plot {options.plot}: task={opened.task.name()} forecasts no series; leave it out")
    if options.intervals:
        raise UserError(f"--intervals: task={opened.task.name()} forecasts no series; leave it out")
    if reads_series:
        return _answer_series(opened, options)
    if path is not None:
        check_lines(path)
    answering = Answering(opened, options)
    texts = options.texts
    if not texts and path is None:
        if answering.predictor.needs_text:
            raise UserError("predict: needs a text; give TEXT or --input FILE (- is standard input)")
        texts = [""]  # start from an empty prompt
    bad = asked = 0
    with _output(options.output) as out:
        for batch in batches(itertools.chain([list(from_arguments(texts))], arriving), answering.predictor.at_a_time):
            if _streams(answering, batch, out, options):
                _stream(answering, batch[0].text, out)
            else:
                bad += _answer(answering, batch, out, options.json)
            asked += len(batch)
        if not asked:  # a pipe shows only at its end that it is empty; an empty file was refused earlier
            raise UserError("standard input: is empty; give texts, one a line")
        if options.output is not None and bad == asked:
            raise UserError(f"--output {options.output}: not written, since no text was answered; fix the texts")
    answering.closing()
    return 2 if bad else 0


def _parser() -> Parser:
    parser = Parser(
        "predict",
        "Predict with a run, as its task defines it. Texts come from the arguments and from the lines of --input.\n"
        "A terminal shows control characters escaped; a file or a pipe gets the answers unchanged.\n"
        "  next_token    continues texts by sampling, or starts from nothing; with --score measures them\n"
        "  masked_lm     fills in each [MASK]; with --score measures texts, masking each token in turn\n"
        "  bidirectional_lm  measures texts in both directions; needs --score\n"
        "  sentiment, regress, tag  predict a label, a number, or a label for each word; a run that reads series\n"
        "                takes FILE or --input FILE, in the format of its data\n"
        "  translation   translates texts; a run that reads vectors writes a text for each sequence of FILE\n"
        "  forecast      continues the series of --input, a csv, tsv, parquet or jsonl table\n"
        "A third-party task defines its own answers; --option sets its options.",
        "seqtrain predict outputs/2026-11-21_02-04-00_next_token_lstm 'def main(' --length 100 --temperature 0.7",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--input", type=Path, metavar="FILE", help="one text per line; - is standard input")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the answers go; standard output by default")
    parser.add_argument("--checkpoint", default="best", choices=("best", "last"))
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="forecast: draw the history and the forecast: FILE.png or .svg"
    )
    parser.add_argument(
        "--intervals",
        action="store_true",
        help="point forecasts: add conformal intervals, from the errors on the run's validation split",
    )
    parser.add_argument(
        "--attention",
        type=Path,
        metavar="FILE",
        help="draw the attention maps for the one TEXT, or for the first series of a file: FILE.png",
    )
    parser.add_argument(
        "--gates",
        type=Path,
        metavar="FILE",
        help="draw the gate values of an LSTM or a GRU for the one TEXT: FILE.png",
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
        self.cut = 0  # texts that were truncated
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
        # A text's seed depends on its position among all texts, so results do not depend on the batches.
        answers = self.predictor.predict(texts, first=self.answered, **self.options)
        check_answers(self.predictor, texts, answers)
        self.answered += len(texts)
        return answers

    def pieces(self, text: str) -> Iterator[str]:
        """Yield the answer to a text piece by piece, as it is generated. The predictor must be `InPieces`."""
        predictor: Any = self.predictor
        yield from predictor.pieces(text, first=self.answered, **self.options)
        self.answered += 1

    def closing(self) -> None:
        """Print on standard error, once, how many texts were truncated."""
        if self.cut:
            longest = self.opened.config.data.max_length
            say(f"{self.cut:,} texts are longer than data.max_length={longest} tokens: only their beginning was read")


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
    out.flush()  # a program that reads a pipe gets each batch at once
    return len(batch) - len(good)


@runtime_checkable
class InPieces(Protocol):
    """A predictor that can stream its answer to one text."""

    def pieces(self, text: str, *, first: int = 0, **options: Any) -> Iterator[str]:
        """Yield the answer piece by piece."""
        ...


def _streams(answering: Answering, batch: list[Line], out: TextIO, options: argparse.Namespace) -> bool:
    """Return True if the answer is streamed: one text, one sample, and output to a terminal."""
    return (
        isinstance(answering.predictor, InPieces)
        and out is sys.stdout
        and out.isatty()
        and not options.json
        and answering.options.get("num_samples", 1) == 1
        and len(batch) == 1
        and (batch[0].reason or answering.predictor.reason(batch[0].text)) is None
    )


def _stream(answering: Answering, text: str, out: TextIO) -> None:
    for piece in answering.pieces(text):
        out.write(piece)
        out.flush()
    print(file=out)


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
        with atomic(Path(os.path.realpath(path))) as whole:  # the target of a link, so that the link stays
            file = io.TextIOWrapper(whole, encoding="utf-8")
            yield file
            file.detach()  # what is written is flushed, and `atomic` closes
    except OSError as error:
        raise UserError(f"--output {path}: {error.strerror}") from None


def _forecast(opened: Opened, options: argparse.Namespace) -> int:
    """Forecast the series of the file `--input` with a run whose task reads series; return the exit code."""
    from seqtrain.inference.forecasts import continue_file, write_csv  # imports torch

    _check_series(opened, options)
    widths = {}
    if options.intervals:
        from seqtrain.experiment.conformal import intervals_of

        widths = intervals_of(options.run, options.checkpoint, say)
    continued = continue_file(opened, options.input, called=f"--input {options.input}", say=say, widths=widths)
    with _output(options.output) as file:
        if options.json:
            for series in continued:
                for row in series.rows():
                    print(json.dumps(row, ensure_ascii=False), file=file)
        else:
            write_csv(continued, file)
    if options.plot is not None:
        _plot(continued, options.plot)
    return 0


def _answer_series(opened: Opened, options: argparse.Namespace) -> int:
    """Predict a label or a number for each series of a file; return the exit code."""
    from seqtrain.inference.forecasts import read_series  # imports torch
    from seqtrain.tasks.hooks import check_answers

    files = [*options.texts, *([str(options.input)] if options.input is not None else [])]
    if len(files) != 1 or files == ["-"]:
        raise UserError("predict: the run reads series of values; give one FILE in the format of data.path, or --input")
    answering = Answering(opened, options)
    called = files[0] if options.texts else f"--input {files[0]}"
    items = read_series(opened, Path(files[0]), called)
    longest = opened.config.data.max_length
    if cut := sum(len(item.features) > longest for item in items):
        say(f"{cut:,} series are longer than data.max_length={longest} steps: only their beginning was read")
    predictor: Any = answering.predictor
    answers = predictor.predict(items, **answering.options)
    check_answers(answering.predictor, items, answers)
    with _output(options.output) as file:
        for answer in answers:
            print(_json(answer) if options.json else answering.predictor.words(answer), file=file)
    return 0


def _plot(continued: list[Continued], path: Path) -> None:
    from seqtrain.inference.forecast_plot import MAX_FANS, draw_fans

    fans = []
    for series in continued:
        for channel in range(len(series.columns)):
            fans.append(series.fan(channel))
    try:
        left_out = draw_fans(fans, path)
    except ValueError as error:
        raise UserError(f"--plot {error}") from None
    except OSError as error:
        raise UserError(f"--plot {path}: {error.strerror}") from None
    line = f"{path}: {', '.join(fan.title for fan in fans[:MAX_FANS])}"
    if left_out:
        line += f" (not shown: {', '.join(left_out)})"
    say(line)


def _check_series(opened: Opened, options: argparse.Namespace) -> None:
    name = opened.task.name()
    if options.texts or options.input is None:
        raise UserError(f"predict: task={name} continues series, not texts; give --input FILE.csv")
    # The file is opened three times, for its first bytes, header and content; a pipe can be read only once.
    if str(options.input) == "-":
        raise UserError("--input -: series cannot be read from standard input; name a file")
    useless = [*map(as_typed, given(options)), *(["--score"] if options.score else []), *options.option]
    if useless:
        raise UserError(f"{first_few(useless)}: task={name} does not take it; leave it out")


@dataclass(frozen=True)
class Drawing:
    """A drawing that a flag asks for."""

    shows: str  # "it shows ... in it": in the text
    draws: str  # "draws ..., and answers nothing"
    parts: str  # what --json calls the parts of the drawing
    save: Callable[[Trained, str, Path, str], tuple[Sequence[Any], str]]  # returns the parts, and what was left out


def _save_attention(trained: Trained, text: str, path: Path, title: str) -> tuple[Sequence[Any], str]:
    from seqtrain.inference import attention_maps

    maps = trained.attention(text)
    return maps, attention_maps.draw(maps, path, title)


def _save_gates(trained: Trained, text: str, path: Path, title: str) -> tuple[Sequence[Any], str]:
    from seqtrain.inference import gates

    layers = trained.gates(text)
    return layers, gates.draw(layers, path, title)


DRAWINGS = {
    "attention": Drawing("where the model looks", "where the model looks", "maps", _save_attention),
    "gates": Drawing("what the gates do", "what the gates do", "layers", _save_gates),
}
"""By flag. Both flags may be given if the model has attention and gates."""


def _drawings(options: argparse.Namespace) -> list[str]:
    """Return the flags of drawings that were given."""
    return [name for name in DRAWINGS if getattr(options, name) is not None]


def _draw_all(names: list[str], options: argparse.Namespace) -> int:
    """Draw one text; raise UserError for other options that make no sense with a drawing."""
    # Before the run is loaded, which takes seconds.
    for name in names:
        path: Path = getattr(options, name)
        if path.suffix.lower() != ".png":
            raise UserError(f"--{name} {path}: expected a name that ends in .png")
    # If both flags are given, messages name the first.
    first, drawing = names[0], DRAWINGS[names[0]]
    if len(options.texts) != 1 or options.input is not None:
        raise UserError(f"--{first}: takes one TEXT, and no --input; it shows {drawing.shows} in it")
    useless = _useless(options)
    if useless:
        flags = ", ".join(useless)
        raise UserError(f"{flags}: --{first} draws {drawing.draws} and answers nothing; leave one of them out")

    trained = load(options.run, trust=options.trust, checkpoint=options.checkpoint)
    (line,) = from_arguments(options.texts)
    reason = line.reason or trained.opened.text_reader.reason(line.text)
    if reason and not trained.opened.answers_series:  # then the text is a file
        raise UserError(f"{line.where}: {reason}")
    # If the second drawing is refused, as for a model without gates, the first file stays.
    for name in names:
        _draw(name, trained, line.text, getattr(options, name), options.json)
    return 0


def _useless(options: argparse.Namespace) -> list[str]:
    """Return the answer options that were given, as they were typed. A drawing uses none of them."""
    others = ("score", "option", "plot", "intervals")
    return [*map(as_typed, given(options)), *(f"--{name}" for name in others if getattr(options, name))]


def _draw(name: str, trained: Trained, text: str, path: Path, as_json: bool) -> None:
    drawing = DRAWINGS[name]
    try:
        parts, left_out = drawing.save(trained, text, path, f"{trained.directory.name}: {text}")
    except OSError as error:
        raise UserError(f"--{name} {path}: {error.strerror}") from None
    names = [part.name for part in parts]  # layers of a stack, or of an encoder and a decoder
    if as_json:
        found = {"text": text, name: str(path), drawing.parts: names, "left_out": left_out}
        print(json.dumps(found, ensure_ascii=False))
        return
    line = f"{path}: {', '.join(names)}"
    if left_out:  # a plot has room for a few layers only
        line += f" (not shown: {left_out})"
    print(line)
