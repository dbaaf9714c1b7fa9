"""Read the columns of a text file, or a folder of text files, with the line of each row."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from datamodules.readers.delimited import SEPARATORS, Records, split_rows
from datamodules.readers.encodings import decode, find_bom
from datamodules.readers.folders import CLUTTER, contents
from datamodules.readers.parquet_check import check_parquet
from datamodules.readers.path_list import PathList
from datamodules.settings.arguments import did_you_mean

Column = int | str
ROW_SOURCES = (".parquet", ".pq", "=dataframe", "=list")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
DAMAGED = "the Parquet file is damaged"


class RowPlaces:
    """File and line of each row, for messages; workers get it without a copy.

    Args:
        source: The file.
        lines: (N,) int64 line numbers, or N paths.

    Example:
        >>> RowPlaces("reviews.csv", np.array([2, 3]))(1)
        'reviews.csv, line 3'
    """

    def __init__(self, source: str, lines: npt.NDArray[np.int64] | PathList) -> None:
        self.source = source
        self.kind = "row" if source.lower().endswith(ROW_SOURCES) else "line"
        self.lines = lines if isinstance(lines, PathList) else torch.from_numpy(lines)

    def __call__(self, index: int) -> str:
        """Return file and line of a row."""
        if isinstance(self.lines, PathList):
            return self.lines[index]
        return f"{self.source}, {self.kind} {int(self.lines[index])}"


class Cells(NamedTuple):
    """Unconverted cells of N rows.

    Attributes:
        source: The path.
        by_role: N values of each role (``text``, ``text_pair``, ``target``); None if missing.
        columns: Name or number of the column of each role.
        lines: (N,) int64, line of each row (in Parquet its index from 0), or N paths.
        typed: Whether the file format distinguishes strings from numbers.
    """

    source: str
    by_role: dict[str, list[Any]]
    columns: Mapping[str, Column]
    lines: npt.NDArray[np.int64] | PathList
    typed: bool = True

    def place(self, index: int) -> str:
        """Return file and line of a row."""
        return RowPlaces(self.source, self.lines)(index)


class BadText(NamedTuple):
    """A file of a folder that cannot be read.

    Attributes:
        label: Name of its folder.
        reason: Why it cannot be read.
    """

    label: str
    reason: str


def read_cells(
    path: Path,
    roles: dict[str, Column],
    *,
    separator: str | None = None,
    quote: str | None = None,
    encoding: str | None = None,
    header: bool | None = None,
    bad: dict[str, BadText] | None = None,
) -> Cells:
    """Read the columns of ``roles``; arguments as in :func:`~datamodules.texts.reader.read_texts`.

    Raises:
        FileNotFoundError: If the path does not exist.
        ValueError: If the file is damaged or lacks a column.
    """
    if path.is_dir():
        return _read_folder(path, roles, encoding, bad)
    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r} does not exist; pass a file or a folder of texts")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        if data[:4] == b"PAR1" or suffixes[-1:] in ([".parquet"], [".pq"]):
            return _read_parquet(str(path), data, roles)
        content = _decode(data, encoding)
        if not content.strip("\r\n"):
            raise ValueError("the file has no rows; pass a file with texts")
        if any(suffix in JSON_SUFFIXES for suffix in suffixes):
            return _read_json(str(path), content, roles)
        first = "," if ".csv" in suffixes else "\t"
        separators = sorted(SEPARATORS, key=lambda separator: separator != first)
        return _read_delimited(
            str(path), content, roles, [separator] if separator else separators, quote, header
        )
    except (ValueError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{str(path)!r}: {error}") from error


def _positions(columns: Sequence[str], roles: Mapping[str, Column]) -> dict[str, int]:
    """Return the position of each role's column.

    Raises:
        ValueError: If a column does not exist; suggests the closest and lists all.
    """
    positions = {}
    for role, column in roles.items():
        if isinstance(column, int):
            if not 0 <= column < len(columns):
                raise ValueError(
                    f"{role}={column} is column {column} counted from 0, there are "
                    f"{len(columns)}: {_listed(columns)}"
                )
            positions[role] = column
            continue
        matches = [i for i, name in enumerate(columns) if name == column]
        if len(matches) > 1:
            raise ValueError(f"{len(matches)} columns are called {column!r}; rename all but one")
        if not matches:
            hint = did_you_mean(column, columns, cutoff=0.5)
            raise ValueError(
                f"no column {column!r} for {role}=; {hint}it has {_listed(columns)}; columns of a "
                "file without a header row are given by number, such as text=0, target=1"
            )
        positions[role] = matches[0]
    return positions


def _listed(columns: Sequence[str]) -> str:
    if not columns:
        return "no columns"
    names = [repr(c if len(c) <= 40 else c[:37] + "...") for c in columns[:20]]
    return ", ".join(names) + ", ..." * (len(columns) > 20)


def _read_delimited(
    source: str,
    content: str,
    roles: dict[str, Column],
    separators: Sequence[str],
    quote: str | None,
    header: bool | None,
) -> Cells:
    numbers = [column for column in roles.values() if isinstance(column, int)]
    names = [column for column in roles.values() if isinstance(column, str)]
    has_header = bool(names) if header is None else header
    if names and not has_header:
        raise ValueError(f"header=False needs columns by number, got {names[0]!r}")

    def fits(row: list[str]) -> bool:
        stripped = [cell.strip() for cell in row]
        return max(numbers, default=0) < len(row) and all(name in stripped for name in names)

    def split(test: Any) -> Records | list[str]:
        columns = max(numbers, default=1) + 1
        return split_rows(content, fits=test, separators=separators, quote=quote, columns=columns)

    rows = split(fits)
    if isinstance(rows, list) and set(roles) == {"text"} and numbers and len(rows) == 1:
        # texts to predict, without a label column
        roles, rows = {"text": 0}, split(lambda row: len(row) == 1)
    if isinstance(rows, list):
        _positions([cell.strip() for cell in rows], roles)
        raise AssertionError("a first row that fits was rejected")
    start = 1 if has_header else 0
    head = [cell.strip() for cell in rows.cells[0]] if rows.cells else []
    positions = _positions(head, roles)
    cells = {role: [row[i] for row in rows.cells[start:]] for role, i in positions.items()}
    return Cells(source, cells, roles, np.array(rows.lines[start:], np.int64), typed=False)


def _read_json(source: str, content: str, roles: dict[str, Column]) -> Cells:
    if content.lstrip()[:1] == "[":
        rows = _parse_json(content, "not JSON: {}")
        lines = list(range(1, len(rows) + 1))
    else:
        rows, lines = [], []
        # not splitlines(): texts may contain U+2028
        for number, line in enumerate(content.split("\n"), 1):
            if line.strip():
                failure = f"line {number} is not JSON: {{}}; write one object per line"
                rows.append(_parse_json(line, failure))
                lines.append(number)
    for row, number in zip(rows, lines, strict=True):
        if not isinstance(row, dict):
            raise ValueError(f'line {number} must be an object such as {{"text": ...}}')
    keys = list(dict.fromkeys(key for row in rows for key in row))
    for role, column in roles.items():
        if column not in keys:
            _positions(keys, {role: str(column)})
    cells = {role: [row.get(column) for row in rows] for role, column in roles.items()}
    return Cells(source, cells, roles, np.array(lines, np.int64))


def _parse_json(content: str, failure: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
        raise ValueError(failure.format(error)) from None


def _read_parquet(source: str, data: bytes, roles: dict[str, Column]) -> Cells:
    import polars as pl

    if data[:4] != b"PAR1":
        raise ValueError("the file is called Parquet but is not; rename or convert it")
    errors = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
    try:
        check_parquet(data)  # polars would abort the interpreter
        names = list(pl.read_parquet_schema(io.BytesIO(data)))
    except (ValueError, *errors) as error:
        raise ValueError(f"{DAMAGED} ({error}); write it again") from None
    positions = _positions(names, roles)
    try:
        frame = pl.read_parquet(io.BytesIO(data), columns=[*{names[i] for i in positions.values()}])
    except errors as error:
        raise ValueError(f"{DAMAGED} ({error}); write it again") from None
    # polars is not fork-safe (pola-rs/polars#17526): plain lists from here on
    cells = {role: frame[names[i]].to_list() for role, i in positions.items()}
    return Cells(source, cells, roles, np.arange(frame.height))


def _read_folder(
    path: Path, roles: dict[str, Column], encoding: str | None, bad: dict[str, BadText] | None
) -> Cells:
    if "text_pair" in roles:
        raise ValueError(f"{str(path)!r} is a folder and has no text_pair; pass a file of pairs")
    folders = [path]
    if "target" in roles:
        folders = [folder for folder in _entries(path) if folder.is_dir()]
        if not folders:
            raise ValueError(
                f"{str(path)!r} must contain one folder for each class, {contents(path)}; pass a "
                "file or the folder above the class folders"
            )
    texts, labels, files = [], [], []
    for folder in folders:
        for file in _files(folder):
            try:
                texts.append(_decode(file.read_bytes(), encoding))
            except (ValueError, FileNotFoundError, PermissionError) as error:
                if bad is not None:
                    bad[str(file)] = BadText(folder.name, str(error))
                    continue
                if isinstance(error, OSError):
                    raise
                raise ValueError(f"{str(file)!r}: {error}") from error
            labels.append(folder.name)
            files.append(str(file))
    cells: dict[str, list[Any]] = {"text": texts}
    if "target" in roles:
        cells["target"] = labels
    return Cells(str(path), cells, roles, PathList(files))


def _entries(folder: Path) -> list[Path]:
    shown = (p for p in folder.iterdir() if p.name[0] != "." and p.name.lower() not in CLUTTER)
    return sorted(shown, key=lambda p: p.name)


def _files(folder: Path) -> Iterator[Path]:
    for parent, inner, names in os.walk(folder):
        inner[:] = sorted(n for n in inner if n[0] != "." and n.lower() not in CLUTTER)
        for name in sorted(names):
            file = Path(parent) / name
            # is_file: a pipe or a device is not a text
            if name[0] != "." and name.lower() not in CLUTTER and file.is_file():
                yield file


def _decode(data: bytes, encoding: str | None) -> str:
    return decode(data, encoding or find_bom(data) or "utf-8").removeprefix("\ufeff")
