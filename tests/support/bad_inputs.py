"""Sixty bad inputs and more: faulty files of every kind, and the command lines that run into them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow
from pyarrow import parquet

from tests.support import examples

Words = tuple[str, ...]  # what the one line says
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

TABLE = ("data.source_path=null", "data.target_path=null")  # pairs in one file
LEARNED = ("model.positions=learned", "model.max_length=8")
STOPPING = "callbacks=early_stopping"

FAULTS: dict[str, dict[tuple[str, ...], Words]] = {
    # task: {what is changed: what the one line says}
    "next_token": {
        ("data.path=empty.txt",): ("empty.txt: is empty; give",),
        ("data.path=bom.txt",): ("bom.txt: is empty; give",),
        ("data.path=tiny.txt",): ("data.validation_fraction: 1 character cannot be split", "give more"),
        ("data.path=gzip.txt",): ("gzip.txt: is compressed by gzip", "gunzip"),
        ("data.path=zip.txt",): ("zip.txt: is a zip archive; unpack it",),
        ("data.path=utf16.txt",): ("utf16.txt: is UTF-16", "iconv -f utf-16"),
        ("data.path=unmarked_utf16.txt",): ("unmarked_utf16.txt: has a NUL byte in every few, as UTF-16", "iconv"),
        ("data.path=utf32.txt",): ("utf32.txt: is UTF-32", "iconv -f utf-32"),
        ("data.path=latin.txt",): ("latin.txt: not UTF-8 (byte 0xe9", "iconv"),
        ("data.path=binary.txt",): ("binary.txt: is binary; give",),
        ("data.path=sound.parquet", "data.format=txt"): ("sound.parquet: is a parquet file", "data.format=parquet"),
        ("data.path=data.json",): ("data.json: unknown extension .json; set data.format",),
        ("data.path=nothing",): ("data.path=nothing: no file in this folder", "data.format"),
        ("data.path=pictures",): ("data.path=pictures: no file in this folder", "data.format"),
        ("data.path=text.txt/inner.txt",): ("text.txt/inner.txt: no such file or folder", "no folder text.txt"),
        ("data.path=*.text",): ("data.path=*.text: no file matches",),
        ("data.path=txet.txt",): ("data.path=txet.txt: no such file or folder; did you mean text.txt?",),
        ("data.path=loop",): ("data.path=loop: is a broken link", "give a regular file"),
        ("data.path=/dev/zero",): ("data.path=/dev/zero: is a broken link, a pipe or a device", "give a regular file"),
        (f"data.path={'x' * 300}",): ("xxx: the path is too long", "give a shorter one"),
        # Root may read every file that has a disk behind it; this one not even root may read from its beginning.
        ("data.path=/proc/self/mem", "data.format=jsonl"): ("/proc/self/mem: Input/output error; give a file",),
        ("data.validation_path=text.txt",): ("data.validation_path=text.txt", "is in data.path too; name it once"),
        ("data.validation_path=empty.txt",): ("empty.txt: is empty; give",),
        ("data.validation_fraction=0",): ("data.validation_fraction=0", "set it above 0"),
        ("data.validation_fraction=0.6", "data.test_fraction=0.5"): ("data.test_fraction=0.5 leave nothing",),
        ("data.batch_size=5000",): ("data.batch_size=5000: the split has only", "use fewer lanes"),
        ("data.path=no_key.jsonl",): ("no_key.jsonl:7 has columns txt, label; did you mean txt?",),
        ("data.path=number.jsonl",): ("number.jsonl:7: text holds int, not text; set data.column",),
        ("data.path=nested.jsonl",): ("nested.jsonl:7: text holds dict, not text; set data.column",),
        ("data.path=list.jsonl",): ("list.jsonl:7: not a JSON object; each line must be",),
        ("data.path=surrogate.jsonl",): ("surrogate.jsonl:7: text is not valid Unicode at character 2",),
        ("data.path=deep.jsonl",): ("deep.jsonl:7: not JSON",),
        ("data.path=cut.jsonl",): ("cut.jsonl:7: not JSON", "column"),
        ("data.path=utf16.jsonl",): ("utf16.jsonl: is UTF-16", "iconv"),
        ("data.path=twice.csv",): ("data.column=text: twice.csv has 2 columns of this name; keep one",),
        ("data.path=twice.parquet",): ("data.column=text: twice.parquet has 2 columns of this name; keep one",),
        ("data.path=cut.parquet",): ("cut.parquet: not a parquet file that can be read",),
        ("data.path=nested.parquet",): ("nested.parquet: column text holds list", "set data.column"),
        ("data.path=no_rows.parquet",): ("no_rows.parquet: holds no rows; give",),
    },
    "masked_lm": {
        ("data.path=empty.txt",): ("empty.txt: is empty; give",),
        ("data.path=semicolon.csv",): ("semicolon.csv: the header is one field of csv", "a semicolon", "data.format"),
        ("task.mask_share=0.9", "task.random_share=0.2"): ("task.mask_share=0.9", "at most 1 together"),
        ("task.next_sentence=true", "model.num_segments=1"): ("two segments; use model.num_segments=2",),
        (*LEARNED,): ("data.max_length=16: longer than the 8 positions of model.max_length",),
    },
    "sentiment": {
        ("data.path=ragged.csv",): ("ragged.csv:3: 3 fields in this row, 2 in the header",),
        ("data.path=unclosed.csv",): ("unclosed.csv: not csv",),
        ("data.path=semicolon.csv",): ("semicolon.csv: the header is one field", "a semicolon", "data.format"),
        ("data.path=header.tsv",): ("header.tsv: has a header but no rows; give",),
        ("data.path=twice.tsv",): ("data.label_column=label: twice.tsv has 2 columns of this name; keep one",),
        ("data.path=gzip.tsv",): ("gzip.tsv: no labels found",),
        ("data.path=text.txt",): ("text.txt: no labels found", "or jsonl, csv, tsv or parquet"),
        ("data.path=one_class.tsv",): ("every row of train has the label yes; there is nothing to tell apart",),
        ("data.path=spaces.tsv",): ("'yes' and 'yes ' differ by white space alone; write them the same way",),
        ("data.path=no_label.tsv",): ("no_label.tsv:3: label is empty; remove the row or give it a label",),
        ("data.path=one_row.tsv",): ("data.validation_fraction: 1 row cannot be split", "give more"),
        ("data.path=blank.tsv",): ("the training text is empty", "give files with text"),
        ("data.path=float.jsonl",): ("float.jsonl:7: label holds float", "set data.label_column"),
        ("data.path=nan.jsonl",): ("nan.jsonl:7: label holds float", "set data.label_column"),
        ("data.path=null.jsonl",): ("null.jsonl:7: label is null; remove the row",),
        ("data.path=digits.jsonl",): ("digits.jsonl:7: not JSON",),
        ("data.path=float.parquet",): ("float.parquet: column label holds double", "set data.label_column"),
        ("data.path=null.parquet",): ("null.parquet: row 1: label is null; remove the row",),
        ("data.validation_path=new_label.tsv",): ("validation row 1 has the label maybe", "(no, yes)", "correct it"),
        ("data.label_column=lable",): ("data.label_column=lable: labelled.tsv has columns", "did you mean label?"),
        ("data.column=text", "data.label_column=text"): (
            "data.label_column=text: is data.column too; name two columns",
        ),
        ("data.split_by=position",): ("data.split_by=position", "use data.split_by=document"),
        ("task.class_weights=[0,0]",): ("task.class_weights=[0, 0]: no label would count", "above 0"),
        ("task.class_weights=[1]",): ("task.class_weights=[1]: expected 2 numbers",),
        ("model=gpt", "model.num_heads=2", *LEARNED): ("data.max_length=16: longer than the 8 positions",),
    },
    "translation": {
        ("data.target_path=short.txt",): ("source.txt:40: has no fellow in", "short.txt, which has 39 lines"),
        ("data.target_path=long.txt",): ("long.txt:41: has no fellow in", "source.txt, which has 40 lines"),
        ("data.target_path=null",): ("data.source_path and data.target_path: give both, or none",),
        ("data.target_path=source.txt",): ("data.target_path=source.txt: is data.source_path too", "name two files"),
        ("data.target_path=nothing",): ("data.target_path=nothing: is a folder; give a file",),
        ("data.target_path=tagret.txt",): ("data.target_path=tagret.txt: no such file; did you mean target.txt?",),
        ("data.target_path=utf16.txt",): ("utf16.txt: is UTF-16", "iconv"),
        ("data.target_path=latin.txt",): ("latin.txt: not UTF-8 (byte 0xe9", "data.encoding=latin-1"),
        ("data.target_path=blank.txt",): ("the train target split holds no text; give it some",),
        ("data.source_path=one.txt", "data.target_path=other.txt"): ("1 row cannot be split", "give more"),
        ("data.path=pairs.tsv",): ("data.path and data.source_path: give rows", "not both"),
        ("data.path=no_target.tsv", *TABLE): ("data.target_column=target: no_target.tsv has columns source, en",),
        ("data.path=null_pair.jsonl", *TABLE): ("null_pair.jsonl:2: target is null; remove the row",),
        ("data.path=pairs.tsv", "data.target_column=source", *TABLE): ("is data.source_column too; name two columns",),
        ("data.validation_source_path=one.txt",): ("data.validation_target_path: give both, or none",),
        ("model.num_heads=3",): ("model.dim=8 must be a multiple of num_heads=3",),
    },
    "hub": {
        ("data.path=labelled.tsv",): ("data.path=labelled.tsv: is a file; use data=text",),
        ("data.path=./none",): ("data.path=./none: no such folder",),
        ("data.path=",): ("data.path=: an empty path; give",),
        ("data.path=nothing",): ("data.path=nothing", "doesn't contain any data files"),
        ("data.path=somebody/something",): (
            "data.path=somebody/something: HF_HUB_OFFLINE is set",
            "give a local folder",
        ),
        ("data.path=hub_float",): ("data.label_column=label: holds float64", "set data.label_column"),
        ("data.path=hub_broken",): ("data.path=hub_broken", "JSON parse error"),
        ("data.path=hub_empty",): ("data.path=hub_empty: holds a file without rows; give",),
        ("data.train_split=trian",): ("data.train_split=trian: hub has train",),
        ("data.validation_split=dev",): ("data.validation_split=dev", "data.validation_split=null"),
        ("data.column=txt",): ("data.column=txt: hub has columns", "did you mean text?"),
        ("data.column=label",): ("data.label_column=label: is data.column too; name two columns",),
        ("data.document=split",): ("data.document=split", "use data.document=row"),
    },
}
"""Faults of data, by task; each by itself."""

CONFIG: dict[str, Words] = {
    # one change of a run of next_token, or several divided by a space: what the one line says
    "trainer.accelerator=gpu": ("trainer.accelerator=gpu: this machine shows no GPU; use trainer.accelerator=cpu",),
    "trainer.precision=16-mixed": ("trainer.precision=16-mixed: needs a GPU", "trainer.precision=bf16-mixed"),
    "trainer.precision=8bit": ("trainer.precision=8bit: expected auto or 32-true",),
    "model.dim=100000": ("model.dim=100000", "weights, gradients and moments", "use a smaller model"),
    "model=gpt model.positions=learned model.num_heads=2": ("max_length is the table", "set it with positions=learned"),
    f"{STOPPING} callbacks.early_stopping.monitor=validation/acuracy": ("did you mean validation/accuracy?",),
    f"{STOPPING} callbacks.early_stopping.mode=minn": ("callbacks.early_stopping.mode=minn: expected min or max",),
    "tokenizer=word tokenizer.min_count=9999": ("tokenizer.min_count=9999: no word occurs that often",),
    "run_dir=text.txt": ("run_dir=text.txt: text.txt is a file; give another run_dir",),
    "run_dir=/proc/none/run": ("run_dir=/proc/none/run", "give another run_dir"),
    f"run_dir={'x' * 300}": ("the path is too long", "give a shorter one"),
    "freeze=[embde]": ("freeze=embde: the model has no such part; did you mean embed?",),
    "init_from=text.txt": ("init_from=text.txt: no run directory",),
}
