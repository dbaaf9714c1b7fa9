"""Store table rows in one buffer, from which a batch is gathered in one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from datamodules.batches.batch import Batch, TabularInputs
from datamodules.batches.dataset_interface import Sample
from datamodules.batches.inspection_interface import ColumnValues, Trace
from datamodules.readers.path_list import PathList

from .column import Column
from .features import Feature, one_hot_places

if TYPE_CHECKING:
    from .raw_rows import RawRows

TargetKind = Literal["none", "class", "value"]
WORD = 4


class RowViews(NamedTuple):
    """Writable views of a buffer.

    Attributes:
        numeric: (N, F) float32.
        codes: (N, G) int32.
        target: (N,) int32 class, or (N, T) float32, or (N, 0).
    """

    numeric: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int32]
    target: npt.NDArray[Any]


class PackedRows:
    """N rows of F numbers, G category indices and T targets in one uint8 tensor.

    The tensor (N, 4 * (F + G + T)) is shared with workers. A row is contiguous, so a batch is one
    gather.

    Args:
        rows: N.
        numeric: F.
        codes: G.
        target: ``"class"`` for one class per row, ``"value"`` for numbers, ``"none"``.
        targets: T, for ``"value"``.

    Example:
        >>> packed = PackedRows(2, numeric=1, codes=0, target="class")
        >>> packed.views().numeric[:] = [[0.5], [1.5]]
        >>> packed.views().target[:] = [0, 1]
        >>> packed.gather(np.array([1]))[::2]
        (tensor([[1.5000]]), tensor([1]))
    """

    def __init__(
        self, rows: int, *, numeric: int, codes: int, target: TargetKind, targets: int = 0
    ) -> None:
        self.numeric, self.codes, self.target = numeric, codes, target
        self.targets = 1 if target == "class" else targets if target == "value" else 0
        width = WORD * (numeric + codes + self.targets)
        self.buffer = torch.empty((rows, width), dtype=torch.uint8)

    def __len__(self) -> int:
        return len(self.buffer)

    def views(self) -> RowViews:
        """Return writable views of numbers, category indices and targets."""
        floats = self.buffer.view(torch.float32).numpy()
        words = self.buffer.view(torch.int32).numpy()
        first, last = self.numeric, self.numeric + self.codes
        target = words[:, last] if self.target == "class" else floats[:, last:]
        return RowViews(floats[:, :first], words[:, first:last], target)

    def gather(self, indices: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Gather rows ``indices`` (M,) int64.

        Returns:
            Numbers (M, F) float32, category indices (M, G) int64, and the target: (M,) int64,
            (M, T) float32 or None.
        """
        whole = self.buffer.numpy()
        # A row is one opaque cell: NumPy gathers 1,024 rows of 156 bytes out of 312 MB in 60 us,
        # torch's index_select in 80 (2 cores, torch 2.14).
        taken = whole.view(f"V{whole.shape[1]}")[:, 0].take(indices)
        words = taken.view(np.int32).reshape(len(indices), -1)
        floats = words.view(np.float32)
        first, last = self.numeric, self.numeric + self.codes
        numeric = torch.from_numpy(floats[:, :first].copy())
        codes = torch.from_numpy(words[:, first:last].astype(np.int64))
        if self.target == "class":
            return numeric, codes, torch.from_numpy(words[:, last].astype(np.int64))
        if self.target == "value":
            return numeric, codes, torch.from_numpy(floats[:, last:].copy())
        return numeric, codes, None


class OneHot:
    """Converts category indices to columns of 0 and 1, after the numbers.

    An index without a column, such as a value unseen in train, is all zeros.

    Args:
        places: Column of each index of each categorical feature, or -1.
        width: Number of columns.

    Example:
        >>> one_hot = OneHot([[-1, -1, 0, 1]], width=2)
        >>> one_hot(torch.tensor([[0.5]]), torch.tensor([[3]]))
        tensor([[0.5000, 0.0000, 1.0000]])
    """

    def __init__(self, places: Sequence[Sequence[int]], width: int) -> None:
        self.width = width
        flat = [width if place < 0 else place for column in places for place in column]
        self._places = torch.tensor(flat, dtype=torch.int64)
        sizes = torch.tensor([0, *(len(column) for column in places)])
        self._first = sizes.cumsum(0)[:-1]

    @classmethod
    def of(cls, features: Sequence[Feature]) -> OneHot:
        """Return the encoder of fitted features."""
        places, names = one_hot_places(features)
        return cls(places, len(names))

    def __call__(self, numeric: Tensor, codes: Tensor) -> Tensor:
        """Convert (M, F) float32 and (M, G) int64 to (M, F + width) float32."""
        places = self._places[codes + self._first]
        # an index without a column is written to the last one, which is cut off
        flags = torch.zeros((len(codes), self.width + 1)).scatter_(1, places, 1.0)
        return torch.cat([numeric, flags[:, :-1]], dim=1)


class RowDataset(Dataset[Any]):
    """Table rows as batches ``(inputs, target)``, or inputs alone if there is no target.

    Args:
        packed: The rows.
        flat_target: Whether targets are (M,) instead of (M, T).
        one_hot: Encoder of category indices; None: inputs with categories are ``TabularInputs``.
        names: Names of the rows.
        raw: The cells as written, for reports and figures.
    """

    is_random = False

    def __init__(
        self,
        packed: PackedRows,
        *,
        flat_target: bool = False,
        one_hot: OneHot | None = None,
        names: RowNames | None = None,
        raw: RawRows | None = None,
    ) -> None:
        self.packed, self.flat_target, self.one_hot = packed, flat_target, one_hot
        self.names, self.raw = names, raw

    def for_workers(self) -> RowDataset:
        """Return the dataset without the raw cells, which are pickled and not shared."""
        slim = copy(self)
        slim.raw = None
        return slim

    def __len__(self) -> int:
        return len(self.packed)

    @property
    def targets(self) -> npt.NDArray[np.int64] | None:
        """(N,) class indices, for sampling by class; None if targets are not classes."""
        if self.packed.target != "class":
            return None
        labels: npt.NDArray[np.int64] = self.packed.views().target.astype(np.int64)
        return labels

    @property
    def regression_targets(self) -> npt.NDArray[np.float32] | None:
        """(N, T) targets of a regression or flags of labels; None if targets are classes."""
        return self.packed.views().target if self.packed.target == "value" else None

    def get_batch(self, indices: npt.NDArray[np.int64], seeds: Any = None) -> Any:
        """Return rows ``indices`` (M,) as one batch; ``seeds`` are not used."""
        numeric, codes, target = self.packed.gather(indices)
        inputs: Any = numeric
        if self.packed.codes:
            inputs = TabularInputs(numeric, codes)
            if self.one_hot is not None:
                inputs = self.one_hot(numeric, codes)
        if target is None:
            return inputs
        return Batch(inputs, target[:, 0] if self.flat_target else target)

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        batch = self.get_batch(np.array([index % len(self)]))
        if self.packed.target == "none":
            return _first(batch)
        return _first(batch.inputs), batch.target[0]

    def describe(self, index: int) -> str:
        """Return the name of a row, for messages."""
        return f"row {index}" if self.names is None else self.names(index)

    def sample(self, index: int) -> Sample:
        """Return the cells of a row."""
        return Sample(self.describe(index), cells=() if self.raw is None else self.raw.cells(index))

    def files(self) -> list[str]:
        """Return no paths: rows are not files."""
        return []

    def contents(self) -> Iterator[bytes]:
        """Yield the encoded features of each row."""
        width = WORD * (self.packed.numeric + self.packed.codes)
        return (row[:width].tobytes() for row in self.packed.buffer.numpy())

    input_transform = None

    def with_transform_of(self, other: RowDataset) -> RowDataset:
        """Return this dataset: rows have no transform."""
        return self

    def column_values(self) -> list[ColumnValues]:
        """Return the cells of each feature column."""
        return [] if self.raw is None else self.raw.column_values()

    def missing_shares(self) -> dict[str, float]:
        """Return the share of missing cells of each column."""
        return {} if self.raw is None else self.raw.missing_shares()

    def trace(self, index: int, *, batch_size: int = 1) -> Trace:
        """Yield a row as written and as encoded, and its target."""
        if self.raw is not None and self.packed.target != "none":
            yield "row", self.raw.summary(index)
            yield "target as written", self.raw.summary(index, self.raw.targets)
            numeric, codes, _ = self.packed.gather(np.array([index]))
            yield from self.raw.encoded(numeric[0], codes[0])
            inputs, target = self[index]
            if self.one_hot is not None:
                yield "one-hot", inputs
            yield "target", target


def _first(inputs: Any) -> Any:
    if isinstance(inputs, TabularInputs):
        return TabularInputs(inputs.numeric[0], inputs.categorical[0])
    return inputs[0]


class RowNames:
    """Names of the rows of a split, with their id if the table has an id column.

    Args:
        file: Name of the file.
        rows: (N,) int64, row numbers in the file, from 0.
        ids: The id column.

    Example:
        >>> RowNames("people.csv", np.array([4, 7]))(1)
        'row 7 of people.csv'
    """

    def __init__(self, file: str, rows: npt.NDArray[np.int64], ids: Column | None = None) -> None:
        # tensors are shared with workers; arrays are copied, and reading a list of str copies pages
        self.file, self._rows = file, torch.from_numpy(rows)
        self._ids: Tensor | PathList | None = None
        if ids is not None:
            numbers = None if ids.codes is not None else ids.numbers
            if numbers is not None and np.array_equal(numbers, np.floor(numbers)):
                self._ids = torch.from_numpy(numbers[rows].astype(np.int64))
            else:
                codes, words = ids.as_words
                self._ids = PathList(words[code] if code >= 0 else "" for code in codes[rows])

    def key(self, index: int) -> str | int:
        """Return the id of row ``index`` of the split, or its row number in the file."""
        if isinstance(self._ids, PathList):
            return self._ids[index]
        return int((self._rows if self._ids is None else self._ids)[index])

    def __call__(self, index: int) -> str:
        """Return the name of row ``index`` of the split, for messages."""
        name = f"row {int(self._rows[index])} of {self.file}"
        return name if self._ids is None else f"{name}, id {self.key(index)}"
