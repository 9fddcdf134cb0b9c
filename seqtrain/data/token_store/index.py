"""What stands in a token store, as its index.json says: files with their sizes and hashes, the tokenizer, the splits.

A store is a folder: `shard-00000.bin` and so on hold tokens, `train.documents.bin` where documents begin and the last
one ends, `tokenizer.json` what made them. index.json is written last, and is a function of text, tokenizer and size of
a shard alone: neither times nor paths stand in it, nor how many processes wrote it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from seqtrain.data.corpus import DTYPES, Corpus
from seqtrain.data.sources.base import SPLITS, Split
from seqtrain.data.token_store.tokens import MappedTokens, Part, mapped_offsets
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.errors import Unavailable, UserError, kind_of
from seqtrain.files.atomic import plain_json, write_text
from seqtrain.files.checked import file_hash, load_json, open_checked

INDEX, TOKENIZER = "index.json", "tokenizer.json"
FORMAT = 1
MAX_INDEX_BYTES = 1 << 27  # some 500,000 shards
COUNTS = ("tokens", "documents", "bytes", "words", "unknown")  # of a split


@dataclass(frozen=True)
class TokenStore:
    """Splits of tokens that one tokenizer made, open for reading."""

    path: Path
    tokenizer: Tokenizer
    hash: str  # what identifies tokens, documents and tokenizer
    splits: dict[Split, Corpus]
    remarks: tuple[str, ...] = ()  # what a person should know of how it was read


def shard_name(number: int) -> str:
    """The file of a shard; numbers go through all splits."""
    return f"shard-{number:05d}.bin"


def documents_name(split: str) -> str:
    """The file with the offsets of a split's documents."""
    return f"{split}.documents.bin"


def dtype_of(vocab_size: int) -> str:
    """How tokens of such a vocabulary are written: two bytes each where that is enough for the special ones, too."""
    small, large = DTYPES
    return small if vocab_size + 1 < 1 << 16 else large


def write_index(folder: Path, content: Mapping[str, Any]) -> None:
    """Writes index.json with the hash of its own content, which makes a store of the folder."""
    whole = {**content, "hash": _content_hash(content)}
    write_text(folder / INDEX, plain_json(whole, indent=1) + "\n")


def open_store(folder: Path) -> TokenStore:
    """The store in a folder, verified by its index and by the sizes of its files; no token is read.

    Args:
        folder: What `seqtrain prepare --store` wrote.

    Raises:
        UserError: It is no store, is not finished, or a file is missing, of another size or of another store.
    """
    content = read_index(folder)
    try:
        tokenizer = _tokenizer(folder, content)
        splits = {}
        for split in SPLITS:
            if split in content["splits"]:
                splits[split] = _open_split(folder, split, content, tokenizer)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{folder / INDEX}: is no index of a token store ({error!r})") from None
    return TokenStore(folder, tokenizer, content["hash"], splits)


def read_index(folder: Path) -> dict[str, Any]:
    """The content of a store's index.json; UserError where there is none, or it is damaged."""
    path = folder / INDEX
    try:
        content = load_json(path, MAX_INDEX_BYTES)
    except FileNotFoundError:
        raise Unavailable(
            f"{folder}: no token store ({INDEX} is missing); where it was moved, put it or a link to it back; "
            f"`seqtrain prepare --store {folder}` makes one, or goes on with one that was interrupted"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise kind_of(error)(f"{path}: is no index of a token store ({error})") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{path}: is no index of a token store that this version can read")
    without_hash = {key: value for key, value in content.items() if key != "hash"}
    if content.get("hash") != _content_hash(without_hash):
        raise UserError(f"{path}: is damaged or was edited, as its hash says; remove the folder and prepare it again")
    return content


def verify_files(folder: Path) -> Iterator[str]:
    """Reads every file that belongs to a store; gives the names of those that are as they were written.

    Raises UserError for the first that is not.
    """
    content = read_index(folder)
    _tokenizer(folder, content)
    yield TOKENIZER
    for split in content["splits"].values():
        for entry in (*split["shards"], split["documents_file"]):
            _check_file(folder, entry)
            if file_hash(folder / entry["file"]) != entry["sha256"]:
                raise UserError(
                    f"{folder / entry['file']}: is damaged, as its hash says; remove the folder and prepare it again"
                )
            yield entry["file"]


def _tokenizer(folder: Path, content: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a store; UserError where it is missing, or is another."""
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    if tokenizer.hash != content["tokenizer"]["hash"]:
        raise UserError(f"{folder / TOKENIZER}: is not the tokenizer of this store; put the store's own file back")
    return tokenizer


def _open_split(folder: Path, split: Split, content: Mapping[str, Any], tokenizer: Tokenizer) -> Corpus:
    entry = content["splits"][split]
    dtype = content["dtype"]
    if dtype not in DTYPES:  # memory that is read as objects would be jumped to
        raise ValueError(f"dtype {dtype}")
    parts = []
    for shard in entry["shards"]:
        _check_file(folder, shard)
        parts.append(Part(folder / shard["file"], dtype, 0, shard["tokens"]))
    if [part.count * int(dtype[-1]) for part in parts] != [shard["bytes"] for shard in entry["shards"]]:
        raise ValueError("a shard's bytes are not those of its tokens")
    tokens = MappedTokens(parts, tokenizer.vocab_size)
    _check_file(folder, entry["documents_file"])
    documents = mapped_offsets(folder / entry["documents_file"]["file"])
    counts = {name: int(entry[name]) for name in COUNTS}
    # Its ends alone: to look whether all of them rise would read them all.
    ends = [0, counts["tokens"], counts["documents"] + 1]
    if [int(documents[0]), int(documents[-1]), len(documents)] != ends or len(tokens) != counts["tokens"]:
        raise ValueError(f"the documents of {split} do not fit its tokens")
    # Two splits of one store are two texts; the tokenizer decides what the same bytes mean.
    identity = json.dumps([entry, content["tokenizer"]["hash"]], sort_keys=True)
    hash = hashlib.sha256(identity.encode()).hexdigest()[:32]
    return Corpus(tokens, documents, counts["bytes"], counts["words"], counts["unknown"], hash)


def _check_file(folder: Path, entry: Mapping[str, Any]) -> None:
    """UserError where a file that the index names is missing, or has another size."""
    name = cast(str, entry["file"])
    if Path(name).name != name:  # an index from elsewhere may name any file
        raise ValueError(f"file {name}")
    path = folder / name
    try:
        with open_checked(path) as file:
            size = file.seek(0, 2)
    except FileNotFoundError:
        raise Unavailable(f"{path}: is missing; copy the whole store, or prepare it again") from None
    if size != entry["bytes"]:
        raise UserError(
            f"{path}: has {size:,} bytes, and {entry['bytes']:,} were written; it is cut off, or of another store"
        )


def _content_hash(content: Mapping[str, Any]) -> str:
    """SHA-256 of what an index says, whatever the order of its keys and its white space."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
