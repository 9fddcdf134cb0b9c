"""`seqtrain embed`: write one vector for each text into a parquet file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seqtrain.api import Trained, load
from seqtrain.cli.arguments import Parser
from seqtrain.cli.lines import Line, check_apart, from_file, open_lines
from seqtrain.distributed.ranks import say
from seqtrain.errors import UserError
from seqtrain.files.atomic import atomic

if TYPE_CHECKING:
    import pyarrow

    from seqtrain.tasks.output import TextPool

GROUP = 1024  # texts in memory at a time
POOLS = ("mean", "mean_all", "last", "cls")
POOL_HELP = (
    "mean: over the positions of the text, for every model; mean_all: also over the special tokens, as in "
    "sentence-transformers; last: the last position, for models that read from left to right; cls: the first position, "
    "for models that read in both directions; default: task.pool for a run of task=pairs, otherwise mean"
)


def main(argv: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = Parser(
        "embed",
        "Write one vector for each line of text, pooled from the hidden states of a run's model.\n"
        "The parquet file has the columns text, embedding (list<float32>) and line.",
        "seqtrain embed outputs/2026-11-21_02-04-00_sentiment_bert --input texts.txt --output vectors.parquet",
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument(
        "--input", type=Path, metavar="FILE", required=True, help="one text per line; - is standard input"
    )
    parser.add_argument("--output", type=Path, metavar="FILE.parquet", required=True)
    parser.add_argument("--pool", choices=POOLS, help=POOL_HELP)
    parser.add_argument("--checkpoint", default="best", choices=("best", "last"))
    options = parser.parse_args(argv)
    check_apart(options.input, options.output)
    if options.output.suffix != ".parquet":
        raise UserError(f"--output {options.output}: vectors are written as parquet; name a file that ends in .parquet")
    # The files are checked first: loading the model takes seconds.
    file = open_lines(options.input)
    if not options.output.absolute().parent.is_dir():
        raise UserError(f"--output {options.output}: no such folder")

    from seqtrain.inference.embedding import check_pool, pool_of

    trained = load(options.run, trust=options.trust, checkpoint=options.checkpoint)
    if trained.opened.preprocessor.series is not None:
        raise UserError(f"embed: task={trained.opened.task.name()} reads series, not text; use a run that reads text")
    pool = options.pool or pool_of(trained.task)
    check_pool(trained.model, pool)
    try:
        written, bad = _write(trained, from_file(file, options.input), options.output, pool)
    except OSError as error:
        raise UserError(f"--output {options.output}: {error.strerror}") from None
    if options.json:
        print(json.dumps({"output": str(options.output), "texts": written, "errors": bad, "pool": pool}))
    else:
        say(f"{options.output}: {written:,} embeddings of {trained.model.dim} numbers, pool={pool}")
    return 2 if bad else 0


def _write(trained: Trained, arriving: Iterable[list[Line]], path: Path, pool: TextPool) -> tuple[int, int]:
    """Write the file, unless no text can be embedded. Return the number of texts written and of bad texts.

    Args:
        trained: The run whose model embeds the texts.
        arriving: Lines of text, in groups as they arrive.
        path: The parquet file.
        pool: The pooling of hidden states, one of POOLS.

    Raises:
        UserError: If no line of the input can be embedded.
    """
    import pyarrow
    from pyarrow import parquet

    metadata = {f"seqtrain.{key}": value for key, value in origin(trained, pool).items()}  # for `seqtrain search`
    schema = pyarrow.schema(columns(), metadata=metadata)
    written = bad = 0
    # The file appears complete or not at all.
    with atomic(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for group in groups(arriving):
            good = readable(trained, group)
            bad += len(group) - len(good)
            if good:
                texts = [line.text for line in good]
                vectors = trained.embed(texts, pool=pool)
                rows = {
                    "text": texts,
                    "embedding": list(vectors.float().numpy()),
                    "line": [line.place["line"] for line in good],
                }
                writer.write_table(pyarrow.table(rows, schema=schema))
                written += len(good)
        if written == 0:
            raise UserError(f"--output {path}: not written: no line of the input can be embedded; give another input")
    return written, bad


def columns() -> dict[str, pyarrow.DataType]:
    """Return the columns of the file, by name."""
    import pyarrow

    return {"text": pyarrow.string(), "embedding": pyarrow.list_(pyarrow.float32()), "line": pyarrow.int64()}


def origin(trained: Trained, pool: str) -> dict[str, str]:
    """Return the run, step and pooling that vectors depend on. Vectors of different origins cannot be compared."""
    return {"run": str(trained.directory.resolve()), "step": str(trained.opened.step), "pool": pool}


def groups(arriving: Iterable[list[Line]]) -> Iterator[list[Line]]:
    """Yield lines in groups of GROUP; the last group may be smaller."""
    waiting: list[Line] = []
    for lines in arriving:
        waiting += lines
        while len(waiting) >= GROUP:
            yield waiting[:GROUP]
            waiting = waiting[GROUP:]
    if waiting:
        yield waiting


def readable(trained: Trained, lines: list[Line]) -> list[Line]:
    """Return the lines that can be embedded; report the others."""
    good = []
    for line in lines:
        reason = line.reason or trained.opened.text_reader.reason(line.text)
        if reason:
            line.report(reason)
        else:
            good.append(line)
    return good
