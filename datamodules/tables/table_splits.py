"""Which rows of a table make which split, as far as columns of the table say so."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from datamodules.splits.options import SPLIT_WORDS

from .table import Table, listed


class Part(NamedTuple):
    """Rows of a table that make one split.

    Attributes:
        table: The table.
        rows: (N,) int64.
    """

    table: Table
    rows: npt.NDArray[np.int64]


def split_by_column(table: Table, name: str) -> dict[str, Part]:
    """Splits as a column of ``train``, ``val`` (``valid``, ``validation``, ``dev``), ``test`` says.

    Raises:
        ValueError: If a cell is empty or says something else; names column, value and row.
    """
    codes, words = table.column(name, "split_column").as_words
    splits = [SPLIT_WORDS.get(word.strip().casefold(), "") for word in words]
    by_row = np.array([*splits, ""])[codes]
    strange = np.flatnonzero(by_row == "")
    if len(strange):
        row = int(strange[0])
        raise ValueError(
            f"{table.name}: {name!r} must say train, val or test in each row, it holds "
            f"{table.columns[name].word(row)!r} in {len(strange)} rows, the first is row {row} "
            "(counted from 0); mend them, or pass another split_column"
        )
    parts = {split: np.flatnonzero(by_row == split) for split in ("train", "val", "test")}
    if not len(parts["train"]):
        raise ValueError(f"{table.name}: {name!r} calls no row train, only {listed(words)}")
    return {split: Part(table, rows) for split, rows in parts.items()}


def column_values(table: Table, name: str) -> npt.NDArray[np.generic]:
    """(N,) cells of a column for ``split_options``: numbers, or words with ``""`` for none."""
    column = table.column(name, "split_options")
    if column.codes is None and column.numbers is not None:
        return column.numbers
    codes, words = column.as_words
    return np.array([*words, ""], object)[codes]
