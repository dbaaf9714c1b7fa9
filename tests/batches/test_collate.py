from __future__ import annotations

import pickle
from typing import NamedTuple

import pytest
import torch

from datamodules.batches import collate as collate_module
from datamodules.batches.batch import Batch, PaddedInputs
from datamodules.batches.collate import (
    StackError,
    collate,
    collate_inputs,
    collate_pairs,
    list_pairs,
    pad,
    pad_pairs,
)


class Views(NamedTuple):
    """Two inputs of one sample."""

    near: torch.Tensor
    far: float


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


def test_bare_inputs_stay_a_list_and_only_a_tuple_of_two_is_a_pair():
    tensors = [torch.zeros(2, 3), torch.ones(2, 1)]
    assert list_pairs(tensors) is not tensors
    assert list_pairs(tensors) == tensors
    triples = [(0, 1, 2), (3, 4, 5)]
    assert list_pairs(triples) == triples
    assert list_pairs([[0, 1], [2, 3]]) == [[0, 1], [2, 3]]


def test_a_named_tuple_of_two_is_one_input_and_keeps_its_type():
    batch = collate([Views(torch.zeros(2), 0.5), Views(torch.ones(2), 1.5)])
    assert type(batch) is Views
    assert batch.near.tolist() == [[0, 0], [1, 1]]
    assert batch.far.tolist() == [0.5, 1.5]
    assert batch.far.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.float16])
def test_inputs_keep_every_dtype_but_float64(dtype):
    assert collate_inputs([torch.zeros(2, dtype=dtype)] * 3).dtype == dtype
    assert collate_inputs([{"x": torch.zeros(2, dtype=dtype)}] * 3)["x"].dtype == dtype
    assert collate_inputs([torch.zeros(2, dtype=torch.float64)] * 3).dtype == torch.float32


@pytest.mark.parametrize("together", [collate_pairs, pad_pairs, list_pairs])
def test_a_sample_with_a_part_more_is_refused(together):
    samples = [(torch.zeros(2), 0), (torch.zeros(2), 1, "lost")]
    with pytest.raises(ValueError, match="argument 2 is longer"):
        together(samples)


def test_padding_of_one_sample_and_its_default_of_zero():
    alone = pad([torch.tensor([1, 2])])
    assert alone.values.tolist() == [[1, 2]]
    assert alone.mask.dtype == torch.bool
    assert pad([torch.ones(2), torch.ones(1)]).values.tolist() == [[1, 1], [1, 0]]
    bare = pad_pairs([torch.ones(1), torch.ones(3)])
    assert type(bare) is PaddedInputs
    assert bare.values.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert pad_pairs([torch.ones(1), torch.ones(2)], value=7).values.tolist() == [[1, 7], [1, 1]]
    pairs = pad_pairs([(torch.ones(1), 0), (torch.ones(2), 1)])
    assert pairs.inputs.values.tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("together", "samples", "message"),
    [
        (
            collate,
            [(torch.zeros(3, 4), 0), (torch.zeros(3, 5), 0)],
            "inputs of one batch differ: sample 0 of the batch has (3, 4) float32, "
            "sample 1 of the batch has (3, 5) float32; "
            "return one size and dtype in the transform, or pad them: collate='pad'",
        ),
        (
            collate,
            [(0, torch.zeros(1)), (0, torch.zeros(1, dtype=torch.int64))],
            "target of one batch differ: sample 0 of the batch has (1,) float32, "
            "sample 1 of the batch has (1,) int64; "
            "return one size and dtype in the transform, or pad them: collate='pad'",
        ),
        (
            pad_pairs,
            [torch.zeros(2), torch.zeros(3), torch.zeros(3, dtype=torch.uint8)],
            "inputs of one batch differ: sample 0 of the batch has (2,) float32, "
            "sample 2 of the batch has (3,) uint8; return the same number of dimensions and dtype",
        ),
    ],
)
def test_the_whole_message_and_it_reaches_the_parent_of_a_worker(together, samples, message):
    with pytest.raises(StackError) as caught:
        together(samples)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert str(error) == message
        assert error.positions == (0, len(samples) - 1)
        assert error.args == (error.field, error.one, error.other, error.positions, error.remedy)
        assert error.named("a.png", "b.png").startswith(f"{error.field} of one batch differ: a.png")


def test_what_does_not_collate_names_the_type_and_the_remedy():
    with pytest.raises(ValueError, match="samples of type set cannot be collated") as caught:
        collate_inputs([{1}])
    assert str(caught.value).endswith(
        "; return tensors of one shape, or pass loader_options={'collate_fn': ...}"
    )


def test_images_as_decoders_leave_them_stay_channels_last_and_equal():
    images = [torch.arange(24, dtype=torch.uint8).reshape(2, 4, 3).permute(2, 0, 1)] * 2
    batch = collate([(image, 0) for image in images]).inputs
    assert batch.shape == (2, 3, 2, 4)
    assert torch.equal(batch, torch.stack(images))
    assert batch.stride() == torch.empty(2, 2, 4, 3).permute(0, 3, 1, 2).stride()
    for other in (images[0].contiguous(), images[0].float(), images[0][0].T):
        assert collate_inputs([other, other]).is_contiguous()
