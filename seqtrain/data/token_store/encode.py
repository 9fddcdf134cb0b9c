"""Tokenisation in several processes; the result does not depend on their number."""

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

JOB_CHARACTERS = 1 << 20  # characters sent to a process at a time
JOBS_AHEAD = 2  # queued jobs per process, so that no process is idle
SECONDS_TO_END = 5.0  # seconds until a process that should end is killed
Job = list[tuple[str, bool]]
"""Segments, each with True if it ends its document."""


class Encoded(NamedTuple):
    """Tokenised segments: their concatenated tokens, and counts for each segment."""

    tokens: Integer[np.ndarray, " n"]  # in the store's dtype
    lengths: Int[np.ndarray, " m"]  # number of tokens
    ends: Bool[np.ndarray, " m"]  # True if the segment ends its document
    num_bytes: Int[np.ndarray, " m"]  # UTF-8 bytes of the text
    num_words: Int[np.ndarray, " m"]  # words and line ends; counted only for tokenizer=word
    num_unknown: Int[np.ndarray, " m"]  # number of <unk> tokens


def encoded(tokenizer: Tokenizer, segments: Iterable[tuple[str, bool]], processes: int) -> Iterator[Encoded]:
    """Yield the tokenised segments in their order, in arbitrary groups.

    Args:
        tokenizer: Tokenizes the segments.
        segments: Segments from `segments_of`, whose ends never split a token.
        processes: Number of processes; 1 means this process. Each has a few jobs of JOB_CHARACTERS in memory.

    Raises:
        RunFailed: A worker process was killed.
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
    """Tokenise a job into a few arrays; one array for each short document would be slow to send."""
    texts = [text for text, _ in job]
    tokens, counts = [], []
    for (text, ends), ids in zip(job, tokenizer.encode_segments(texts), strict=True):
        unknown = 0 if tokenizer.unknown is None else int((ids == tokenizer.unknown).sum())
        # Only tokenizer=word needs this count, which takes one fortieth of the time.
        num_words = len(text.split()) + text.count("\n") if tokenizer.kind == "word" else 0
        tokens.append(ids.astype(dtype_of(tokenizer.vocab_size)))
        counts.append((len(ids), ends, len(text.encode()), num_words, unknown))
    lengths, is_end, num_bytes, num_words, num_unknown = np.array(counts, dtype=np.int64).T
    return Encoded(np.concatenate(tokens), lengths, is_end.astype(bool), num_bytes, num_words, num_unknown)


def _in_order(workers: list[Connection], jobs: Iterator[Job]) -> Iterator[Encoded]:
    """Send jobs to the workers in turn, and yield their results in the same order."""
    waiting: deque[Connection] = deque()  # workers of the outstanding jobs, oldest job first
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
            "a worker process was killed (the machine may have run out of memory); run the same command to continue"
        ) from None


@contextlib.contextmanager
def _workers(tokenizer: Tokenizer, count: int) -> Iterator[list[Connection]]:
    """Start processes that encode jobs; yield a connection to each, and end them in any case."""
    # Spawned, not forked: threads of `tokenizers`, which may have trained the tokenizer here, do not survive a fork.
    context: Any = multiprocessing.get_context("spawn")
    processes, connections = [], []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, type(tokenizer), tokenizer.content), daemon=True)
            process.start()
            theirs.close()  # else reading from a dead worker would block forever
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
    """Encode jobs until the other end is closed, for example because the main process was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the main process handles it
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # with one process per core, threads are not needed
    tokenizer = kind(content)
    jobs: SimpleQueue[Job | None] = SimpleQueue()
    threading.Thread(target=_receive, args=(connection, jobs), daemon=True).start()
    with contextlib.suppress(OSError):
        for job in iter(jobs.get, None):
            connection.send(_encode(tokenizer, job))


def _receive(connection: Connection, jobs: SimpleQueue[Job | None]) -> None:
    """Receive jobs in a thread: otherwise both sides might wait for each other to receive."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            jobs.put(connection.recv())
    jobs.put(None)
