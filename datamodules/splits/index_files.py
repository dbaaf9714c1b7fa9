"""Read splits from files of row numbers or keys."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from datamodules.readers.npy import open_array
from datamodules.seeding.sample_seeds import Indices
from datamodules.settings.arguments import check_name, given_again

SPLIT_NAMES = ("train", "val", "test")


def split_by_files(
    files: Mapping[str, Any], n: int, keys: Callable[[], Sequence[Any]] | None = None
) -> dict[str, Indices]:
    """Return the rows that the file or list of each split names.

    Args:
        files: For each split a text file with a row number or key per line, a ``.npy`` file of
            row numbers, or a list of row numbers.
        n: Number of samples.
        keys: Returns the n keys that lines may have; a key takes precedence over a number.

    Returns:
        Ascending rows of train, val and test; without ``"train"``, all other rows are train.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a line is not a sample, or a sample is listed twice.
    """
    if not isinstance(files, Mapping) or not files:
        raise ValueError(
            f'files must be a dict such as {{"val": "val.txt", "test": "test.txt"}}, got {files!r}'
        )
    for split in files:
        check_name(split, SPLIT_NAMES, "split in files")
    places: dict[str, int] | None = None
    splits: dict[str, Indices] = {}
    owner = np.full(n, -1)
    for split, given in files.items():
        name, lines = _lines(split, given)
        if places is None:
            places = {str(key): row for row, key in enumerate(keys() if keys else ())}
        rows = np.array([_row(line, places, n, name) for line in lines], np.int64)
        for row in rows.tolist():
            if owner[row] >= 0:
                other = SPLIT_NAMES[owner[row]]
                raise ValueError(
                    f"{name} lists row {row}, which is in {other} already; list each row once"
                )
            owner[row] = SPLIT_NAMES.index(split)
        splits[split] = np.sort(rows)
    left = np.flatnonzero(owner < 0)
    if "train" not in files:
        splits["train"] = left
    elif len(left):
        warnings.warn(
            f"{len(left)} of {n} samples are in none of the files of split_options and are "
            f"not used, the first is row {left[0]}",
            stacklevel=2,
        )
    return {split: splits.get(split, left[:0]) for split in SPLIT_NAMES}


def _lines(split: str, given: Any) -> tuple[str, Sequence[Any]]:
    """Return the name of a split's file for messages, and its lines."""
    if not isinstance(given_again(given, f"files[{split!r}]"), str | Path):
        return f"files[{split!r}]", np.asarray(given).tolist()
    path = Path(given).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r}, the index file of {split}, does not exist")
    if path.suffix == ".npy":
        rows = open_array(path)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ValueError(
                f"{path.name} must be an array of row numbers (n,), got {rows.dtype} {rows.shape}"
            )
        return path.name, rows.tolist()
    text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    return path.name, [line.rstrip("\r") for line in text.split("\n") if line.strip()]


def _row(line: Any, places: Mapping[str, int], n: int, name: str) -> int:
    row = places.get(str(line), places.get(str(line).strip()))
    if row is not None:
        return row
    try:
        row = int(line)
    except ValueError:
        some = ", ".join(repr(key) for key in list(places)[:3])
        known = f"keys such as {some}" if places else "row numbers"
        raise ValueError(f"{name} lists {line!r}, which is not a sample; use {known}") from None
    if not 0 <= row < n:
        raise ValueError(f"{name} lists row {row}, rows must be 0 to {n - 1}")
    return row
