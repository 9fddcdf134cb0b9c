"""Tables for a paper, in LaTeX or Markdown: a table a group, a row a variant, its mean with its interval, its seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seqtrain.compare.comparisons import compared
from seqtrain.compare.entries import Axis, Checkpoint
from seqtrain.compare.folds import are_folds
from seqtrain.compare.kept_figures import compared_figures, test_mean
from seqtrain.compare.pareto import WORDS, Cost, cost_of
from seqtrain.compare.quantities import decimals, quantity
from seqtrain.compare.reach import COSTS
from seqtrain.compare.variants import CONFIDENCE, Variant
from seqtrain.compare.verdict import Conclusion
from seqtrain.terminal import printable

# Further columns of `--columns`, by the name of their quantity in the table of runs.
COLUMNS: dict[str, Cost | Literal["test"]] = {
    "params": "parameters",
    "flops": "flops",
    "seconds": "seconds",
    "test": "test",
}
MAX_DECIMALS = 8
SIGNIFICANT_DIGITS = 4  # of a mean without an interval
# What LaTeX takes for a command, or draws as another character in its oldest fonts.
LATEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\symbol{34}",  # \textquotedbl is an error in LaTeX's own encoding of fonts
}

LAST_LATIN = "\u017f"  # of the letters that pdflatex knows by itself

# What Markdown, or the HTML in it, takes for a mark.
MARKDOWN = {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {char: f"\\{char}" for char in "\\|*_`[]~$#"}


@dataclass(frozen=True)
class Row:
    """A variant in a table."""

    name: str
    mean: str  # empty where it has no value
    half: str  # of the interval; empty of fewer than two seeds
    seeds: int
    is_best: bool  # by the verdict, and not by its number alone
    more: tuple[str, ...] = ()  # cells of further columns; empty where unknown


@dataclass(frozen=True)
class PaperTable:
    """A group's table as plain text, before it is escaped."""

    head: str  # of the column of means: what was measured, its unit and direction
    rows: tuple[Row, ...]
    notes: tuple[str, ...]  # sentences
    more: tuple[str, ...] = ()  # heads of further columns
    repeats: str = "seeds"  # or folds


def tables(
    found: Sequence[Conclusion],
    *,
    x: Axis | None = None,
    checkpoint: Checkpoint = "final",
    columns: Sequence[str] = (),
) -> list[PaperTable]:
    """The groups of a comparison, a table each: figures of different groups mean different things.

    Args:
        found: the groups, as `verdict.conclusions` gives them.
        x: the axis at whose equal values they were concluded.
        checkpoint: of which validation the figures are.
        columns: keys of COLUMNS that stand beside the metric, in this order.
    """
    return [_table(number, conclusion, x, checkpoint, columns) for number, conclusion in enumerate(found, 1)]


def latex(made: Sequence[PaperTable]) -> str:
    """The tables in LaTeX, each in its own `table`; they need the package booktabs."""
    # The only package that a reader has to load.
    lines = [r"% needs \usepackage{booktabs}"]
    names = "".join(row.name for each in made for row in each.rows)
    if max(names, default="") > LAST_LATIN:
        lines[0] += "; for letters beyond Latin compile it with lualatex or xelatex"
    for each in made:
        lines += [r"\begin{table}", r"  \centering"]
        lines.append(f"  \\caption{{{' '.join(map(_latex, each.notes))}}}")
        lines += [rf"  \begin{{tabular}}{{lrr{'r' * len(each.more)}}}", r"    \toprule"]
        lines += [
            f"    {' & '.join(['variant', *map(_latex, (each.head, *each.more)), each.repeats])} \\\\",
            r"    \midrule",
        ]
        for row in each.rows:
            more = [_minus(cell) or "--" for cell in row.more]
            lines.append(f"    {' & '.join([_latex(row.name), _latex_value(row), *more, str(row.seeds)])} \\\\")
        lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def markdown(made: Sequence[PaperTable]) -> str:
    """Return the tables in Markdown, each with its caveats below it."""
    blocks = []
    for each in made:
        heads = ["variant", *map(_markdown, (each.head, *each.more)), each.repeats]
        lines = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
        for row in each.rows:
            more = [cell or "-" for cell in row.more]
            lines.append(f"| {' | '.join([_markdown(row.name), _markdown_value(row), *more, str(row.seeds)])} |")
        blocks.append("\n".join([*lines, "", " ".join(map(_markdown, each.notes))]))
    return "\n\n".join(blocks) + "\n"


def shown_best(conclusion: Conclusion) -> Variant | None:
    """Return the variant that the verdict shows to be better than every other one; None if there is no such variant."""
    valued = [variant for variant in conclusion.variants if variant.values]
    if len(valued) < 2:
        return None
    comparisons = compared(valued, conclusion.group.mode)
    beaten = sum(comparison.significant for comparison in comparisons)
    # A variant of one seed is in no comparison, and so it is not beaten.
    if beaten < len(valued) - 1:
        return None
    return comparisons[0].reference


def _table(
    number: int, conclusion: Conclusion, x: Axis | None, checkpoint: Checkpoint, columns: Sequence[str]
) -> PaperTable:
    group, ranked = conclusion.group, conclusion.variants
    # The same for all rows: a column of numbers is read by its digits.
    digits = _digits(ranked)
    best = shown_best(conclusion)
    rows = []
    for variant in ranked:
        mean, half = variant.mean, _half(variant)
        rows.append(
            Row(
                name=printable(variant.name),
                mean="" if mean is None else f"{mean:.{digits}f}",
                half="" if half is None else f"{half:.{digits}f}",
                seeds=len(variant.values),
                is_best=variant is best,
                more=tuple(_cell(variant, name, group.metric, digits) for name in columns),
            )
        )
    better = "higher" if group.mode == "max" else "lower"
    figures = compared_figures(group)
    repeats = "folds" if are_folds(ranked) else "seeds"
    over = f"{group.unit} of {figures}{_condition(x, checkpoint)}, mean over {repeats}"
    notes = [f"Task {group.entries[0].task}: {over}."]
    notes += _interval_notes(ranked, repeats)
    notes.append(_bold_note(best, rows))
    notes += _doubt_notes(ranked, rows)
    if number > 1:
        notes.append(f"Not to be compared with the first table: {'; '.join(group.reason)}.")
    slow = [variant.left_out for variant in ranked]
    for note in filter(None, [group.refusal, group.across, *slow, *group.notes]):
        notes.append(f"{note[:1].upper()}{note[1:]}.")
    # Their names and reasons are too long for a caption; the terminal and --json have them.
    if conclusion.remarks:
        notes.append(f"Left out: {len(conclusion.remarks)} runs or kinds of runs that do not count.")
    words = {**WORDS, "test": f"{group.unit} of test"}
    heads = tuple(words[COLUMNS[name]] for name in columns)
    if "test" in columns and group.split != "test":
        notes.append(f"Test: the newest figures that evaluate kept of the best checkpoints, mean over {repeats}.")
    head = f"{group.unit} of {group.split} ({better} is better)"
    return PaperTable(head, tuple(rows), tuple(map(printable, notes)), heads, repeats)


def _cell(variant: Variant, name: str, metric: str, digits: int) -> str:
    """Return a further cell of a row; empty where a run that counts does not know its quantity."""
    column = COLUMNS[name]
    if column == "test":
        mean = test_mean(variant.counted, metric)
        return "" if mean is None else f"{mean:.{digits}f}"
    cost = cost_of(variant, column)
    return "" if cost is None else quantity(cost)


def _condition(x: Axis | None, checkpoint: Checkpoint) -> str:
    """Return the moment of training at which the figures were taken."""
    words = ""
    if checkpoint == "best":
        words += ", the best validation of each run"
    if x is not None:
        words += f", at equal {COSTS[x]}"
    return words


def _interval_notes(ranked: Sequence[Variant], repeats: str) -> list[str]:
    """Return the sentence that explains the plus-minus sign."""
    if not any(variant.interval for variant in ranked):
        return []
    test = "Student's t over seeds" if repeats == "seeds" else "the corrected resampled t-test over folds"
    return [f"± is half of the {CONFIDENCE:.0%} interval of the mean by {test}, not a standard deviation."]


def _bold_note(best: Variant | None, rows: Sequence[Row]) -> str:
    if best is not None:
        return "Bold: shown to be better than every other row (95% intervals over all pairs)."
    if len(rows) > 1:
        return "No row is shown to be better than every other one, so none is bold."
    return "A single variant: nothing is compared."


def _doubt_notes(ranked: Sequence[Variant], rows: Sequence[Row]) -> list[str]:
    """Return notes on what the numbers alone would hide: rows of one seed, and different means that print alike."""
    notes = []
    single = sum(len(variant.values) == 1 for variant in ranked)
    if single:
        words = "1 row is" if single == 1 else f"{single} rows are"
        notes.append(f"{words} of one seed: chance over seeds is unknown there.")
    means = {variant.mean for variant in ranked if variant.values}
    printed = {row.mean for row in rows if row.mean}
    if len(printed) < len(means):
        notes.append(f"Means that look equal differ beyond the {MAX_DECIMALS}th decimal.")
    return notes


def _half(variant: Variant) -> float | None:
    """Half the length of a variant's interval."""
    if variant.interval is None:
        return None
    return (variant.interval[1] - variant.interval[0]) / 2


def _digits(ranked: Sequence[Variant]) -> int:
    """Return the decimal places of all rows: two significant digits of the widest interval.

    There are more where rounding would make different means equal, or an interval 0.
    """
    means = {variant.mean for variant in ranked if variant.mean is not None}
    halves = {half for half in map(_half, ranked) if half}
    # Digits behind those that the widest interval can tell would be noise.
    if halves:
        digits = decimals(max(halves))
    else:
        digits = decimals(max(map(abs, means), default=1.0), SIGNIFICANT_DIGITS)
    while digits < MAX_DECIMALS and _hides(means, halves, digits):
        digits += 1
    return digits


def _hides(means: set[float], halves: set[float], digits: int) -> bool:
    """Return True if this many digits print different means alike, or an interval as 0."""
    printed = {f"{mean:.{digits}f}" for mean in means}
    vanished = any(not float(f"{half:.{digits}f}") for half in halves)
    return vanished or len(printed) < len(means)


def _latex_value(row: Row) -> str:
    if not row.mean:
        return "--"
    mean = _minus(row.mean)
    if row.is_best:
        mean = rf"\textbf{{{mean}}}"
    return rf"{mean} $\pm$ {row.half}" if row.half else mean


def _minus(number: str) -> str:
    """Return the number with a typeset minus sign instead of LaTeX's hyphen."""
    return number.replace("-", "$-$")


def _markdown_value(row: Row) -> str:
    if not row.mean:
        return "-"
    mean = f"**{row.mean}**" if row.is_best else row.mean
    return f"{mean} ± {row.half}" if row.half else mean


def _latex(text: str) -> str:
    """Plain text as LaTeX prints it."""
    # Last, for its dollar signs are meant.
    return _escaped(text, LATEX).replace("±", r"$\pm$")


def _markdown(text: str) -> str:
    """Plain text as Markdown shows it."""
    return _escaped(text, MARKDOWN)


def _escaped(text: str, marks: dict[str, str]) -> str:
    """The text with each mark replaced, in one pass, so that no replacement is replaced again."""
    pattern = "[" + re.escape("".join(marks)) + "]"
    return re.sub(pattern, lambda found: marks[found[0]], text)
