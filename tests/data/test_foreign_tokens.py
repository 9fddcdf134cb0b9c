"""Laws of readers of other programs' tokens: the tokens and documents that were written, or one clear line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtrain.data.sources import foreign_tokens
from seqtrain.data.sources.foreign_tokens import Datatrove, ForeignTokens, NanoGPT
from seqtrain.data.tokenizers.encoding import IdTokenizer
from seqtrain.data.tokenizers.foreign import load_tokenizer
from seqtrain.data.tokenizers.recipes import BPE
from tests.support.refused import refusal

VOCAB_SIZE = 300
END = 299  # of a document, where no index tells
rng = np.random.default_rng(0)
DOCUMENTS = [[*rng.integers(0, END, size).tolist(), END] for size in (5, 1, 40, 0, 17, 300)]
TOKENS = [token for document in DOCUMENTS for token in document]
EDGES = np.cumsum([0, *map(len, DOCUMENTS)]).tolist()

Write = Callable[[Path], str]
"""Writes DOCUMENTS below a folder; gives the path that names them."""


def write_nanogpt(folder: Path) -> str:
    np.array(TOKENS, dtype="<u2").tofile(folder / "train.bin")
    return str(folder / "train.bin")


def write_llm_c(folder: Path) -> str:
    head = np.zeros(256, dtype="<i4")
    head[:3] = 20240520, 1, len(TOKENS)
    (folder / "train.bin").write_bytes(head.tobytes() + np.array(TOKENS, dtype="<u2").tobytes())
    return str(folder / "train.bin")


def write_datatrove(folder: Path) -> str:
    """As datatrove writes it, in two files, the second of no more than one document."""
    for name, documents in (("00000.ds", DOCUMENTS[:-1]), ("00001.ds", DOCUMENTS[-1:])):
        tokens = [token for document in documents for token in document]
        np.array(tokens, dtype="<u2").tofile(folder / name)
        np.cumsum([len(document) for document in documents]).astype("<u8").tofile(folder / f"{name}.index")
        (folder / f"{name}.metadata").write_text(f"gpt2|2\n{len(tokens)}\n{len(tokens)} T")
    return str(folder)


FORMATS: dict[str, tuple[Write, type[ForeignTokens], dict[str, Any]]] = {
    "nanogpt": (write_nanogpt, NanoGPT, {"end_of_text": END}),
    "llm.c": (write_llm_c, NanoGPT, {"end_of_text": END}),
    "datatrove": (write_datatrove, Datatrove, {}),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    for name in FORMATS:
        (tmp_path / name).mkdir()


def opened(name: str, folder: Path, **options: Any) -> ForeignTokens:
    write, source, given = FORMATS[name]
    options = {"validation_fraction": 0.0, "vocab_size": VOCAB_SIZE, **given, **options}
    return source(path=write(folder / name), **options)


def test_tokens_and_documents_are_those_that_were_written_and_validation_begins_with_a_document(tmp_path: Path) -> None:
    for name in FORMATS:
        corpus = opened(name, tmp_path).corpus("train")
        assert corpus.tokens[:].tolist() == TOKENS, name
        assert corpus.documents.tolist() == EDGES, name
        assert corpus[2].tolist() == DOCUMENTS[2], name
        store = opened(name, tmp_path, validation_fraction=0.9).store
        train, validation = store.splits["train"], store.splits["validation"]
        assert train.tokens[:].tolist() + validation.tokens[:].tolist() == TOKENS, name
        assert train.documents.tolist() == EDGES[: len(train.documents)], name
        cut = len(train.tokens)
        assert cut in EDGES, name
        assert validation.documents.tolist() == [edge - cut for edge in EDGES if edge >= cut], name
        assert train.hash != validation.hash, name
    store = opened("nanogpt", tmp_path, validation_fraction=0.25, end_of_text=None).store  # a single document
    count = int(len(TOKENS) * 0.75)
    assert store.splits["train"].tokens[:].tolist() == TOKENS[:count]
    assert store.splits["validation"].documents.tolist() == [0, len(TOKENS) - count]


def test_a_second_start_reads_no_token_unless_a_file_was_edited_whatever_its_time_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (write, source, given) in FORMATS.items():
        options = {"path": write(tmp_path / name), "validation_fraction": 0.0, "vocab_size": VOCAB_SIZE, **given}
        first = source(**options).store.hash
        with monkeypatch.context() as patch:
            patch.setattr(foreign_tokens, "_measure", lambda *of: pytest.fail("the tokens are read again"))
            assert source(**options).store.hash == first, name
        edited = next(path for path in sorted((tmp_path / name).iterdir()) if path.suffix in (".bin", ".ds"))
        before, content = edited.stat(), bytearray(edited.read_bytes())
        content[-4] ^= 1  # the low byte of an id
        edited.write_bytes(content)
        os.utime(edited, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert source(**options).store.hash != first, name


CUT_OFF = [  # format, file, bytes that it lacks, the line
    ("nanogpt", "train.bin", 1, r"train.bin: has \d+ bytes; expected a whole number of tokens of 2 bytes; truncated"),
    ("llm.c", "train.bin", 2, r"train.bin: has \d+ bytes; expected 369 tokens of 2 bytes"),
    ("datatrove", "00001.ds", 2, r"00001.ds: has \d+ bytes; expected 301 tokens of 2 bytes"),
    ("datatrove", "00000.ds.index", 3, "00000.ds.index: its size is not a multiple of 8 bytes; it is truncated"),
]


def test_a_file_that_is_cut_off_and_ids_beyond_the_vocabulary_are_refused(tmp_path: Path) -> None:
    for name, file, missing, says in CUT_OFF:
        source = opened(name, tmp_path)
        path = tmp_path / name / file
        path.write_bytes(path.read_bytes()[:-missing])
        assert re.search(says, refusal(source.check)), file
    for name in FORMATS:
        free = {"end_of_text": None} if "end_of_text" in FORMATS[name][2] else {}
        said = refusal(opened(name, tmp_path, vocab_size=299, **free).check)
        assert "contains the token 299, but the vocabulary has 299" in said, name


def test_an_end_of_text_that_is_no_id_is_refused_and_one_that_ends_nothing_is_said(tmp_path: Path) -> None:
    said = refusal(opened("nanogpt", tmp_path, end_of_text=VOCAB_SIZE).check)
    assert f"data.end_of_text={VOCAB_SIZE}: must be below {VOCAB_SIZE}" in said
    used = opened("nanogpt", tmp_path).notes()
    unused = opened("nanogpt", tmp_path, vocab_size=1000, end_of_text=999).notes()
    assert not any("ends no document" in note for note in used)
    assert any("data.end_of_text=999: ends no document within train" in note for note in unused)


def test_bytes_are_counted_by_the_tokenizer_and_unknown_text_is_said(tmp_path: Path) -> None:
    text = "a text of some words, of some bytes: äöü " * 30
    tokenizer = BPE(size=270).train([text])
    tokenizer.save(tmp_path / "tokenizer.json")
    tokenizer.encode(text).astype("<u2").tofile(tmp_path / "ids.bin")
    known = NanoGPT(path=str(tmp_path / "ids.bin"), tokenizer=str(tmp_path / "tokenizer.json"), validation_fraction=0.0)
    assert known.corpus("train").num_bytes == len(text.encode())
    assert list(known.documents("train")) == [text]
    assert known.notes() == []
    unknown = NanoGPT(path=str(tmp_path / "ids.bin"), vocab_size=270, validation_fraction=0.0)
    assert unknown.corpus("train").num_bytes == 2 * len(tokenizer.encode(text))
    assert "the text is unknown" in unknown.notes()[0]


def test_a_tokenizer_of_merges_as_text_or_of_ids_alone_is_read(tmp_path: Path) -> None:
    tokenizer = BPE(size=300).train(["low lower lowest"] * 9)
    content = json.loads(json.dumps(tokenizer.content))
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    older = load_tokenizer(tmp_path / "tokenizer.json")
    assert older.encode("the lowest").tolist() == tokenizer.encode("the lowest").tolist()
    IdTokenizer.of(50).save(tmp_path / "tokenizer.json")
    of_ids = load_tokenizer(tmp_path / "tokenizer.json")
    assert of_ids.vocab_size == 50
    ids = [3, 49, 0, 7]
    assert of_ids.encode(of_ids.decode(ids)).tolist() == ids
    assert "50: is not an id from 0 to 49" in refusal(of_ids.encode, "3 50")
