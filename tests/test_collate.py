from __future__ import annotations

import pytest
import torch

from datamodules.core import collate as collate_module
from datamodules.core.batch import Batch
from datamodules.core.collate import collate, collate_inputs


def test_pairs_become_a_batch_by_hand():
    batch = collate([(torch.tensor([1.0, 2.0]), 3), (torch.tensor([4.0, 5.0]), 6)])
    assert isinstance(batch, Batch)
    assert batch.inputs.tolist() == [[1.0, 2.0], [4.0, 5.0]]
    assert batch.target.tolist() == [3, 6]
    assert batch.target.dtype == torch.int64


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        (1, torch.int64),
        (1.5, torch.float32),
        (True, torch.int64),
        (torch.tensor(1, dtype=torch.int32), torch.int64),
        (torch.tensor([1.0, 0.0], dtype=torch.float64), torch.float32),
    ],
)
def test_targets_are_int64_or_float32(target, dtype):
    assert collate([(torch.zeros(2), target)] * 2).target.dtype == dtype


def test_no_float64_in_any_field():
    batch = collate([{"x": 1.5, "y": [2.5, (3.5,)]}] * 2)
    assert batch["x"].dtype == torch.float32
    assert batch["y"][1][0].dtype == torch.float32


def test_error_names_field_sizes_and_samples():
    samples = [(torch.zeros(3, 4), 0), (torch.zeros(3, 4), 0), (torch.zeros(1, 4), 0)]
    with pytest.raises(ValueError, match=r"sample 0 of .* \(3, 4\) float32, sample 2 .* \(1, 4\)"):
        collate(samples)


def test_what_does_not_collate_says_what_to_do():
    with pytest.raises(ValueError, match="collate_fn"):
        collate_inputs([object(), object()])


def test_padding_goes_to_the_longest_in_every_dimension():
    batch = collate_module.pad_pairs(
        [(torch.ones(2, 1), 0), (torch.full((1, 3), 2.0), 1)], value=-1
    )
    assert batch.inputs.values.tolist() == [
        [[1, -1, -1], [1, -1, -1]],
        [[2, 2, 2], [-1, -1, -1]],
    ]
    assert batch.inputs.mask.sum((1, 2)).tolist() == [2, 3]
    assert batch.inputs.mask[1].tolist() == [[True, True, True], [False, False, False]]
    assert batch.target.tolist() == [0, 1]


def test_padding_refuses_other_dimensions():
    with pytest.raises(collate_module.StackError, match="number of dimensions"):
        collate_module.pad_pairs([torch.zeros(2), torch.zeros(2, 2)])


def test_lists_keep_what_does_not_stack():
    images = [torch.zeros(3, 4, 5), torch.zeros(3, 2, 2)]
    boxes = [{"boxes": torch.zeros(1, 4)}, {"boxes": torch.zeros(0, 4)}]
    inputs, targets = collate_module.list_pairs(list(zip(images, boxes, strict=True)))
    assert inputs == images
    assert targets == boxes
