"""Files as users have them: every format that a source reads, small, and with what real files have in them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np

from seqtrain.data.sources.vectors import Frames

ROWS = 120
WORDS = ("ship", "hill", "lamp", "river", "stone", "cloud")

Rows = list[dict[str, Any]]


def sentences() -> list[str]:
    """Return texts of 5 to 11 words, no two alike."""
    return [
        " ".join(
            [f"row {n} of", *(WORDS[(n * step + n // 7) % 6] for step in range(1, 3 + n % 7)), f"at {n * n % 97}."]
        )
        for n in range(ROWS)
    ]


def labelled() -> Rows:
    return [{"text": text, "label": "long" if len(text) > 34 else "short"} for text in sentences()]


def scored() -> Rows:
    return [{"text": text, "label": len(text) * 2.5 - 30} for text in sentences()]


def tagged() -> Rows:
    return [{"text": text, "label": " ".join("N" if w in WORDS else "O" for w in text.split())} for text in sentences()]


def efforts() -> Rows:
    """Return texts with a number for each word; some words have none."""
    rows = []
    for text in sentences():
        numbers = [f"{len(word)}.5" if len(word) % 4 else "_" for word in text.split()]
        rows.append({"text": text, "label": " ".join(numbers)})
    return rows


def pairs() -> Rows:
    return [{"source": text, "target": " ".join(reversed(text.split()))} for text in sentences()]


def series() -> Rows:
    """Return two values a day; five are missing."""
    days = np.datetime_as_string(np.datetime64("2024-01-01") + np.arange(3 * ROWS))
    season = np.sin(np.arange(3 * ROWS) * 2 * np.pi / 7)
    load = [None if n % 70 == 9 else round(value * 10 + n % 5, 3) for n, value in enumerate(season)]
    return [
        {"date": str(day), "load": load[n], "wind": round(3 - season[n - 2] + n % 3, 3)} for n, day in enumerate(days)
    ]


def write(path: Path, rows: Rows, *, header: bool = True) -> None:
    """Write rows as the name of the file says: csv, tsv, jsonl or parquet, with `.gz` behind it packed."""
    import pandas

    table, kind = pandas.DataFrame(rows), path.name.removesuffix(".gz").rpartition(".")[2]
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        table.to_parquet(path, index=False)
    elif kind == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, sep="\t" if kind == "tsv" else ",", index=False, header=header)


def write_tables(folder: Path, name: str, rows: Rows) -> None:
    """Write NAME.csv, .tsv, .jsonl, .parquet, .tsv.gz and NAME-headerless.tsv, and both layouts of the hub."""
    import datasets

    for ending in ("csv", "tsv", "jsonl", "parquet", "tsv.gz"):
        write(folder / f"{name}.{ending}", rows)
    write(folder / f"{name}-headerless.tsv", rows, header=False)
    write(folder / f"{name}-hub" / "data" / "train-00000-of-00001.parquet", rows)
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(folder / f"{name}-saved")


def waves(path: Path, numbers: range, *, is_number: bool = False) -> None:
    """Write series of two channels and uneven length in the format of the UCR archive; some values are missing."""
    lines = ["# made up", "@problemName waves", "@univariate false", "@missing true"]
    lines += ["@targetlabel true" if is_number else "@classLabel true up down", "@data"]
    for n in numbers:
        way, time = (1 if n % 2 else -1), np.arange(8 + n % 5)
        channels = [way * time + n % 3, np.sin(time + n)]
        texts = [",".join("?" if (t + n) % 9 == 8 else f"{x:.4f}" for t, x in enumerate(each)) for each in channels]
        label = f"{way * (n % 7) + 0.5}" if is_number else "up" if way > 0 else "down"
        lines.append(":".join([*texts, label]))
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def patients() -> Rows:
    """Return series in long form: two values a step, one at times missing, with labels of a series and of a row."""
    rows = []
    for n in range(60):
        way = 1 if n % 2 else -1
        for t in range(8 + n % 4):
            pressure = None if (n + t) % 9 == 8 else round(float(np.sin(n + t)), 4)
            row = {"patient": f"p{n}", "step": t, "pulse": round(way * t + n % 3 / 10, 2), "pressure": pressure}
            named = {"state": "sick" if way > 0 else "well", "phase": "high" if way * t > 2 else "low"}
            load = None if (n + t) % 7 == 3 else way * t + n % 3
            rows.append({**row, **named, "score": way * (n % 7) + 0.5, "load": load})
    return rows


def vectors() -> Rows:
    """Return sequences of vectors with a label, a number, a text, and a label a vector; some values are missing."""
    rows = []
    for n in range(80):
        way, length = (1 if n % 2 else -1), 5 + n % 4
        frames = [[way * t + n % 3, None if (n + t) % 11 == 7 else float(np.sin(n + t)), n % 5] for t in range(length)]
        words = ["up" if way > 0 else "down", *["tick"] * (length - 4)]
        row = {"values": frames, "label": words[0], "score": way * (n % 7) + 0.5, "target": " ".join(words)}
        load = [None if (n + t) % 7 == 3 else way * t + n % 3 for t in range(length)]
        rows.append({**row, "phase": ["high" if way * t > 2 else "low" for t in range(length)], "load": load})
    return rows


def steps(path: Path, numbers: range) -> None:
    """Write univariate series as .tsv of the UCR archive has them: the label first, NaN behind a shorter one."""
    lines = []
    for n in numbers:
        values = [f"{(1 if n % 2 else -1) * t + n % 4}" for t in range(6 + n % 3)]
        lines.append("\t".join([str(1 + n % 2), *values, *["NaN"] * (8 - len(values))]))
    path.write_text("\n".join(lines) + "\n")


def conll_2003() -> str:
    """Return sentences of four columns; numbers, scores and ranges stand where CoNLL-U has the numbers of words."""
    blocks = ["-DOCSTART- -X- -X- O"]
    for n, text in enumerate(sentences()):
        names = [(word, "B-LOC" if word in WORDS else "O") for word in text.split()]
        odd = [
            (f"{n % 7}.5", "O"),
            (f"6-{n % 5}", "O"),
            ("1996-08-22", "O"),
            ("#", "O"),
            ("South", "B-ORG"),
            ("Pole", "I-ORG"),
        ]
        blocks.append("\n".join(f"{word} NN B-NP {label}" for word, label in names + odd))
    return "\n\n".join(blocks) + "\n"


def conll_u() -> str:
    """Return sentences of ten columns with comments, a range of two words and an empty node."""
    blocks = []
    for n, text in enumerate(sentences()):
        lines = [f"# sent_id = {n}", f"# text = {text}", f"1-2\t{''.join(text.split()[:2])}" + "\t_" * 8]
        for place, word in enumerate(text.split(), 1):
            kind = "NOUN" if word in WORDS else "NUM" if word.strip(".").isdigit() else "X"
            lines.append(f"{place}\t{word}\t{word}\t{kind}\t_\t_\t{place - 1}\tdep\t_\t_")
        blocks.append("\n".join([*lines, f"{len(text.split())}.1\tno\t_\tX" + "\t_" * 6]))
    return "\n\n".join(blocks) + "\n\n"


def write_all(folder: Path) -> Path:
    """Write what all journeys read; gives the folder."""
    lines = sentences()
    for name in ("text.txt", "hf_wikitext_103_raw_v1.txt"):  # the second looks like a token of the hub
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder / "text.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    for name, rows in (
        ("labelled", labelled()),
        ("scored", scored()),
        ("tagged", tagged()),
        ("efforts", efforts()),
        ("pairs", pairs()),
        ("series", series()),
    ):
        write_tables(folder, name, rows)
    hours = np.datetime_as_string(np.datetime64("2024-01-01T00:00:00") + np.arange(48) * 3600)
    write(
        folder / "seasonal.csv", [{"date": day.replace("T", " "), "value": 9.0 + n % 24} for n, day in enumerate(hours)]
    )
    for split, rows in (("TRAIN", range(40)), ("TEST", range(40, 60))):
        waves(folder / "waves" / f"waves_{split}.ts", rows)
        waves(folder / f"numbers_{split}.ts", rows, is_number=True)
        steps(folder / f"steps_{split}.tsv", rows)
    for ending in ("csv", "jsonl", "parquet"):
        write(folder / f"patients.{ending}", patients())
    for ending in ("jsonl", "parquet"):
        write(folder / f"vectors.{ending}", vectors())
    arrays = np.random.default_rng(0).normal(size=(60, 6, 2))
    np.savez(folder / "arrays.npz", values=arrays, label=arrays[..., 0].cumsum(1))
    np.save(folder / "arrays.npy", arrays)
    write(folder / "movie.jsonl", [{"values": movie.frames.tolist()} for movie in Frames(size=3).movies])
    (folder / "lines.txt").write_text("".join(f"{row['label']} {row['text']}\n" for row in labelled()))
    for n, row in enumerate(labelled()):
        (folder / "books").mkdir(exist_ok=True)
        (folder / "books" / f"{n}.txt").write_text(row["text"])
        (folder / "classes" / row["label"]).mkdir(parents=True, exist_ok=True)
        (folder / "classes" / row["label"] / f"{n}.txt").write_text(row["text"])
    for side in ("source", "target"):
        (folder / f"{side}.txt").write_text("".join(f"{row[side]}\n" for row in pairs()))
    (folder / "conll2003.txt").write_text(conll_2003())
    (folder / "words.conllu").write_text(conll_u())
    write(folder / "words.jsonl", [{"tokens": row["text"].split(), "labels": row["label"].split()} for row in tagged()])
    ids = np.arange(6000, dtype="<u2") ** 2 % 97
    ids.tofile(folder / "train.bin")
    (folder / "datatrove").mkdir()
    ids.tofile(folder / "datatrove" / "part.ds")
    (np.arange(1, 61, dtype="<u8") * 100).tofile(folder / "datatrove" / "part.ds.index")
    return folder
