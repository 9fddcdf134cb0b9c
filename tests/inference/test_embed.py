"""Laws of embeddings and of search: pooling, batches, the file, and what is nearest."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

from seqtrain import UserError
from seqtrain.cli import embed, lines, main
from seqtrain.inference.embedding import TopK
from seqtrain.models.base import Capability
from seqtrain.tasks.output import TextPool
from tests.support.untrained_runs import MASKED, NEXT_TOKEN, SENTIMENT, STEP, TEXTS, TRANSLATION, double, make_run

CNN = ("task=masked_lm", "model=cnn", "model.causal=false", "tokenizer=char")
BOTH = ("task=sentiment", "model=lstm", "model.bidirectional=true", "tokenizer=char")
PREFIX = ("task=translation", "model=gpt", "tokenizer=char", "model.num_layers=2", "model.num_heads=2")
RUNS = {
    "bert": MASKED,
    "gru": SENTIMENT,
    "gpt": NEXT_TOKEN,
    "cnn": CNN,
    "lstm": BOTH,
    "prefix": PREFIX,
    "pair": TRANSLATION,
}
LINES = [*TEXTS, "a", "the street was slow " * 9]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: make_run(folder / name, *overrides) for name, overrides in RUNS.items()}


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command; gives exit code, standard output and standard error."""

    def run(*args: object) -> tuple[int, str, str]:
        rc = main.main([str(arg) for arg in args])
        return rc, *capsys.readouterr()

    return run


# -- vectors -----------------------------------------------------------------------------------------------------


def test_pooling_is_a_plain_loop_over_the_positions_of_each_text_alone(runs: dict[str, Path]) -> None:
    for name in RUNS:
        run = double(runs[name])
        before = [] if name in ("prefix", "pair") else [run.tokenizer.start]
        after = [] if name == "gpt" else [run.tokenizer.separator]
        pools: list[TextPool] = ["mean", "mean_all", "last"]
        pools += [] if Capability.CAUSAL in run.model.capabilities else ["cls"]
        together = {pool: run.embed(LINES * 6, pool=pool) for pool in pools}
        for number, text in enumerate(LINES):
            ids = run.tokenizer.encode(text).tolist()
            with torch.no_grad():
                hidden = run.model.encode(torch.tensor([[*before, *ids, *after]]))[0]
            mean = torch.stack([hidden[len(before) + place] for place in range(len(ids))]).mean(0)
            expected = {"mean": mean, "mean_all": hidden.mean(0), "last": hidden[-1], "cls": hidden[0]}
            for pool in pools:
                found = together[pool][number :: len(LINES)]
                torch.testing.assert_close(found, expected[pool].expand(6, -1), rtol=0, atol=1e-9, msg=f"{name} {pool}")


def test_what_a_model_does_not_have_is_refused(runs: dict[str, Path], call: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    nowhere = tmp_path / "none" / "out.parquet"
    refused = [
        (("gpt", tmp_path / "out.parquet", "--pool", "cls"), "--pool cls: the first position of model=gpt sees no"),
        (("pair", tmp_path / "out.parquet", "--pool", "cls"), "--pool cls: a source has no special token"),
        (("bert", nowhere), f"--output {nowhere}: no such folder"),
    ]
    for (name, output, *options), words in refused:
        rc, _, err = call("embed", runs[name], "--input", tmp_path / "in.txt", "--output", output, *options)
        assert (rc, err.count("\n")) == (2, 1)
        assert err.startswith(f"error: {words}")
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    with pytest.raises(UserError, match="text 2: contains no text"):
        double(runs["bert"]).embed(["a", ""])


# -- the file ----------------------------------------------------------------------------------------------------


def test_the_file_holds_the_vectors_of_the_good_lines_and_where_they_stand(
    runs: dict[str, Path], call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "GROUP", 2)
    source, target = tmp_path / "in.txt", tmp_path / "out.parquet"
    source.write_bytes("\n".join([*TEXTS[:2], "", *TEXTS[2:]]).encode() + b"\n\xff\n")
    rc, out, err = call("embed", runs["bert"], "--input", source, "--output", target, "--pool", "cls")
    assert (rc, out) == (2, "")
    assert err.splitlines()[:2] == [
        f"error: {source}:3: contains no text",
        f"error: {source}:6: byte 0 of the line is not UTF-8",
    ]
    table = parquet.read_table(target)
    assert table.schema.field("embedding").type == pyarrow.list_(pyarrow.float32())
    assert table.column("text").to_pylist() == TEXTS
    assert table.column("line").to_pylist() == [1, 2, 4, 5]
    expected = double(runs["bert"]).embed(TEXTS, pool="cls").float().numpy()
    np.testing.assert_allclose(np.array(table.column("embedding").to_pylist()), expected, rtol=0, atol=1e-5)
    stored = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    assert stored["seqtrain.step"] == str(STEP)
    assert stored["seqtrain.pool"] == "cls"


def test_a_command_that_breaks_or_finds_no_text_leaves_the_old_file(
    runs: dict[str, Path], call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.parquet"
    target.write_text("old")
    source.write_text("\n\n")
    rc, _, err = call("embed", runs["gru"], "--input", source, "--output", target)
    assert rc == 2
    assert "out.parquet: not written: no line of the input can be embedded" in err
    source.write_text("a\nb\nc\n")
    monkeypatch.setattr(embed, "GROUP", 1)
    sound, seen = embed.readable, []

    def breaking(*args: Any) -> Any:
        seen.append(args)
        if len(seen) == 3:
            raise RuntimeError
        return sound(*args)

    monkeypatch.setattr(embed, "readable", breaking)
    with pytest.raises(RuntimeError):
        embed.main([str(runs["gru"]), "--input", str(source), "--output", str(target)])
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.parquet"]


@pytest.mark.long
def test_memory_does_not_grow_with_the_file(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own memory, which holds every text that is kept; without the vectors, to be quick."""
    held: list[int] = []  # bytes, before each group; the first one also makes what is made once

    def first(trained: Any, lines: list[Any]) -> list[Any]:
        held.append(tracemalloc.get_traced_memory()[0])
        return lines[:1]

    monkeypatch.setattr(embed, "readable", first)
    monkeypatch.setattr(embed, "GROUP", 64)
    monkeypatch.setattr(lines, "CHUNK", 1 << 12)
    text = "the street was long, and that is all that there is to say\n" * 100 * embed.GROUP
    (tmp_path / "in.txt").write_text(text)
    tracemalloc.start()
    try:
        embed.main([str(runs["gru"]), "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.parquet")])
    finally:
        tracemalloc.stop()
    assert len(held) == 100
    assert held[-1] - held[10] < len(text) / 2


# -- search ------------------------------------------------------------------------------------------------------


def test_a_corpus_of_vectors_gives_what_its_texts_give(runs: dict[str, Path], call: Any, tmp_path: Path) -> None:
    source, vectors = tmp_path / "in.txt", tmp_path / "out.parquet"
    source.write_text("\n".join(LINES))
    assert call("embed", runs["bert"], "--input", source, "--output", vectors, "--pool", "last")[0] == 0
    of_texts = call("search", runs["bert"], "a slow film", "--corpus", source, "--pool", "last")
    of_vectors = call("search", runs["bert"], "a slow film", "--corpus", vectors)
    assert of_texts == of_vectors
    assert of_texts[1].count("\n") == 5
    for number, text in enumerate(LINES, 1):
        found = call("search", runs["bert"], text, "--corpus", vectors, "--json", "--top-k", 3)[1].splitlines()
        first, second, third = (json.loads(line) for line in found)
        assert (first["text"], first["line"], first["score"]) == (text, number, pytest.approx(1, abs=1e-6))
        assert first["score"] > second["score"] >= third["score"]


def test_vectors_of_another_run_step_or_pool_are_refused(runs: dict[str, Path], call: Any, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    vectors, later = tmp_path / "out.parquet", tmp_path / "later.parquet"
    call("embed", runs["gru"], "--input", tmp_path / "in.txt", "--output", vectors)
    table = parquet.read_table(vectors)
    metadata = {**table.schema.metadata, b"seqtrain.step": b"8"}
    parquet.write_table(table.replace_schema_metadata(metadata), later)
    for name, options, words in (
        ("bert", (vectors,), f"they are of run {runs['gru'].resolve()}, not {runs['bert'].resolve()}"),
        ("gru", (vectors, "--pool", "last"), "they are of pool mean, not last;"),
        ("gru", (later,), f"they are of step 8, not {STEP};"),
    ):
        rc, _, err = call("search", runs[name], "a", "--corpus", *options)
        assert rc == 2
        assert words in err


def test_a_corpus_that_is_none_is_named(runs: dict[str, Path], call: Any, tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "other.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    for name, reason in (
        ("none.txt", "No such file or directory"),
        ("other.parquet", "not made by `seqtrain embed`"),
        ("torn.parquet", "not a parquet file that can be read"),
    ):
        rc, out, err = call("search", runs["gru"], "a", "--corpus", tmp_path / name)
        assert (rc, out, err.count("\n")) == (2, "", 1)
        assert name in err
        assert reason in err
    (tmp_path / "in.txt").write_bytes(b"a film\n\xff\n")
    rc, out, err = call("search", runs["gru"], "a", "--corpus", tmp_path / "in.txt")
    assert (rc, out.count("\n"), err.count("\n")) == (2, 1, 1)


def test_the_nearest_of_many_groups_are_those_of_all_and_of_equals_the_first() -> None:
    vectors = torch.randn(200, 4, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    vectors[150] = 3 * vectors[20]  # the same direction
    vectors[60] = 0
    query = vectors[20] + 0.01
    scores = [float(v @ query / v.norm() / query.norm()) if v.norm() else 0.0 for v in vectors]
    nearest = TopK(query, 10)
    for begin in range(0, 200, 7):
        nearest.add(vectors[begin : begin + 7], range(begin, min(begin + 7, 200)))
    expected = sorted(range(200), key=lambda index: (-round(scores[index], 12), index))[:10]
    assert sorted(index for _, index in nearest.best) == sorted(expected)
    assert [score for score, _ in nearest.best] == pytest.approx([scores[index] for index in expected])
    twin = TopK(query, 2)
    twin.add(query.repeat(3, 1), ["first", "second", "third"])
    assert [text for _, text in twin.best] == ["first", "second"]


# -- corpora of vectors that `embed` would not have written -------------------------------------------------------

Table = Any  # of pyarrow, which has no types


def column(name: str, change: Callable[[list], list], kind: Any = None) -> Callable[[Table], Table]:
    """Puts other values in a column's place."""

    def changed(table: Table) -> Table:
        values = pyarrow.array(change(table.column(name).to_pylist()), kind or table.schema.field(name).type)
        found = table.set_column(table.schema.get_field_index(name), name, values)
        return found.replace_schema_metadata(table.schema.metadata)

    return changed


OTHER = "not made by `seqtrain embed`"
ROWS = "holds other rows than"
FORGED: dict[str, tuple[Callable[[Table], Table], str]] = {
    "wider vectors": (column("embedding", lambda rows: [[*row, 0.5] for row in rows]), ROWS),
    "no vector beside one of twice the width": (
        column("embedding", lambda rows: [None, rows[0] + rows[1], rows[2]]),
        ROWS,
    ),
    "no number": (column("embedding", lambda rows: [[None, *rows[0][1:]], *rows[1:]]), ROWS),
    "infinite": (column("embedding", lambda rows: [[float("inf"), *rows[0][1:]], *rows[1:]]), ROWS),
    "no text": (column("text", lambda rows: [None, *rows[1:]]), ROWS),
    "doubles": (column("embedding", lambda rows: rows, pyarrow.list_(pyarrow.float64())), OTHER),
    "no lines": (lambda table: table.drop_columns(["line"]), OTHER),
    "pool that is no text": (
        lambda table: table.replace_schema_metadata({**table.schema.metadata, b"seqtrain.pool": b"\xff"}),
        OTHER,
    ),
}


@pytest.fixture(scope="module")
def made(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "in.txt").write_text("a film\nthe street\nslow\n")
    words = (str(runs["gru"]), "--input", str(folder / "in.txt"), "--output", str(folder / "v.parquet"))
    assert main.main(["embed", *words]) == 0
    return folder / "v.parquet"


def test_a_corpus_of_other_vectors_is_one_line(runs: dict[str, Path], made: Path, tmp_path: Path, call: Any) -> None:
    for name, (forge, says) in FORGED.items():
        parquet.write_table(forge(parquet.read_table(made)), tmp_path / "forged.parquet")
        rc, out, err = call("search", runs["gru"], "a film", "--corpus", tmp_path / "forged.parquet")
        assert (rc, out, err.count("\n")) == (2, "", 1), name
        assert err.startswith(f"error: --corpus {tmp_path / 'forged.parquet'}: "), name
        assert says in err, name


def test_a_corpus_of_which_a_byte_was_changed_is_one_line_or_vectors(
    runs: dict[str, Path], made: Path, tmp_path: Path, call: Any
) -> None:
    file = io.BytesIO()
    parquet.write_table(parquet.read_table(made), file, compression="none", use_dictionary=False)
    content = file.getvalue()
    codes = set()
    for place in range(4, 84, 16):  # the header of the first page, and what it holds
        (tmp_path / "torn.parquet").write_bytes(content[:place] + b"\xff\xff" + content[place + 2 :])
        rc, out, err = call("search", runs["gru"], "a film", "--corpus", tmp_path / "torn.parquet")
        codes.add(rc)
        assert (rc, err) == (0, "") or (rc, out, err.count("\n")) == (2, "", 1)
    assert codes == {0, 2}
