"""Workers without shared memory, and workers that hang: an error with a name, never a wait."""

from __future__ import annotations

import resource
import time

import pytest
import torch
from torch.utils import data as torch_data
from torch.utils.data import Dataset, IterableDataset

from datamodules import DatasetDataModule
from datamodules.batches.nested import tensors_of
from datamodules.loading import worker_faults
from datamodules.loading.worker_faults import WorkerWatch


class Big(Dataset):
    """40 rows of 1 MiB; reading the fifth takes as long as is said."""

    targets = [0, 1] * 20

    def __init__(self, seconds=0.0):
        self.seconds = seconds

    def __len__(self):
        return 40

    def __getitem__(self, i):
        if i == 5 and torch_data.get_worker_info() is not None:
            time.sleep(self.seconds)
        return torch.full((1 << 18,), float(i)), i % 2


class Stream(IterableDataset):
    def __iter__(self):
        return (Big()[i] for i in range(8))


def module(dataset=None, **options):
    options = {"batch_size": 4, "num_workers": 2, "sampler": "sequential"} | options
    return DatasetDataModule(train=dataset or Big(), val_split=0, test_split=0, **options)


def no_more_than_one_mib(_):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))


@pytest.mark.timeout(100)
@pytest.mark.parametrize("dataset", [Big(), Stream()], ids=["map", "stream"])
def test_shared_memory_that_is_full_is_an_error_and_no_wait(dataset):
    limited = {"worker_init_fn": no_more_than_one_mib}  # as a full /dev/shm answers
    dm = module(dataset, loader_options=limited, sampler="shuffle")
    said = r"a batch of 4 MiB does not fit into shared memory, /dev/shm has .*--shm-size"
    with pytest.raises(RuntimeError, match=said):
        next(iter(dm.train_dataloader()))


@pytest.mark.timeout(100)
def test_h22_little_shared_memory_is_said_once_before_the_first_batch(monkeypatch):
    monkeypatch.setattr(worker_faults, "free_shared_memory", lambda: 1 << 20)
    loader = module().train_dataloader()
    said = (
        r"train loader may need 16 MiB of shared memory \(4 MiB a batch, 2 ahead in each of 2 "
        r"workers\), /dev/shm has 1 MiB free; raise its size"
    )
    with pytest.warns(UserWarning, match=said) as warned:
        first = next(iter(loader))
    assert first.inputs[:, 0].tolist() == [0, 1, 2, 3]
    assert len(warned) == 1
    assert len(list(loader)) == 10  # a second warning would be an error


@pytest.mark.parametrize(("free", "workers"), [(17 << 20, 2), (None, 2), (1 << 20, 0)])
def test_enough_shared_memory_is_no_warning(monkeypatch, free, workers):
    monkeypatch.setattr(worker_faults, "free_shared_memory", lambda: free)
    assert len(next(iter(module(num_workers=workers).train_dataloader())).inputs) == 4


@pytest.mark.runs
@pytest.mark.timeout(100)
def test_a_read_that_hangs_is_named_within_the_limit(monkeypatch):
    monkeypatch.setattr(torch_data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)  # of the shutdown
    dm = module(Big(300.0), loader_options={"timeout": 8})
    batches = iter(dm.train_dataloader())
    assert len(next(batches).inputs) == 4
    said = r"no train batch within timeout=8 seconds; the workers were reading sample 5 \(row 5\)"
    with pytest.raises(RuntimeError, match=said) as caught:
        next(batches)
    assert "timed out" in str(caught.value.__cause__)


def test_another_error_than_a_timeout_passes_through():
    watch = WorkerWatch(Keyed(), split="val", rows=1, workers=2, ahead=2, timeout=3)

    def fails(text):
        yield 1
        raise RuntimeError(text)

    with pytest.raises(RuntimeError, match=r"^worker died$"):
        list(watch.over(fails("worker died")))
    watch.reading[1] = 7
    with pytest.raises(RuntimeError, match=r"no val batch .* were reading sample 7; check"):
        list(watch.over(fails("DataLoader timed out after 3 seconds")))
    watch.reading[1] = -1
    with pytest.raises(RuntimeError, match="were reading no sample"):
        list(watch.over(fails("DataLoader timed out after 3 seconds")))


class Keyed:
    reading = None

    def name(self, row):
        return f"sample {row}"


def test_tensors_are_found_in_any_nest():
    a, b, c = (torch.full((1,), i) for i in range(3))
    assert [int(t) for t in tensors_of({"x": [a, (b, "word")], "y": {"z": c}, "n": 3})] == [0, 1, 2]
