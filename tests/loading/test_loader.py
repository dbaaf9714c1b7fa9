from __future__ import annotations

import os
import pickle
import random
from multiprocessing import active_children

import numpy as np
import pytest
import torch
from contract import same
from torch.utils.data import DataLoader, Dataset, TensorDataset

from datamodules.batches.collate import collate
from datamodules.loading.fetch import KeyedDataset, SampleError
from datamodules.loading.make_loader import check_loader_options, make_loader
from datamodules.loading.worker_faults import end_workers
from datamodules.sampling.plan import ShuffledPlan
from datamodules.sampling.sharded_sampler import ShardedBatchSampler
from datamodules.settings import cpu_count as cores
from datamodules.settings.cpu_count import default_workers, usable_cores


class Draws(Dataset):
    """Each item is its index and one draw of each generator."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.tensor(
            [index, torch.rand(1).item(), np.random.rand(), random.random()], dtype=torch.float64
        ), index


def build(dataset, *, seed=0, batch_size=4, **options):
    sampler = ShardedBatchSampler(ShuffledPlan(len(dataset), batch_size), len(dataset), seed=seed)
    options = {"collate_fn": stack, "num_workers": 0, **options}
    return make_loader(dataset, sampler, batch_size=batch_size, **options)


def stack(samples):
    return torch.stack([s[0] for s in samples])


def rows(loader):
    return torch.cat(list(loader))


def test_in_process_batches_are_those_of_torchs_own_iterator():
    loader = build(Draws())
    plain = [batch.clone() for batch in DataLoader.__iter__(loader)]
    assert len(plain) == 6
    assert same(list(loader), plain)


# torch advises against more workers than cores, which small machines have
@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("persistent", [False, True])
def test_draws_do_not_depend_on_the_workers(workers, persistent):
    plain, loaded = build(Draws()), build(Draws(), num_workers=workers, persistent=persistent)
    for epoch in (0, 1, 0):
        plain.sampler.set_epoch(epoch)
        loaded.sampler.set_epoch(epoch)
        assert torch.equal(rows(plain), rows(loaded))


def test_draws_differ_between_samples_and_epochs():
    loader = build(Draws())
    first = rows(loader)
    loader.sampler.set_epoch(1)
    both = torch.cat([first, rows(loader)])
    for column in (1, 2, 3):
        assert len(set(both[:, column].tolist())) == 48


@pytest.mark.parametrize("workers", [0, 2])
def test_the_users_random_state_is_as_without_us(workers):
    loader = build(Draws(), num_workers=workers)
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    expected = torch.rand(1).item(), np.random.rand(), random.random()
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    list(loader)
    assert (torch.rand(1).item(), np.random.rand(), random.random()) == expected


def test_a_place_is_taken_up_at_the_next_batch():
    loader = build(Draws())
    loader.sampler.set_epoch(3)
    whole = list(loader)
    again = iter(loader)
    for _ in range(2):
        next(again)
    state = loader.state_dict()
    fresh = build(Draws())
    fresh.load_state_dict(state)
    iterator = iter(fresh)  # Lightning calls iter() before set_epoch on a resumed fit
    fresh.sampler.set_epoch(3)
    assert same(list(iterator), whole[2:])
    fresh.sampler.set_epoch(4)
    assert len(list(fresh)) == 6


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 1}, "planned differently"),
        ({"batch_size": 3}, "planned differently"),
    ],
)
def test_a_place_in_another_plan_is_refused(other, message):
    loader = build(Draws())
    next(iter(loader))
    with pytest.raises(RuntimeError, match=message):
        build(Draws(), **other).load_state_dict(loader.state_dict())


def test_a_place_of_another_number_of_processes_is_refused():
    loader = build(Draws())
    next(iter(loader))
    state = {**loader.state_dict(), "num_replicas": 2}
    with pytest.raises(RuntimeError, match="2 processes, this run has 1"):
        build(Draws()).load_state_dict(state)


def test_the_end_of_an_epoch_goes_on_under_any_number_of_processes():
    loader = build(Draws())
    list(loader)
    state = {**loader.state_dict(), "num_replicas": 2}
    fresh = build(Draws())
    fresh.load_state_dict(state)
    fresh.sampler.set_epoch(1)
    assert len(list(fresh)) == 6


class Broken(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            raise OSError("image file is truncated")
        return torch.zeros(1), 0

    def describe(self, index):
        return f"photos/{index}.jpg"


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_names_the_sample_and_its_cause(workers):
    loader = build(Broken(), num_workers=workers)
    before = active_children()
    with pytest.raises(
        SampleError, match=r"sample 5 \(photos/5.jpg\): OSError: image file"
    ) as kept:
        list(loader)
    assert kept.tb
    assert set(active_children()) <= set(before), "workers outlive the error"


def refused(batch):
    if len(refused.seen) == 2:
        raise ValueError("the finishing step failed")
    refused.seen.append(batch)
    return batch


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_end_with_an_error_in_this_process_and_the_next_epoch_starts_others(persistent):
    refused.seen = []
    loader = build(Draws(), num_workers=1, persistent=persistent, normalizer=refused)
    before = active_children()
    with pytest.raises(ValueError, match="finishing step failed") as kept:
        list(loader)
    assert kept.tb
    assert set(active_children()) <= set(before), "workers outlive the error"
    refused.seen = []
    loader.normalizer = None
    assert len(list(loader)) == 6
    end_workers(loader._iterator)  # the traceback keeps those that stay


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_end_with_an_iteration_that_is_left_unless_they_stay(persistent):
    before = active_children()
    loader = build(Draws(), num_workers=1, persistent=persistent)
    batches = iter(loader)
    next(batches)
    batches.close()
    assert bool(set(active_children()) - set(before)) is persistent
    del batches, loader
    assert set(active_children()) <= set(before)


def test_workers_that_do_not_stay_end_with_an_interrupt():
    before = active_children()
    batches = iter(build(Draws(), num_workers=1))
    next(batches)
    with pytest.raises(KeyboardInterrupt) as kept:
        batches.throw(KeyboardInterrupt())
    assert kept.tb, "holds what holds the workers"
    assert set(active_children()) <= set(before)


def test_workers_that_stayed_and_cannot_go_on_are_ended_and_others_started(monkeypatch):
    def lost(*_):
        raise RuntimeError("worker exited unexpectedly")

    before = active_children()
    loader = build(Draws(), num_workers=1, persistent=True)
    assert len(list(loader)) == 6
    monkeypatch.setattr(loader._iterator, "_reset", lost)
    with pytest.raises(RuntimeError, match="exited unexpectedly") as kept:
        list(loader)
    assert kept.tb
    assert set(active_children()) <= set(before)
    assert len(list(loader)) == 6
    end_workers(loader._iterator)  # the traceback keeps them


class Whole(Dataset):
    """Serves a batch in one go."""

    def __len__(self):
        return 10

    def get_batch(self, indices, seeds):
        assert indices.dtype == np.int64
        return torch.from_numpy(indices)


def test_a_dataset_in_memory_is_one_call_a_batch_and_takes_no_workers(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    loader = build(Whole(), num_workers=None, collate_fn=None)
    assert loader.num_workers == 0
    assert sorted(torch.cat(list(loader)).tolist()) == list(range(10))


@pytest.mark.parametrize(
    "option",
    [
        {"prefetch_factor": 4},
        {"persistent_workers": True},
        {"timeout": 5},
        {"multiprocessing_context": "spawn"},
        {
            "prefetch_factor": 4,
            "persistent_workers": True,
            "timeout": 5,
            "multiprocessing_context": "spawn",
        },
    ],
)
def test_h21_worker_options_without_workers_do_no_harm(option):
    assert len(list(build(Draws(), options=option))) == 6


def test_h21_worker_options_with_workers_arrive():
    options = {"prefetch_factor": 4, "persistent_workers": True, "timeout": 5}
    loader = build(Draws(), num_workers=2, options=options)
    assert (loader.prefetch_factor, loader.persistent_workers, loader.timeout) == (4, True, 5)


@pytest.mark.parametrize(
    ("options", "workers", "message"),
    [
        ({"prefetch_factor": 0}, 2, "prefetch_factor must be at least 1"),
        ({"prefetch_facto": 2}, 2, "did you mean 'prefetch_factor'"),
        ({"shuffle": True}, 0, "use sampler="),
        ({"batch_size": 3}, 0, "use batch_size="),
        ({"num_workers": 3}, 0, "use num_workers="),
        ({}, "all", "num_workers must be a whole number.*or None for the default, got 'all'"),
        (["a"], 0, "must be a dict"),
        ({"prefetch_factor": "a"}, 2, "at least 1, got 'a'"),
        ({}, -1, "num_workers must be a whole number, at least 0"),
    ],
)
def test_impossible_options_are_refused(options, workers, message):
    with pytest.raises(ValueError, match=message):
        check_loader_options(options, workers)


def test_h18_what_cannot_travel_is_named_before_a_worker_starts():
    class Local(Dataset):
        def __init__(self):
            self.transform = lambda x: x

        def __len__(self):
            return 4

    options = {"multiprocessing_context": "spawn"}
    with pytest.raises(ValueError, match=r"transform cannot be sent .* at module level"):
        build(Local(), num_workers=2, options=options)
    build(Local(), num_workers=0, options=options)


def test_keyed_dataset_pickles():
    copy = pickle.loads(pickle.dumps(KeyedDataset(TensorDataset(torch.arange(4)))))
    assert collate(copy.__getitems__([1]))[0].tolist() == [1]


@pytest.fixture
def eight_cores(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(cores, "CONTROL_GROUPS", tmp_path)
    monkeypatch.setattr(cores, "OWN_GROUP", tmp_path / "own")
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    return tmp_path


def test_cores_are_shared_between_ranks_of_a_machine(eight_cores, monkeypatch):
    assert default_workers() == usable_cores() == 8
    assert default_workers(ranks=2) == 4  # as a Trainer with two devices starts them
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert default_workers() == default_workers(ranks=2) == 2
    assert default_workers(ranks=20) == 1
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "8")
    assert default_workers(ranks=2) == 8


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "max 100000", "a/cpu.max": "300000 100000", "a/b/cpu.max": "max 1"}, 3),
        ({"cpu.max": "100000 100000", "a/b/cpu.max": "300000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu.max": "nonsense"}, 8),
    ],
)
def test_cores_go_by_the_quotas_of_the_control_groups(eight_cores, files, expected):
    (eight_cores / "own").write_text("1:cpu:/x\n0::/a/b\n")
    for name, text in files.items():
        (eight_cores / name).parent.mkdir(parents=True, exist_ok=True)
        (eight_cores / name).write_text(text)
    assert usable_cores() == expected


def test_own_collate_is_used():
    loader = build(Draws(), options={"collate_fn": len})
    assert list(loader) == [4] * 6
