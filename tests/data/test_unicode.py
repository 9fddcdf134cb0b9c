"""Text of every plane of Unicode, and lines without an end, are read and come back whole."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from seqtrain.data.sources.parallel import Parallel
from seqtrain.data.sources.text import Text
from seqtrain.data.tokenizers.recipes import BPE, Byte, Char, Word
from tests.conftest import Seqtrain
from tests.support.bad_inputs import TASKS


def planes() -> str:
    """Characters of every plane of Unicode, and those that text is often broken at."""
    spread = "".join(chr(code) for code in range(0x21, 0x110000, 997) if not 0xD800 <= code < 0xE000)
    assert {ord(char) >> 16 for char in spread} == set(range(17))
    broken_at = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\ufeffi\u200bj\u200dk\u00a0l\u3000m\0n"
    scripts = (
        "e\u0301 \u05d0\u05d1 \u0627\u0644 \U0001f469\u200d\U0001f4bb \U000e0041\U000e007f \U0010fffd \ue000 \ufffe"
    )
    return f"{spread} {broken_at} {scripts} {unicodedata.normalize('NFD', 'Ångström ﬁ')}"


def test_text_of_every_plane_comes_back_from_a_tokenizer() -> None:
    text = planes() + "\n a\r\nb\rc \n"
    for recipe in (Byte(), Char(), BPE(size=300)):
        tokenizer = recipe.train([text])
        assert tokenizer.decode(tokenizer.encode(text)) == text, recipe
    text = planes()
    words = Word().train([text])
    assert words.decode(words.encode(text)) == " ".join(text.split())
    assert words.unknown not in words.encode(text)


def test_text_of_every_plane_comes_back_from_a_file(tmp_path: Path) -> None:
    text = planes()
    (tmp_path / "a.txt").write_bytes(f"\ufeff{text}\r\n".encode())
    (tmp_path / "a.jsonl").write_bytes(f"\ufeff{json.dumps({'text': text}, ensure_ascii=False)}\r\n".encode())
    (tmp_path / "escaped.jsonl").write_text(json.dumps({"text": text}) + "\n")
    quoted = text.replace('"', '""')
    (tmp_path / "a.csv").write_bytes(f'\ufefftext\r\n"{quoted}"\r\n'.encode())
    (tmp_path / "a.tsv").write_bytes(f"\ufefftext\r\n{text}\r\n".encode())
    parquet.write_table(pyarrow.table({"text": [text]}), tmp_path / "a.parquet")
    for name in ("a.jsonl", "escaped.jsonl", "a.csv", "a.tsv", "a.parquet"):
        assert list(Text(path=str(tmp_path / name), validation_fraction=0.0).documents("train")) == [text], name
    assert list(Text(path=str(tmp_path / "a.txt"), validation_fraction=0.0).documents("train")) == [f"{text}\r\n"]
    (tmp_path / "b.txt").write_bytes(f"{text}\r\n".encode())
    pairs = Parallel(source_path=str(tmp_path / "a.txt"), target_path=str(tmp_path / "b.txt"), validation_fraction=0.0)
    assert list(pairs.rows("train")) == [{"source": text, "target": text}]


@pytest.mark.long
def test_a_line_of_half_a_million_characters_trains(tmp_path: Path, seqtrain: Seqtrain) -> None:
    (tmp_path / "it.txt").write_text("".join(f"{number * number % 9973} " for number in range(120_000)))
    long = ("data.path=it.txt", "tokenizer=bpe", "trainer.max_steps=1", "run_dir=long")
    answer = seqtrain("train", *TASKS["next_token"], *long, cwd=tmp_path)
    assert answer.rc == 0, answer.err
