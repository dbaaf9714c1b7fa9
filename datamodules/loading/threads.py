"""Make batches in worker threads, in order and ahead of the consumer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from datamodules.seeding.thread_rng import own_stream

START_SECONDS = 60


def made_by_threads(
    fetch: Callable[[Any], Any], keys: Iterable[Any], workers: int, *, ahead: int = 2
) -> Iterator[Any]:
    """Call ``fetch`` on each key in worker threads and yield the results in order.

    The threads start at the first ``next()``. They end with the iteration: after the last result,
    on an error, when the consumer stops early, and when the iterator is dropped. An error of
    ``fetch`` is raised at its place in the order.

    Args:
        fetch: Called with the thread's own random stream active.
        keys: Read in the consumer's thread.
        workers: Number of threads, at least 1. The results do not depend on it.
        ahead: Results prepared ahead for each thread.

    Example:
        >>> list(made_by_threads(abs, [-1, -2, -3], workers=2))
        [1, 2, 3]
    """
    pool = ThreadPoolExecutor(workers, "data-worker", initializer=_use_one_torch_thread)
    pending: deque[Future[Any]] = deque()
    source = iter(keys)
    try:
        _start_all(pool, workers)
        ended = False
        while pending or not ended:
            while not ended and len(pending) <= workers * ahead:
                try:
                    key = next(source)
                except StopIteration:
                    ended = True
                else:
                    pending.append(pool.submit(_with_own_stream, fetch, key))
            if pending:
                yield pending.popleft().result()  # the frame keeps no reference to a batch
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _with_own_stream(fetch: Callable[[Any], Any], key: Any) -> Any:
    with own_stream():
        return fetch(key)


def _use_one_torch_thread() -> None:
    torch.set_num_threads(1)  # as in torch's worker processes: parallelism is over the batches


def _start_all(pool: ThreadPoolExecutor, workers: int) -> None:
    """Start every thread now, then restore torch's number of threads for the consumer."""
    before = torch.get_num_threads()
    started = threading.Barrier(workers + 1)
    for _ in range(workers):
        pool.submit(started.wait, START_SECONDS)
    started.wait(START_SECONDS)
    torch.set_num_threads(before)
