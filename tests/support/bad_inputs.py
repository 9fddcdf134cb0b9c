"""Faulty files of every kind, and sound options of each task to run into them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow
from pyarrow import parquet

from tests.support import examples

SOUND = [(f"some words {number}", "ab"[number % 2]) for number in range(40)]
"""Rows of text and label."""


def jsonl(*rows: str) -> str:
    """Sound rows with these, as they are written, after the sixth."""
    sound = [f'{{"text": "{text}", "label": "{label}"}}' for text, label in SOUND]
    return "\n".join([*sound[:6], *rows, *sound[6:]]) + "\n"


def tsv(*rows: str, header: str = "text\tlabel") -> str:
    """A header, and rows as they are written."""
    return "\n".join([header, *rows]) + "\n"


WRITTEN: dict[str, str | bytes] = {
    # of any kind
    "empty.txt": "",
    "bom.txt": b"\xef\xbb\xbf",
    "tiny.txt": "a",
    "gzip.txt": gzip.compress(b"some words\n" * 50),
    "zip.txt": b"PK\x03\x04\x14\x00\x00\x00\x08\x00\xff\xfe",
    "utf16.txt": ("some words\n" * 40).encode("utf-16"),
    "unmarked_utf16.txt": ("some words\n" * 40).encode("utf-16-le"),
    "utf32.txt": ("some words\n" * 40).encode("utf-32"),
    "latin.txt": b"caf\xe9\n" * 40,
    "binary.txt": bytes(range(256)) * 40,
    "data.json": "[1]",
    # jsonl
    "no_key.jsonl": jsonl('{"txt": "a", "label": "a"}'),
    "number.jsonl": jsonl('{"text": 5, "label": "a"}'),
    "nested.jsonl": jsonl('{"text": {"en": "a"}, "label": "a"}'),
    "list.jsonl": jsonl('["a", "b"]'),
    "surrogate.jsonl": jsonl('{"text": "ab\\ud800", "label": "a"}'),
    "deep.jsonl": jsonl('{"text": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    "digits.jsonl": jsonl('{"text": "a", "label": ' + "9" * 5000 + "}"),
    "cut.jsonl": jsonl('{"text": "a'),
    "float.jsonl": jsonl('{"text": "a", "label": 0.5}'),
    "nan.jsonl": jsonl('{"text": "a", "label": NaN}'),
    "null.jsonl": jsonl('{"text": "a", "label": null}'),
    "utf16.jsonl": jsonl().encode("utf-16"),
    # csv and tsv
    "twice.csv": "text,text,label\n" + "a,b,c\n" * 5,
    "ragged.csv": "text,label\nshort,a\nlong,b,c\n",
    "unclosed.csv": 'text,label\n"never ends,a\nmore,b\n',
    "semicolon.csv": "text;label\none;a\n",
    "header.tsv": tsv(),
    "twice.tsv": tsv("a\tb\tc", header="text\tlabel\tlabel"),
    "gzip.tsv": gzip.compress(b"some words\n" * 50),
    "one_class.tsv": tsv(*["some words\tyes"] * 30),
    "spaces.tsv": tsv(*["some words\tyes", "other words\tyes ", "a third\tno"] * 10),
    "no_label.tsv": tsv("some\tyes", "words\t"),
    "new_label.tsv": tsv("some\tmaybe"),
    "one_row.tsv": tsv("some\tyes"),
    "blank.tsv": tsv(*["\tyes", "\tno"] * 20),
    # pairs
    "short.txt": "1 and 1\n" * 39,
    "long.txt": "1 and 1\n" * 43,
    "blank.txt": "\n" * 40,
    "one.txt": "one line\n",
    "other.txt": "another line\n",
    "pairs.tsv": tsv(*[f"a {number}\tb {number}" for number in range(30)], header="source\ttarget"),
    "no_target.tsv": tsv("a\tb", header="source\ten"),
    "null_pair.jsonl": '{"source": "a", "target": "b"}\n{"source": "a", "target": null}\n' * 5,
    # hub, and asking
    "hub/train.jsonl": jsonl(),
    "hub_float/train.jsonl": jsonl().replace('"a"}', "1.5}").replace('"b"}', "2.5}"),
    "hub_broken/train.jsonl": '{"text": \n',
    "hub_empty/train.jsonl": "",
    "pictures/a.png": "x",
}


def files(folder: Path) -> Path:
    """Writes sound data for every task (`examples.files`) and everything that is not; gives folder."""
    examples.files(folder)
    for name, content in WRITTEN.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    texts, labels = (list(column) for column in zip(*SOUND, strict=True))
    tables = {
        "sound": [texts, labels],
        "twice": [texts, texts, labels],
        "float": [texts, [0.5] * len(labels)],
        "null": [texts, [None, *labels[1:]]],
        "nested": [[[text] for text in texts], labels],
        "no_rows": [pyarrow.array([], pyarrow.string())] * 2,
    }
    for name, columns in tables.items():
        names = ["text", "label"] if len(columns) == 2 else ["text", "text", "label"]
        table = pyarrow.Table.from_arrays([pyarrow.array(column) for column in columns], names=names)
        parquet.write_table(table, folder / f"{name}.parquet")
    whole = (folder / "sound.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (folder / "nothing").mkdir()
    (folder / "loop").symlink_to("loop")
    return folder


SMALL = ("tbptt.k2=8", "tokenizer=byte", *(option for option in examples.SMALL if "max_length" not in option))
TASKS: dict[str, tuple[str, ...]] = {
    "next_token": ("task=next_token", *examples.DATA["next_token"], *SMALL),
    **{task: examples.options(task) for task in ("masked_lm", "sentiment", "translation")},
    "hub": (
        *("task=sentiment", "data=hub", "data.path=hub", "data.label_column=label", *examples.SMALL),
        *("data.validation_split=null", "data.test_split=null", "model=gru"),
    ),
}
"""Sound options of each task, and of sentiment from a folder in the hub's layout."""


def contents(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return what is in a folder, with what changes when it is written; a lock holds nothing."""
    found = {path: path.lstat() for path in folder.rglob("*") if path.name != ".lock"}
    return {path: (0, 0) if path.is_dir() else (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}
