"""Batches as NamedTuples: they unpack as ``inputs, target`` and move to a device in Lightning."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Batch of the train, val and test loaders.

    Attributes:
        inputs: Images (N, C, H, W) float32, a table (N, F) float32, :class:`TabularInputs` or
            :class:`TextInputs`.
        target: (N,) int64 class indices, (N, K) float32 for multi-label data or mixed images,
            (N,) or (N, T) float32 for regression.

    Example:
        >>> import torch
        >>> images, labels = Batch(torch.zeros(2, 3, 8, 8), torch.tensor([0, 1]))
        >>> images.shape, labels.tolist()
        (torch.Size([2, 3, 8, 8]), [0, 1])
    """

    inputs: Any
    target: Tensor


class RowBatch(NamedTuple):
    """Batch of the predict loader with ``with_rows=True``; without it a batch is the inputs alone.

    Attributes:
        inputs: As in :class:`Batch`.
        rows: (N,) int64 positions in ``predict_keys``.

    Example:
        >>> import torch
        >>> batch = RowBatch(torch.zeros(2, 4), rows=torch.tensor([0, 1]))
        >>> [["a.png", "b.png", "c.png"][row] for row in batch.rows]
        ['a.png', 'b.png']
    """

    inputs: Any
    rows: Tensor


class TabularInputs(NamedTuple):
    """Inputs of a table with categorical columns.

    Attributes:
        numeric: (N, F) float32.
        categorical: (N, G) int64 category indices; 0: missing value, 1: value not in train.

    Example:
        >>> import torch
        >>> inputs = TabularInputs(torch.zeros(2, 3), torch.tensor([[2], [0]]))
        >>> inputs.categorical[:, 0] == 0  # missing
        tensor([False,  True])
    """

    numeric: Tensor
    categorical: Tensor


class TextInputs(NamedTuple):
    """Padded token ids; ``model(**inputs._asdict(), labels=target)`` feeds a Hugging Face model.

    Attributes:
        input_ids: (N, L) int64.
        attention_mask: (N, L) int64, 1 for a token and 0 for padding.

    Example:
        >>> import torch
        >>> inputs = TextInputs(torch.tensor([[5, 6], [7, 0]]), torch.tensor([[1, 1], [1, 0]]))
        >>> sorted(inputs._asdict())
        ['attention_mask', 'input_ids']
    """

    input_ids: Tensor
    attention_mask: Tensor


class PaddedInputs(NamedTuple):
    """Inputs of unequal size, padded to the largest of the batch in every dimension.

    Attributes:
        values: (N, ...) of the samples' dtype.
        mask: Same shape, bool; True for a value, False for padding.

    Example:
        >>> import torch
        >>> padded = PaddedInputs(torch.tensor([[3, 0]]), torch.tensor([[True, False]]))
        >>> padded.values[padded.mask]
        tensor([3])
    """

    values: Tensor
    mask: Tensor
