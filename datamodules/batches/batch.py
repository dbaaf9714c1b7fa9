"""Batches as NamedTuples: they unpack as ``inputs, target``, in Lightning too."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """What the train, val and test loaders yield.

    Attributes:
        inputs: Images (N, C, H, W) float32, a table (N, F) float32, :class:`TabularInputs` or
            :class:`TextInputs`.
        target: (N,) int64 for one label a sample, (N, K) float32 for several labels or mixed
            images, (N,) or (N, T) float32 for regression.
    """

    inputs: Any
    target: Tensor


class RowBatch(NamedTuple):
    """What the predict loader yields with ``with_rows=True``; without it inputs come bare.

    Attributes:
        inputs: As in :class:`Batch`.
        rows: (N,) int64, the rows' positions in ``predict_keys``.
    """

    inputs: Any
    rows: Tensor


class TabularInputs(NamedTuple):
    """A table with categorical columns.

    Attributes:
        numeric: (N, F) float32.
        categorical: (N, G) int64 codes; 0 is missing, 1 is a value that train never held.
    """

    numeric: Tensor
    categorical: Tensor


class TextInputs(NamedTuple):
    """Padded token ids; ``model(**inputs._asdict(), labels=target)`` feeds a Hugging Face model.

    Attributes:
        input_ids: (N, L) int64.
        attention_mask: (N, L) int64, 1 for a token and 0 for padding.
    """

    input_ids: Tensor
    attention_mask: Tensor


class PaddedInputs(NamedTuple):
    """Samples of unequal size, padded to the longest of the batch in every dimension.

    Attributes:
        values: (N, ...) of the samples' dtype.
        mask: Of the same shape, bool; True where the sample has a value.
    """

    values: Tensor
    mask: Tensor
