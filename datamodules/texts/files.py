"""File formats of texts: the cells of the columns that are asked for, and where each row stands."""

from __future__ import annotations

import codecs
import difflib
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

from datamodules.readers.delimited import SEPARATORS, Rows, split_rows
from datamodules.readers.folders import CLUTTER, contents
from datamodules.readers.parquet_check import check_parquet
from datamodules.readers.path_list import PathList

Column = int | str
ROW_SOURCES = (".parquet", ".pq", "=dataframe", "=list")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
# the longer mark first: UTF-32's begins with UTF-16's
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Places:
    """Where each row stands, for a person; workers get it without a copy.

    Args:
        source: The file.
        lines: (N,) int64 line numbers, or N paths.
    """

    def __init__(self, source: str, lines: npt.NDArray[np.int64] | PathList) -> None:
        self.source = source
        self.kind = "row" if source.lower().endswith(ROW_SOURCES) else "line"
        self.lines = lines if isinstance(lines, PathList) else torch.from_numpy(lines)

    def __call__(self, index: int) -> str:
        """File and line of a row."""
        if isinstance(self.lines, PathList):
            return self.lines[index]
        return f"{self.source}, {self.kind} {int(self.lines[index])}"


class Cells(NamedTuple):
    """Raw cells of N rows.

    Attributes:
        source: The path.
        by_role: N values of each role (``text``, ``text_pair``, ``target``); None is missing.
        columns: What the column of each role is called.
        lines: (N,) int64, the line of each row (its number from 0 in Parquet), or N paths.
        typed: Whether the format tells texts from numbers.
    """

    source: str
    by_role: dict[str, list[Any]]
    columns: Mapping[str, Column]
    lines: npt.NDArray[np.int64] | PathList
    typed: bool = True

    def place(self, index: int) -> str:
        """Where a row stands, for a person."""
        return Places(self.source, self.lines)(index)


class BadText(NamedTuple):
    """A file of a folder that cannot be read.

    Attributes:
        label: Name of its folder.
        reason: What is wrong.
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
        FileNotFoundError: If there is no such path.
        ValueError: If the content is not as described.
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
            raise ValueError("the file holds no rows; pass a file with texts")
        if any(suffix in JSON_SUFFIXES for suffix in suffixes):
            return _read_json(str(path), content, roles)
        first = "," if ".csv" in suffixes else "\t"
        found = sorted(SEPARATORS, key=lambda separator: separator != first)
        return _read_delimited(
            str(path), content, roles, [separator] if separator else found, quote, header
        )
    except (ValueError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{str(path)!r}: {error}") from error


def _find(columns: Sequence[str], roles: Mapping[str, Column]) -> dict[str, int]:
    """Position of each role's column.

    Raises:
        ValueError: If there is none; suggests the closest and lists all.
    """
    found = {}
    for role, column in roles.items():
        if isinstance(column, int):
            if not 0 <= column < len(columns):
                raise ValueError(
                    f"{role}={column} asks for column {column} counted from 0, there are "
                    f"{len(columns)}: {_said(columns)}"
                )
            found[role] = column
            continue
        at = [i for i, name in enumerate(columns) if name == column]
        if len(at) > 1:
            raise ValueError(f"{len(at)} columns are called {column!r}; rename all but one")
        if not at:
            close = difflib.get_close_matches(column, columns, 1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(
                f"no column {column!r} for {role}=; {hint}it has {_said(columns)}; a file without "
                "a header row is read by numbers, such as text=0, target=1"
            )
        found[role] = at[0]
    return found


def _said(columns: Sequence[str]) -> str:
    shown = [repr(c if len(c) <= 40 else c[:37] + "...") for c in columns[:20]]
    return ", ".join(shown) + (", ..." if len(columns) > 20 else "") if columns else "no columns"


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
        raise ValueError(f"header=False goes with columns by number, got {names[0]!r}")

    def fits(row: list[str]) -> bool:
        stripped = [cell.strip() for cell in row]
        return max(numbers, default=0) < len(row) and all(name in stripped for name in names)

    def split(test: Any) -> Rows | list[str]:
        columns = max(numbers, default=1) + 1
        return split_rows(content, fits=test, separators=separators, quote=quote, columns=columns)

    rows = split(fits)
    if isinstance(rows, list) and set(roles) == {"text"} and numbers and len(rows) == 1:
        # texts to be predicted, with no label column beside them
        roles, rows = {"text": 0}, split(lambda row: len(row) == 1)
    if isinstance(rows, list):
        _find([cell.strip() for cell in rows], roles)
        raise AssertionError("a first row that fits was refused")
    start = 1 if has_header else 0
    head = [cell.strip() for cell in rows.cells[0]] if rows.cells else []
    at = _find(head, roles)
    cells = {role: [row[i] for row in rows.cells[start:]] for role, i in at.items()}
    return Cells(source, cells, roles, np.array(rows.lines[start:], np.int64), typed=False)


def _read_json(source: str, content: str, roles: dict[str, Column]) -> Cells:
    if content.lstrip()[:1] == "[":
        try:
            rows = json.loads(content)
        except (ValueError, RecursionError) as error:  # nested too deeply
            raise ValueError(f"no JSON: {error}") from None
        lines = list(range(1, len(rows) + 1))
    else:
        rows, lines = [], []
        # not splitlines(): texts may hold U+2028
        for number, line in enumerate(content.split("\n"), 1):
            if not line.strip():
                continue
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:  # nested too deeply
                raise ValueError(
                    f"line {number} is no JSON: {error}; each line holds one object"
                ) from None
            lines.append(number)
    for row, number in zip(rows, lines, strict=True):
        if not isinstance(row, dict):
            raise ValueError(f'line {number} must hold an object such as {{"text": ...}}')
    keys = list(dict.fromkeys(key for row in rows for key in row))
    for role, column in roles.items():
        if column not in keys:
            _find(keys, {role: str(column)})
    cells = {role: [row.get(column) for row in rows] for role, column in roles.items()}
    return Cells(source, cells, roles, np.array(lines, np.int64))


def _read_parquet(source: str, data: bytes, roles: dict[str, Column]) -> Cells:
    import polars as pl

    if data[:4] != b"PAR1":
        raise ValueError("the name says Parquet, the content is none; rename or convert it")
    try:
        check_parquet(data)  # polars would end the interpreter
        names = list(pl.read_parquet_schema(io.BytesIO(data)))
    except (ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"no whole Parquet file: {error}; write it again") from None
    at = _find(names, roles)
    try:
        frame = pl.read_parquet(io.BytesIO(data), columns=list({names[i] for i in at.values()}))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ValueError(f"no whole Parquet file: {error}; write it again") from None
    # polars and fork do not mix (pola-rs/polars#17526): plain lists from here on
    cells = {role: frame[names[i]].to_list() for role, i in at.items()}
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
                f"{str(path)!r} must hold one folder for each class, {contents(path)}; pass a file "
                "or the folder above the classes"
            )
    paths = [(folder.name, file) for folder in folders for file in _files(folder)]
    texts, read = [], []
    for label, file in paths:
        try:
            texts.append(_decode(file.read_bytes(), encoding))
        except (ValueError, FileNotFoundError, PermissionError) as error:
            if bad is not None:
                bad[str(file)] = BadText(label, str(error))
                continue
            if isinstance(error, OSError):
                raise
            raise ValueError(f"{str(file)!r}: {error}") from error
        read.append((label, str(file)))
    cells: dict[str, list[Any]] = {"text": texts}
    if "target" in roles:
        cells["target"] = [label for label, _ in read]
    return Cells(str(path), cells, roles, PathList(file for _, file in read))


def _entries(folder: Path) -> list[Path]:
    found = (p for p in folder.iterdir() if p.name[0] != "." and p.name.lower() not in CLUTTER)
    return sorted(found, key=lambda p: p.name)


def _files(folder: Path) -> Iterator[Path]:
    for parent, inner, names in os.walk(folder):
        inner[:] = sorted(n for n in inner if n[0] != "." and n.lower() not in CLUTTER)
        for name in sorted(names):
            file = Path(parent) / name
            # is_file: a pipe or a device is no text
            if name[0] != "." and name.lower() not in CLUTTER and file.is_file():
                yield file


def _decode(data: bytes, encoding: str | None) -> str:
    chosen = encoding or next((name for mark, name in MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(chosen).removeprefix("\ufeff")
    except LookupError:
        raise ValueError(
            f"unknown encoding {encoding!r}; known: utf-8, latin-1, gb18030, ..."
        ) from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"line {line}: byte 0x{data[error.start]:02x} is not {chosen}; pass the encoding of "
            'the file, such as encoding="latin-1", "cp1252" or "gb18030"'
        ) from None
