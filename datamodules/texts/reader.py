"""Read texts and labels from CSV, TSV, JSON lines, Parquet, or one file per text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from datamodules.readers.data_frame import Frame, is_frame
from datamodules.readers.path_list import PathList
from datamodules.splits.split import fingerprint

from .dataset import FlatRows
from .files import BadText, Cells, Column, RowPlaces, read_cells
from .in_memory import frame_cells, list_cells

NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")


class TextTable(NamedTuple):
    """N texts in the order of their source, in buffers that workers share.

    Attributes:
        texts: N rows of UTF-8 bytes.
        pairs: N second texts, or None.
        names: Label names, sorted; whole numbers by value.
        labels: (N,) int64 indices into ``names``; None if labels were not read.
        source: The path.
        lines: (N,) int64, line of each row (in Parquet its index from 0), or N paths.
        extra: N cells of each additional column; None for a missing cell.
    """

    texts: FlatRows
    pairs: FlatRows | None
    names: list[str]
    labels: npt.NDArray[np.int64] | None
    source: str
    lines: npt.NDArray[np.int64] | PathList
    extra: Mapping[str, npt.NDArray[np.object_]] = MappingProxyType({})

    @property
    def keys(self) -> list[str] | list[int]:
        """File of each text, or its row number from 0."""
        return list(self.lines) if isinstance(self.lines, PathList) else [*range(len(self.texts))]

    def places(self) -> RowPlaces:
        """Return file and line of each row, without the texts."""
        return RowPlaces(self.source, self.lines)

    def digest(self) -> str:
        """Return a digest that changes with any text or label."""
        buffers = [self.texts] if self.pairs is None else [self.texts, self.pairs]
        parts = (part for rows in buffers for part in (rows.values.tobytes(), rows.offsets))
        return fingerprint(
            *parts, json.dumps(self.names), [] if self.labels is None else self.labels
        )


def read_texts(
    path: str | Path | Frame | Sequence[str],
    *,
    text: Column = "text",
    label: Column | Sequence[Any] | None = "label",
    text_pair: Column | None = None,
    separator: str | None = None,
    quote: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
    label_pattern: str | None = None,
    extra: Sequence[str] = (),
    bad: dict[str, BadText] | None = None,
    argument: str = "path",
) -> TextTable:
    """Read a file of texts or a folder of text files; every row is kept.

    A missing cell is an empty text; "nan" and "NA" are ordinary words. The format is detected by
    content (Parquet, gzip) and suffix (JSON); any other file is delimited text.

    Args:
        path: A file, a folder with one folder of files per class, a polars or pandas DataFrame,
            or a list of texts.
        text: Column by name, or by number from 0.
        label: Column of the label; for a list of texts the list of labels; None: no labels are
            read.
        text_pair: Column of a second text.
        separator: None: detected among comma, tab, semicolon and bar. A blank reads lines such as
            ``label text``: the last column is the remaining line.
        quote: See :func:`~datamodules.readers.delimited.split_rows`.
        encoding: None: UTF-8, or UTF-16 or UTF-32 with a byte-order mark.
        header: Whether the first row names the columns; None: if columns are given by name.
        label_pattern: Regular expression that is matched at the start of the label; its first
            group, or the whole match, replaces the label.
        extra: Other columns to keep as they are.
        bad: Collects the files of a folder that cannot be read, by path; None: they are an error.
        argument: Name of the argument that gave a DataFrame or a list, for messages.

    Raises:
        FileNotFoundError: If the path does not exist.
        ValueError: If the file is damaged, or a cell is not a text or label; names the file, the
            column and the line.
    """
    columns: dict[str, Any] = {"text": text, "text_pair": text_pair, "target": label}
    columns |= {f"split_options {name}": name for name in extra}
    wanted = {role: column for role, column in columns.items() if column is not None}
    if isinstance(path, list | tuple):
        cells = list_cells(path, label, f"{argument}=list")  # type: ignore[arg-type]
    elif is_frame(path):
        cells = frame_cells(path, wanted, f"{argument}=DataFrame")
    else:
        cells = read_cells(
            Path(cast(str, path)).expanduser(),
            wanted,
            separator=separator,
            quote=quote,
            encoding=encoding,
            header=header,
            bad=bad,
        )
    if not len(cells.lines):
        raise ValueError(f"{cells.source!r} has no rows; pass a file with texts")
    texts = _texts(cells, "text")
    pairs = _texts(cells, "text_pair") if text_pair is not None else None
    names, labels = _labels(cells, label_pattern) if label is not None else ([], None)
    kept = {}
    for name in extra:
        kept[name] = np.empty(len(cells.lines), object)
        kept[name][:] = cells.by_role[f"split_options {name}"]
    return TextTable(texts, pairs, names, labels, cells.source, cells.lines, kept)


def _texts(cells: Cells, role: str) -> FlatRows:
    column, values = cells.columns[role], cells.by_role[role]
    for i, value in enumerate(values):
        if value is not None and not isinstance(value, str):
            raise ValueError(
                f"column {column!r} must contain texts, but {cells.place(i)} has {value!r} "
                f"({type(value).__name__}); pass another column or convert it to text"
            )
    texts = [value or "" for value in values]
    present = [value for value in texts if value]
    # a file to predict may contain nothing but "42"
    trains = not cells.typed and "target" in cells.by_role
    if trains and present and all(map(NUMBER.fullmatch, present)):
        raise ValueError(
            f"{cells.source!r}: column {column!r} contains numbers such as {present[0]!r} and no "
            f"texts; pass {role}= the column of the texts, or use TabularDataModule"
        )
    try:
        return FlatRows.from_texts(texts)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{cells.place(texts.index(error.object))}: half of a surrogate pair is not a "
            "character; fix the text"
        ) from None


def _labels(cells: Cells, pattern: str | None) -> tuple[list[str], npt.NDArray[np.int64]]:
    column, values = cells.columns["target"], cells.by_role["target"]
    missing = [i for i, v in enumerate(values) if v is None or v == "" or v != v]
    if missing:
        more = ", ..." if len(missing) > 3 else ""
        raise ValueError(
            f"column {column!r} has no label in {len(missing)} of {len(values)} rows: "
            f"{'; '.join(map(cells.place, missing[:3]))}{more}; add a label or delete them"
        )
    by_value: dict[Any, str] = {}
    names = []
    for i, value in enumerate(values):
        key = (type(value), value if isinstance(value, str | int | float) else repr(value))
        if key not in by_value:
            by_value[key] = _label_name(value, pattern, cells.place(i))
        names.append(by_value[key])
    found = set(by_value.values())
    if all(map(NUMBER.fullmatch, found)):
        odd = sorted(n for n in found if not float(n.replace(",", ".")).is_integer())
        if odd:
            raise ValueError(
                f"{cells.source!r}: column {column!r} contains numbers such as {odd[0]}; classes "
                "are names or whole numbers: pass another column, or convert them to classes"
            )
    ordered = sort_names(found)
    index = {name: k for k, name in enumerate(ordered)}
    return ordered, np.fromiter((index[name] for name in names), np.int64, len(names))


def _label_name(value: Any, pattern: str | None, where: str) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a table with missing values writes 1 as 1.0
    if not isinstance(value, str | int | float):
        raise ValueError(
            f"{where}: the label is {value!r} ({type(value).__name__}); write one name or whole "
            "number"
        )
    name = str(value)
    if pattern is None:
        return name
    match = re.match(pattern, name)
    if match is None:
        raise ValueError(
            f"{where}: the label {name!r} does not match label_pattern={pattern!r}; fix either"
        )
    return str(match[1 if match.re.groups else 0])


def sort_names(names: Iterable[str]) -> list[str]:
    """Sort class names: whole numbers by value, other names as text.

    Example:
        >>> sort_names({"10", "9"}), sort_names({"10", "9", "spam"})
        (['9', '10'], ['10', '9', 'spam'])
    """
    found = set(names)
    numbers = all(re.fullmatch(r"-?\d+", name, re.ASCII) for name in found)
    return sorted(found, key=(lambda name: (int(name), name)) if numbers else None)


def join_labels(
    tables: Mapping[str, TextTable],
) -> tuple[list[str], dict[str, npt.NDArray[np.int64]]]:
    """Return the class names of all tables, and each table's (N,) int64 indices into them."""
    names = sort_names(name for table in tables.values() for name in table.names)
    index = {name: k for k, name in enumerate(names)}
    labels = {}
    for part, table in tables.items():
        assert table.labels is not None
        labels[part] = np.array([index[name] for name in table.names], np.int64)[table.labels]
    return names, labels


def check_format(*, separator: str | None, quote: str | None, label_pattern: str | None) -> None:
    """Refuse options of the text format that are impossible.

    Raises:
        ValueError: If ``separator`` or ``quote`` is not one character, or ``label_pattern`` not a
            regular expression.
    """
    for name, value, smallest in (("separator", separator, 1), ("quote", quote, 0)):
        if value is not None and not smallest <= len(value) <= 1:
            raise ValueError(f"{name} must be one character, got {value!r}")
    try:
        re.compile(label_pattern or "")
    except re.error as error:
        raise ValueError(
            f"label_pattern={label_pattern!r} is not a regular expression: {error}"
        ) from None
