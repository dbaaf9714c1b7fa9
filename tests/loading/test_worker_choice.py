from __future__ import annotations

import threading
import warnings

import pytest
import torch
from square_loaders import InMemory, Squares, square_loader, square_stream
from torch.utils.data import TensorDataset, get_worker_info

from datamodules.batches.collate import collate
from datamodules.loading import loader as loader_module
from datamodules.loading import make_loader as loader_options
from datamodules.loading.make_loader import (
    make_loader,
    make_stream_loader,
)
from datamodules.loading.worker_faults import InSharedMemory
from datamodules.sampling.plan import ShuffledPlan
from datamodules.sampling.sharded_sampler import ShardedBatchSampler


def test_the_default_is_one_worker_per_core_and_at_most_one_per_batch(monkeypatch):
    asked = []
    monkeypatch.setattr(loader_options, "default_workers", lambda n: asked.append(n) or 2)
    assert square_loader(num_workers=None).num_workers == 2
    assert square_loader(num_workers=None, batch_size=10).num_workers == 1
    assert square_loader(InMemory(), num_workers=None).num_workers == 0
    sampler = ShardedBatchSampler(ShuffledPlan(10, 2), 10, seed=0)
    make_loader(Squares(), sampler, batch_size=2, ranks=3)
    assert asked == [1, 1, 3]


@pytest.mark.parametrize(
    ("options", "advised"),
    [
        ({"num_workers": None, "batch_size": 10}, False),
        ({"num_workers": 1, "worker_type": "thread"}, False),
        ({"num_workers": 0, "dataset": InMemory()}, False),
        ({"num_workers": 0}, True),
        ({"num_workers": 1}, True),
    ],
)
def test_lightning_advises_more_workers_only_if_the_user_chose_the_number(options, advised):
    filters = list(warnings.filters)
    loader = square_loader(**options)
    assert warnings.filters == filters
    assert (loader.num_workers < 2) is advised  # Lightning's condition
    assert loader.num_workers in (0, 1)


def test_threads_replace_worker_processes():
    loader = square_loader(num_workers=3, worker_type="thread")
    assert (loader.threads, loader.num_workers, loader.workers, loader.ahead) == (3, 0, 3, 2)
    assert (
        square_loader(num_workers=1, worker_type="thread", options={"prefetch_factor": 7}).ahead
        == 7
    )
    assert square_loader(num_workers=0, worker_type="thread").threads == 0
    assert sorted(torch.cat([b.target for b in loader]).tolist()) == [i**2 for i in range(10)]
    assert square_loader(InMemory(), num_workers=None, worker_type="auto").threads == 0


@pytest.mark.parametrize(
    ("dataset", "options", "threads"),
    [
        (TensorDataset(torch.zeros(4)), {}, 0),
        (Squares(), {"timeout": 5}, 0),
        (Squares(), {"worker_init_fn": print}, 0),
        (Squares(), {"persistent_workers": True}, 0),
        (Squares(), {"multiprocessing_context": "fork"}, 0),
        (Squares(), {"timeout": 0, "persistent_workers": False}, 2),
        (Squares(), {"prefetch_factor": 3}, 2),
        (Squares(), {"collate_fn": list}, 0),
    ],
)
def test_auto_means_threads_unless_something_needs_processes(dataset, options, threads):
    chosen = square_loader(dataset, num_workers=2, worker_type="auto", options=options)
    assert (chosen.threads, chosen.num_workers) == (threads, 2 - threads)
    by_default = make_loader(
        dataset,
        ShardedBatchSampler(ShuffledPlan(4, 1), 4, seed=0),
        batch_size=1,
        num_workers=2,
        collate_fn=collate,
        options=options,
    )
    assert by_default.threads == threads


def test_threads_that_cannot_be_used_are_refused_with_the_reason():
    data = TensorDataset(torch.zeros(4))
    with pytest.raises(ValueError, match="thread") as caught:
        square_loader(data, num_workers=1, worker_type="thread", split="val")
    assert str(caught.value) == (
        'worker_type="thread" cannot be used for val: TensorDataset is not known to be '
        "thread-safe; leave worker_type out"
    )


class Where(Squares):
    """Tells by which thread and worker a sample was made."""

    def __getitem__(self, index):
        worker = get_worker_info()
        main = threading.current_thread() is threading.main_thread()
        return torch.tensor([-1 if worker is None else worker.id, int(main)]), index


@pytest.mark.parametrize(
    ("options", "workers", "main"),
    [
        ({}, {-1}, {1}),
        ({"num_workers": 2}, {0, 1}, {1}),
        ({"num_workers": 2, "worker_type": "thread"}, {-1}, {0}),
    ],
)
def test_samples_are_made_in_the_chosen_workers(options, workers, main):
    found = torch.cat([batch.inputs for batch in square_loader(Where(), **options)])
    assert set(found[:, 0].tolist()) == workers
    assert set(found[:, 1].tolist()) == main


def test_threads_prepare_prefetch_factor_batches_ahead(monkeypatch):
    asked = []

    def by_threads(fetch, keys, threads, *, ahead=2):
        asked.append((threads, ahead))
        return map(fetch, keys)

    monkeypatch.setattr(loader_module, "made_by_threads", by_threads)
    options = {"prefetch_factor": 7}
    assert len(list(square_loader(num_workers=3, worker_type="thread", options=options))) == 3
    assert asked == [(3, 7)]


class Passing:
    """Stands for WorkerWatch: what it was asked, in order."""

    def __init__(self):
        self.asked = []

    def check_memory(self):
        self.asked.append("memory")

    def over(self, batches):
        for batch in batches:
            self.asked.append("batch")
            yield batch


def test_the_watch_checks_memory_before_workers_start_and_sees_each_batch():
    loader = square_loader(num_workers=1)
    loader.watch = Passing()
    batches = iter(loader)
    assert loader.watch.asked == [], "nothing starts before the first batch is wanted"
    assert len(list(batches)) == 3
    assert loader.watch.asked == ["memory", "batch", "batch", "batch"]


@pytest.mark.parametrize(
    ("options", "ahead", "timeout"),
    [({}, 2, 0), ({"prefetch_factor": 5, "timeout": 9}, 5, 9)],
)
def test_worker_processes_are_watched_with_the_given_options(monkeypatch, options, ahead, timeout):
    asked, watch = [], Passing()
    monkeypatch.setattr(
        loader_options, "WorkerWatch", lambda data, **said: asked.append(said) or watch
    )
    watched = square_loader(num_workers=2, options=options, split="val")
    assert watched.watch is watch
    expected = {"split": "val", "rows": 4, "workers": 2, "ahead": ahead, "timeout": timeout}
    assert asked == [expected]
    assert isinstance(watched.collate_fn, InSharedMemory)
    alone = square_loader(options=options)
    assert asked == [expected], "no worker, nothing to watch"
    assert alone.watch is None
    assert not isinstance(alone.collate_fn, InSharedMemory)
    for workers in (0, 1):
        streamed = make_stream_loader(square_stream(), num_workers=workers)
        assert isinstance(streamed.collate_fn, InSharedMemory) is bool(workers)
