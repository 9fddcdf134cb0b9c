"""`seqtrain search`: the texts that are nearest to another, by the cosine of their embeddings."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtrain.api import Trained, load
from seqtrain.cli.arguments import Parser, bounded
from seqtrain.cli.embed import POOL_HELP, POOLS, columns, groups, origin, sound
from seqtrain.cli.lines import from_arguments, from_file, open_file, open_lines
from seqtrain.config.ranges import ANSWER_RANGES
from seqtrain.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

MAGIC = b"PAR1"  # how a parquet file begins
ROWS = 4096  # that are in memory at a time

Found = dict[str, Any]


def main(argv: list[str]) -> int:
    """The command."""
    parser = Parser(
        "search",
        "The texts of a corpus that are nearest to a query, by the cosine of their embeddings, nearest first.",
        "seqtrain search outputs/2026-11-21_02-04-00_sentiment_bert --corpus texts.txt 'a lovely evening' --top-k 3",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("query", metavar="QUERY")
    parser.add_argument(
        "--corpus",
        type=Path,
        metavar="FILE",
        required=True,
        help="a text a line (- is standard input), or the parquet file that embed made with this run",
    )
    parser.add_argument("--top-k", type=bounded(ANSWER_RANGES["top_k"]), default=5, metavar="K")
    parser.add_argument("--pool", choices=POOLS, help=f"{POOL_HELP}; of a parquet file its own")
    parser.add_argument("--checkpoint", default="best", choices=("best", "last"))
    options = parser.parse_intermixed_args(argv)
    made = _is_parquet(options.corpus)
    best, bad = _search(options, made)
    for score, found in best:
        answer = {"score": score, **found}
        print(json.dumps(answer, ensure_ascii=False) if options.json else f"{score:7.4f}  {found['text']}")
    return 2 if bad else 0


def _search(options: argparse.Namespace, made: bool) -> tuple[list[tuple[float, Found]], int]:
    """The nearest texts with their scores, and how many lines could not be read."""
    from seqtrain.inference.embedding import TopK

    trained = load(options.run, trust=options.trust, checkpoint=options.checkpoint)
    (query,) = from_arguments([options.query])
    if reason := query.reason or trained.opened.text_reader.reason(query.text):
        raise UserError(f"QUERY: {reason}")
    pool = _made_pool(options, trained) if made else options.pool or "mean"
    nearest = TopK(trained.embed([query.text], pool=pool)[0], options.top_k)
    bad = 0
    if made:
        for vectors, texts in _stored(options.corpus, trained.model.dim):
            nearest.add(vectors, texts)
    else:
        for group in groups(from_file(open_lines(options.corpus), options.corpus)):
            good = sound(trained, group)
            bad += len(group) - len(good)
            if good:
                texts = [{"text": line.text, **line.place} for line in good]
                nearest.add(trained.embed([line.text for line in good], pool=pool), texts)
    return nearest.best, bad


def _is_parquet(path: Path) -> bool:
    if str(path) == "-":
        return False
    with open_file(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def _made_pool(options: argparse.Namespace, trained: Trained) -> Any:
    """How the vectors of a parquet file were pooled; UserError where they are not this run's."""
    from pyarrow import parquet

    with _told(options.corpus):
        schema = parquet.read_schema(options.corpus)
    metadata = schema.metadata or {}
    stored = {
        name: metadata.get(f"seqtrain.{name}".encode(), b"").decode("utf-8", "replace")
        for name in ("run", "step", "pool")
    }
    if stored["pool"] not in POOLS or any(
        name not in schema.names or schema.field(name).type != kind for name, kind in columns().items()
    ):
        raise UserError(
            f"--corpus {options.corpus}: not made by `seqtrain embed`; give a file that is, or texts, one a line"
        )
    mine = origin(trained, options.pool or stored["pool"])
    differing = [f"{name} {stored[name]}, not {mine[name]}" for name in mine if stored[name] != mine[name]]
    if differing:
        raise UserError(
            f"--corpus {options.corpus}: its vectors cannot be compared with the query's: they are of "
            f"{' and '.join(differing)}; make them again with `seqtrain embed`"
        )
    return stored["pool"]


def _stored(path: Path, dim: int) -> Iterator[tuple[Tensor, list[Found]]]:
    """Vectors (n, D) and texts of a parquet file; UserError where it holds others than embed writes."""
    import numpy as np
    import torch
    from pyarrow import parquet

    with _told(path), parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS, columns=list(columns())):
            batch.validate(full=True)
            vectors = batch.column("embedding")
            values = vectors.flatten().to_numpy(zero_copy_only=False)
            whole = all(part.null_count == 0 for part in (*batch.columns, vectors.flatten()))
            even = whole and set(vectors.value_lengths().to_pylist()) <= {dim}
            if not even or not np.isfinite(values).all():
                raise UserError(
                    f"--corpus {path}: holds other rows than {dim} finite numbers of a text each; "
                    "make it again with `seqtrain embed`"
                )
            yield torch.tensor(values).view(-1, dim), batch.select(["text", "line"]).to_pylist()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What pyarrow raises of a damaged file becomes one line."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"--corpus {path}: not a parquet file that can be read ({reason})") from None
