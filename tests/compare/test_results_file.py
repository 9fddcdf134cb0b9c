"""`seqtrain compare --from FILE`: the verdict on anybody's numbers is that on runs, and bad files are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import seqtrain
from seqtrain.cli.main import main
from seqtrain.compare.entries import read
from seqtrain.compare.results_file import read_results
from seqtrain.compare.verdict import conclusions
from tests.support import fake_runs

VARIANTS = {"lstm": (0.91, 0.92, 0.93), "gru": (0.85, 0.85, 0.87)}
ROWS = [(name, seed, value) for name, values in VARIANTS.items() for seed, value in enumerate(values, 1)]
UNLIKE = [(name, seed, value + seed / 1000) for name, seed, value in ROWS]  # equal numbers of two runs count once
PLAIN = "".join(f"{name},{seed},{value}\n" for name, seed, value in ROWS)
OPTIONS = ("--metric", "accuracy", "--better", "max")
SETS = "data,variant,seed,loss\n" + "".join(
    f"{data},{name},{seed},{loss + seed / 10}\n"
    for data, name, loss in (("a", "lstm", 1), ("a", "gru", 2), ("b", "lstm", 3), ("b", "gru", 2))
    for seed in (1, 2)
)

FAULTS: dict[str, tuple[str, str]] = {
    "no column": ("variant,sed,accuracy\nlstm,1,1\n", "r.csv: no column seed in its first line; did you mean sed?"),
    "no metric": ("variant,seed,acuracy\nlstm,1,1\n", "r.csv: no column accuracy in its first line; did you mean"),
    "semicolons": ("variant;seed;accuracy\nlstm;1;1\n", "r.csv: no column variant in its first line; known: variant;"),
    "a column twice": ("variant,seed,accuracy,seed\nlstm,1,1,1\n", "r.csv: two columns seed; rename one"),
    "a seed twice": (
        "variant,seed,accuracy\nlstm,1,1\ngru,1,1\nlstm,1,2\n",
        "r.csv:4: variant lstm has seed 1 in line",
    ),
    "01": ("variant,seed,accuracy\nlstm,1,1\ngru,1,1\nlstm,01,2\n", "r.csv:4: variant lstm has seed 1 in line 2"),
    "1.0": ("variant,seed,accuracy\nlstm,1,1\ngru,1,1\nlstm,1.0,2\n", "r.csv:4: variant lstm has seed 1 in line 2"),
    "a word": ("variant,seed,accuracy\nlstm,1,n/a\ngru,1,1\n", "r.csv:2: accuracy is n/a, not a finite number"),
    "nan": ("variant,seed,accuracy\ngru,1,1\nlstm,1,nan\n", "r.csv:3: accuracy is nan, not a finite number"),
    "inf": ("variant,seed,accuracy\ngru,1,1\nlstm,1,1e999\n", "r.csv:3: accuracy is 1e999, not a finite number"),
    "nothing": ("variant,seed,accuracy\ngru,1,\nlstm,1,1\n", "r.csv:2: accuracy is empty, not a finite number"),
    "a cost": ("variant,seed,accuracy,flops\ngru,1,1,many\nlstm,1,1,2\n", "r.csv:2: flops is many, not a finite"),
    "no seed": ("variant,seed,accuracy\ngru,1,1\nlstm,,1\n", "r.csv:3: seed is empty"),
    "no variant": ("variant,seed,accuracy\ngru,1,1\n,1,1\n", "r.csv:3: variant is empty"),
    "one variant": ("variant,seed,accuracy\ngru,1,1\ngru,2,1\n", "r.csv: gru is the only variant; a comparison needs"),
    "no rows": ("variant,seed,accuracy\n", "r.csv: has a header and no rows"),
    "no text": ("", "r.csv: is empty"),
    "a long row": ("variant,seed,accuracy\ngru,1,1,1\n", "r.csv:2: not as many fields as the header has (3)"),
    "a short row": ("variant,seed,accuracy\ngru,1\n", "r.csv:2: not as many fields as the header has (3)"),
    "an open quote": ('variant,seed,accuracy\ngru,"1,1\n', "r.csv: not a CSV file in UTF-8 (unexpected end of data)"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the file r.csv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text(f"variant,seed,accuracy\n{PLAIN}")
    return tmp_path


def compared(content: str | bytes, *words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The answer of the command on a file in the working folder with this content."""
    Path("r.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    assert main(["compare", "--from", "r.csv", *words]) == 0
    return capsys.readouterr().out


def test_the_verdict_on_a_file_is_that_on_runs_with_its_numbers(folder: Path) -> None:
    sizes = {"lstm": 2000, "gru": 2560}
    for name, seed, value in UNLIKE:
        total = {"total": sizes[name]}
        fake_runs.run(folder / f"runs/{name}{seed}", value, model=name, seed=seed, metric="accuracy", parameters=total)
    of_runs = conclusions(read([folder / "runs"]), metric="accuracy")
    rows = [f"{name},{seed},{value},1000,50,10,6e6,{sizes[name]}\n" for name, seed, value in UNLIKE]
    head = "variant,seed,accuracy,tokens,steps,seconds,flops,parameters\n"
    (folder / "r.csv").write_text(head + "".join(rows))
    entries, _ = read_results(Path("r.csv"), "accuracy", "max")
    (found,) = conclusions(entries, metric="accuracy")
    assert found.sentences == of_runs[0].sentences
    assert "lstm beats gru by 0.063 accuracy" in found.sentences[0]
    assert "0.78 times the parameters" in found.sentences[0]


def test_line_ends_order_of_columns_marks_and_further_columns_change_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = compared(f"variant,seed,accuracy\n{PLAIN}", *OPTIONS, capsys=capsys)
    windows = f"variant,seed,accuracy\n{PLAIN}".replace("\n", "\r\n").encode()
    assert compared(windows, *OPTIONS, capsys=capsys) == plain
    assert compared(b"\xef\xbb\xbf" + windows, *OPTIONS, capsys=capsys) == plain
    spaced = f"variant,seed,accuracy\n{PLAIN}\n".replace(",", ", ")
    assert compared(spaced, *OPTIONS, capsys=capsys) == plain
    rows = [f'{value},"date, {value}",{seed},{name}\n' for name, seed, value in ROWS]
    assert compared("accuracy,note,seed,variant\n" + "".join(rows), *OPTIONS, capsys=capsys) == plain


def test_the_column_metric_is_read_unless_another_one_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = compared(f"variant,seed,metric\n{PLAIN}", "--better", "max", capsys=capsys)
    assert "lstm beats gru by 0.063 metric" in named
    assert "gru beats lstm" in compared(f"variant,seed,metric\n{PLAIN}", "--better", "min", capsys=capsys)


def test_a_bad_file_is_refused_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latin = "variant,seed,accuracy\nä,1,1\n".encode("latin-1")
    faults = {name: (content.encode(), says) for name, (content, says) in FAULTS.items()}
    for name, (content, says) in {**faults, "latin-1": (latin, "r.csv: not a CSV file in UTF-8")}.items():
        (folder / "r.csv").write_bytes(content)
        assert main(["compare", "--from", "r.csv", *OPTIONS]) == 2, name
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {says}"), name


def test_two_seeds_or_two_variants_of_equal_numbers_are_not_taken_for_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = json.loads(compared(f"variant,seed,accuracy\n{PLAIN}", *OPTIONS, "--json", capsys=capsys))
    (group,) = answer["groups"]
    assert [len(variant["values"]) for variant in group["variants"]] == [3, 3]
    assert group["caveats"] == []
    ones = "".join(f"{name},{seed},1\n" for name, seed, _ in ROWS)
    (group,) = json.loads(compared(f"variant,seed,accuracy\n{ones}", *OPTIONS, "--json", capsys=capsys))["groups"]
    assert group["caveats"] == []
    assert group["verdict"][0].startswith("no conclusion")


def test_nothing_is_said_of_costs_that_the_file_does_not_have(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = compared(f"variant,seed,accuracy\n{PLAIN}", *OPTIONS, capsys=capsys)
    assert "cost" not in answer
    heads = [" ".join(line.split()) for line in answer.splitlines() if line.startswith(("run", "variant"))]
    assert heads == ["run variant seed accuracy", "variant seeds mean accuracy 95 % interval sd"]


def test_where_chooses_rows_before_a_seed_counts_as_given_twice_and_by_sets_them_apart(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--metric", "loss", "--better", "min")
    chosen = compared(SETS, *words, "--where", "data=b", capsys=capsys)
    assert "gru beats lstm by 1.00 loss" in chosen
    assert "hides" not in chosen
    hidden = compared(SETS, *words, "--where", "data=b", "--where", "seed!=1", capsys=capsys)
    assert "--where hides 2 finished runs of the same variants" in hidden
    apart = compared(SETS, *words, "--by", "data", capsys=capsys)
    assert "at data a against data b: lstm data=a beats lstm data=b by 2.00 loss" in apart


def test_against_target_and_the_table_for_a_paper_take_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = compared(f"variant,seed,accuracy\n{PLAIN}", *OPTIONS, "--target", "0.9", "--against", "gru", capsys=capsys)
    assert "target 0.9: no conclusion: gru 0.8567 accuracy" in answer
    assert "lstm beats gru by 0.063 accuracy" in answer
    paper = compared(f"variant,seed,accuracy\n{PLAIN}", *OPTIONS, "--markdown", capsys=capsys)
    assert "| **0.920** ± 0.025 | 3 |" in paper
    assert "accuracy of r.csv (higher is better)" in paper


def test_the_frame_of_a_comparison_is_read_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed, value in UNLIKE:
        fake_runs.run(folder / f"runs/{name}{seed}", value, model=name, seed=seed, metric="loss")
    found = seqtrain.compare(folder / "runs", metric="loss")
    answer = compared(found.runs.to_csv(index=False), "--metric", "value", "--better", "min", capsys=capsys)
    assert found.verdict[0].replace("nats a token", "value") in answer
