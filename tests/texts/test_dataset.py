from __future__ import annotations

import copy
import gc
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from datamodules.batches.batch import Batch, TextInputs
from datamodules.texts.dataset import FlatRows, TextDataset, pad_rows


def random_rows(dtype=np.uint16, *, n=50, longest=40, seed=0):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, longest + 1, n)
    values = random.integers(1, np.iinfo(dtype).max, lengths.sum(), endpoint=True).astype(dtype)
    return FlatRows.from_lengths(values, lengths)


def padded_one_by_one(rows, indices, pad_id, side):
    chosen = [rows[i].tolist() for i in indices]
    width = max(map(len, chosen))
    ids, mask = [], []
    for row in chosen:
        fill = width - len(row)
        before, after = (fill, 0) if side == "left" else (0, fill)
        ids.append([pad_id] * before + row + [pad_id] * after)
        mask.append([0] * before + [1] * len(row) + [0] * after)
    return torch.tensor(ids, dtype=torch.int64), torch.tensor(mask, dtype=torch.int64)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("size", [1, 2, 17, 50])
def test_padding_equals_a_plain_loop(side, dtype, size):
    rows = random_rows(dtype)
    indices = np.random.default_rng(1).integers(0, len(rows), size)
    ids, mask = padded_one_by_one(rows, indices, 7, side)
    inputs = pad_rows(rows, indices, pad_id=7, padding_side=side)
    assert inputs.input_ids.dtype == inputs.attention_mask.dtype == torch.int64
    assert torch.equal(inputs.input_ids, ids)
    assert torch.equal(inputs.attention_mask, mask)


def test_padding_equals_tensors_written_by_hand():
    rows = FlatRows(np.array([5, 6, 7, 8, 9, 65535], np.uint16), [0, 3, 4, 6])
    right = pad_rows(rows, np.array([2, 0, 1]))
    assert right.input_ids.tolist() == [[9, 65535, 0], [5, 6, 7], [8, 0, 0]]
    assert right.attention_mask.tolist() == [[1, 1, 0], [1, 1, 1], [1, 0, 0]]
    left = pad_rows(rows, np.array([2, 1]), padding_side="left")
    assert left.input_ids.tolist() == [[9, 65535], [0, 8]]
    assert left.attention_mask.tolist() == [[1, 1], [0, 1]]


def test_a_batch_is_as_wide_as_its_longest_and_does_not_share_the_buffer():
    rows = random_rows()
    for i in range(1, len(rows)):
        pair = np.array([i - 1, i])
        inputs = pad_rows(rows, pair)
        assert inputs.input_ids.shape == (2, rows.lengths()[pair].max())
        inputs.input_ids.fill_(0)
    assert np.array_equal(rows.values, random_rows().values)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("pad_id", [0, 7])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_a_rectangle_equals_writing_row_by_row(side, pad_id, dtype):
    rows = random_rows(dtype)
    draws = np.random.default_rng(5)
    groups = [draws.integers(0, len(rows), n) for n in (1, 2, 8, 8, 8, 8, 33)]
    groups += [np.array([0, len(rows) - 1]), np.arange(len(rows)), np.zeros(2, np.int64)]
    for group in groups:
        width = max(len(rows[i]) for i in group)
        ids = np.full((len(group), width), pad_id)
        mask = np.zeros((len(group), width), np.int64)
        for k, i in enumerate(group):
            at = slice(0, len(rows[i])) if side == "right" else slice(width - len(rows[i]), width)
            ids[k, at], mask[k, at] = rows[i], 1
        found = pad_rows(rows, group, pad_id=pad_id, padding_side=side)
        assert found.input_ids.dtype == found.attention_mask.dtype == torch.int64
        assert np.array_equal(found.input_ids, ids)
        assert np.array_equal(found.attention_mask, mask)


@pytest.mark.parametrize("side", ["right", "left"])
def test_rows_without_tokens_make_an_empty_rectangle(side):
    empty = FlatRows(np.empty(0, np.uint16), [0, 0, 0])
    assert pad_rows(empty, np.array([0, 1]), padding_side=side).input_ids.shape == (2, 0)
    some = FlatRows(np.array([5, 6], np.uint16), [0, 0, 2, 2])
    found = pad_rows(some, np.array([0, 1, 2]), pad_id=9, padding_side=side)
    assert found.input_ids.tolist() == [[9, 9], [5, 6], [9, 9]]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_large_ids_survive_pickle_copy_and_state(dtype):
    rows = random_rows(dtype)
    state = rows.state()
    for other in (
        pickle.loads(pickle.dumps(rows)),
        copy.deepcopy(rows),
        FlatRows.from_state(state),
    ):
        assert other.values.dtype == dtype
        assert np.array_equal(other.values, rows.values)
        assert np.array_equal(other.offsets, rows.offsets)


def test_texts_in_any_script_are_restored():
    texts = ["", "red fox", "很快好吃", "naïve", "\U0001f436 dog\n", "a\x00b", "   ", "\u2028"]
    rows = FlatRows.from_texts(texts)
    assert [rows.text(i) for i in range(len(rows))] == texts
    assert rows.texts(0, len(rows)) == texts
    assert rows.texts(2, 4) == texts[2:4]
    assert list(rows.iter_texts(np.array([3, 0]))) == ["naïve", ""]
    assert rows.lengths().tolist() == [len(text.encode()) for text in texts]
    with pytest.raises(IndexError):
        rows[len(texts)]


def test_no_texts_are_an_empty_buffer():
    rows = FlatRows.from_texts([])
    assert len(rows) == 0
    assert rows.texts(0, 0) == []


def name(row):
    return f"row {row}"


def make_dataset(**options):
    rows = random_rows(n=30, seed=3)
    chosen = np.array([4, 9, 2, 20])
    target = options.pop("target", np.array([0, 2, 1, 1]))
    settings = {"pad_id": 0, "padding_side": "right", "describe": name, **options}
    return rows, TextDataset(rows, chosen, target, **settings)


def test_a_batch_of_a_dataset_is_its_samples():
    rows, dataset = make_dataset()
    assert len(dataset) == 4
    batch = dataset.get_batch(np.array([3, 1]), None)
    assert isinstance(batch, Batch)
    assert isinstance(batch.inputs, TextInputs)
    assert batch.target.tolist() == [1, 2]
    assert batch.target.dtype == torch.int64
    for at, index in enumerate((3, 1)):
        (ids, mask), target = dataset[index]
        length = len(ids)
        assert torch.equal(batch.inputs.input_ids[at, :length], ids)
        assert mask.tolist() == [1] * length
        assert batch.inputs.attention_mask[at].sum() == length
        assert batch.target[at] == target
    assert dataset.lengths().tolist() == rows.lengths()[[4, 9, 2, 20]].tolist()
    assert dataset.describe(3) == "row 20"
    with pytest.raises(IndexError):
        dataset[4]


def test_without_a_target_a_batch_is_inputs_alone():
    _, dataset = make_dataset(target=None)
    assert isinstance(dataset.get_batch(np.array([0, 1])), TextInputs)
    assert isinstance(dataset[0], TextInputs)
    assert dataset[0].input_ids.ndim == 1


def private_growth(dataset, queue):
    def private():
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))

    gc.disable()  # a collection writes to every object that came with the fork
    dataset.get_batch(np.arange(64))
    before = private()
    for start in range(0, len(dataset), 64):
        batch = dataset.get_batch(np.arange(start, min(start + 64, len(dataset))))
        del batch
    for i in range(0, len(dataset), 7):
        dataset.describe(i)
    queue.put((os.getpid(), private() - before))


@pytest.mark.runs
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="Linux counts pages")
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_h20_200_000_texts_cost_a_worker_under_8_mib(context):
    random = np.random.default_rng(0)
    lengths = random.integers(10, 60, 200_000)
    rows = FlatRows.from_lengths(
        random.integers(1, 8_000, lengths.sum()).astype(np.uint16), lengths
    )
    everything = np.arange(200_000)
    dataset = TextDataset(
        rows, everything, everything % 5, pad_id=0, padding_side="right", describe=name
    )
    workers = torch.multiprocessing.get_context(context)
    queue = workers.Queue()
    started = [workers.Process(target=private_growth, args=(dataset, queue)) for _ in range(2)]
    for worker in started:
        worker.start()
    growth = dict(queue.get(timeout=100) for _ in started)
    for worker in started:
        worker.join(20)
    assert len(growth) == 2
    assert max(growth.values()) < 8 * 1024, f"KiB more in each worker: {growth}"
