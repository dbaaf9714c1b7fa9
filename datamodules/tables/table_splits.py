"""Split the rows of a table by one of its columns, and check groups of several tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from datamodules.splits.groups import check_disjoint
from datamodules.splits.options import SPLIT_WORDS

from .table import Table, listed


class Part(NamedTuple):
    """Rows of a table that are one split.

    Attributes:
        table: The table.
        rows: (N,) int64 row indices.
    """

    table: Table
    rows: npt.NDArray[np.int64]

    @classmethod
    def of(cls, table: Table) -> Part:
        """Return all rows of a table."""
        return cls(table, np.arange(table.rows))


def split_by_column(table: Table, name: str) -> dict[str, Part]:
    """Split by a column of ``train``, ``val`` (``valid``, ``validation``, ``dev``) and ``test``.

    Raises:
        ValueError: If a cell is empty or another word; names column, value and row.
    """
    codes, words = table.column(name, "split_options 'column'").as_words
    splits = [SPLIT_WORDS.get(word.strip().casefold(), "") for word in words]
    by_row = np.array([*splits, ""])[codes]
    unknown = np.flatnonzero(by_row == "")
    if len(unknown):
        row = int(unknown[0])
        raise ValueError(
            f"{table.name}: {name!r} must be train, val or test in each row, but it is "
            f"{table.columns[name].word(row)!r} in {len(unknown)} rows, the first is row {row} "
            "(counted from 0); fix them, or name another column"
        )
    parts = {split: np.flatnonzero(by_row == split) for split in ("train", "val", "test")}
    if not len(parts["train"]):
        raise ValueError(f"{table.name}: {name!r} has no row train, only {listed(words)}")
    return {split: Part(table, rows) for split, rows in parts.items()}


def column_values(table: Table, name: str) -> npt.NDArray[np.generic]:
    """Return the cells (N,) of a column: numbers, or strings with ``""`` for missing values."""
    column = table.column(name, "split_options")
    if column.codes is None and column.numbers is not None:
        return column.numbers
    codes, words = column.as_words
    return np.array([*words, ""], object)[codes]


def check_groups(parts: Mapping[str, Part], group: str | None, given: Sequence[str]) -> None:
    """Refuse a val or test table that shares a group with train or each other.

    Args:
        parts: Rows of each split.
        group: The column of groups, or None.
        given: Splits with a table of their own.

    Raises:
        ValueError: Names the group.
    """
    if group is not None and given:
        own = {split: parts[split] for split in ("train", *given)}
        groups = {s: column_values(p.table, group)[p.rows].tolist() for s, p in own.items()}
        check_disjoint(groups, repr(group))
