"""A corpus of vectors that `embed` would not have written is one line, and `embed` writes none that is empty."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from seqtrain.cli import main
from tests.support.untrained_runs import SENTIMENT, make_run

pytestmark = pytest.mark.timeout(60)
Table = Any  # of pyarrow, which has no types


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run", *SENTIMENT)


@pytest.fixture(scope="module")
def made(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "in.txt").write_text("a film\nthe street\nslow\n")
    assert main.main(["embed", str(run), "--input", str(folder / "in.txt"), "--output", str(folder / "v.parquet")]) == 0
    return folder / "v.parquet"


def search(run: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    capsys.readouterr()
    rc = main.main(["search", str(run), "a film", "--corpus", str(corpus)])
    captured = capsys.readouterr()
    return rc, captured.out, captured.err


def column(name: str, change: Callable[[list], list], kind: Any = None) -> Callable[[Table], Table]:
    """Puts other values in a column's place."""

    def changed(table: Table) -> Table:
        values = pyarrow.array(change(table.column(name).to_pylist()), kind or table.schema.field(name).type)
        found = table.set_column(table.schema.get_field_index(name), name, values)
        return found.replace_schema_metadata(table.schema.metadata)

    return changed


def pool(value: bytes) -> Callable[[Table], Table]:
    return lambda table: table.replace_schema_metadata({**table.schema.metadata, b"seqtrain.pool": value})


def first(value: Callable[[list[float]], Any]) -> Callable[[Table], Table]:
    """Puts another vector in the first one's place."""
    return column("embedding", lambda rows: [value(rows[0]), *rows[1:]])


NAN = float("nan")
OTHER = "not made by `seqtrain embed`"
ROWS = "holds other rows than"
FORGED: dict[str, tuple[Callable[[Table], Table], str]] = {
    "wider vectors": (column("embedding", lambda rows: [[*row, 0.5] for row in rows]), ROWS),
    "vectors without numbers": (column("embedding", lambda rows: [[] for _ in rows]), ROWS),
    "rows of unlike length, as many numbers": (
        column("embedding", lambda rows: [rows[0] + rows[1][:1], rows[1][1:], *rows[2:]]),
        ROWS,
    ),
    "no vector": (first(lambda _: None), ROWS),
    "no number": (first(lambda row: [None, *row[1:]]), ROWS),
    "no vector beside one of twice the width": (
        column("embedding", lambda rows: [None, rows[0] + rows[1], rows[2]]),
        ROWS,
    ),
    "nan": (first(lambda row: [NAN, *row[1:]]), ROWS),
    "infinite": (first(lambda row: [float("inf"), *row[1:]]), ROWS),
    "no text": (column("text", lambda rows: [None, *rows[1:]]), ROWS),
    "vectors of text": (column("embedding", lambda rows: ["x" for _ in rows], pyarrow.string()), OTHER),
    "doubles": (column("embedding", lambda rows: rows, pyarrow.list_(pyarrow.float64())), OTHER),
    "no lines": (lambda table: table.drop_columns(["line"]), OTHER),
    "pool that is no text": (pool(b"\xff"), OTHER),
    "pool that is unknown": (pool(b"foo"), OTHER),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_corpus_of_other_vectors_is_one_line(
    run: Path, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    forge, says = FORGED[name]
    parquet.write_table(forge(parquet.read_table(made)), tmp_path / "forged.parquet")
    rc, out, err = search(run, tmp_path / "forged.parquet", capsys)
    assert (rc, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: --corpus {tmp_path / 'forged.parquet'}: ")
    assert says in err


def test_a_corpus_of_which_a_byte_was_changed_is_one_line_or_vectors(
    run: Path, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = io.BytesIO()
    parquet.write_table(parquet.read_table(made), file, compression="none", use_dictionary=False)
    content = file.getvalue()
    codes = set()
    for place in range(4, 84, 16):  # the header of the first page, and what it holds
        (tmp_path / "torn.parquet").write_bytes(content[:place] + b"\xff\xff" + content[place + 2 :])
        rc, out, err = search(run, tmp_path / "torn.parquet", capsys)
        codes.add(rc)
        assert (rc, err) == (0, "") or (rc, out, err.count("\n")) == (2, "", 1)
    assert codes == {0, 2}


def test_embed_leaves_no_file_without_texts(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.txt").write_text("\n\n")
    args = ["embed", str(run), "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "v.parquet")]
    assert main.main(args) == 2
    assert "v.parquet: not written: the input holds no line that can be embedded" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    (tmp_path / "v.parquet").write_text("old")
    assert main.main(args) == 2
    assert (tmp_path / "v.parquet").read_text() == "old"
