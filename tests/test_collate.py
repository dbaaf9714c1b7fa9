from __future__ import annotations

import pytest
import torch

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
    with pytest.raises(ValueError, match=r"inputs .* sample 0 is \(3, 4\).* sample 2 is \(1, 4\)"):
        collate(samples)


def test_what_does_not_collate_says_what_to_do():
    with pytest.raises(ValueError, match="collate_fn"):
        collate_inputs([object(), object()])
