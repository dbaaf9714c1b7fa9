"""Encode table rows as numbers and category indices with the fitted features."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from datamodules.seeding.sample_seeds import Indices

from .column import Column
from .dataset import PackedRows, TargetKind
from .features import (
    FIRST,
    MISSING,
    UNSEEN,
    Feature,
    cardinalities,
    check_numbers,
    numeric_names,
)
from .table import Table

BLOCK = 16384


class EncodingCounts(NamedTuple):
    """Counts by column of values and missing values that do not occur in train.

    Attributes:
        unseen: Distinct values that are not in train; all have category index 1.
        cells: Cells with such values.
        filled: Missing values in columns that have none in train.
    """

    unseen: dict[str, int]
    cells: dict[str, int]
    filled: dict[str, int]

    def notes(self, split: str) -> list[str]:
        """Return the counts as notes for the user."""
        counts = {
            "values unseen in train": [
                f"{name} {n} in {self.cells[name]} cells" for name, n in self.unseen.items()
            ],
            "missing values where train has none": [
                f"{name} {n}" for name, n in self.filled.items()
            ],
        }
        return [f"{split}: {what}: {', '.join(c)}" for what, c in counts.items() if c]


def pack(
    table: Table, rows: Indices, features: Sequence[Feature], target: Any = None
) -> tuple[PackedRows, EncodingCounts]:
    """Encode rows of a table into one buffer.

    Args:
        table: The table.
        rows: (N,) int64 row indices.
        features: From :func:`~datamodules.tables.features.fit_columns`.
        target: (N,) integer classes, (N, T) numbers, or None.
    """
    kind: TargetKind = "none" if target is None else "class" if target.ndim == 1 else "value"
    packed = PackedRows(
        len(rows),
        numeric=len(numeric_names(features)),
        codes=len(cardinalities(features)),
        target=kind,
        targets=target.shape[1] if kind == "value" else 0,
    )
    views = packed.views()
    counts = encode(table, rows, features, numeric=views.numeric, codes=views.codes)
    if target is not None:
        views.target[:] = target
    return packed, counts


def encode(
    table: Table,
    rows: Indices,
    features: Sequence[Feature],
    *,
    numeric: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int32],
) -> EncodingCounts:
    """Write rows as scaled numbers, missing flags and category indices.

    Args:
        table: The table, with at least the fitted columns.
        rows: (N,) int64 row indices.
        features: From :func:`~datamodules.tables.features.fit_columns`.
        numeric: Output (N, F) float32: scaled numbers, then a 0/1 flag for each numeric column
            with missing values in train.
        codes: Output (N, G) int32: 0 missing, 1 unseen in train, 2 and above the values of train.

    Raises:
        ValueError: If a column is absent, or has strings or infinity but is numeric in train.
    """
    report = EncodingCounts({}, {}, defaultdict(int))
    numbers = [f for f in features if f["kind"] == "numeric"]
    categories = [f for f in features if f["kind"] == "categorical"]
    columns = {f["name"]: table.column(f["name"], "feature") for f in features}
    for feature in numbers:
        check_numbers(table, columns[feature["name"]], rows)
    indexed = [_to_index(columns[f["name"]], f, rows, report) for f in categories]
    room = np.empty(min(BLOCK, len(rows)))
    # by blocks of rows: a block of all columns stays in the processor's cache
    for at in range(0, len(rows), BLOCK):
        chosen, block, flag = rows[at : at + BLOCK], slice(at, at + BLOCK), len(numbers)
        for j, feature in enumerate(numbers):
            column = columns[feature["name"]]
            # into memory that is in the cache; mode="clip": rows are within bounds
            values = column.numbers.take(chosen, out=room[: len(chosen)], mode="clip")  # type: ignore[union-attr]
            imputed = 0
            if not column.finite:
                gaps = np.isnan(values)
                imputed = int(np.count_nonzero(gaps))
                values[gaps] = feature["fill"]
            values -= feature["mean"]
            values /= feature["std"]
            numeric[block, j] = values
            if feature["gaps"]:
                numeric[block, flag] = 0.0 if column.finite else gaps
                flag += 1
            elif imputed:
                report.filled[feature["name"]] += imputed
        for j, (words, to_code) in enumerate(indexed):
            codes[block, j] = to_code[words[chosen]]
    return report._replace(filled=dict(report.filled))


def _to_index(
    column: Column, feature: Feature, rows: Indices, report: EncodingCounts
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return the column's own indices, and the fitted index of each word, last that of missing."""
    found, words = column.as_words
    known = {value: FIRST + k for k, value in enumerate(feature["values"])}
    to_code = np.array([*(known.get(word, UNSEEN) for word in words), MISSING], np.int32)
    counts = np.bincount(found[rows] + 1, minlength=len(words) + 1)  # -1: missing
    unseen = counts[1:][to_code[:-1] == UNSEEN]
    if unseen.any():
        report.unseen[column.name] = int(np.count_nonzero(unseen))
        report.cells[column.name] = int(unseen.sum())
    if counts[0] and not feature["gaps"]:
        report.filled[column.name] = int(counts[0])
    return found, to_code
