"""Preparation of a token store: a source is tokenised once, by several processes, in bounded memory.

The folder records its data and options from the start (`source.json`): a second call continues with the same ones, or
raises an error if they differ.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

from seqtrain.data.sources.base import SPLITS, Segment, Source, Split
from seqtrain.data.token_store.encode import Encoded, encoded
from seqtrain.data.token_store.index import INDEX, TOKENIZER, TokenStore, open_store
from seqtrain.data.token_store.writer import Writer, clear
from seqtrain.data.tokenizers.encoding import Tokenizer, segments_of
from seqtrain.data.tokenizers.foreign import load_tokenizer
from seqtrain.data.tokenizers.recipes import Recipe
from seqtrain.errors import UserError, kind_of
from seqtrain.files import folders
from seqtrain.files.atomic import exists, listed, locked, plain_json
from seqtrain.files.checked import load_json

SOURCE = "source.json"
MAX_SOURCE_BYTES = 1 << 26


@runtime_checkable
class GivesSegments(Protocol):
    """A source whose documents may be larger than memory."""

    def segments(self, split: Split) -> Iterator[Segment]:
        """Return the `documents` of a split in segments of a bounded size, cut anywhere; raise UserError as it does."""
        ...


@runtime_checkable
class KnowsOrigins(Protocol):
    """A source that can detect changes of its text without decoding it."""

    def origins(self, splits: Sequence[Split]) -> dict[str, str]:
        """Return hashes by name, such as the hash of each file that the splits are read from."""
        ...


@dataclass(frozen=True)
class Order:
    """Options of a new store."""

    source: Source
    recipe: Recipe | None  # trains the tokenizer, if none is given
    tokenizer: Tokenizer | None
    asked: Mapping[str, Any]  # values by option; a second call must have the same
    processes: int
    shard_tokens: int  # tokens of every shard except the last one of a split
    sample: int  # maximum number of train's characters for training the tokenizer


def prepare(folder: Path, order: Order, say: Callable[[str], None]) -> TokenStore:
    """Write the store, or the rest of it after an earlier call; return it, open.

    Args:
        folder: A new folder, or the folder of an earlier call.
        order: Options of the store.
        say: Called with lines for the user.

    Raises:
        UserError: The folder contains something else, or was begun with another text, tokenizer or option.
        RunFailed: A worker process was killed.
    """
    splits: list[Split] = [split for split in SPLITS if order.source.has(split)]
    lock = _claim(folder, order, splits)
    try:
        if exists(folder / INDEX):
            store = open_store(folder)
            clear(folder)  # an earlier call may have been killed before it did this
            say(f"{folder}: is complete already (--verify compares its files with their hashes)")
            return store
        writer = Writer(folder, _tokenizer(folder, order, say), order.shard_tokens, say)
        entries: dict[Split, dict[str, Any]] = {}
        for split in splits:
            begin = time.perf_counter()
            new, encode = _counted(order, writer.tokenizer, split)
            entries[split] = writer.write_split(split, encode)
            seconds = time.perf_counter() - begin
            say(f"{split}: {sum(new):,} new tokens in {seconds:.1f} s, {sum(new) / seconds:,.0f} tokens/s")
        writer.finish(entries)
        return open_store(folder)
    finally:
        lock.close()


def _claim(folder: Path, order: Order, splits: list[Split]) -> IO[bytes]:
    """Return the lock of the folder, which records the order; raise UserError if the folder is not this store's."""
    origins = _origins(order.source, splits)
    wanted = {"asked": dict(order.asked), "origins": origins, "data": order.source.describe()}
    try:
        lock = folders.made(folder, SOURCE, plain_json(wanted, indent=1) + "\n")
    except OSError as error:
        raise kind_of(error)(f"--store {folder}: {error.strerror or error}; name a folder that can be made") from None
    if lock is not None:
        return lock
    if not exists(folder / SOURCE):
        what = "is a file"
        if folder.is_dir():
            what = f"contains other files ({', '.join(path.name for path in listed(folder)[:3])})"
        raise UserError(f"--store {folder}: {what}; name a new folder")
    lock = locked(folder / folders.LOCK)
    if lock is None:
        raise UserError(f"--store {folder}: another process is preparing it; wait until it has finished")
    try:
        _check_same(folder, wanted)
    except BaseException:
        lock.close()
        raise
    return lock


def _check_same(folder: Path, wanted: Mapping[str, Any]) -> None:
    """Raise UserError, with a line for each difference, if a folder was begun with something else."""
    path = folder / SOURCE
    try:
        begun = load_json(path, MAX_SOURCE_BYTES)
        asked, origins = dict(begun["asked"]), dict(begun["origins"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise kind_of(error)(f"{path}: does not record the store's data ({error!r}); name a new folder") from None
    faults = []
    for key in dict.fromkeys([*asked, *wanted["asked"]]):
        if asked.get(key) != wanted["asked"].get(key):
            faults.append(
                f"--store {folder}: was begun with {_option(key, asked)}, but this command has "
                f"{_option(key, wanted['asked'])}; name a new folder, or use the same options"
            )
    if faults:  # with other options the text differs, too
        raise UserError(*faults)
    for name in dict.fromkeys([*origins, *wanted["origins"]]):
        if name not in wanted["origins"]:
            faults.append(f"{name}: is missing, but {folder} was begun with it; restore it, or name a new folder")
        elif name not in origins:
            faults.append(f"{name}: is new, but {folder} was begun without it; remove it, or name a new folder")
        elif origins[name] != wanted["origins"][name]:
            faults.append(f"{name}: has changed since {folder} was begun; restore it, or name a new folder")
    if faults:
        raise UserError(*faults)


def _segments(source: Source, split: Split) -> Iterator[Segment]:
    """Return the documents of a split in segments, or whole if the source does not divide them."""
    if isinstance(source, GivesSegments):
        return source.segments(split)
    return (Segment(text, True) for text in source.documents(split))


def _origins(source: Source, splits: Sequence[Split]) -> dict[str, str]:
    """Return hashes that change with the text of these splits; by default hashes of the text itself."""
    if isinstance(source, KnowsOrigins):
        return source.origins(splits)
    found = {}
    for split in splits:
        digest = hashlib.sha256()
        for text, ends in _segments(source, split):
            digest.update(text.encode("utf-8", "surrogatepass"))
            if ends:  # UTF-8 never contains this byte
                digest.update(b"\xff")
        found[f"the text of {split}"] = digest.hexdigest()
    return found


def _option(key: str, asked: Mapping[str, Any]) -> str:
    return f"{key}={asked[key]}" if key in asked else f"no {key}"


def _tokenizer(folder: Path, order: Order, say: Callable[[str], None]) -> Tokenizer:
    """Return the store's tokenizer: that of an earlier call, a given one, or one trained on a sample of train."""
    path = folder / TOKENIZER
    if exists(path):
        return load_tokenizer(path)
    tokenizer = order.tokenizer
    if tokenizer is None:
        assert order.recipe is not None
        begin = time.perf_counter()
        tokenizer = order.recipe.train(_sample(order.source, order.sample, say))
        seconds = time.perf_counter() - begin
        say(f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size:,} tokens, made in {seconds:.1f} s")
    tokenizer.save(path)
    return tokenizer


def _sample(source: Source, most: int, say: Callable[[str], None]) -> Iterator[str]:
    """Yield evenly spread parts of train, about `most` characters in total; all of train if it is shorter."""
    total = sum(len(text) for text, _ in _segments(source, "train"))
    if total > most:
        say(f"tokenizer: made from {most / total:.1%} of train's characters, spread over all of it (--sample)")
    position, kept = 0, 0
    for text, _ in segments_of(_segments(source, "train")):
        # Take a segment whenever the sample is smaller than its share of the text so far.
        if total <= most or kept * total <= most * position:
            kept += len(text)
            yield text
        position += len(text)


def _counted(order: Order, tokenizer: Tokenizer, split: Split) -> tuple[list[int], Callable[[int], Iterator[Encoded]]]:
    """Return a list, and a function that encodes a split from a given segment on and adds token counts to the list."""
    new: list[int] = []

    def encode(first: int) -> Iterator[Encoded]:
        whole = segments_of(_segments(order.source, split), at_spaces=tokenizer.at_spaces)
        segments = itertools.islice(whole, first, None)
        for job in encoded(tokenizer, segments, order.processes):
            new.append(len(job.tokens))
            yield job

    return new, encode
