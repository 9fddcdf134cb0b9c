"""Data files that nobody meant: rows of odd texts in every format, then bytes cut, flipped, doubled and put in."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
from hypothesis import strategies as st
from pyarrow import parquet

ODD = (
    *(
        "",
        " ",
        "\t",
        "\n",
        "\r\n",
        "\r",
        '"',
        '""',
        "'",
        ",",
        ";",
        "\\",
        "\\n",
        "\0",
        "\ufeff",
        "\u2028",
        "\x85",
        "\x1b[2J",
    ),
    *(
        "\u202e",
        "é",
        "e\u0301",
        "😀",
        "👨‍👩‍👧",
        "漢字",
        "\ud7ff",
        "\uffff",
        "null",
        "nan",
        "[MASK]",
        "<unk>",
        "<pad>",
        "x" * 70_000,
    ),
    *("a" * 200 + "\n", "ab " * 3000, "#", "-", "0", "1e999", "{}", "[", '{"text": 1}', "text\tlabel", "=1+1"),
)
ENCODINGS = (
    "utf-8",
    "utf-8",
    "utf-8",
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-16-le",
    "utf-32",
    "latin-1",
    "cp1252",
    "utf-7",
)
ENDS = ("\n", "\n", "\n", "\r\n", "\r", "\n\n", "\0", "")
JSON: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        1.5,
        2**63,
        10**400,
        float("nan"),
        float("inf"),
        "",
        [],
        {},
        ["a"],
        {"text": "a"},
        [[[]]],
        "\ud800",
    ),
)


@dataclass(frozen=True)
class Data:
    """A file in a format, and how it came about."""

    format: str
    story: str
    content: bytes

    def __repr__(self) -> str:
        return f"{self.format} {self.story} {self.content[:80]!r} ({len(self.content)} bytes)"


Change = Callable[[bytes], bytes]


def rows(columns: int) -> st.SearchStrategy[list[list[str]]]:
    """Rows of a few fields, most of them sound."""
    word = st.one_of(
        st.sampled_from(["a b", "c", "some words of text", "0", "yes", "no"]), st.sampled_from(ODD), st.text(max_size=9)
    )
    return st.lists(st.lists(word, min_size=columns, max_size=columns), min_size=0, max_size=12)


def table(columns: Sequence[str], formats: Sequence[str]) -> st.SearchStrategy[Data]:
    """A file with these columns; of txt, the first alone."""
    return st.builds(
        lambda rows, times, format, header, ends, encoding, damage: _data(
            rows * times, columns, format, header, ends, encoding, damage
        ),
        rows(len(columns)),
        st.sampled_from([1, 1, 3, 30]),
        st.sampled_from(formats),
        st.sampled_from(["sound", "sound", "sound", "sound", "none", "twice", "short", "other", "odd values"]),
        st.sampled_from(ENDS),
        st.sampled_from(ENCODINGS),
        st.lists(damages(), max_size=2),
    )


def damages() -> st.SearchStrategy[tuple[str, Change]]:
    """What happens to bytes, with its name."""
    share = st.floats(0, 1)
    piece = st.sampled_from(
        [b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b'"', b"\n", b"\r", b"\x1a", b"\xef\xbb\xbf", b"\0" * 5000]
    )

    def at(content: bytes, where: float) -> int:
        return int(where * len(content))

    cut = share.map(lambda end: (f"cut at {end:.3f}", lambda content: content[: at(content, end)]))
    begin = share.map(lambda start: (f"begins at {start:.3f}", lambda content: content[at(content, start) :]))
    put = st.tuples(share, piece).map(
        lambda put: (
            f"{put[1][:9]!r} at {put[0]:.3f}",
            lambda content: b"".join(_split(content, at(content, put[0]), put[1])),
        )
    )
    flip = st.tuples(share, st.integers(1, 255)).map(
        lambda flip: (
            f"byte at {flip[0]:.3f} ^ {flip[1]}",
            lambda content: _flipped(content, at(content, flip[0]), flip[1]),
        )
    )
    twice = st.just(("twice", lambda content: content * 2))
    return st.one_of(cut, begin, put, flip, flip, twice)


def _split(content: bytes, place: int, piece: bytes) -> tuple[bytes, bytes, bytes]:
    return content[:place], piece, content[place:]


def _flipped(content: bytes, place: int, mask: int) -> bytes:
    if not content:
        return content
    place = min(place, len(content) - 1)
    return content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :]


def _data(
    rows: list[list[str]],
    columns: Sequence[str],
    format: str,
    header: str,
    ends: str,
    encoding: str,
    damage: list[tuple[str, Change]],
) -> Data:
    names = {"none": [], "twice": [columns[0]] * len(columns), "short": columns[:-1], "other": ["x", "y", "z"]}.get(
        header, columns
    )
    if format == "parquet":
        content = _parquet(rows, list(names) or ["a"] * len(columns), odd=header == "odd values")
    elif format == "jsonl":
        values = [[JSON[len(text) % len(JSON)] if header == "odd values" else text for text in row] for row in rows]
        lines = [json.dumps(dict(zip(names, row, strict=False)) if names else row) for row in values]
        content = "".join(line + ends for line in lines).encode(encoding, "replace")
    else:
        separator = {"csv": ",", "tsv": "\t"}.get(format, "")
        shown = rows if format == "txt" or not names else [list(names), *rows]
        content = "".join(separator.join(row) + ends for row in shown).encode(encoding, "replace")
    for _, change in damage:
        content = change(content)
    return Data(format, f"[{header}, ends {ends!r}, {encoding}, {', '.join(name for name, _ in damage)}]", content)


def _parquet(rows: list[list[str]], names: list[str], *, odd: bool) -> bytes:
    columns: list[Any] = [pyarrow.array([row[place] for row in rows], pyarrow.string()) for place in range(len(names))]
    if odd:
        kinds = (pyarrow.binary(), pyarrow.int8(), pyarrow.float16(), pyarrow.null(), pyarrow.list_(pyarrow.string()))
        columns[-1] = pyarrow.array([None] * len(rows), kinds[len(rows) % len(kinds)])
    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_arrays(columns, names=names), file)
    return file.getvalue()


def write(data: Data, folder: Path) -> Path:
    """Writes the file into a folder, in place of the one before."""
    for before in folder.glob("it.*"):
        before.unlink()
    path = folder / f"it.{data.format}"
    path.write_bytes(data.content)
    return path
