"""Reads a table of file names and labels, and finds the files."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .files import list_images


class LabelTable(NamedTuple):
    """One row a picture, in the table's order.

    Attributes:
        paths: N paths.
        classes: K sorted names.
        labels: (N,) int64 indices into ``classes``, or (N, K) bool with several labels a row.
    """

    paths: list[str]
    classes: list[str]
    labels: npt.NDArray[Any]


def read_label_table(
    table: Path,
    root: Path,
    *,
    file_column: str,
    label_column: str | Sequence[str],
    label_separator: str | None = None,
) -> LabelTable:
    """Read CSV (separator by ending) or Parquet and pair each row with its file under ``root``.

    Names may lack the ending and the folders above them, as long as one file alone fits.

    Raises:
        FileNotFoundError: If the table, or the file of a row, is not there.
        ValueError: If a column or a label is missing, or a file is named twice.
    """
    columns = [label_column] if isinstance(label_column, str) else list(label_column)
    frame = _read(table)
    for column in (file_column, *columns):
        if column not in frame.columns:
            close = difflib.get_close_matches(column, frame.columns, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(
                f"{table.name} has no column {column!r}; {hint}it has {', '.join(frame.columns)}"
            )
        empty = [row for row, value in enumerate(frame[column].to_list()) if value in (None, "")]
        if empty:
            raise ValueError(
                f"{table.name} has {len(empty)} rows without {column!r}, the first is row "
                f"{empty[0]} (counted from 0 after the header); fill or delete them"
            )
    names = [str(name) for name in frame[file_column].to_list()]
    paths = _find(names, root, table.name, file_column)
    if isinstance(label_column, str) and label_separator is None:
        classes, codes = np.unique([str(v) for v in frame[label_column]], return_inverse=True)
        return LabelTable(paths, classes.tolist(), codes.astype(np.int64))
    if isinstance(label_column, str):
        cells = [
            {part.strip() for part in str(value).split(label_separator)} - {""}
            for value in frame[label_column]
        ]
        found = sorted(set().union(*cells))
        return LabelTable(paths, found, np.array([[c in cell for c in found] for cell in cells]))
    matrix = np.stack([_flags(frame[c].to_list(), c, table.name) for c in columns], axis=1)
    return LabelTable(paths, columns, matrix)


def _read(table: Path) -> Any:
    import polars

    if not table.is_file():
        raise FileNotFoundError(f"table {str(table)!r} does not exist")
    if table.suffix.lower() in (".parquet", ".pq"):
        return polars.read_parquet(table)
    separator = "\t" if table.suffix.lower() in (".tsv", ".tab") else ","
    # every cell as it is written: '007' is a name, not a number
    frame = polars.read_csv(table, separator=separator, infer_schema=False)
    if not len(frame):
        raise ValueError(f"{table.name} has a header and no rows")
    return frame


def _flags(values: list[Any], column: str, table: str) -> npt.NDArray[np.bool_]:
    known = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
    flags = np.empty(len(values), bool)
    for row, value in enumerate(values):
        if str(value).lower() not in known:
            raise ValueError(
                f"{table}: column {column!r} of several label columns must hold 0 and 1, row {row} "
                f"holds {value!r}"
            )
        flags[row] = known[str(value).lower()]
    return flags


def _find(names: list[str], root: Path, table: str, column: str) -> list[str]:
    """Path of each name: as written, without its ending, or by its last part."""
    files = list_images(root)[0]
    known: dict[str, str | None] = {}
    for path in files:
        relative = path[len(str(root)) + 1 :].replace("\\", "/")
        stem = relative.rpartition(".")[0]
        for key in {relative, stem, relative.rpartition("/")[2], stem.rpartition("/")[2]}:
            # None: two files answer to this key; the full path as written always wins
            known[key] = path if key == relative or key not in known else None
    first: dict[str, int] = {}
    lost = []
    for row, name in enumerate(names):
        if name in first:
            raise ValueError(
                f"{table} names {name!r} twice (rows {first[name]} and {row}); several labels of a "
                "picture go into one row, with label_separator= or a column for each"
            )
        first[name] = row
        if known.get(name.replace("\\", "/")) is None:
            lost.append(row)
    if lost:
        name = names[lost[0]]
        why = "is the name of two files" if name in known else "has no picture"
        raise FileNotFoundError(
            f"{table}: {len(lost)} of {len(names)} names in {column!r} cannot be told: {name!r} "
            f"(row {lost[0]}) {why} under {root}, which holds {len(files)} pictures"
        )
    return [str(known[name.replace("\\", "/")]) for name in names]
