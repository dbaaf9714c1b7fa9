"""The rows of a split as the table has them, for reports and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from datamodules.batches.inspection_interface import ColumnValues, Summary, Trace

from .column import Column
from .encode import EncodingCounts
from .features import Feature, numeric_names
from .table import Table

MOST_SHOWN, MOST_CELLS, LONGEST = 12, 24, 60


class RawRows(NamedTuple):
    """The cells behind the rows of a split.

    Attributes:
        table: The table.
        rows: (N,) int64, the rows of the split in it.
        features: Fitted features.
        targets: Target columns; empty for prediction.
        counts: Cells that train does not have.
    """

    table: Table
    rows: npt.NDArray[np.int64]
    features: Sequence[Feature]
    targets: Sequence[str]
    counts: EncodingCounts

    def cells(self, index: int) -> list[tuple[str, str]]:
        """Return name and cell of the first 24 feature columns."""
        row = int(self.rows[index])
        names = [feature["name"] for feature in self.features[:MOST_CELLS]]
        return [(name, _cell(self.table.columns[name], row)) for name in names]

    def summary(self, index: int, names: Sequence[str] | None = None) -> Summary:
        """Return a row as written: its feature columns, or the columns ``names``."""
        row = int(self.rows[index])
        columns = [f["name"] for f in self.features] if names is None else names
        cells = [f"{n}={self.table.column(n).word(row) or 'missing'}" for n in columns]
        place = f"row {row} of {self.table.name}, " if names is None else ""
        return Summary(f"{place}{len(cells)} columns", "", in_one_line(cells))

    def encoded(self, numeric: Tensor, codes: Tensor) -> Trace:
        """Yield a row's (F,) numbers and (G,) category indices, with the names of their columns."""
        names = numeric_names(self.features)
        numbers = [f"{name} {value:.3g}" for name, value in zip(names, numeric, strict=True)]
        if numbers:
            yield "numbers", Summary(f"{len(numbers)}", "float32", in_one_line(numbers))
        names = [f["name"] for f in self.features if f["kind"] == "categorical"]
        indices = [f"{name} {k}" for name, k in zip(names, codes.tolist(), strict=True)]
        if indices:
            listed = in_one_line(indices) + " (0 missing, 1 unseen in train)"
            yield "category indices", Summary(f"{len(indices)}", "int64", listed)

    def column_values(self) -> list[ColumnValues]:
        """Return the cells of each feature column."""
        found = []
        for feature in self.features:
            column = self.table.columns[feature["name"]]
            if feature["kind"] == "numeric":
                assert column.numbers is not None
                cells = column.numbers[self.rows]
                is_date = column.style == "date"
                found.append(ColumnValues(column.name, cells[np.isfinite(cells)], {}, is_date))
            else:
                codes, words = column.as_words
                known = codes[self.rows]
                counts = np.bincount(known[known >= 0], minlength=len(words))
                order = np.argsort(-counts, kind="stable").tolist()
                by_word = {words[k]: int(counts[k]) for k in order if counts[k]}
                found.append(ColumnValues(column.name, None, by_word))
        return found

    def missing_shares(self) -> dict[str, float]:
        """Return the share of missing cells of each column."""
        columns = self.table.columns.items() if len(self.rows) else ()
        return {
            name: float(column.missing[self.rows].mean())
            for name, column in columns
            if not column.refused
        }


def in_one_line(parts: Sequence[str]) -> str:
    """Join the first 12 parts, each shortened to 60 characters.

    Example:
        >>> in_one_line(["size=3", "kind=oak"])
        'size=3, kind=oak'
    """
    more = f" and {len(parts) - MOST_SHOWN} more" if len(parts) > MOST_SHOWN else ""
    texts = (" ".join(part.split()) for part in parts[:MOST_SHOWN])
    return ", ".join(t if len(t) <= LONGEST else t[: LONGEST - 3] + "..." for t in texts) + more


def _cell(column: Column, row: int) -> str:
    if column.missing[row]:
        return "(missing)"
    if column.style == "date":
        assert column.numbers is not None
        return str(np.datetime64(0, "s") + np.timedelta64(round(column.numbers[row] * 86_400), "s"))
    return str(column.word(row))
