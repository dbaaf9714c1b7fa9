from __future__ import annotations

import pickle

import pytest
import torch
from torchvision.transforms import Compose, Normalize, ToTensor

from datamodules.batches.batch import Batch
from datamodules.batches.normalize import IMAGENET_MEAN, IMAGENET_STD, Buffers, Normalizer


@pytest.fixture
def images():
    return torch.randint(0, 256, (5, 3, 7, 9), dtype=torch.uint8, generator=torch.Generator())


def test_equal_to_torchvision_to_the_bit(images):
    plain = Compose([ToTensor(), Normalize(IMAGENET_MEAN, IMAGENET_STD)])
    rows = torch.stack([plain(p.permute(1, 2, 0).numpy()) for p in images])
    assert torch.equal(Normalizer(IMAGENET_MEAN, IMAGENET_STD)(images), rows)


@pytest.mark.parametrize("shape", [(70, 3, 64, 64), (2, 3, 300, 300), (0, 3, 8, 8)])
def test_parts_of_a_batch_join_without_a_seam(shape):
    draws = torch.Generator().manual_seed(0)
    batch = torch.randint(0, 256, shape, dtype=torch.uint8, generator=draws)
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
    normalizer = Normalizer(IMAGENET_MEAN, IMAGENET_STD)
    for images in (batch, batch.flip(-1), batch.to(memory_format=torch.channels_last)):
        expected = images.to(torch.float32).div(255).sub(mean).div(std)
        assert torch.equal(normalizer(images), expected)


def test_structure_is_kept_and_only_uint8_images_change(images):
    normalizer = Normalizer(IMAGENET_MEAN, IMAGENET_STD)
    target, floats = torch.arange(5), torch.rand(5, 3, 7, 9)
    batch = normalizer(Batch([images, {"other": floats}], target))
    assert isinstance(batch, Batch)
    assert batch.inputs[0].dtype == torch.float32
    assert batch.inputs[1]["other"] is floats
    assert batch.target is target
    mask = torch.zeros(5, 1, 7, 9, dtype=torch.uint8)
    assert normalizer(mask) is mask


def test_a_kept_batch_never_changes(images):
    normalizer = Normalizer(IMAGENET_MEAN, IMAGENET_STD)
    kept = normalizer(images)
    row, copy = kept[2:3], kept.clone()
    del kept
    for _ in range(10):
        normalizer(255 - images)
    assert torch.equal(row, copy[2:3])


def test_memory_comes_back_when_nothing_refers_to_it():
    buffers = Buffers(keep=1)
    first = buffers.take((2, 3))
    address = first.data_ptr()
    view = first[1]
    del first
    other = buffers.take((2, 3))
    assert other.data_ptr() != address
    del view
    assert buffers.take((3, 2)).data_ptr() == address


def test_batches_of_many_sizes_leave_a_few_blocks_alone():
    buffers = Buffers(sizes=3)
    kept = buffers.take((9,))
    for size in (1, 2, 3, 4, 1):
        buffers.take((size,))
    assert list(buffers._free) == [3, 4, 1]
    free = buffers._free[1][0].data_ptr()
    assert buffers.take((1,)).data_ptr() == free
    del kept
    assert 9 not in buffers._free


def test_pickles_without_its_memory(images):
    normalizer = Normalizer(IMAGENET_MEAN, IMAGENET_STD)
    normalizer(images)
    copy = pickle.loads(pickle.dumps(normalizer))
    assert torch.equal(copy(images), normalizer(images))


@pytest.mark.parametrize(("mean", "std"), [([0.5], [0.5, 0.5]), ([0.5], [0.0])])
def test_impossible_statistics_are_refused(mean, std):
    with pytest.raises(ValueError, match="one value per channel"):
        Normalizer(mean, std)
