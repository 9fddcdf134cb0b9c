"""Tables for a paper, in LaTeX or Markdown: one per group, with a row per variant: mean, interval and seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seqtrain.compare.comparisons import compared
from seqtrain.compare.entries import Axis, Checkpoint, decimals, quantity
from seqtrain.compare.folds import are_folds
from seqtrain.compare.held_out import compared_figures, held_out_mean
from seqtrain.compare.pareto import WORDS, Cost, cost_of
from seqtrain.compare.variants import CONFIDENCE, COSTS, Variant
from seqtrain.compare.verdict import Conclusion
from seqtrain.terminal import printable

# Keys of `--columns`, and the name of each quantity in the table of runs.
COLUMNS: dict[str, Cost | Literal["test"]] = {
    "params": "parameters",
    "state": "state",
    "flops": "flops",
    "seconds": "seconds",
    "test": "test",
}
MAX_DECIMALS = 8
SIGNIFICANT_DIGITS = 4  # of a mean without an interval
# Characters that LaTeX reads as commands, or prints as other characters in its oldest fonts.
LATEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\symbol{34}",  # \textquotedbl is an error in LaTeX's own encoding of fonts
    "±": r"$\pm$",
}
LAST_LATIN = "\u017f"  # last letter that pdflatex knows by itself

# Characters that Markdown, or the HTML in it, reads as markup.
MARKDOWN = {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {char: f"\\{char}" for char in "\\|*_`[]~$#"}


@dataclass(frozen=True)
class PaperTable:
    """A group's table as plain text, before it is escaped."""

    heads: tuple[str, ...]  # of the columns: variant, metric with its unit and direction, further ones, seeds or folds
    rows: tuple[tuple[str, ...], ...]  # cells; empty if unknown
    notes: tuple[str, ...]  # sentences
    best: int | None = None  # index of the row that the verdict shows to be best


def tables(
    found: Sequence[Conclusion],
    *,
    x: Axis | None = None,
    checkpoint: Checkpoint = "final",
    columns: Sequence[str] = (),
) -> list[PaperTable]:
    """Make one table for each group of a comparison: values of different groups are not comparable.

    Args:
        found: the groups, from `verdict.conclusions`.
        x: the axis on which the variants were compared at equal values.
        checkpoint: the validation that the values are taken from.
        columns: keys of COLUMNS to show after the metric, in this order.
    """
    return [_table(number, conclusion, x, checkpoint, columns) for number, conclusion in enumerate(found, 1)]


def latex(made: Sequence[PaperTable]) -> str:
    """Return the tables in LaTeX, each in its own `table` environment; they need the package booktabs."""
    from pandas import DataFrame

    lines = [r"% needs \usepackage{booktabs}"]
    if max("".join(row[0] for each in made for row in each.rows), default="") > LAST_LATIN:
        lines[0] += "; for letters beyond Latin compile it with lualatex or xelatex"
    for each in made:
        rows = _cells(each, LATEX, "--", r"\textbf{{{}}}", minus="$-$")
        frame = DataFrame(rows, columns=[_escaped(head, LATEX) for head in each.heads])
        caption = " ".join(_escaped(note, LATEX) for note in each.notes)
        columns = "l" + "r" * (len(each.heads) - 1)
        text = frame.to_latex(index=False, column_format=columns, caption=caption).rstrip()
        lines.append(text.replace(r"\begin{tabular}", "\\centering\n\\begin{tabular}"))
    return "\n".join(lines) + "\n"


def markdown(made: Sequence[PaperTable]) -> str:
    """Return the tables in Markdown, each with its caveats below it."""
    blocks = []
    for each in made:
        lines = [[_escaped(head, MARKDOWN) for head in each.heads], ["---", *["---:"] * (len(each.heads) - 1)]]
        lines += _cells(each, MARKDOWN, "-", "**{}**")
        notes = " ".join(_escaped(note, MARKDOWN) for note in each.notes)
        blocks.append("\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", notes]))
    return "\n\n".join(blocks) + "\n"


def _cells(table: PaperTable, marks: dict[str, str], unknown: str, bold: str, minus: str = "-") -> list[list[str]]:
    """Return the escaped cells of a table, the mean of the best row in bold."""
    found = []
    for place, (name, value, *more) in enumerate(table.rows):
        mean, sign, half = value.replace("-", minus).partition(" ± ")
        shown = (bold.format(mean) if place == table.best and mean else mean or unknown) + _escaped(sign, marks) + half
        found.append([_escaped(name, marks), shown, *(cell.replace("-", minus) or unknown for cell in more)])
    return found


def shown_best(conclusion: Conclusion) -> Variant | None:
    """Return the variant that the verdict shows to be better than every other one, or None."""
    valued = [variant for variant in conclusion.variants if variant.values]
    if len(valued) < 2:
        return None
    comparisons = compared(valued, conclusion.group.mode)
    beaten = sum(comparison.significant for comparison in comparisons)
    # A variant with one seed is in no comparison, so it is not beaten.
    if beaten < len(valued) - 1:
        return None
    return comparisons[0].reference


def _table(
    number: int, conclusion: Conclusion, x: Axis | None, checkpoint: Checkpoint, columns: Sequence[str]
) -> PaperTable:
    group, ranked = conclusion.group, conclusion.variants
    # The same for all rows, so that the numbers in a column line up.
    digits = _digits(ranked)
    best = next((place for place, variant in enumerate(ranked) if variant is shown_best(conclusion)), None)
    rows = []
    for variant in ranked:
        mean, half = variant.mean, variant.half
        value = "" if mean is None else f"{mean:.{digits}f}"
        value += "" if half is None else f" ± {half:.{digits}f}"
        more = [_cell(variant, name, group.metric, digits) for name in columns]
        rows.append((printable(variant.name), value, *more, str(len(variant.values))))
    repeats = "folds" if are_folds(ranked) else "seeds"
    over = f"{group.unit} of {compared_figures(group)}{_condition(x, checkpoint)}, mean over {repeats}"
    notes = [f"Task {group.entries[0].task}: {over}."]
    if any(variant.interval for variant in ranked):
        test = "Student's t over seeds" if repeats == "seeds" else "the corrected resampled t-test over folds"
        notes.append(f"± is half of the {CONFIDENCE:.0%} interval of the mean by {test}, not a standard deviation.")
    if best is not None:
        notes.append("Bold: significantly better than every other row (95% intervals over all pairs).")
    elif len(rows) > 1:
        notes.append("No row is significantly better than every other one, so none is bold.")
    else:
        notes.append("A single variant: nothing is compared.")
    single = sum(len(variant.values) == 1 for variant in ranked)
    if single:
        words = "1 row is" if single == 1 else f"{single} rows are"
        notes.append(f"{words} of one seed: the spread over seeds is unknown there.")
    if number > 1:
        notes.append(f"Not to be compared with the first table: {'; '.join(group.reason)}.")
    slow = [variant.left_out for variant in ranked]
    for note in filter(None, [group.refusal, group.across, *slow, *group.notes]):
        notes.append(f"{note[:1].upper()}{note[1:]}.")
    # Their names and reasons are too long for a caption; the terminal and --json have them.
    if conclusion.remarks:
        notes.append(f"Left out: {len(conclusion.remarks)} runs or kinds of runs that do not count.")
    if "test" in columns and group.split != "test":
        notes.append(f"Test: the newest results that evaluate recorded for the best checkpoints, mean over {repeats}.")
    words = {**WORDS, "test": f"{group.unit} of test"}
    better = "higher" if group.mode == "max" else "lower"
    head = f"{group.unit} of {group.split} ({better} is better)"
    heads = ("variant", head, *(words[COLUMNS[name]] for name in columns), repeats)
    return PaperTable(heads, tuple(rows), tuple(map(printable, notes)), best)


def _cell(variant: Variant, name: str, metric: str, digits: int) -> str:
    """Return a further cell of a row; empty if a run that counts has not recorded the quantity."""
    column = COLUMNS[name]
    if column == "test":
        mean = held_out_mean(variant.counted, metric)
        return "" if mean is None else f"{mean:.{digits}f}"
    cost = cost_of(variant, column)
    return "" if cost is None else quantity(cost)


def _condition(x: Axis | None, checkpoint: Checkpoint) -> str:
    """Return the point in training at which the values were taken, in words."""
    words = ""
    if checkpoint == "best":
        words += ", the best validation of each run"
    if x is not None:
        words += f", at equal {COSTS[x]}"
    return words


def _digits(ranked: Sequence[Variant]) -> int:
    """Return the decimal places of all rows: two significant digits of the widest interval.

    Return more if rounding would make different means equal, or an interval 0.
    """
    means = {variant.mean for variant in ranked if variant.mean is not None}
    halves = {variant.half for variant in ranked if variant.half}
    # More digits than the widest interval supports would be noise.
    if halves:
        digits = decimals(max(halves))
    else:
        digits = decimals(max(map(abs, means), default=1.0), SIGNIFICANT_DIGITS)
    while digits < MAX_DECIMALS and _hides(means, halves, digits):
        digits += 1
    return digits


def _hides(means: set[float], halves: set[float], digits: int) -> bool:
    """Return True if this many digits make different means look equal, or an interval 0."""
    printed = {f"{mean:.{digits}f}" for mean in means}
    vanished = any(not float(f"{half:.{digits}f}") for half in halves)
    return vanished or len(printed) < len(means)


def _escaped(text: str, marks: dict[str, str]) -> str:
    """Escape each mark of the text, in one pass, so that no replacement is escaped again."""
    pattern = "[" + re.escape("".join(marks)) + "]"
    return re.sub(pattern, lambda found: marks[found[0]], text)
