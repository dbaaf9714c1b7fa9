"""Table rows as numbers and codes, by what was fitted, packed into one buffer."""

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


class Encoded(NamedTuple):
    """Counts of what train never showed, by column, where there is any.

    Attributes:
        unseen: Different values that train does not hold; they share code 1.
        cells: Cells that hold them.
        filled: Gaps in columns that have none in train.
    """

    unseen: dict[str, int]
    cells: dict[str, int]
    filled: dict[str, int]

    def said(self, split: str) -> list[str]:
        """Lines for a person."""
        unseen = [f"{name} {n} in {self.cells[name]} cells" for name, n in self.unseen.items()]
        filled = [f"{name} {n}" for name, n in self.filled.items()]
        what = {"values unseen in train": unseen, "gaps where train has none": filled}
        return [f"{split}: {name}: {', '.join(found)}" for name, found in what.items() if found]


def pack(
    table: Table, rows: Indices, features: Sequence[Feature], target: Any = None
) -> tuple[PackedRows, Encoded]:
    """Encode rows of a table into one buffer.

    Args:
        table: The table.
        rows: (N,) int64, its rows.
        features: As :func:`~datamodules.tables.features.fit_columns` gave them.
        target: (N,) integer classes, (N, T) numbers, or None.

    Returns:
        The rows, and counts of what train never showed.
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
) -> Encoded:
    """Write rows as scaled numbers, missing flags and codes.

    Args:
        table: The table, with at least the fitted columns.
        rows: (N,) int64, its rows.
        features: As :func:`fit_columns` gave them.
        numeric: (N, F) float32 to write to: scaled numbers, then a 0/1 flag for each numeric
            column with gaps in train.
        codes: (N, G) int32 to write to: 0 missing, 1 unseen, 2 and above the values of train.

    Raises:
        ValueError: If a column is absent, or holds words or infinity where train had numbers.
    """
    report = Encoded({}, {}, defaultdict(int))
    numbers = [f for f in features if f["kind"] == "numeric"]
    categories = [f for f in features if f["kind"] == "categorical"]
    columns = {f["name"]: table.column(f["name"], "feature") for f in features}
    for feature in numbers:
        check_numbers(table, columns[feature["name"]], rows)
    coded = [_coded(columns[f["name"]], f, rows, report) for f in categories]
    room = np.empty(min(BLOCK, len(rows)))
    # by blocks of rows: a block of all columns stays in the cache while it is written
    for at in range(0, len(rows), BLOCK):
        chosen, block, flag = rows[at : at + BLOCK], slice(at, at + BLOCK), len(numbers)
        for j, feature in enumerate(numbers):
            column = columns[feature["name"]]
            # into memory that is in the cache; rows are within bounds
            values = column.numbers.take(chosen, out=room[: len(chosen)], mode="clip")  # type: ignore[union-attr]
            found = 0
            if not column.finite:
                gaps = np.isnan(values)
                found = int(np.count_nonzero(gaps))
                values[gaps] = feature["fill"]
            values -= feature["mean"]
            values /= feature["std"]
            numeric[block, j] = values
            if feature["gaps"]:
                numeric[block, flag] = 0.0 if column.finite else gaps
                flag += 1
            elif found:
                report.filled[feature["name"]] += found
        for j, (words, to_code) in enumerate(coded):
            codes[block, j] = to_code[words[chosen]]
    return report._replace(filled=dict(report.filled))


def _coded(
    column: Column, feature: Feature, rows: Indices, report: Encoded
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The column's own codes, and the fitted code of each of its words, the last one missing."""
    found, words = column.as_words
    known = {value: FIRST + k for k, value in enumerate(feature["values"])}
    to_code = np.array([*(known.get(word, UNSEEN) for word in words), MISSING], np.int32)
    counts = np.bincount(found[rows] + 1, minlength=len(words) + 1)  # found is -1 where missing
    strange = counts[1:][to_code[:-1] == UNSEEN]
    if strange.any():
        report.unseen[column.name] = int(np.count_nonzero(strange))
        report.cells[column.name] = int(strange.sum())
    if counts[0] and not feature["gaps"]:
        report.filled[column.name] = int(counts[0])
    return found, to_code
