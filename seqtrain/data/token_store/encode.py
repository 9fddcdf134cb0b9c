"""Text to tokens in several processes; the result does not depend on their number."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Integer

from seqtrain.data.token_store.index import dtype_of
from seqtrain.data.tokenizers.encoding import Tokenizer
from seqtrain.errors import RunFailed

JOB_CHARACTERS = 1 << 20  # handed to a process at a time
JOBS_AHEAD = 2  # that each process has waiting, so that it never waits itself
SECONDS_TO_END = 5.0  # that a process which was told to end is waited for
Job = list[tuple[str, bool]]
"""Segments, each with whether it ends its document."""


class Encoded(NamedTuple):
    """Some segments, tokenised: the tokens of all, and counts of each."""

    tokens: Integer[np.ndarray, " n"]  # in the type of the store, one segment after another
    lengths: Int[np.ndarray, " m"]  # tokens
    ends: Bool[np.ndarray, " m"]  # whether a document ends with it
    num_bytes: Int[np.ndarray, " m"]  # of its text in UTF-8
    num_words: Int[np.ndarray, " m"]  # between white space, and line ends; counted of tokenizer=word alone
    num_unknown: Int[np.ndarray, " m"]  # tokens that are <unk>


def encoded(tokenizer: Tokenizer, segments: Iterable[tuple[str, bool]], processes: int) -> Iterator[Encoded]:
    """Yield the segments, tokenised, in their order; the grouping has no meaning.

    Args:
        tokenizer: Makes the tokens.
        segments: Segments of `segments_of`: no token goes over the end of one.
        processes: Number of processes; 1 is this process. Each holds a few jobs of JOB_CHARACTERS.

    Raises:
        RunFailed: A process was killed.
    """
    jobs = _jobs(segments)
    if processes == 1:
        for job in jobs:
            yield _encode(tokenizer, job)
        return
    with _workers(tokenizer, processes) as workers:
        yield from _in_order(workers, jobs)


def _jobs(segments: Iterable[tuple[str, bool]]) -> Iterator[Job]:
    """Yield the segments in groups of about JOB_CHARACTERS."""
    job: Job = []
    size = 0
    for text, ends in segments:
        job.append((text, ends))
        size += len(text)
        if size >= JOB_CHARACTERS:
            yield job
            job, size = [], 0
    if job:
        yield job


def _encode(tokenizer: Tokenizer, job: Job) -> Encoded:
    """Tokenise a job into a few arrays, since one for each of many short documents would be as costly to hand over."""
    texts = [text for text, _ in job]
    tokens, counts = [], []
    for (text, ends), ids in zip(job, tokenizer.encode_segments(texts), strict=True):
        unknown = 0 if tokenizer.unknown is None else int((ids == tokenizer.unknown).sum())
        # Only tokenizer=word needs this count; for other tokenizers it would take a fortieth of the time.
        num_words = len(text.split()) + text.count("\n") if tokenizer.kind == "word" else 0
        tokens.append(ids.astype(dtype_of(tokenizer.vocab_size)))
        counts.append((len(ids), ends, len(text.encode()), num_words, unknown))
    lengths, is_end, num_bytes, num_words, num_unknown = np.array(counts, dtype=np.int64).T
    return Encoded(np.concatenate(tokens), lengths, is_end.astype(bool), num_bytes, num_words, num_unknown)


def _in_order(workers: list[Connection], jobs: Iterator[Job]) -> Iterator[Encoded]:
    """Deal jobs to the workers in turn, and yield their results in the same order."""
    waiting: deque[Connection] = deque()  # who has the oldest job that is not taken yet, then the next
    for turn, job in enumerate(jobs):
        if len(waiting) == JOBS_AHEAD * len(workers):
            yield _answer(waiting.popleft().recv)
        worker = workers[turn % len(workers)]
        _answer(worker.send, job)
        waiting.append(worker)
    while waiting:
        yield _answer(waiting.popleft().recv)


def _answer(ask: Callable[..., Any], *given: Job) -> Any:
    """Return the result of a call to a worker's connection; raise RunFailed if the worker was killed."""
    try:
        return ask(*given)
    except (EOFError, OSError):
        raise RunFailed(
            "a process that tokenises was killed (the machine may have run out of memory); the same command goes on"
        ) from None


@contextlib.contextmanager
def _workers(tokenizer: Tokenizer, count: int) -> Iterator[list[Connection]]:
    """Start processes that encode jobs, each at the other end of a connection, and end them in any case."""
    # Spawned, not forked: the library's threads, which have trained the tokenizer here, would not be there.
    context: Any = multiprocessing.get_context("spawn")
    processes, connections = [], []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, type(tokenizer), tokenizer.content), daemon=True)
            process.start()
            theirs.close()  # or a worker that died would be waited for without end
            processes.append(process)
            connections.append(ours)
        yield connections
    finally:
        for connection in connections:
            connection.close()
        for process in processes:
            process.join(SECONDS_TO_END)
            process.kill()


def _work(connection: Connection, kind: type[Tokenizer], content: dict[str, Any]) -> None:
    """Encode jobs until the other end is closed, such as when the first process was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the first process says what comes of it
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a process for each core needs no threads beside it
    tokenizer = kind(content)
    jobs: SimpleQueue[Job | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, jobs), daemon=True).start()
    with contextlib.suppress(OSError):
        for job in iter(jobs.get, None):
            connection.send(_encode(tokenizer, job))


def _receive(connection: Connection, jobs: SimpleQueue[Job | None]) -> None:
    """Receive jobs as soon as they come; otherwise both sides might wait for each other to receive."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            jobs.put(connection.recv())
    jobs.put(None)
