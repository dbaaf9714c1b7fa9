from __future__ import annotations

import gc
import pickle
import sys

import numpy as np
import pytest
import torch

from datamodules.batches.batch import Batch, TabularInputs
from datamodules.tables.column import Column
from datamodules.tables.dataset import OneHot, PackedRows, RowDataset, RowNames


def packed(target="class", *, numeric=2, codes=1, targets=0, rows=5):
    rows_ = PackedRows(rows, numeric=numeric, codes=codes, target=target, targets=targets)
    views = rows_.views()
    views.numeric[:] = np.arange(rows * numeric).reshape(rows, numeric) / 2
    views.codes[:] = np.arange(rows * codes).reshape(rows, codes) + 100
    if target == "class":
        views.target[:] = np.arange(rows) * 7
    elif target == "value":
        views.target[:] = np.arange(rows * targets).reshape(rows, targets) / 4
    return rows_


def test_a_batch_has_the_requested_rows():
    numeric, codes, target = packed().gather(np.array([3, 0, 3]))
    assert numeric.tolist() == [[3, 3.5], [0, 0.5], [3, 3.5]]
    assert codes.tolist() == [[103], [100], [103]]
    assert target.tolist() == [21, 0, 21]
    assert (numeric.dtype, codes.dtype, target.dtype) == (
        torch.float32,
        torch.int64,
        torch.int64,
    )
    assert numeric.is_contiguous()
    assert packed().buffer.shape == (5, 16)


def test_numbers_may_be_the_target():
    _, _, target = packed("value", targets=2).gather(np.array([1]))
    assert target.tolist() == [[0.5, 0.75]]
    assert packed("none").gather(np.array([1]))[2] is None


@pytest.mark.parametrize("target", ["class", "value", "none"])
@pytest.mark.parametrize(("numeric", "codes"), [(1, 0), (0, 3), (30, 8)])
def test_a_gather_equals_indexing_each_column(target, numeric, codes):
    draws = np.random.default_rng(0)
    rows = packed(target, numeric=numeric, codes=codes, targets=2, rows=50)
    views = rows.views()
    views.numeric[:] = draws.normal(size=(50, numeric))
    views.numeric[:7] = np.nan
    views.codes[:] = draws.integers(0, 2**31 - 1, (50, codes))
    indices = draws.integers(0, 50, 33)
    found = rows.gather(indices)
    wanted = (views.numeric, views.codes.astype(np.int64), views.target)
    for part, column in zip(found, wanted, strict=True):
        if part is None:
            assert target == "none"
            continue
        assert part.is_contiguous()
        np.testing.assert_array_equal(part.numpy(), column[indices])
    found[0].zero_()
    assert rows.views().numeric[7:].any() or not numeric, "a batch is the caller's own"


def test_targets_equal_those_of_the_batches():
    data = RowDataset(packed())
    assert data.targets.tolist() == [0, 7, 14, 21, 28]
    assert data.targets.dtype == np.int64
    assert RowDataset(packed("value", targets=1)).targets is None


def test_a_dataset_returns_batches_and_single_rows():
    data = RowDataset(packed())
    batch = data.get_batch(np.array([4, 1]))
    assert isinstance(batch, Batch)
    assert isinstance(batch.inputs, TabularInputs)
    inputs, target = data[4]
    assert inputs.numeric.tolist() == batch.inputs.numeric[0].tolist()
    assert target == batch.target[0]
    assert data[-1][1] == 28
    with pytest.raises(IndexError):
        data[5]


def test_without_categories_inputs_are_one_tensor():
    data = RowDataset(packed("value", codes=0, targets=1), flat_target=True)
    batch = data.get_batch(np.array([4, 1]))
    assert batch.inputs.shape == (2, 2)
    assert batch.target.tolist() == [1, 0.25]
    bare = RowDataset(packed("none", codes=0))
    assert bare.get_batch(np.array([1])).tolist() == [[1, 1.5]]
    assert bare[1].tolist() == [1, 1.5]


def test_one_hot_writes_a_one_for_each_index_with_a_column():
    one_hot = OneHot([[-1, -1, 0, 1], [2, -1, 3]], 4)
    out = one_hot(torch.tensor([[9.0], [8.0], [7.0]]), torch.tensor([[2, 0], [1, 1], [3, 2]]))
    assert out.tolist() == [[9, 1, 0, 1, 0], [8, 0, 0, 0, 0], [7, 0, 1, 0, 1]]


@pytest.mark.parametrize(
    ("ids", "keys"),
    [
        (None, [2, 0]),
        (Column("id", np.array([10.0, 11, 12])), [12, 10]),
        (Column("id", np.array([0.5, 1.5, 2.5])), ["2.5", "0.5"]),
        (Column("id", None, np.array([1, -1, 0], np.int32), ["é", "b"]), ["é", "b"]),
    ],
)
def test_rows_are_named_by_id_or_row_number(ids, keys):
    names = pickle.loads(pickle.dumps(RowNames("t.csv", np.array([2, 0]), ids)))
    assert [names.key(i) for i in range(2)] == keys
    assert names(0).startswith("row 2 of t.csv")
    assert ("id" in names(0)) == (ids is not None)


def touch(data, queue):
    torch.set_num_threads(1)  # as a DataLoader's worker does; a forked thread pool would hang
    gc.disable()  # a collection writes to every object that came with the fork
    data.get_batch(np.arange(64))
    before = private_mib()
    for i in range(len(data)):
        data.describe(i)
    for start in range(0, len(data), 64):  # in batches: the whole table at once is 5 MiB by itself
        data.get_batch(np.arange(start, min(start + 64, len(data))))
    queue.put(private_mib() - before)


def private_mib():
    with open("/proc/self/smaps_rollup") as file:  # noqa: PTH123 - read line by line
        kib = sum(int(line.split()[1]) for line in file if line.startswith("Private_"))
    return kib / 1024


@pytest.mark.runs
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.timeout(120)
def test_h20_a_long_column_of_texts_does_not_grow_in_a_worker(context):
    n = 200_000
    words = [f"customer-{i:06d}-{'x' * 60}" for i in range(n)]
    names = RowNames("t.csv", np.arange(n), Column("id", None, np.arange(n, dtype=np.int32), words))
    data = RowDataset(packed(rows=n, numeric=1, codes=0), names=names)
    del words
    for tensor in (data.packed.buffer, names._rows, names._ids._bytes, names._ids._places):
        tensor.share_memory_()
    start = torch.multiprocessing.get_context(context)
    queue = start.Queue()
    workers = [start.Process(target=touch, args=(data, queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        grown = [queue.get(timeout=100) for _ in workers]
    finally:
        for worker in workers:
            worker.join(20)
            worker.kill()
    assert max(grown) < 8, grown
