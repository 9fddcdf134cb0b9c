"""Laws of token stores: the tokens of the text, the same bytes whoever writes them and wherever that is cut off."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqtrain.data.cache import Store
from seqtrain.data.corpus import tokenised
from seqtrain.data.sources.base import SPLITS, Source
from seqtrain.data.sources.text import Text
from seqtrain.data.token_store import index as index_module
from seqtrain.data.token_store import tokens as tokens_module
from seqtrain.data.token_store.encode import encoded
from seqtrain.data.token_store.index import INDEX, TokenStore, open_store, read_index, verify_files
from seqtrain.data.token_store.prepare import Order, prepare
from seqtrain.data.token_store.tokens import MappedTokens, Part
from seqtrain.data.tokenizers.encoding import ByteTokenizer, segments, segments_of
from seqtrain.data.tokenizers.recipes import BPE, Byte, Char, Recipe, Word
from seqtrain.errors import RunFailed, UserError
from tests.conftest import Seqtrain
from tests.support.refused import refusal
from tests.support.tiny import PATIENCE, corpus, wait_until

RECIPES = {"byte": Byte(), "char": Char(), "word": Word(), "bpe": BPE(size=300)}


def write_rows(folder: Path) -> Path:
    """Rows of texts, some of them empty or without any word, one longer than the others."""
    rows = [f'{{"text": "{text}"}}' for text in ("one two", "", "  ", "three", "é ü " * 40, "four\\nfive", "")]
    path = folder / "rows.jsonl"
    path.write_text("\n".join(rows * 5) + "\n")
    return path


def order_of(source: Source, recipe: Recipe, **options: Any) -> Order:
    options = {"processes": 1, "shard_tokens": 100, "sample": 10**6} | options
    return Order(source, recipe, None, {"tokenizer": repr(vars(recipe))}, **options)


def prepared(folder: Path, source: Source, recipe: Recipe, **options: Any) -> TokenStore:
    return prepare(folder, order_of(source, recipe, **options), lambda line: None)


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a store."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def text_source(folder: Path) -> Text:
    corpus(folder, lines=40)
    return Text(path=str(folder / "corpus.txt"), split_by="position", validation_fraction=0.2, test_fraction=0.1)


def test_a_store_has_the_tokens_documents_and_counts_of_the_text(tmp_path: Path) -> None:
    sources = {"position": text_source(tmp_path), "rows": Text(path=str(write_rows(tmp_path)), validation_fraction=0.2)}
    for (kind, source), (name, recipe) in product(sources.items(), RECIPES.items()):
        store = prepared(tmp_path / kind / name, source, recipe)
        for split, found in store.splits.items():
            asked = tokenised(
                Store(tmp_path / "cache"), partial(source.documents, split), split, store.tokenizer, lambda line: None
            )
            assert np.array_equal(found.tokens[:], asked.tokens), (kind, name)
            assert np.array_equal(found.documents, asked.documents), (kind, name)
            num_words = asked.num_words if name == "word" else 0  # what they are counted for is of words alone
            counts = (found.num_bytes, found.num_words, found.num_unknown)
            assert counts == (asked.num_bytes, num_words, asked.num_unknown), (kind, name)
        assert list(store.splits) == [split for split in SPLITS if source.has(split)]


def killed_at(replacement: int, after: bool, folder: Path, order: Order) -> bool:
    """Whether a process that writes the store was killed, before or after that one of its renames."""
    child = os.fork()
    if child == 0:
        rename, count = os.replace, iter(range(10**6))

        def replace(*names: Any) -> None:
            now = next(count) == replacement
            if now and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(*names)
            if now:
                os.kill(os.getpid(), signal.SIGKILL)

        os.replace = replace
        try:
            prepare(folder, order, lambda line: None)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_a_store_killed_at_any_rename_goes_on_to_the_same_bytes(after: bool, tmp_path: Path) -> None:
    order = order_of(text_source(tmp_path), RECIPES["bpe"], shard_tokens=300)
    prepare(tmp_path / "whole", order, lambda line: None)
    kills = 0
    while killed_at(kills, after, tmp_path / f"killed {kills}", order):
        prepare(tmp_path / f"killed {kills}", order, lambda line: None)
        assert content(tmp_path / f"killed {kills}") == content(tmp_path / "whole")
        kills += 1
    assert kills > 10


def test_a_store_killed_again_and_again_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    order = order_of(text_source(tmp_path), RECIPES["word"], shard_tokens=20)
    prepare(tmp_path / "whole", order, lambda line: None)
    kills = 0
    # Each call gets a little further than the one before it.
    while killed_at(5, True, tmp_path / "killed", order):
        kills += 1
    assert kills > 3
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_what_is_finished_is_not_tokenised_again(tmp_path: Path) -> None:
    source = Text(path=str(write_rows(tmp_path)), validation_fraction=0.2)
    order = order_of(source, RECIPES["char"], shard_tokens=50)
    assert killed_at(8, True, tmp_path / "store", order)
    lines: list[str] = []
    prepare(tmp_path / "store", order, lines.append)
    assert any("continues after" in line for line in lines)
    new = next(int(line.split()[1].replace(",", "")) for line in lines if line.startswith("train:") and "new" in line)
    assert 0 < new < len(open_store(tmp_path / "store").splits["train"].tokens)


@pytest.mark.long
def test_the_bytes_do_not_depend_on_the_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqtrain.data.token_store.encode.JOB_CHARACTERS", 5)
    source = Text(path=str(write_rows(tmp_path)), validation_fraction=0.2)
    for processes in (1, 3):
        prepared(tmp_path / str(processes), source, RECIPES["bpe"], processes=processes, shard_tokens=70)
    assert content(tmp_path / "1") == content(tmp_path / "3")


@pytest.mark.long
def test_the_command_killed_while_processes_work_goes_on_to_the_same_bytes(tmp_path: Path, seqtrain: Seqtrain) -> None:
    corpus(tmp_path, lines=30_000)
    words = ["prepare", "data=text", "data.path=corpus.txt", "data.split_by=position", "tokenizer=char"]
    words += ["--processes", "2", "--shard-tokens", "100000", "--store"]
    assert seqtrain(*words, "whole", cwd=tmp_path).rc == 0
    child = seqtrain.start(*words, "killed", cwd=tmp_path)
    wait_until(lambda: (tmp_path / "killed/shard-00001.bin").exists(), child, "its second shard")
    child.kill()
    assert child.wait() == -9
    assert not (tmp_path / "killed" / INDEX).exists()
    refused = seqtrain("train", "data=tokens", "data.path=killed", cwd=tmp_path)
    assert refused.rc == 2
    assert "continues one that was interrupted" in refused.err
    assert seqtrain(*words, "killed", cwd=tmp_path).rc == 0
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    again = seqtrain(*words, "killed", cwd=tmp_path)
    assert again.rc == 0
    assert "complete already" in again.err


def test_segments_do_not_depend_on_where_parts_are_cut() -> None:
    text = "a bc\n  def " * 50 + "x" * 90 + " y\n" * 20
    whole = list(segments(text, 30))
    assert "".join(whole) == text
    assert max(map(len, whole)) <= 30
    for step in (1, 7, 29, 30, 31, 200):
        parts = [(text[begin : begin + step], begin + step >= len(text)) for begin in range(0, len(text), step)]
        found = list(segments_of(parts, 30))
        assert [segment for segment, _ in found] == whole
        assert [ends for _, ends in found] == [False] * (len(whole) - 1) + [True]


def test_segments_joined_are_the_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqtrain.data.sources.files.BLOCK_BYTES", 7)
    (tmp_path / "a.txt").write_text("\ufeffäöü one two " * 30)
    (tmp_path / "b.txt").write_text("three € four\n" * 40)
    (tmp_path / "c.jsonl").write_text('{"text": "five"}\n{"text": ""}\n{"text": "six six"}\n')
    for by, split in product(("position", "document"), SPLITS):
        source = Text(path=str(tmp_path), split_by=by, validation_fraction=0.3, test_fraction=0.2)
        joined, document = [], ""
        for text, ends in source.segments(split):
            document += text
            if ends:
                joined.append(document)
                document = ""
        # A cut by position keeps no empty document, whichever way it is read.
        assert [text for text in joined if text] == [text for text in source.documents(split) if text]
        assert document == ""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    prepared(tmp_path / "store", text_source(tmp_path), RECIPES["bpe"])
    return tmp_path / "store"


def spoil_counts(store: Path) -> None:
    whole = read_index(store)
    del whole["hash"]
    whole["splits"]["train"]["shards"][0]["tokens"] *= 1.0
    index_module.write_index(store, whole)


def edit_index(store: Path) -> None:
    text = (store / INDEX).read_text()
    (store / INDEX).write_text(text.replace('"unknown": 0', '"unknown": 1', 1))


def edit_tokenizer(store: Path) -> None:
    path = store / "tokenizer.json"
    path.write_bytes(b"\xff" + path.read_bytes()[1:])


DAMAGES: list[tuple[Callable[[Path], Any], str]] = [
    (lambda store: os.truncate(store / "shard-00001.bin", 150), "shard-00001.bin: has 150 bytes instead of 200"),
    (lambda store: os.truncate(store / "train.documents.bin", 8), "train.documents.bin: has 8 bytes"),
    (lambda store: (store / "shard-00002.bin").unlink(), "shard-00002.bin: is missing"),
    (edit_index, "index.json: does not match its hash (damaged or edited)"),
    (spoil_counts, "index.json: is not an index of a token store"),
    (lambda store: os.truncate(store / INDEX, 200), "index.json: is not an index"),
    (
        lambda store: BPE(size=260).train(["another text"]).save(store / "tokenizer.json"),
        "tokenizer.json: is not the tokenizer of this store",
    ),
    (lambda store: (store / "tokenizer.json").unlink(), "tokenizer.json: is missing; copy the whole store, or"),
    (edit_tokenizer, "can't decode byte 0xff in position 0"),
]


def test_a_store_opens_without_reading_a_token(store: Path) -> None:
    for path in store.glob("shard-*.bin"):
        path.write_bytes(b"\0" * path.stat().st_size)
    (store / INDEX).touch()  # the newest file: what stands in the others is asked for by --verify alone
    assert set(open_store(store).splits) == set(SPLITS)
    with pytest.raises(UserError, match="does not match its hash"):
        list(verify_files(store))


def test_a_file_edited_at_its_size_and_time_is_refused_and_a_touched_one_is_read_once(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("shard-00001.bin", "train.documents.bin"):
        path, before = store / name, (store / name).stat()
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert f"{name}: does not match its hash" in refusal(open_store, store)
        path.write_bytes(content)
        assert "1 files are newer than index.json" in "".join(open_store(store).remarks)
        with monkeypatch.context() as patch:
            patch.setattr(index_module, "file_hash", lambda path: pytest.fail(f"{path} is read again"))
            open_store(store)
        list(verify_files(store))
        assert not open_store(store).remarks


def test_a_shard_that_shrinks_while_it_is_read_is_one_line(store: Path) -> None:
    tokens = open_store(store).splits["train"].tokens
    assert len(tokens[:]) == len(tokens)
    os.truncate(store / "shard-00000.bin", 8)
    with pytest.raises(UserError, match=r"shard-00000.bin: was truncated while it was read"):
        tokens[np.arange(50)]


def test_a_damaged_store_is_refused_in_one_line_when_it_is_opened_or_verified(store: Path, tmp_path: Path) -> None:
    for number, (damage, words) in enumerate(DAMAGES):
        damaged = shutil.copytree(store, tmp_path / str(number))
        damage(damaged)
        said = [refusal(open_store, damaged)]
        if damage is not spoil_counts:  # its files are as they were written
            said.append(refusal(lambda damaged=damaged: list(verify_files(damaged))))
        for line in said:
            assert words in line
            assert len(line) < 400, line


def test_a_store_that_is_whole_is_verified_with_all_that_belongs_to_it(store: Path) -> None:
    names = {path.name for path in store.iterdir()}
    assert {INDEX, "source.json", *verify_files(store)} - names == set()
    assert names - set(verify_files(store)) <= {INDEX, "source.json", ".lock"}


def test_a_folder_that_holds_something_else_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    said = refusal(prepared, tmp_path / "mine", text_source(tmp_path), RECIPES["byte"])
    assert "mine: contains other files (notes.txt)" in said
    assert content(tmp_path / "mine") == {"notes.txt": b"mine"}
    said = refusal(open_store, tmp_path / "mine/notes.txt")
    assert "notes.txt: is a file; a token store is a folder, made by `seqtrain prepare`" in said


def test_a_changed_text_is_refused_with_its_name(store: Path, tmp_path: Path) -> None:
    source = Text(path=str(tmp_path / "corpus.txt"), split_by="position", validation_fraction=0.2, test_fraction=0.1)
    with open(tmp_path / "corpus.txt", "a") as file:
        file.write("more")
    assert "corpus.txt: has changed since" in refusal(prepared, store, source, RECIPES["bpe"])


def test_a_file_spoiled_before_prepare_goes_on_is_written_again(tmp_path: Path) -> None:
    order = order_of(text_source(tmp_path), RECIPES["char"], shard_tokens=200)
    prepare(tmp_path / "whole", order, lambda line: None)
    assert killed_at(12, True, tmp_path / "killed", order)
    for name in ("shard-00001.bin", "unfinished/shard-00001.bin.json", "unfinished/shard-00001.bin.documents"):
        spoiled = shutil.copytree(tmp_path / "killed", tmp_path / name.replace("/", " "))
        (spoiled / name).write_bytes(b"?" * (spoiled / name).stat().st_size)
        prepare(spoiled, order, lambda line: None)
        assert content(spoiled) == content(tmp_path / "whole"), name


def test_the_command_refuses_in_one_line(tmp_path: Path, seqtrain: Seqtrain) -> None:
    corpus(tmp_path, lines=20)
    data = ("prepare", "data=text", "data.path=corpus.txt", "data.split_by=position")
    assert seqtrain(*data, "tokenizer=char", "--store", "a", cwd=tmp_path).rc == 0
    (tmp_path / "linked").mkdir()
    for name in ("source.json", "tokenizer.json"):
        shutil.copy(tmp_path / "a" / name, tmp_path / "linked")
    (tmp_path / "linked/unfinished").symlink_to(tmp_path / "a")
    for words, expected in (
        ((*data, "tokenizer=byte", "--store", "a"), "was begun with tokenizer._target_="),
        ((*data, "data.test_fraction=0.2", "tokenizer=char", "--store", "a"), "was begun with data.test_fraction=0.0"),
        ((*data, "model=gpt", "--store", "b"), "model=gpt: a token store depends only on data and tokenizer"),
        ((*data, "data.batch_size=4", "--store", "b"), "data.batch_size=4: is an option for reading the store"),
        (("prepare", "--store", "b"), "needs text; add data=text"),
        (("prepare", "data=seasonal", "--store", "b"), "has no text documents"),
        ((*data, "tokenizer=char", "--store", "linked"), "linked/unfinished: is not a folder"),
        ((*data, "tokenizer=none", "--store", "b"), "tokenizer=none: makes no tokens"),
    ):
        answer = seqtrain(*words, cwd=tmp_path)
        assert (answer.rc, len(answer.err.splitlines())) == (2, 1), answer.err
        assert expected in answer.err
    assert not (tmp_path / "b").exists()


def test_a_token_beyond_the_vocabulary_is_refused_where_it_is_read(tmp_path: Path) -> None:
    np.array([1, 2, 300, 4], dtype="<u2").tofile(tmp_path / "a.bin")
    found = MappedTokens([Part(tmp_path / "a.bin", "<u2", 0, 4)], 256)
    assert found[:2].tolist() == [1, 2]
    with pytest.raises(UserError, match=r"a.bin: contains the token 300, but the vocabulary has 256"):
        found[np.array([[1, 2]])]


def test_mapped_tokens_are_taken_as_of_an_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "MAX_MAPPED_BYTES", 1000)  # maps are let go again and again
    expected = np.arange(1000) % 251
    parts = []
    for number, part in enumerate(np.split(expected, [1, 400, 400, 990])):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(b"head" + part.astype("<u2").tobytes())
        parts.append(Part(path, "<u2", 4, len(part)))
    found = MappedTokens(parts, 251)
    index = np.random.default_rng(0).integers(0, 1000, (5, 7))
    assert len(found) == 1000
    assert np.array_equal(found[index], expected[index])
    assert np.array_equal(found[:], expected)
    assert np.array_equal(found[399:991], expected[399:991])
    assert np.array_equal(found[990:2000], expected[990:])
    assert np.array_equal(found[5:5], expected[5:5])
    assert np.array_equal(found[::-1][index], expected[::-1][index])
    assert np.array_equal(np.asarray(found[::-1]), expected[::-1])
    assert found[-1] == expected[-1]


class Deadly(ByteTokenizer):
    """Kills the process in which it meets an exclamation mark."""

    def _encode(self, texts: list[str]) -> Iterator[np.ndarray]:
        if any("!" in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._encode(texts)


def test_a_process_that_is_killed_ends_the_work_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqtrain.data.token_store.encode.JOB_CHARACTERS", 5)
    tokenizer = Deadly(Byte().train([]).content)
    texts = [(text, True) for text in ("one two", "three", "four!", "five", "six six")]
    with pytest.raises(RunFailed, match="a worker process was killed"):
        list(encoded(tokenizer, texts, 2))


def test_large_jobs_and_large_answers_do_not_wait_for_each_other() -> None:
    tokenizer = Byte().train([])
    text = "x" * (1 << 20)
    assert sum(len(job.tokens) for job in encoded(tokenizer, [(text, True)] * 24, 2)) == 24 << 20


def living(pids: list[int]) -> list[int]:
    """Those of some processes that run."""
    found = []
    for pid in pids:
        path = Path(f"/proc/{pid}/stat")
        if path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z":
            found.append(pid)
    return found


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_no_process_outlives_the_command(number: signal.Signals, code: int, tmp_path: Path, seqtrain: Seqtrain) -> None:
    corpus(tmp_path, lines=30_000)
    words = ("prepare", "data=text", "data.path=corpus.txt", "data.split_by=position", "tokenizer=char")
    child = seqtrain.start(*words, "--processes", "2", "--shard-tokens", "100000", "--store", "store", cwd=tmp_path)
    wait_until(lambda: (tmp_path / "store/shard-00001.bin").exists(), child, "its second shard")
    workers = [int(pid) for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()]
    assert len(living(workers)) >= 2
    child.kill(number)
    assert child.wait() == code
    assert ("continues after its last shard" in child.stderr) == (code > 0)
    limit = time.monotonic() + PATIENCE
    while living(workers) and time.monotonic() < limit:
        time.sleep(0.05)
    assert living(workers) == []
