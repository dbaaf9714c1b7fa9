"""Store rows of unequal length in one flat buffer, and pad them to a rectangle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from datamodules.batches.batch import Batch, TextInputs
from datamodules.batches.dataset_interface import Sample
from datamodules.batches.inspection_interface import Summary, Trace
from datamodules.seeding.sample_seeds import Indices

if TYPE_CHECKING:
    from .raw_texts import RawTexts

PaddingSide = Literal["right", "left"]
MOST_SHOWN = 12  # tokens in a trace
# Unsigned 16 and 32 bit tensors do not pickle, so the buffer is kept under the signed type.
KEPT_AS = {np.dtype(np.uint16): np.int16, np.dtype(np.uint32): np.int32}


class FlatRows:
    """N concatenated rows of numbers in one tensor, with their offsets in another.

    Workers share the two tensors under fork, forkserver and spawn.

    Args:
        values: (M,) uint8, uint16 or uint32.
        offsets: (N + 1,) int64; row i is ``values[offsets[i]:offsets[i + 1]]``.

    Example:
        >>> rows = FlatRows.from_texts(["red fox", "", "žába"])
        >>> len(rows), rows.lengths().tolist(), rows.texts(1, 3)
        (3, [7, 0, 6], ['', 'žába'])
    """

    def __init__(self, values: npt.NDArray[Any], offsets: npt.ArrayLike) -> None:
        self.dtype = values.dtype
        kept = KEPT_AS.get(values.dtype, values.dtype)
        self._values = torch.from_numpy(np.ascontiguousarray(values).view(kept))
        self._offsets = torch.from_numpy(np.ascontiguousarray(offsets, np.int64))

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> FlatRows:
        """Encode texts as rows of UTF-8 bytes.

        Raises:
            UnicodeEncodeError: If a text contains half of a surrogate pair.
        """
        encoded = [text.encode() for text in texts]
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(np.frombuffer(bytearray(b"".join(encoded)), np.uint8), offsets)

    @classmethod
    def from_lengths(cls, values: npt.NDArray[Any], lengths: Iterable[int]) -> FlatRows:
        """Return rows of the given lengths, concatenated in ``values``."""
        return cls(values, np.cumsum([0, *lengths], dtype=np.int64))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> FlatRows:
        """Restore rows from :meth:`state`."""
        return cls(state["values"].numpy().view(state["dtype"]), state["offsets"].numpy())

    def state(self) -> dict[str, Any]:
        """Return tensors and plain types for :meth:`from_state`."""
        return {"values": self._values, "offsets": self._offsets, "dtype": self.dtype.name}

    @property
    def values(self) -> npt.NDArray[Any]:
        """(M,) all rows, concatenated; shares the memory."""
        flat: npt.NDArray[Any] = self._values.numpy().view(self.dtype)
        return flat

    @property
    def offsets(self) -> Indices:
        """(N + 1,) int64; shares the memory."""
        ends: Indices = self._offsets.numpy()
        return ends

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> npt.NDArray[Any]:
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def content(self, rows: Indices) -> bytes:
        """Return the bytes of the given rows, concatenated."""
        return b"".join(self[int(row)].tobytes() for row in rows)

    def lengths(self) -> Indices:
        """Return the length (N,) int64 of each row."""
        return np.diff(self.offsets)

    def text(self, index: int) -> str:
        """Decode one row of UTF-8 bytes."""
        return self[index].tobytes().decode()

    def texts(self, start: int, stop: int) -> list[str]:
        """Decode rows ``start`` to ``stop`` of UTF-8 bytes."""
        first = self.offsets[start]
        block = self.values[first : self.offsets[stop]].tobytes()
        ends = (self.offsets[start : stop + 1] - first).tolist()
        return [block[a:b].decode() for a, b in pairwise(ends)]

    def iter_texts(self, rows: Indices) -> Iterator[str]:
        """Decode the given rows of UTF-8 bytes, in their order."""
        return (self.text(int(row)) for row in rows)


def pad_rows(
    rows: FlatRows,
    indices: Indices,
    *,
    pad_id: int = 0,
    padding_side: PaddingSide = "right",
    widths: Indices | None = None,
) -> TextInputs:
    """Pad N rows to one rectangle, as wide as the longest of them.

    Args:
        rows: Token ids.
        indices: (N,) int64, N >= 1.
        pad_id: Token of the padding.
        padding_side: Side of the padding.
        widths: Allowed widths, ascending; the first that is large enough is used. If the longest
            row is longer than all, its length is used.

    Returns:
        ``input_ids`` (N, L) int64 and ``attention_mask`` (N, L) int64, 1 for a token.

    Example:
        >>> rows = FlatRows(np.array([5, 6, 7, 8], np.uint16), [0, 3, 4])
        >>> pad_rows(rows, np.array([1, 0]), padding_side="left").input_ids.tolist()
        [[0, 0, 8], [5, 6, 7]]
    """
    starts = rows.offsets[indices]
    lengths = rows.offsets[indices + 1] - starts
    width = int(lengths.max())
    if widths is not None:
        width = max(width, int(widths[min(int(np.searchsorted(widths, width)), len(widths) - 1)]))
    places = np.arange(width)
    if padding_side == "left":
        starts, mask = starts + lengths - width, places >= (width - lengths)[:, None]
    else:
        mask = places < lengths[:, None]
    input_ids = np.where(mask, _slices(rows.values, starts, width), pad_id)
    return TextInputs(
        torch.from_numpy(input_ids.astype(np.int64, copy=False)),
        torch.from_numpy(mask.astype(np.int64)),
    )


def _slices(values: npt.NDArray[Any], starts: Indices, width: int) -> npt.NDArray[np.int64]:
    """Return ``width`` values from each of ``starts``, including those of the next rows, as int64.

    Positions outside of ``values`` get any of the values.
    """
    if width and int(starts.min()) >= 0 and int(starts.max()) + width <= len(values):
        # A slice is one opaque cell that may begin at any value: 8,192 tokens are padded in 30 us,
        # token by token in 60 (2 cores, NumPy 2.4).
        shape, cell = (len(values) - width + 1,), f"V{width * values.itemsize}"
        cells = np.ndarray(shape, cell, values.data, strides=values.strides)[starts]
        whole: npt.NDArray[np.int64] = cells.view(values.dtype).astype(np.int64)
        return whole.reshape(len(starts), width)
    places = starts[:, None] + np.arange(width)
    near: npt.NDArray[np.int64] = values.take(places, mode="clip").astype(np.int64)
    return near


class TextDataset:
    """Texts of a split as token ids; a batch is one gather.

    Args:
        tokens: All rows of the source.
        rows: (N,) int64, rows of this split.
        target: (N,) int64 class indices; None for prediction: batches are inputs alone.
        pad_id: Token of the padding.
        padding_side: Side of the padding.
        describe: Returns the name of a row, for messages.
        widths: Allowed widths of a batch, ascending; None: the length of its longest text.
        raw: The texts as written, for reports and figures.

    Example:
        >>> tokens = FlatRows(np.array([5, 6, 7], np.uint16), [0, 2, 3])
        >>> texts = TextDataset(
        ...     tokens, np.array([0, 1]), np.array([1, 0]),
        ...     pad_id=0, padding_side="right", describe=str,
        ... )
        >>> texts.get_batch(np.array([1, 0])).inputs.input_ids
        tensor([[7, 0],
                [5, 6]])
    """

    is_random = False

    def __init__(
        self,
        tokens: FlatRows,
        rows: Indices,
        target: Indices | None,
        *,
        pad_id: int,
        padding_side: PaddingSide,
        describe: Callable[[int], str],
        widths: Indices | None = None,
        raw: RawTexts | None = None,
    ) -> None:
        self.raw = raw
        self.tokens, self.pad_id, self.padding_side = tokens, pad_id, padding_side
        # tensors are shared with workers
        self.rows = torch.from_numpy(rows)
        self.target: Tensor | None = None if target is None else torch.from_numpy(target)
        self._describe = describe
        self.widths = widths

    @property
    def targets(self) -> Indices | None:
        """(N,) class indices, for sampling by class."""
        return None if self.target is None else self.target.numpy()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        """Return token ids (L,) and mask (L,) int64 of one text, and its class index () int64."""
        if not 0 <= index < len(self):
            raise IndexError(f"text {index} of {len(self)}")
        batch = self._padded(np.array([index]), None)
        if isinstance(batch, Batch):
            return TextInputs(*(part[0] for part in batch.inputs)), batch.target[0]
        return TextInputs(*(part[0] for part in batch))

    def get_batch(self, indices: Indices, seeds: Any = None) -> Batch | TextInputs:
        """Return N texts padded to a rectangle; ``seeds`` are not used."""
        return self._padded(indices, self.widths)

    def _padded(self, indices: Indices, widths: Indices | None) -> Batch | TextInputs:
        inputs = pad_rows(
            self.tokens,
            self.rows.numpy()[indices],
            pad_id=self.pad_id,
            padding_side=self.padding_side,
            widths=widths,
        )
        if self.target is None:
            return inputs
        return Batch(inputs, self.target[torch.from_numpy(indices)])

    def lengths(self) -> Indices:
        """Return the number of tokens (N,) int64 of each text."""
        lengths: Indices = self.tokens.lengths()[self.rows.numpy()]
        return lengths

    def describe(self, index: int) -> str:
        """Return file and line of a text."""
        return self._describe(int(self.rows[index]))

    def sample(self, index: int) -> Sample:
        """Return a text as written; a second text follows on a line of its own."""
        texts = [] if self.raw is None else self.raw.texts_of(int(self.rows[index]))
        return Sample(self.describe(index), text="\n".join(text for _, text in texts))

    def files(self) -> list[str]:
        """Return no paths: texts are compared by their tokens."""
        return []

    def contents(self) -> Iterator[bytes]:
        """Yield the tokens of each text."""
        return (self.tokens[row].tobytes() for row in self.rows.tolist())

    input_transform = None

    def with_transform_of(self, other: TextDataset) -> TextDataset:
        """Return this dataset: texts have no transform."""
        return self

    def truncated(self) -> npt.NDArray[np.bool_]:
        """Return (N,) whether each text lost its end at ``max_length``."""
        cut = np.zeros(len(self.tokens), bool) if self.raw is None else self.raw.cut
        chosen: npt.NDArray[np.bool_] = cut[self.rows.numpy()]
        return chosen

    def empty(self) -> npt.NDArray[np.bool_]:
        """Return (N,) whether each text has no character."""
        lengths = self.tokens.lengths() if self.raw is None else self.raw.texts.lengths()
        empty: npt.NDArray[np.bool_] = lengths[self.rows.numpy()] == 0
        return empty

    def trace(self, index: int, *, batch_size: int = 1) -> Trace:
        """Yield a text as written, its tokens and ids, and its padded row of a batch."""
        row = int(self.rows[index])
        if self.raw is not None:
            yield from self.raw.trace(row, self.tokens[row])
        ids = self.tokens[row]
        more = f" and {len(ids) - MOST_SHOWN:,} more" if len(ids) > MOST_SHOWN else ""
        shown = f"{', '.join(map(str, ids[:MOST_SHOWN].tolist()))}{more}"
        yield "ids", Summary(f"{len(ids):,}", str(ids.dtype), shown)
        count = min(batch_size, len(self) - index)
        batch: Any = self.get_batch(np.arange(index, index + count))
        inputs = batch if self.target is None else batch.inputs
        width, tokens = inputs.input_ids.shape[1], int(inputs.attention_mask[0].sum())
        shown = f"{tokens:,} tokens and {width - tokens:,} of padding, in a batch of {count}"
        yield "padded", Summary(f"{width:,}", "int64", shown)
        if self.target is not None:
            yield "target", batch.target[0]
