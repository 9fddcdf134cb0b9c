"""`seqtrain prepare`: tokenise text once, on all cores and in bounded memory, into a folder to train from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.cli.arguments import Parser, bounded
from seqtrain.config.groups import own_options
from seqtrain.config.ranges import Range
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.runs.provenance import cores
from seqtrain.training.callbacks.signals import Interrupted

if TYPE_CHECKING:
    from seqtrain.data.token_store.index import TokenStore
    from seqtrain.data.token_store.prepare import Order

GROUPS = ("data", "tokenizer")  # groups that a store depends on; all others belong to training
SHARD_TOKENS = 1 << 24
SAMPLE = 1 << 25
MAX_PROCESSES = 1 << 10


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "prepare",
        "Tokenise text once into a token store: a folder of shards that `data=tokens` maps into memory for training.\n"
        "OVERRIDE chooses text and tokenizer, as for train. After an interruption, the same command continues.",
        "seqtrain prepare data=text 'data.path=corpus/*.txt' tokenizer=bpe tokenizer.size=8192 --store my_store",
    )
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    parser.add_argument(
        "--store", type=Path, metavar="FOLDER", required=True, help="a new folder, or an unfinished store to continue"
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="an existing tokenizer.json, such as that of a run or another store",
    )
    parser.add_argument(
        "--sample",
        type=bounded(Range(1000, 10**12, whole=True)),
        default=SAMPLE,
        metavar="N",
        help=f"characters to train the tokenizer on, spread over the train split (default: {SAMPLE:,})",
    )
    parser.add_argument(
        "--shard-tokens",
        type=bounded(Range(1, 1 << 34, whole=True)),
        default=SHARD_TOKENS,
        metavar="N",
        help=f"tokens per file; a kill loses at most one file (default: {SHARD_TOKENS:,})",
    )
    parser.add_argument(
        "--processes",
        type=bounded(Range(1, MAX_PROCESSES, whole=True)),
        metavar="N",
        help="processes that tokenise in parallel; the result is the same (default: number of cores)",
    )
    parser.add_argument("--verify", action="store_true", help="read a finished store and compare it with its hashes")
    parser.add_config_dir()
    options = parser.parse_intermixed_args(argv)
    if options.verify:
        return _verify(options)
    return _prepare(options)


def _prepare(options: Any) -> int:
    order = _order(options)
    from seqtrain.data.token_store.prepare import prepare

    try:
        store = prepare(options.store, order, say)
    except Interrupted:
        say(f"{options.store}: is not finished; the same command continues after its last shard")
        raise
    _print_sizes(store, options.json)
    return 0


def _verify(options: Any) -> int:
    if options.overrides:
        raise UserError(f"{options.overrides[0]}: --verify reads only the store; leave it out")
    from seqtrain.data.token_store.index import verify_files

    count = sum(1 for _ in verify_files(options.store))
    say(f"{options.store}: all {count:,} files match their hashes")
    return 0


def _order(options: Any) -> Order:
    """Return the order for the token store; raise UserError if it cannot be made."""
    from seqtrain.config import check
    from seqtrain.config.instantiate import make, plain, source_of
    from seqtrain.data.token_store.prepare import Order

    _check_words(options.overrides, options.tokenizer is not None)
    config = check.compose(options.overrides, options.config_dir).config
    source = source_of(config.data)
    if "text" not in source.fields:
        raise UserError("data: has no text documents, which a token store needs; use data=text or data=hub")
    source.check()
    recipe, tokenizer = make(config.tokenizer), None
    asked = {f"data.{key}": value for key, value in plain(config.data).items() if key not in own_options("data")}
    if options.tokenizer is not None:
        from seqtrain.data.tokenizers.foreign import load_tokenizer

        tokenizer = load_tokenizer(options.tokenizer)
        asked["--tokenizer"] = f"a tokenizer of hash {tokenizer.hash}"
    else:
        if not recipe.reads_text:
            raise UserError("tokenizer=none: makes no tokens; use tokenizer=bpe, byte, char or word")
        asked |= {f"tokenizer.{key}": value for key, value in plain(config.tokenizer).items()}
        asked["--sample"] = options.sample
    asked["--shard-tokens"] = options.shard_tokens
    asked = {key: value for key, value in asked.items() if "_recommend_" not in key}
    processes = options.processes or cores() or 1
    return Order(source, recipe, tokenizer, asked, processes, options.shard_tokens, options.sample)


def _check_words(overrides: Sequence[str], has_tokenizer: bool) -> None:
    """Raise UserError for overrides that do not apply to a token store."""
    from seqtrain.config import check

    keys = [check.key_of(word) for word in overrides]
    if "data" not in keys:
        raise UserError("seqtrain prepare: needs text; add data=text data.path=..., or other data")
    faults = []
    for word, key in zip(overrides, keys, strict=True):
        group, _, option = key.partition(".")
        if group not in GROUPS:
            faults.append(f"{word}: a token store depends only on data and tokenizer; leave it out")
        elif group == "data" and option in own_options("data"):
            faults.append(f"{word}: is an option for reading the store; give it to train")
        elif group == "tokenizer" and has_tokenizer:
            faults.append(f"{word}: the tokenizer is that of --tokenizer; leave one of them out")
    if faults:
        raise UserError(*faults)


def _print_sizes(store: TokenStore, as_json: bool) -> None:
    splits: dict[str, dict[str, int]] = {}
    for split, corpus in store.splits.items():
        documents = len(corpus.documents) - 1
        splits[split] = {"tokens": len(corpus.tokens), "documents": documents, "bytes": corpus.num_bytes}
    if as_json:
        print(json.dumps({"store": str(store.path), "hash": store.hash, "splits": splits}))
        return
    for split, sizes in splits.items():
        print(f"{split}: {sizes['tokens']:,} tokens, {sizes['documents']:,} documents, {sizes['bytes']:,} bytes")
    print(f"`seqtrain train data=tokens data.path={store.path}` trains from it")
