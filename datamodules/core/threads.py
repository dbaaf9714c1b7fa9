"""Worker threads: batches in order, made ahead, bit for bit those of worker processes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from .draws import own_stream

READY_SECONDS = 60


def made_by_threads(
    fetch: Callable[[Any], Any], keys: Iterable[Any], workers: int, *, ahead: int = 2
) -> Iterator[Any]:
    """Call ``fetch`` on each key in ``workers`` threads and yield the answers in order.

    The threads start at the first ``next()`` and end with the iteration: at its end, on an error,
    when the consumer stops early, and when the iterator is dropped. An error of ``fetch`` comes in
    its turn.

    Args:
        fetch: Called inside a random stream of the thread's own.
        keys: Read in the consumer's thread.
        workers: Number of threads, at least 1.
        ahead: Answers made ahead for each thread.
    """
    pool = ThreadPoolExecutor(workers, "data-worker", initializer=_one_thread)
    pending: deque[Future[Any]] = deque()
    source = iter(keys)
    try:
        _start_all(pool, workers)
        for key in source:
            pending.append(pool.submit(_inside, fetch, key))
            if len(pending) > workers * ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _inside(fetch: Callable[[Any], Any], key: Any) -> Any:
    with own_stream():
        return fetch(key)


def _one_thread() -> None:
    torch.set_num_threads(1)  # as torch's worker processes: the threads are the parallelism


def _start_all(pool: ThreadPoolExecutor, workers: int) -> None:
    """Start every thread now, and give the consumer's own number of threads back to torch."""
    before = torch.get_num_threads()
    started = threading.Barrier(workers + 1)
    for _ in range(workers):
        pool.submit(started.wait, READY_SECONDS)
    started.wait(READY_SECONDS)
    torch.set_num_threads(before)
