"""A token store's index.json: files with their sizes and hashes, the tokenizer and the splits.

A store is a folder: `shard-00000.bin` and so on contain tokens, `train.documents.bin` contains the beginning of each
document and the end of the last one, and `tokenizer.json` is the tokenizer. index.json is written last. It depends only
on text, tokenizer and shard size, not on times, paths or the number of processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, cast

import numpy as np

from seqtrain.data.cache import cached_json
from seqtrain.data.corpus import DTYPES, Corpus
from seqtrain.data.sources.base import SPLITS, Split
from seqtrain.data.token_store.tokens import MappedTokens, Part, mapped_offsets
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.data.tokenizers.foreign import load_tokenizer
from seqtrain.errors import Unavailable, UserError, kind_of
from seqtrain.files.atomic import plain_json, write_text
from seqtrain.files.checked import file_hash, load_json, open_checked

INDEX, TOKENIZER = "index.json", "tokenizer.json"
MISSING = "is missing; copy the whole store, or prepare it again"
FORMAT = 1
MAX_INDEX_BYTES = 1 << 27  # some 500,000 shards
COUNTS = ("tokens", "documents", "bytes", "words", "unknown")  # of a split
MAX_CHECKED = 1 << 22  # maximum number of documents whose order is checked at every start, in some milliseconds


@dataclass(frozen=True)
class TokenStore:
    """Splits tokenised by one tokenizer, open for reading."""

    path: Path
    tokenizer: Tokenizer
    hash: str  # identifies tokens, documents and tokenizer
    splits: dict[Split, Corpus]
    remarks: tuple[str, ...] = ()  # lines about the store, logged before training


def shard_name(number: int) -> str:
    """Return the file name of a shard; shards of all splits are numbered consecutively."""
    return f"shard-{number:05d}.bin"


def documents_name(split: str) -> str:
    """Return the name of the file with the offsets of a split's documents."""
    return f"{split}.documents.bin"


def dtype_of(vocab_size: int) -> str:
    """Return the dtype of tokens for a vocabulary: two bytes if all ids fit, including special tokens."""
    small, large = DTYPES
    return small if vocab_size + 1 < 1 << 16 else large


def write_index(folder: Path, content: Mapping[str, Any]) -> None:
    """Write index.json with the hash of its content, which makes the folder a complete store."""
    whole = {**content, "hash": _content_hash(content)}
    write_text(folder / INDEX, plain_json(whole, indent=1) + "\n")


def open_store(folder: Path) -> TokenStore:
    """Open the store in a folder; check its index, and the sizes and times of its files.

    A file that changed after the index is read once and compared with its hash; the cache keeps the result until the
    file changes again. No tokens of other files are read.

    Args:
        folder: Folder that `seqtrain prepare --store` wrote.

    Raises:
        UserError: The folder is not a store or is not finished; or a file is missing, or its size or content differs.
    """
    content = read_index(folder)
    since = (folder / INDEX).stat().st_ctime_ns
    compared = 0
    try:
        tokenizer = _tokenizer(folder, content)
        splits = {}
        for split in SPLITS:
            if split in content["splits"]:
                for file in (*content["splits"][split]["shards"], content["splits"][split]["documents_file"]):
                    compared += _check_unchanged(folder, file, since)
                splits[split] = _open_split(folder, split, content, tokenizer)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{folder / INDEX}: is not an index of a token store ({error!r})") from None
    remark = f"{folder}: {compared} files are newer than {INDEX}, as after a copy: each was compared with its hash"
    return TokenStore(folder, tokenizer, content["hash"], splits, (remark,) if compared else ())


def read_index(folder: Path) -> dict[str, Any]:
    """Return the content of a store's index.json; raise UserError if it is missing or damaged."""
    path = folder / INDEX
    if folder.is_file():
        raise UserError(f"{folder}: is a file; a token store is a folder, made by `seqtrain prepare`")
    try:
        content = load_json(path, MAX_INDEX_BYTES)
    except FileNotFoundError:
        raise Unavailable(
            f"{folder}: no token store ({INDEX} is missing); if the store was moved, move it back or set a link; "
            f"`seqtrain prepare --store {folder}` writes a new store, or continues one that was interrupted"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise kind_of(error)(f"{path}: is not an index of a token store ({error})") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{path}: is not an index of a token store that this version can read")
    without_hash = {key: value for key, value in content.items() if key != "hash"}
    if content.get("hash") != _content_hash(without_hash):
        raise UserError(f"{path}: does not match its hash (damaged or edited); remove the folder and prepare it again")
    return content


def verify_files(folder: Path) -> Iterator[str]:
    """Compare every file of a store with its hash; yield the names of unchanged files.

    Afterwards the index is the newest file, so later starts do not read the others again.

    Raises:
        UserError: A file has changed.
    """
    content = read_index(folder)
    _tokenizer(folder, content)
    yield TOKENIZER
    for split in content["splits"].values():
        for entry in (*split["shards"], split["documents_file"]):
            _check_file(folder, entry)
            _check_hash(folder / entry["file"], file_hash(folder / entry["file"]), entry)
            yield entry["file"]
    with contextlib.suppress(OSError):  # a read-only store
        os.utime(folder / INDEX)


def _tokenizer(folder: Path, content: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of a store; raise UserError if it is missing or is not the store's."""
    if not (folder / TOKENIZER).exists():
        raise Unavailable(f"{folder / TOKENIZER}: {MISSING}")
    tokenizer = load_tokenizer(folder / TOKENIZER)
    if tokenizer.hash != content["tokenizer"]["hash"]:
        raise UserError(f"{folder / TOKENIZER}: is not the tokenizer of this store; restore the original file")
    return tokenizer


def _open_split(folder: Path, split: Split, content: Mapping[str, Any], tokenizer: Tokenizer) -> Corpus:
    entry = content["splits"][split]
    dtype = content["dtype"]
    if dtype not in DTYPES:  # an edited index could say "object": bytes would be used as pointers
        raise ValueError(f"dtype {dtype}")
    parts = []
    for shard in entry["shards"]:
        parts.append(Part(folder / shard["file"], dtype, 0, index(shard["tokens"])))
    if [part.count * int(dtype[-1]) for part in parts] != [shard["bytes"] for shard in entry["shards"]]:
        raise ValueError("a shard's bytes are not those of its tokens")
    tokens = MappedTokens(parts, tokenizer.vocab_size)
    documents = mapped_offsets(folder / entry["documents_file"]["file"])
    counts = {name: index(entry[name]) for name in COUNTS}
    ends = [0, counts["tokens"], counts["documents"] + 1]
    if [int(documents[0]), int(documents[-1]), len(documents)] != ends or len(tokens) != counts["tokens"]:
        raise ValueError(f"the documents of {split} do not fit its tokens")
    if len(documents) <= MAX_CHECKED and (np.diff(documents) <= 0).any():
        raise ValueError(f"the document offsets of {split} are not increasing")
    # Each split has its own hash; it includes the tokenizer, which decides what the same bytes mean.
    identity = json.dumps([entry, content["tokenizer"]["hash"]], sort_keys=True)
    hash = hashlib.sha256(identity.encode()).hexdigest()[:32]
    return Corpus(tokens, documents, counts["bytes"], counts["words"], counts["unknown"], hash)


def _check_unchanged(folder: Path, entry: Mapping[str, Any], since: int) -> bool:
    """Compare a file with its hash, once, if it changed after `since`; return True if it did.

    Args:
        folder: The store.
        entry: The file's entry in the index.
        since: Change time (ctime) of the index, in nanoseconds.

    Raises:
        UserError: The file is missing, or its size or content differs.
    """
    path, stat = folder / entry["file"], _check_file(folder, entry)
    if stat.st_ctime_ns <= since:  # unlike the modification time, the change time cannot be set back
        return False
    key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
    _check_hash(path, cached_json(f"sha256 {key}", lambda: file_hash(path)), entry)
    return True


def _check_hash(path: Path, found: str, entry: Mapping[str, Any]) -> None:
    if found != entry["sha256"]:
        raise UserError(f"{path}: does not match its hash; remove the folder and prepare it again")


def _check_file(folder: Path, entry: Mapping[str, Any]) -> os.stat_result:
    """Return size and times of a file in the index; raise UserError if it is missing or its size differs."""
    name = cast(str, entry["file"])
    if Path(name).name != name:  # an untrusted index may name any file
        raise ValueError(f"file {name}")
    path = folder / name
    try:
        with open_checked(path) as file:
            stat = os.fstat(file.fileno())
    except FileNotFoundError:
        raise Unavailable(f"{path}: {MISSING}") from None
    if stat.st_size != entry["bytes"]:
        raise UserError(
            f"{path}: has {stat.st_size:,} bytes instead of {entry['bytes']:,}; it is truncated, or belongs to another "
            "store"
        )
    return stat


def _content_hash(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of an index's content, independent of the order of its keys and its white space."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
