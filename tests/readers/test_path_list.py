from __future__ import annotations

import os
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from datamodules.images.dataset import ImageDataset
from datamodules.readers.path_list import PathList, encode_paths

STRANGE = ["a\nb.png", os.fsdecode(b"caf\xe9.png"), "cafe\u0301.png", "caf\u00e9.png", " .png"]


def test_a_path_list_returns_the_paths_unchanged():
    given = ["", "a/b.png", *STRANGE, "日本.png"]
    paths = PathList(given)
    assert list(paths) == given
    assert len(paths) == 8
    assert paths[-1] == "日本.png"
    assert list(paths.take([5, 0, 5])) == [given[5], given[0], given[5]]
    assert "a/b.png" in paths
    assert list(PathList([])) == []


def test_a_zero_inside_a_string_does_not_split_it():
    given = ["a\0b", "", "\0", "c"]
    paths = PathList(given)
    assert list(paths) == given
    assert list(paths.take([2, 0])) == ["\0", "a\0b"]


def test_lists_are_joined_in_order():
    parts = [["b", STRANGE[1]], [], ["a/x.png", ""], []]
    joined = PathList.joined([encode_paths(part) for part in parts])
    assert list(joined) == ["b", STRANGE[1], "a/x.png", ""]
    assert list(PathList.joined([joined.take([2, 0]).encoded()])) == ["a/x.png", "b"]
    assert list(PathList.joined([])) == []


def test_a_selection_shares_memory_and_pickles():
    paths = PathList(f"{i}.png" for i in range(9))
    part = paths.take(np.array([8, 1]))
    assert part._bytes.data_ptr() == paths._bytes.data_ptr()
    assert part[0] == "8.png"
    assert list(pickle.loads(pickle.dumps(part))) == ["8.png", "1.png"]


@pytest.mark.parametrize("index", [2, -3])
def test_an_index_out_of_range_is_an_error(index):
    with pytest.raises(IndexError, match="of 2"):
        PathList(["a", "b"])[index]


def private_bytes():
    text = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * sum(int(kb) for kb in re.findall(r"Private_(?:Clean|Dirty): +(\d+)", text))


class Touched(Dataset):
    """Item i: private memory taken by reading every path and label, and whether they are shared."""

    def __init__(self, images):
        self.images = images

    def __len__(self):
        return 2

    def __getitem__(self, item):
        images = self.images
        self.touch(range(100))  # memory that the interpreter takes once
        before = private_bytes()
        self.touch(range(len(images)))
        return private_bytes() - before, all(
            tensor.is_shared()
            for tensor in (images.sources._bytes, images.sources._places, images.targets)
        )

    def touch(self, rows):
        for row in rows:
            assert type(self.images.describe(row)) is str
            assert int(self.images.targets[row]) >= 0


@pytest.mark.runs
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize(("context", "workers"), [("fork", 2), ("forkserver", 2), ("spawn", 1)])
def test_h20_a_worker_that_reads_200_000_paths_grows_by_less_than_8_mib(context, workers):
    paths = PathList(f"/data/{'x' * 75}/class_{i % 10}/{i:06d}.png" for i in range(200_000))
    assert len(paths[0]) == 100
    images = ImageDataset(paths, torch.arange(200_000) % 10, None)
    options = {"multiprocessing_context": context, "num_workers": workers, "batch_size": None}
    for growth, shared in DataLoader(Touched(images), **options):
        assert growth < 8 * 2**20
        assert shared or context == "fork"
