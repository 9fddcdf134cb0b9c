"""Writer of token stores, shard by shard: after an interruption, a second call continues and writes the same bytes.

Small files in `unfinished/` record the progress; each is written when its shard is on disk. They record how many
segments of the text a shard has consumed, so that the next call need not tokenise these again.
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Integer

from seqtrain.data.sources.base import SPLITS, Split
from seqtrain.data.token_store.encode import Encoded
from seqtrain.data.token_store.index import COUNTS, FORMAT, TOKENIZER, documents_name, dtype_of, shard_name, write_index
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.errors import UserError
from seqtrain.files.atomic import atomic, exists, plain_json, remove_temporary, write_text
from seqtrain.files.checked import file_hash, load_json

UNFINISHED = "unfinished"
MAX_RECORD_BYTES = 1 << 16
Encode = Callable[[int], Iterator[Encoded]]
"""Function that yields the tokenised segments of a split from a given segment on."""


@dataclass
class Shard:
    """Content of a finished shard, and its end in the text."""

    split: str
    number: int
    tokens: int = 0
    sha256: str = ""
    documents_sha256: str = ""  # of the file in `unfinished/` with the ends of the shard's documents
    segments: int = 0  # segments of the split that end in this shard or an earlier one
    taken: int = 0  # tokens of the next segment that are in this shard
    documents: int = 0  # documents that end in this shard
    bytes: int = 0  # in segments that end in this shard, as are words and unknown
    words: int = 0
    unknown: int = 0
    last_end: int = 0  # end of the last document, in tokens of the split

    @property
    def file(self) -> str:
        return shard_name(self.number)


@dataclass
class Writer:
    """Writes the shards of a folder; only one process at a time may write."""

    folder: Path
    tokenizer: Tokenizer
    shard_tokens: int  # tokens of every shard except the last one of a split
    say: Callable[[str], None]
    shards: list[Shard] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dtype = np.dtype(dtype_of(self.tokenizer.vocab_size))
        if self.work.is_symlink() or (exists(self.work) and not self.work.is_dir()):
            raise UserError(f"{self.work}: is not a folder; remove it")
        self.work.mkdir(exist_ok=True)
        for folder in (self.folder, self.work):
            remove_temporary(folder)

    @property
    def work(self) -> Path:
        """Folder of the records of an unfinished store."""
        return self.folder / UNFINISHED

    def write_split(self, split: Split, encode: Encode) -> dict[str, Any]:
        """Write the missing part of a split, and return its entry in the index.

        Raises UserError if the split has no tokens.
        """
        first = len(self.shards)
        mine = self._finished(split, first)
        self.shards += mine
        self._write_shards(split, encode, mine)
        self._join_documents(split, mine)
        entry: dict[str, Any] = {name: sum(getattr(shard, name) for shard in mine) for name in COUNTS}
        if not entry["tokens"]:
            raise UserError(f"data: the {split} split contains no text; add text, or leave the split out")
        entry["documents_file"] = _file_entry(self.folder, documents_name(split))
        entry["shards"] = []
        for shard in mine:
            # If the tokens fill the last shard exactly, an empty shard marks the end of the split.
            if shard.tokens:
                size = shard.tokens * self.dtype.itemsize
                about = {"file": shard.file, "tokens": shard.tokens, "bytes": size, "sha256": shard.sha256}
                entry["shards"].append(about)
            else:
                (self.folder / shard.file).unlink(missing_ok=True)
        return entry

    def finish(self, splits: dict[Split, dict[str, Any]]) -> None:
        """Write the index, after which the folder is a store."""
        ordered = {split: splits[split] for split in SPLITS if split in splits}
        tokenizer = {"file": TOKENIZER, "hash": self.tokenizer.hash, "vocab_size": self.tokenizer.vocab_size}
        write_index(self.folder, {"format": FORMAT, "dtype": self.dtype.str, "tokenizer": tokenizer, "splits": ordered})
        clear(self.folder)

    def _finished(self, split: Split, first: int) -> list[Shard]:
        """Return the shards of a split that an earlier call has finished."""
        shards: list[Shard] = []
        for number in itertools.count(first):
            path = self.work / f"{shard_name(number)}.json"
            # A shard is written again if its record or file is missing or has changed.
            try:
                shard = Shard(**load_json(path, MAX_RECORD_BYTES))
                hashes = file_hash(self.folder / shard.file), file_hash(path.with_suffix(".documents"))
            except (OSError, ValueError, TypeError, RecursionError, UserError):
                return shards
            if shard.split != split or hashes != (shard.sha256, shard.documents_sha256):
                return shards
            shards.append(shard)
        raise AssertionError("numbers do not end")

    def _write_shards(self, split: Split, encode: Encode, shards: list[Shard]) -> None:
        """Write the shards after the finished ones; add them to `shards` and to the store's shards."""
        shard = Shard(split, len(self.shards) - 1, tokens=self.shard_tokens)  # an imaginary full shard before the first
        before = sum(each.tokens for each in shards)
        if shards:
            shard = shards[-1]
            self.say(f"{split}: continues after {before:,} tokens")
        stream = _Stream(encode(shard.segments), shard.segments, shard.taken)
        # A shard that is not full is the last one of its split.
        while shard.tokens == self.shard_tokens:
            shard = Shard(split, len(self.shards), last_end=shard.last_end)
            self._write_shard(shard, stream, before)
            before += shard.tokens
            shards.append(shard)
            self.shards.append(shard)
            self.say(f"{split}: {before:,} tokens")

    def _write_shard(self, shard: Shard, stream: _Stream, before: int) -> None:
        """Fill a shard from the stream; `before`: number of the split's tokens in earlier shards."""
        ends = [np.zeros(0, dtype=np.int64)]  # of documents, relative to the beginning of the split
        digest = hashlib.sha256()
        with atomic(self.folder / shard.file) as file:
            while shard.tokens < self.shard_tokens:
                taken = stream.take(self.shard_tokens - shard.tokens)
                if taken is None:
                    break
                content = taken.tokens.tobytes()
                digest.update(content)
                file.write(content)
                # A document without tokens ends where the previous one does, and is left out.
                new = np.unique(before + shard.tokens + taken.ends)
                new = new[new > shard.last_end]
                if len(new):
                    ends.append(new)
                    shard.last_end = int(new[-1])
                shard.tokens += len(taken.tokens)
                shard.bytes += taken.num_bytes
                shard.words += taken.num_words
                shard.unknown += taken.num_unknown
        shard.segments, shard.taken = stream.segments, stream.taken
        shard.sha256 = digest.hexdigest()
        shard.documents = sum(map(len, ends))
        content = np.concatenate(ends).astype("<i8").tobytes()
        shard.documents_sha256 = hashlib.sha256(content).hexdigest()
        with atomic(self.work / f"{shard.file}.documents") as file:
            file.write(content)
        # Written last: it marks the shard as finished.
        write_text(self.work / f"{shard.file}.json", plain_json(asdict(shard)))

    def _join_documents(self, split: Split, shards: list[Shard]) -> None:
        """Write the file with the beginning of each document of a split and the end of the last one."""
        with atomic(self.folder / documents_name(split)) as file:
            file.write(np.zeros(1, dtype="<i8").tobytes())
            for shard in shards:
                with open(self.work / f"{shard.file}.documents", "rb") as part:
                    shutil.copyfileobj(part, file)


class _Taken(NamedTuple):
    """Tokens of a stream, with counts of the segments that end among them."""

    tokens: Integer[np.ndarray, " n"]
    ends: Int[np.ndarray, " m"]  # of documents: tokens before each
    num_bytes: int
    num_words: int
    num_unknown: int


class _Stream:
    """Tokens of a split's segments, taken in parts of any size."""

    def __init__(self, jobs: Iterator[Encoded], segments: int, taken: int) -> None:
        """Set the start.

        Args:
            jobs: Tokenised segments.
            segments: Number of segments consumed before the first job.
            taken: Number of tokens consumed from the next segment.
        """
        self.segments = segments  # consumed
        self.taken = taken  # consumed from the next segment
        self._jobs = jobs
        self._job: Encoded | None = None
        self._edges = np.zeros(0, dtype=np.int64)  # end of each segment among the job's tokens
        self._first = 0  # the job's first segment that is not consumed
        self._begin = 0  # the job's next token

    def take(self, most: int) -> _Taken | None:
        """Return the next tokens, at most `most`; empty for segments without tokens, None at the end."""
        job = self._job
        if job is None:
            job = self._job = next(self._jobs, None)
            if job is None:
                return None
            self._edges = np.cumsum(job.lengths)
            # Only in the first job may a part of a segment have been consumed before.
            self._first, self._begin = 0, self.taken
        begin, end = self._begin, min(self._begin + most, len(job.tokens))
        last = int(np.searchsorted(self._edges, end, side="right"))  # segments of the job that end at `end` or before
        ended = slice(self._first, last)
        self.segments += last - self._first
        self.taken = end - (int(self._edges[last - 1]) if last else 0)
        self._first, self._begin = last, end
        if last == len(self._edges):
            self._job = None
        return _Taken(
            job.tokens[begin:end],
            self._edges[ended][job.ends[ended]] - begin,
            int(job.num_bytes[ended].sum()),
            int(job.num_words[ended].sum()),
            int(job.num_unknown[ended].sum()),
        )


def clear(folder: Path) -> None:
    """Remove the files that only an unfinished store needs."""
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)


def _file_entry(folder: Path, name: str) -> dict[str, Any]:
    """Return the index's entry for a file on disk."""
    path = folder / name
    return {"file": name, "bytes": path.stat().st_size, "sha256": file_hash(path)}
