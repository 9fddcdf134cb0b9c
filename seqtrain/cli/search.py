"""`seqtrain search`: find the texts nearest to a query, by the cosine of their embeddings."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.api import Trained, load
from seqtrain.cli.arguments import Parser, bounded
from seqtrain.cli.embed import POOL_HELP, POOLS, columns, groups, origin, readable
from seqtrain.cli.lines import from_arguments, from_file, open_file, open_lines
from seqtrain.config.ranges import ANSWER_RANGES
from seqtrain.errors import UserError
from seqtrain.terminal import printable

if TYPE_CHECKING:
    import pyarrow
    from torch import Tensor

MAGIC = b"PAR1"  # first bytes of a parquet file
ROWS = 4096  # rows in memory at a time

TextRow = dict[str, Any]
"""A text of the corpus, and its place there."""


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "search",
        "Print the texts of a corpus that are nearest to a query, by the cosine of their embeddings, nearest first.",
        "seqtrain search outputs/2026-11-21_02-04-00_sentiment_bert --corpus texts.txt 'a lovely evening' --top-k 3",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("query", metavar="QUERY")
    parser.add_argument(
        "--corpus",
        type=Path,
        metavar="FILE",
        required=True,
        help="one text per line (- is standard input), or a parquet file that embed made with this run",
    )
    parser.add_argument("--top-k", type=bounded(ANSWER_RANGES["top_k"]), default=5, metavar="K")
    parser.add_argument("--pool", choices=POOLS, help=f"{POOL_HELP}; a parquet file has its own")
    parser.add_argument("--checkpoint", default="best", choices=("best", "last"))
    options = parser.parse_intermixed_args(argv)
    best, bad = _search(options)
    for score, row in best:
        if options.json:
            print(json.dumps({"score": score, **row}, ensure_ascii=False))
        else:
            print(f"{score:7.4f}  {printable(row['text'])}")
    return 2 if bad else 0


def _search(options: argparse.Namespace) -> tuple[list[tuple[float, TextRow]], int]:
    """Return the nearest texts with their scores, and the number of lines that could not be read."""
    from seqtrain.inference.embedding import TopK, pool_of

    embedded = _is_parquet(options.corpus)
    trained = load(options.run, trust=options.trust, checkpoint=options.checkpoint)
    (query,) = from_arguments([options.query])
    reason = query.reason or trained.opened.text_reader.reason(query.text)
    if reason:
        raise UserError(f"QUERY: {reason}")
    pool = options.pool or pool_of(trained.task)
    if embedded:
        pool = _stored_pool(options, trained)
    nearest = TopK(trained.embed([query.text], pool=pool)[0], options.top_k)
    if embedded:
        for vectors, rows in _stored(options.corpus, trained.model.dim):
            nearest.add(vectors, rows)
        return nearest.best, 0
    bad = 0
    # In groups: only the nearest texts stay in memory, however long the corpus is.
    for group in groups(from_file(open_lines(options.corpus), options.corpus)):
        good = readable(trained, group)
        bad += len(group) - len(good)
        if good:
            rows = [{"text": line.text, **line.place} for line in good]
            nearest.add(trained.embed([line.text for line in good], pool=pool), rows)
    return nearest.best, bad


def _is_parquet(path: Path) -> bool:
    if str(path) == "-":  # a pipe cannot be read twice, so it is assumed to be text
        return False
    with open_file(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def _stored_pool(options: argparse.Namespace, trained: Trained) -> Any:
    """Return the pooling of a parquet file's vectors; raise UserError if they are not of this run and step."""
    from pyarrow import parquet

    # Check the file's metadata before a vector is read.
    with _readable_parquet(options.corpus):
        schema = parquet.read_schema(options.corpus)
    metadata = schema.metadata or {}
    stored = {}
    for name in ("run", "step", "pool"):
        stored[name] = metadata.get(f"seqtrain.{name}".encode(), b"").decode("utf-8", "replace")
    if stored["pool"] not in POOLS or not _has_columns(schema):
        raise UserError(
            f"--corpus {options.corpus}: not made by `seqtrain embed`; give a file that is, or texts, one a line"
        )
    # Cosines with vectors of another checkpoint or pooling are meaningless.
    mine = origin(trained, options.pool or stored["pool"])
    differing = [f"{name} {stored[name]}, not {mine[name]}" for name in mine if stored[name] != mine[name]]
    if differing:
        raise UserError(
            f"--corpus {options.corpus}: its vectors cannot be compared with the query's: they are of "
            f"{' and '.join(differing)}; make them again with `seqtrain embed`"
        )
    return stored["pool"]


def _has_columns(schema: pyarrow.Schema) -> bool:
    """Return True if a parquet file has the columns that embed writes, with their types."""
    return all(name in schema.names and schema.field(name).type == kind for name, kind in columns().items())


def _stored(path: Path, dim: int) -> Iterator[tuple[Tensor, list[TextRow]]]:
    """Yield vectors (n, D) and texts of a parquet file; raise UserError for rows that embed would not write."""
    import numpy as np
    import torch
    from pyarrow import parquet

    with _readable_parquet(path), parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS, columns=list(columns())):
            batch.validate(full=True)  # offsets of a damaged file could lead outside its memory
            vectors = batch.column("embedding")
            numbers = vectors.flatten()
            values = numbers.to_numpy(zero_copy_only=False)
            whole = not any(column.null_count for column in (*batch.columns, numbers))
            even = whole and set(vectors.value_lengths().to_pylist()) <= {dim}
            if not even or not np.isfinite(values).all():
                raise UserError(
                    f"--corpus {path}: holds other rows than {dim} finite numbers of a text each; "
                    "make it again with `seqtrain embed`"
                )
            yield torch.tensor(values).view(-1, dim), batch.select(["text", "line"]).to_pylist()


@contextmanager
def _readable_parquet(path: Path) -> Iterator[None]:
    """Turn pyarrow's errors for a damaged file into a one-line UserError."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"--corpus {path}: not a parquet file that can be read ({reason})") from None
