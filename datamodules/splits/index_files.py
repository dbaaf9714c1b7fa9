"""Splits that are given as files of row numbers or keys."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from datamodules.readers.npy import open_array
from datamodules.settings.arguments import check_name, given_again

Indices = npt.NDArray[np.int64]
PARTS = ("train", "val", "test")


def by_files(
    files: Mapping[str, Any], n: int, keys: Callable[[], Sequence[Any]] | None = None
) -> dict[str, Indices]:
    """Rows of each part as files, or lists, name them.

    Args:
        files: Of each part a file with a row number or a key a line, ``.npy`` of row numbers, or
            the row numbers themselves.
        n: Number of samples.
        keys: Gives the n keys that lines may name; a key is tried before a number.

    Returns:
        Ascending rows of train, val and test; without train among ``files`` the rest is train.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a line names no sample, or one that is named already.
    """
    if not isinstance(files, Mapping) or not files:
        raise ValueError(f'files takes {{"val": "val.txt", "test": "test.txt"}}, got {files!r}')
    for part in files:
        check_name(part, PARTS, "part of files")
    places: dict[str, int] | None = None
    found: dict[str, Indices] = {}
    owner = np.full(n, -1)
    for part, given in files.items():
        said, lines = _lines(part, given)
        if places is None:
            places = {str(key): row for row, key in enumerate(keys() if keys else ())}
        rows = np.array([_row(line, places, n, said) for line in lines], np.int64)
        for row in rows.tolist():
            if owner[row] >= 0:
                other = PARTS[owner[row]]
                raise ValueError(
                    f"{said} names row {row}, which {other} holds already; name each row once"
                )
            owner[row] = PARTS.index(part)
        found[part] = np.sort(rows)
    left = np.flatnonzero(owner < 0)
    if "train" not in files:
        found["train"] = left
    elif len(left):
        warnings.warn(
            f"{len(left)} of {n} samples are in none of the files of split_options and are "
            f"left out, the first is row {left[0]}",
            stacklevel=2,
        )
    return {part: found.get(part, left[:0]) for part in PARTS}


def _lines(part: str, given: Any) -> tuple[str, Sequence[Any]]:
    """What to call a part's file, and its lines."""
    if not isinstance(given_again(given, f"files[{part!r}]"), str | Path):
        return f"files[{part!r}]", np.asarray(given).tolist()
    path = Path(given).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r}, the index file of {part}, does not exist")
    if path.suffix == ".npy":
        rows = open_array(path)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ValueError(
                f"{path.name} must hold row numbers (n,), got {rows.dtype} {rows.shape}"
            )
        return path.name, rows.tolist()
    text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    return path.name, [line.rstrip("\r") for line in text.split("\n") if line.strip()]


def _row(line: Any, places: Mapping[str, int], n: int, said: str) -> int:
    row = places.get(str(line), places.get(str(line).strip()))
    if row is not None:
        return row
    try:
        row = int(line)
    except ValueError:
        some = ", ".join(repr(key) for key in list(places)[:3])
        known = f"keys such as {some}" if places else "row numbers"
        raise ValueError(f"{said} names {line!r}, which is no sample; it takes {known}") from None
    if not 0 <= row < n:
        raise ValueError(f"{said} names row {row}, there are rows 0 to {n - 1}")
    return row
