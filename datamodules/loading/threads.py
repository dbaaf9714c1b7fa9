"""Worker threads: batches in order, made ahead, bit for bit those of worker processes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from datamodules.seeding.thread_rng import own_stream

from .auto_workers import AutoWorkers

READY_SECONDS = 60


def made_by_threads(
    fetch: Callable[[Any], Any], keys: Iterable[Any], workers: int | AutoWorkers, *, ahead: int = 2
) -> Iterator[Any]:
    """Call ``fetch`` on each key in ``workers`` threads and yield the answers in order.

    The threads start at the first ``next()`` and end with the iteration: at its end, on an error,
    when the consumer stops early, and when the iterator is dropped. An error of ``fetch`` comes in
    its turn.

    Args:
        fetch: Called inside a random stream of the thread's own.
        keys: Read in the consumer's thread.
        workers: Number of threads, at least 1; or what finds it while the iteration goes on. The
            answers do not depend on it.
        ahead: Answers made ahead for each thread.
    """
    auto = workers if isinstance(workers, AutoWorkers) else None
    most = auto.most if auto is not None else int(workers)  # type: ignore[arg-type]
    pool = ThreadPoolExecutor(most, "data-worker", initializer=_one_thread)
    team = Team(pool, most)
    pending: deque[Future[Any]] = deque()
    source, given = iter(keys), None
    try:
        _start_all(pool, most)
        ended = False
        while pending or not ended:
            if auto is not None:
                team.resize(auto.workers)
            while not ended and len(pending) <= team.size * ahead:
                try:
                    key = next(source)
                except StopIteration:
                    ended = True
                else:
                    pending.append(team.submit(fetch, key))
            if not pending:
                break
            asked = time.perf_counter()
            box = [pending.popleft().result()]
            if auto is not None:
                got = time.perf_counter()
                if given is not None and not ended:  # neither the start nor the end tells much
                    auto.observe(waited=got - asked, worked=asked - given)
                given = got
            yield box.pop()  # the frame keeps no batch
    finally:
        team.stop()
        pool.shutdown(wait=True, cancel_futures=True)


class Team:
    """Jobs done in turn by as many of a pool's threads as are wanted at the time.

    Each thread takes jobs until there are none or it is one too many, and is called again with the
    next job. None waits inside a job for another, so the interpreter's end finds them all idle.

    Args:
        pool: Has ``size`` threads at least.
        size: Threads that are at work at once.
    """

    def __init__(self, pool: ThreadPoolExecutor, size: int) -> None:
        self.pool, self.size = pool, size
        self._jobs: deque[tuple[Future[Any], Callable[[Any], Any], Any]] = deque()
        self._lock, self._active = threading.Lock(), 0

    def submit(self, fetch: Callable[[Any], Any], key: Any) -> Future[Any]:
        """Have ``fetch(key)`` done, after all that was given before."""
        future: Future[Any] = Future()
        with self._lock:
            self._jobs.append((future, fetch, key))
        self._call()
        return future

    def resize(self, size: int) -> None:
        """Let ``size`` threads work from now on; one too many finishes its job first."""
        if size != self.size:
            self.size = size
            self._call()

    def stop(self) -> None:
        """Drop the jobs that nobody has begun."""
        with self._lock:
            self._jobs.clear()

    def _call(self) -> None:
        with self._lock:
            wanted = min(self.size, self._active + len(self._jobs)) - self._active
            self._active += max(0, wanted)
        for _ in range(wanted):
            self.pool.submit(self._work)

    def _work(self) -> None:
        while True:
            with self._lock:
                job = self._jobs.popleft() if self._active <= self.size and self._jobs else None
                if job is None:
                    self._active -= 1
                    return
            future, fetch, key = job
            try:
                future.set_result(_inside(fetch, key))
            except BaseException as error:
                future.set_exception(error)
            del job, future  # an idle thread keeps no batch


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
