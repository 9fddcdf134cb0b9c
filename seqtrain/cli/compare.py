"""`seqtrain compare`: a table of runs, and the conclusions that it supports."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seqtrain.cli.arguments import Parser, bounded
from seqtrain.cli.evaluate import evaluate
from seqtrain.compare import held_out, paper_table, records, table
from seqtrain.compare.entries import AXES, few, read
from seqtrain.compare.filters import chosen, hidden_by
from seqtrain.compare.groups import groups
from seqtrain.compare.pareto import COSTS
from seqtrain.compare.results_file import read_results
from seqtrain.compare.verdict import conclusions
from seqtrain.config.ranges import Range
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError, did_you_mean
from seqtrain.files.atomic import plain_json, write_text
from seqtrain.files.untrusted import check_output

if TYPE_CHECKING:
    from seqtrain.compare.entries import Checkpoint, Entry
    from seqtrain.compare.verdict import Conclusion


STDOUT = "-"
ANY = Range(-1e300, 1e300)  # what a metric can be


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "compare",
        "Compare runs: a table, and a verdict over seeds, with intervals that hold for all pairs at once. Runs whose "
        "numbers are not comparable, such as runs on different data, are shown in separate groups.",
        "seqtrain compare outputs/2026-11-21_04-14-14_sweep --x tokens --html report.html",
    )
    parser.add_argument("paths", nargs="*", metavar="RUN|SWEEP", help="runs, sweeps, or folders of them")
    parser.add_argument(
        "--from",
        dest="file",
        type=Path,
        metavar="FILE",
        help="instead of runs: a CSV file with columns variant, seed, metric",
    )
    parser.add_argument(
        "--better", choices=("min", "max"), help="with --from: whether a smaller or a larger value is better"
    )
    parser.add_argument("--metric", metavar="NAME", help="metric to compare; default: the task's own")
    parser.add_argument("--x", choices=AXES, help="compare at the largest x that all finished runs have reached")
    parser.add_argument("--best", action="store_true", help="compare each run's best validation instead of its last")
    parser.add_argument("--against", metavar="VARIANT", help="compare all others with this variant instead of the best")
    parser.add_argument("--target", type=bounded(ANY), metavar="VALUE", help="list the variants that reach this value")
    parser.add_argument(
        "--where", action="append", default=[], metavar="KEY=VALUE", help="only runs with this value; also != > >= < <="
    )
    parser.add_argument("--sort", metavar="KEY", help="sort runs by a column; -KEY: the largest first")
    parser.add_argument(
        "--across",
        action="append",
        default=[],
        metavar="KEY[,KEY]",
        help="compare runs although they differ in this condition",
    )
    parser.add_argument(
        "--by",
        action="append",
        default=[],
        metavar="KEY[,KEY]",
        help="separate variants by commit, label, tag or a key of the config",
    )
    parser.add_argument(
        "--split",
        default="validation",
        choices=("validation", "test"),
        help="test: compare the results that `evaluate --split test` has recorded",
    )
    parser.add_argument(
        "--checkpoint",
        choices=("best", "last"),
        help="with --split test: the checkpoint that was evaluated; default: best",
    )
    parser.add_argument("--test-set", metavar="NAME", help="with --split test: a name in data.test_paths")
    parser.add_argument(
        "--pareto", action="append", default=[], choices=COSTS, help="show the Pareto front of metric and this cost"
    )
    parser.add_argument("--csv", metavar="FILE", help="write the table with all its columns; - is standard output")
    parser.add_argument("--html", metavar="FILE", help="write a page that opens from disk")
    parser.add_argument(
        "--latex", action="store_true", help="print a table for a paper instead (booktabs), one per group"
    )
    parser.add_argument("--markdown", action="store_true", help="the same in Markdown")
    parser.add_argument(
        "--columns",
        type=_columns,
        default=[],
        metavar="NAME[,NAME]",
        help=f"with --latex, --markdown, --csv: further columns, in the order given: {', '.join(paper_table.COLUMNS)}",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="write --latex or --markdown to this file, not to standard output"
    )
    parser.add_argument(
        "--paired",
        action="store_true",
        help="compare two runs example by example; the result does not cover other seeds",
    )
    options = parser.parse_args(_join_sort(argv))
    _check(options)
    left_out: list[str] = []
    where = options.where
    if options.file is not None:
        found, where = read_results(options.file, options.metric, options.better, where=where, by=options.by)
    else:
        found = read(options.paths, left_out)
    entries = chosen_ones = chosen(found, where)
    untested: list[str] = []
    if options.split == "test":
        entries, untested = held_out.with_results(entries, options.checkpoint or "best", options.test_set)
    if options.paired:
        return _paired(entries, options)
    return _compare(entries, hidden_by(found, chosen_ones), left_out, untested, options)


def _columns(text: str) -> list[str]:
    """Return the names of further columns, each once; refuse an unknown one."""
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in paper_table.COLUMNS:
            raise ArgumentTypeError(f"{name!r} is not a column{did_you_mean(name, paper_table.COLUMNS)}")
    return names


def _check(options: Namespace) -> None:
    """Raise UserError for options that contradict each other, or have no effect beside the others."""
    for holds, fault in _contradictions(options):
        if holds:
            raise UserError(fault)
    for option in ("csv", "html", "output"):  # now, not after the runs have been read
        if vars(options)[option] not in (None, STDOUT):
            check_output(f"--{option}", Path(vars(options)[option]))


def _contradictions(options: Namespace) -> Iterator[tuple[bool, str]]:
    """Yield conditions on the options, each with the message of the case that it holds."""
    test, csv_out = options.split == "test", options.csv == STDOUT
    paper = "--latex" if options.latex else "--markdown" if options.markdown else ""
    yield options.html == STDOUT, "--html -: a page is opened from a file; name one, such as report.html"
    yield csv_out and options.json, "--csv -: --json writes to standard output, too; give --csv a file, or drop one"
    yield (
        bool(options.columns) and not (paper or options.csv),
        "--columns: applies to --latex, --markdown and --csv only; add one of them",
    )
    alone = "selects test results; add --split test"
    yield not test and options.checkpoint is not None, f"--checkpoint: {alone}, or use --best"
    yield not test and options.test_set is not None, f"--test-set: {alone}"
    yield test and options.x is not None, "--split test: test is measured at one checkpoint only; leave --x out"
    yield test and options.best, "--best: test results are of the best checkpoint already; leave it out"
    yield test and options.paired, "--paired: compares on the validation split; leave --split test out"
    yield (
        test and options.html is not None,
        "--html: its table of runs shows test results already; leave --split test out",
    )
    yield (
        options.output is not None and not paper,
        "--output: takes the table of --latex or --markdown; add one of them",
    )
    yield options.latex and options.markdown, "--latex, --markdown: a table is written in one of them; drop the other"
    yield (
        bool(paper and options.pareto) and options.csv is None,
        f"--pareto: has no effect on the table of {paper}; leave it out, or add --csv FILE",
    )
    yield bool(paper) and options.paired, f"--paired: answers in one sentence, not in a table; leave {paper} out"
    other = "--json" if options.json else "--csv -"
    yield (
        bool(paper) and options.output is None and (options.json or csv_out),
        f"{paper}: {other} writes to standard output, too; add --output FILE, or leave one out",
    )
    yield (
        not options.paths and options.file is None,
        "seqtrain compare: name runs, sweeps or folders of them, or a file by --from; see `seqtrain compare --help`",
    )
    yield (
        bool(options.paths) and options.file is not None,
        f"--from {options.file}: replaces runs; leave one of them out",
    )
    yield (
        options.better is not None and options.file is None,
        "--better: applies to --from only; runs record their direction; leave it out",
    )
    for name in ("x", "best", "html", "across", "checkpoint", "test_set", "paired"):
        if options.file is not None and vars(options)[name]:
            yield (
                True,
                f"--{name.replace('_', '-')}: needs runs, and --from {options.file} has only numbers; leave it out",
            )
    yield options.file is not None and test, "--split test: needs runs; the numbers of --from have no splits"
    for name in ("x", "against", "target", "sort", "csv", "html", "by", "pareto"):
        unused = options.paired and vars(options)[name] not in (None, [])
        yield unused, f"--paired: answers in one sentence, which --{name} does not change; leave one of them out"


def _compare(
    entries: list[Entry], hidden: list[Entry], left_out: list[str], untested: list[str], options: Namespace
) -> int:
    checkpoint: Checkpoint = "best" if options.best else "final"
    results = conclusions(
        entries,
        metric=options.metric,
        x=options.x,
        checkpoint=checkpoint,
        across=options.across,
        against=options.against,
        target=options.target,
        by=options.by,
        hidden=hidden,
        untested=len(untested),
    )
    absent = table.not_run(options.paths)
    missing = left_out + absent + untested
    if options.csv is not None:
        beside = [paper_table.COLUMNS[name] for name in options.columns]
        _write_text(
            options.csv, records.as_csv(records.rows(results, sort=options.sort, costs=options.pareto, beside=beside))
        )
    if options.html is not None:
        _write_page(results, missing, options, checkpoint)
    if options.latex or options.markdown:
        _write_paper(results, options, checkpoint)
    if options.json:
        print(plain_json(records.record(results, sort=options.sort) | {"not_run": missing}))
    elif options.csv != STDOUT and not (options.latex or options.markdown):
        print(
            "\n".join(
                [
                    table.text(results, missing=absent, sort=options.sort, x=options.x, costs=options.pareto),
                    *left_out,
                    *few(untested),
                ]
            )
        )
    else:
        for line in missing:  # on standard error: a program may read the table
            say(line)
    return 0


def _write_paper(results: list[Conclusion], options: Namespace, checkpoint: Checkpoint) -> None:
    """Write the tables for a paper."""
    draw = paper_table.latex if options.latex else paper_table.markdown
    text = draw(paper_table.tables(results, x=options.x, checkpoint=checkpoint, columns=options.columns))
    _write_text(options.output or STDOUT, text)


def _write_page(results: list[Conclusion], missing: list[str], options: Namespace, checkpoint: Checkpoint) -> None:
    """Write the page on these groups."""
    from seqtrain.compare.page import report

    title = ", ".join(options.paths)
    report.write(Path(options.html), results, title=title, missing=missing, x=options.x, checkpoint=checkpoint)
    say(f"wrote {options.html}")


def _paired(entries: list[Entry], options: Namespace) -> int:
    """Compare two runs at their best checkpoints, example by example or chunk by chunk."""
    if len(entries) != 2:
        raise UserError(f"--paired: needs two runs, not {len(entries)}; name two, or choose them by --where")
    # Runs that a table would show in separate groups are refused here, too.
    group, *others = groups(entries, metric=options.metric, across=options.across)
    if others:
        why = filter(None, [*others[0].reason, others[0].remedy])
        raise UserError(f"--paired: the two runs are not comparable: {'; '.join(why)}")
    if group.refusal:
        raise UserError(f"--paired: {group.refusal}")
    # These import torch. All other comparisons read only what runs have written, and do without it.
    from seqtrain.compare import paired_bootstrap
    from seqtrain.training.callbacks.per_batch_metrics import PerBatchMetrics

    recorders = [PerBatchMetrics(), PerBatchMetrics()]
    kind = ""
    for entry, recorder in zip(entries, recorders, strict=True):
        # Batch size 1: the bootstrap resamples batches, and more of them narrow the interval.
        result = evaluate(str(entry.path), "validation", "best", 1, callbacks=[recorder])
        kind = "examples" if result["examples"] else "chunks of a lane"  # the same for both: they share a task
    one, other = recorders
    measure = one.measure or dict
    interval = paired_bootstrap.bootstrap(one.batches, other.batches, lambda totals: measure(totals)[group.metric])
    names = [entry.name for entry in entries]
    verdict = paired_bootstrap.verdict(names, interval, group, len(one.batches), kind)
    if group.across:
        verdict = f"{group.across}\n{verdict}"
    if options.json:
        record = {"runs": names, "metric": group.metric, "batches": len(one.batches), "verdict": verdict}
        print(plain_json(record | dict(zip(("difference", "low", "high"), interval, strict=True))))
    else:
        print(verdict)
    return 0


def _join_sort(argv: list[str]) -> list[str]:
    """Join `--sort -tokens` into one argument; argparse would take -tokens for an option."""
    if "--sort" in argv[:-1]:
        at = argv.index("--sort")
        return [*argv[:at], f"--sort={argv[at + 1]}", *argv[at + 2 :]]
    return argv


def _write_text(path: str, text: str) -> None:
    if path == STDOUT:
        sys.stdout.write(text)
        return
    try:
        write_text(Path(path), text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}; give another file") from None
    say(f"wrote {path}")
