"""Laws of readers of other programs' tokens: the tokens and documents that were written, or one clear line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtrain.data.sources import foreign_tokens
from seqtrain.data.sources.foreign_tokens import Datatrove, ForeignTokens, NanoGPT
from seqtrain.data.tokenizers.encoding import IdTokenizer
from seqtrain.data.tokenizers.recipes import BPE
from seqtrain.data.tokenizers.saved import load_tokenizer
from seqtrain.errors import UserError
from tests.conftest import Seqtrain

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
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQTRAIN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    return tmp_path / "cache"


def opened(name: str, folder: Path, **options: Any) -> ForeignTokens:
    write, source, given = FORMATS[name]
    return source(path=write(folder), **{"validation_fraction": 0.0, "vocab_size": VOCAB_SIZE, **given, **options})


@pytest.mark.parametrize("name", FORMATS)
def test_the_tokens_and_documents_are_those_that_were_written(name: str, tmp_path: Path) -> None:
    corpus = opened(name, tmp_path / "files").corpus("train")
    assert corpus.tokens[:].tolist() == TOKENS
    assert corpus.documents.tolist() == EDGES
    assert corpus[2].tolist() == DOCUMENTS[2]


@pytest.mark.parametrize("name", FORMATS)
def test_validation_is_cut_off_at_an_edge_of_documents(name: str, tmp_path: Path) -> None:
    store = opened(name, tmp_path / "files", validation_fraction=0.9).store
    train, validation = store.splits["train"], store.splits["validation"]
    assert train.tokens[:].tolist() + validation.tokens[:].tolist() == TOKENS
    assert train.documents.tolist() == EDGES[: len(train.documents)]
    cut = len(train.tokens)
    assert cut in EDGES
    assert validation.documents.tolist() == [edge - cut for edge in EDGES if edge >= cut]
    assert train.hash != validation.hash


def test_a_single_document_is_cut_within(tmp_path: Path) -> None:
    store = opened("nanogpt", tmp_path / "files", validation_fraction=0.25, end_of_text=None).store
    count = int(len(TOKENS) * 0.75)
    assert store.splits["train"].tokens[:].tolist() == TOKENS[:count]
    assert store.splits["validation"].documents.tolist() == [0, len(TOKENS) - count]


@pytest.mark.parametrize("name", FORMATS)
def test_a_second_start_reads_no_token_unless_a_file_was_edited_whatever_its_time_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(name, tmp_path / "files").store
    path = "" if name == "datatrove" else "train.bin"
    options = {"validation_fraction": 0.0, "vocab_size": VOCAB_SIZE, **FORMATS[name][2]}
    source = FORMATS[name][1]
    with monkeypatch.context() as patch:
        patch.setattr(foreign_tokens, "_measure", lambda *of: pytest.fail("the tokens are read again"))
        assert source(path=str(tmp_path / "files" / path), **options).store.hash == first.hash
    edited = next(path for path in sorted((tmp_path / "files").iterdir()) if path.suffix in (".bin", ".ds"))
    before, content = edited.stat(), bytearray(edited.read_bytes())
    content[-4] ^= 1  # the low byte of an id
    edited.write_bytes(content)
    os.utime(edited, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert source(path=str(tmp_path / "files" / path), **options).store.hash != first.hash


def damage_nanogpt(folder: Path) -> None:
    path = folder / "train.bin"
    path.write_bytes(path.read_bytes()[:-1])


def damage_llm_c(folder: Path) -> None:
    path = folder / "train.bin"
    path.write_bytes(path.read_bytes()[:-2])


def damage_datatrove_ds(folder: Path) -> None:
    path = folder / "00001.ds"
    path.write_bytes(path.read_bytes()[:-2])


def damage_datatrove_index(folder: Path) -> None:
    path = folder / "00000.ds.index"
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        (
            "nanogpt",
            damage_nanogpt,
            r"train.bin: has \d+ bytes, and not a whole number of tokens of 2 bytes; it is cut",
        ),
        ("llm.c", damage_llm_c, r"train.bin: has \d+ bytes, and not 369 tokens of 2 bytes"),
        ("datatrove", damage_datatrove_ds, r"00001.ds: has \d+ bytes, and not 301 tokens of two or of four bytes"),
        ("datatrove", damage_datatrove_index, "00000.ds.index: ends within a number of eight bytes; it is cut off"),
    ],
)
def test_a_file_that_is_cut_off_or_damaged_is_refused_in_one_line(
    name: str, damage: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    source = opened(name, tmp_path / "files")
    damage(tmp_path / "files")
    with pytest.raises(UserError, match=words) as caught:
        source.check()
    assert len(caught.value.lines) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_an_id_beyond_the_vocabulary_is_refused_at_the_first_start(name: str, tmp_path: Path) -> None:
    free = {"end_of_text": None} if "end_of_text" in FORMATS[name][2] else {}
    with pytest.raises(UserError, match="holds the token 299, and the vocabulary has 299"):
        opened(name, tmp_path / "files", vocab_size=299, **free).check()


def test_an_end_of_text_that_is_no_id_is_refused_and_one_that_ends_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"data.end_of_text={VOCAB_SIZE}: is no id below {VOCAB_SIZE}"):
        opened("nanogpt", tmp_path / "files", end_of_text=VOCAB_SIZE).check()
    used = opened("nanogpt", tmp_path / "files").notes()
    unused = opened("nanogpt", tmp_path / "files", vocab_size=1000, end_of_text=999).notes()
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
    assert "the text is not known" in unknown.notes()[0]


def test_an_older_file_with_merges_as_text_is_the_same_tokenizer(tmp_path: Path) -> None:
    tokenizer = BPE(size=300).train(["low lower lowest"] * 9)
    content = json.loads(json.dumps(tokenizer.content))
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    older = load_tokenizer(tmp_path / "tokenizer.json")
    assert older.encode("the lowest").tolist() == tokenizer.encode("the lowest").tolist()


def test_ids_without_a_tokenizer_are_written_and_read_as_numbers(tmp_path: Path) -> None:
    IdTokenizer.of(50).save(tmp_path / "tokenizer.json")
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert isinstance(tokenizer, IdTokenizer)
    assert tokenizer.vocab_size == 50
    ids = [3, 49, 0, 7]
    assert tokenizer.encode(tokenizer.decode(ids)).tolist() == ids
    with pytest.raises(UserError, match="50: is no id from 0 to 49"):
        tokenizer.encode("3 50")


@pytest.mark.long
@pytest.mark.parametrize("name", ["nanogpt", "datatrove"])
def test_a_run_trains_on_it(name: str, tmp_path: Path, seqtrain: Seqtrain) -> None:
    path = FORMATS[name][0](tmp_path / "files")
    words = ("train", f"data={name}", f"data.path={path}", "data.vocab_size=300", "data.validation_fraction=0.3")
    words += ("model=gpt", "model.dim=16", "model.num_layers=1", "tbptt.k2=8", "data.batch_size=2", "data.eval_lanes=2")
    trained = seqtrain(*words, "trainer.max_steps=3", "logger=none", "run_dir=run", cwd=tmp_path)
    assert trained.rc == 0, trained.err
    assert "the text is not known" in trained.err
    answer = seqtrain("predict", "run", "1 2 3", "--length", "4", "--json", cwd=tmp_path)
    assert answer.rc == 0, answer.err
