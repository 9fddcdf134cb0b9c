"""Tables for a paper: what is bold was shown to be best, unlike numbers look unlike, and LaTeX prints every name."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from seqtrain.cli.main import main
from seqtrain.compare import paper_table
from seqtrain.compare.entries import read
from seqtrain.compare.paper_table import PaperTable
from seqtrain.compare.verdict import conclusions
from tests.support import fake_runs

CLEAR = {"lstm": (1.5, 1.51, 1.52), "gpt": (1.63, 1.62, 1.64)}


def tables(folder: Path, variants: Mapping[str, Sequence[float]], **options: Any) -> list[PaperTable]:
    fake_runs.sweep(folder / "s", variants)
    return paper_table.tables(conclusions(read([folder]), **options), **options)


def rows(folder: Path, variants: Mapping[str, Sequence[float]]) -> tuple[dict[str, str], str | None]:
    """Means with half of their intervals by variant, and the variant in bold."""
    (table,) = tables(folder, variants)
    best = None if table.best is None else table.rows[table.best][0]
    return {row[0]: row[1] for row in table.rows}, best


def test_a_row_has_the_mean_half_of_its_interval_and_its_seeds(tmp_path: Path) -> None:
    (table,) = tables(tmp_path, CLEAR)
    assert table.heads == ("variant", "bits per byte of validation (lower is better)", "seeds")
    # Student's t of two degrees of freedom, 4.303, times 0.01 / sqrt(3).
    assert table.rows == (("lstm", "1.510 ± 0.025", "3"), ("gpt", "1.630 ± 0.025", "3"))
    assert any("± is half of the 95% interval" in note and "not a standard deviation" in note for note in table.notes)
    (table,) = tables(tmp_path / "best", CLEAR, checkpoint="best", x="tokens")
    assert "of validation, the best validation of each run, at equal tokens, mean over seeds." in table.notes[0]


def test_best_is_bold_only_where_the_verdict_shows_it(tmp_path: Path) -> None:
    assert rows(tmp_path / "clear", CLEAR)[1] == "lstm"
    assert rows(tmp_path / "near", {"lstm": (1.5, 1.51, 1.52), "gpt": (1.51, 1.52, 1.53)})[1] is None
    assert rows(tmp_path / "tie", CLEAR | {"gru": (1.505, 1.51, 1.52)})[1] is None


def test_one_seed_has_no_interval_and_neither_beats_nor_is_beaten(tmp_path: Path) -> None:
    (table,) = tables(tmp_path, CLEAR | {"gru": (9.0,)})
    assert [row[1] for row in table.rows if row[-1] == "1"] == ["9.000"]
    assert table.best is None
    assert "1 row is of one seed: the spread over seeds is unknown there." in table.notes
    assert "No row is significantly better than every other one, so none is bold." in table.notes


def test_unlike_means_are_not_rounded_alike_and_a_small_interval_is_not_printed_as_0(tmp_path: Path) -> None:
    found, best = rows(tmp_path / "near", {"lstm": (1.0, 2.0, 3.0), "gpt": (1.0001, 2.0001, 3.0001)})
    assert found["lstm"].split()[0] != found["gpt"].split()[0]
    assert best is None
    found, _ = rows(tmp_path / "narrow", {"lstm": (1.0, 2.0, 3.0), "gpt": (1.5, 1.50001, 1.50002)})
    assert float(found["gpt"].split()[-1]) > 0


def test_runs_that_do_not_compare_stand_in_a_table_each_with_the_reason(tmp_path: Path) -> None:
    fake_runs.sweep(tmp_path / "a", CLEAR)
    other = fake_runs.HASHES | {"validation": "0" * 32}
    fake_runs.sweep(tmp_path / "b", {"gru": (0.1, 0.11, 0.12)}, hashes=other)
    made = paper_table.tables(conclusions(read([tmp_path])))
    assert [[row[0] for row in table.rows] for table in made] == [["lstm", "gpt"], ["gru"]]
    assert any(note.startswith("Not to be compared with the first table: other valid") for note in made[1].notes)
    assert paper_table.latex(made).count(r"\begin{table}") == 2


NASTY = r"a_b%c&d$e#f{g}h~i^j\k<l>|m*n`o[p]" + '"q'


def nasty(name: str = NASTY) -> PaperTable:
    rows = ((name, "1.5 ± 0.1", "3"), ("x", "-2.0", "1"))
    return PaperTable(("variant", name, "seeds"), rows, (name,), best=0)


def test_latex_takes_no_character_of_a_name_for_a_command() -> None:
    text = paper_table.latex([nasty()])
    escaped = paper_table._escaped(NASTY, paper_table.LATEX)
    assert text.count(escaped) == 3
    left = re.sub(r"\\text\w+\{\}|\\symbol\{34\}|\\[&%$#_{}]", "", escaped)
    assert not set(left) & set('&%$#_{}~^\\<>|"')
    assert r"\textbf{1.5} $\pm$ 0.1 & 3 \\" in text
    assert r"x & $-$2.0 & 1 \\" in text
    assert "lualatex" not in paper_table.latex([nasty("größe é")])
    assert "lualatex" in paper_table.latex([nasty("größe 中")])


def test_markdown_takes_no_character_of_a_name_for_a_mark() -> None:
    text = paper_table.markdown([nasty()])
    lines = text.splitlines()
    for line in lines[:4]:
        assert len(re.findall(r"(?<!\\)\|", line)) == 4  # columns as many as there are
    assert "**1.5** ± 0.1" in lines[2]
    assert not re.search(r"<|>|(?<!\\)[`\[\]$]", text)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_sets_the_table(tmp_path: Path) -> None:
    body = paper_table.latex([nasty()])
    head = "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n"
    (tmp_path / "t.tex").write_text(f"{head}{body}\\end{{document}}\n", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False).returncode == 0


def test_a_table_goes_to_standard_output_or_into_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep, file = fake_runs.sweep(tmp_path / "s", CLEAR), tmp_path / "table"
    for option in ("--latex", "--markdown"):
        assert main(["compare", str(sweep), option]) == 0
        out = capsys.readouterr().out
        assert "1.510" in out
        assert " beats " not in out  # nothing of what is for the terminal
        assert main(["compare", str(sweep), option, "--output", str(file)]) == 0
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("", f"wrote {file}\n")
        assert file.read_text(encoding="utf-8") == out


def test_a_table_of_test_figures_says_what_spoils_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = fake_runs.sweep(tmp_path / "s", CLEAR)
    for number in range(5):
        fake_runs.evaluated(sweep / f"{number:03d}", 2.0 + number)
        fake_runs.evaluated(sweep / f"{number:03d}", 2.0 + number)
    assert main(["compare", str(sweep), "--markdown", "--split", "test"]) == 0
    text = capsys.readouterr().out
    assert "| variant | bits per byte of test (lower is better) | seeds |" in text
    assert "bits per byte of test (best checkpoint), mean over seeds." in text
    assert "Test split evaluated 2 times in each run" in text
    assert "1 run was left out: no test results." in text


def test_columns_stand_beside_the_metric_in_the_order_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = fake_runs.sweep(tmp_path / "s", CLEAR)
    for number in range(5):  # of six: one seed of gpt has no test figure
        fake_runs.evaluated(sweep / f"{number:03d}", 2.0 + number)
    names = "params,flops,seconds,test"
    printed = []
    for option in ("--markdown", "--latex"):
        assert main(["compare", str(sweep), option, "--columns", names]) == 0
        printed.append([re.split(r" [|&] ", line.strip(" |\\\n")) for line in capsys.readouterr().out.splitlines()])
    for lines, unknown in zip(printed, ("-", "--"), strict=True):
        by_name = {line[0]: line for line in lines}
        assert by_name["variant"][2:] == ["parameters", "FLOPs", "seconds", "bits per byte of test", "seeds"]
        assert by_name["lstm"][2:] == ["2.56k", "6M", "10", "3.000", "3"]
        assert by_name["gpt"][2:] == ["2.56k", "6M", "10", unknown, "3"]
    assert main(["compare", str(sweep), "--csv", "-", "--columns", names]) == 0
    columns = capsys.readouterr().out.splitlines()[0].split(",")
    start = columns.index("best") + 1
    assert columns[start : start + 4] == ["parameters", "flops", "seconds", "test"]
    # Figures of a run that went on since are left out.
    fake_runs.evaluated(fake_runs.run(tmp_path / "a"), 2.0, step=25)
    assert main(["compare", str(tmp_path / "a"), "--markdown", "--columns", "test"]) == 0
    assert "| - | 1 |" in capsys.readouterr().out
