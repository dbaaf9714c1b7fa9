"""Read CSV, Parquet and DataFrames with polars into NumPy columns; no polars object is kept."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datamodules.readers.csv_frame import CsvFrame, read_csv
from datamodules.readers.data_frame import Frame, is_frame, to_polars
from datamodules.readers.parquet_check import check_parquet_file
from datamodules.splits.split import fingerprint

from .column import CellRules, Column, Style, check_nulls, read_column

if TYPE_CHECKING:
    import polars as pl
WRITTEN: dict[Style, str] = {
    "signs": "read as numbers with signs or thousands separators",
    "comma": "read as numbers with a decimal comma (decimal_comma=False otherwise)",
    "date": "read as dates, in days since 1970-01-01",
}


class Table:
    """N rows by column.

    Args:
        name: The file's name, for messages.
        names: All columns of the file, in its order.
        columns: Those that were read.
        notes: What a user should know about the reading.
        twice: Names that two columns of the file bear; the second one's was changed.
    """

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        columns: Sequence[Column],
        rows: int,
        *,
        notes: Sequence[str] = (),
        twice: Collection[str] = (),
    ) -> None:
        self.name, self.names, self.rows = name, list(names), rows
        self.columns = {column.name: column for column in columns}
        self.notes = [*notes, *(note for column in columns for note in column.notes)]
        self.notes += _how_written(columns)
        self._twice = set(twice)

    def __len__(self) -> int:
        return self.rows

    def column(self, name: str, role: str = "column") -> Column:
        """A column by name.

        Raises:
            ValueError: If there is none (says which name is nearest), or two, or its cells are
                of a kind that is neither number nor text.
        """
        self.check_name(name, role)
        if name not in self.columns:
            raise ValueError(f"{self.name}: column {name!r} ({role}) is left out by drop=")
        if self.columns[name].refused:
            raise ValueError(
                f"{self.name}: {name!r} ({role}) {self.columns[name].refused}, which are no "
                f"numbers, texts, dates or flags; pass drop=[{name!r}], or turn it into columns"
            )
        return self.columns[name]

    def check_name(self, name: str, role: str) -> None:
        """Refuse the name of a column that is not there, or there twice.

        Raises:
            ValueError: Says which name is nearest, and which there are.
        """
        if name in self._twice and role != "feature":
            raise ValueError(f"{self.name} has two columns {name!r} ({role}); rename one of them")
        if name not in self.names:
            raise ValueError(
                f"{self.name} has no column {name!r} ({role}); {closest(name, self.names)}"
            )

    @cached_property
    def digest(self) -> str:
        """Digest of the names and cells that were read: tells whether the data changed."""
        parts: list[Any] = []
        for name, column in self.columns.items():
            parts += [name, "\n".join(column.words)]
            arrays = (a for a in (column.numbers, column.codes) if a is not None)
            parts += [np.ascontiguousarray(a).tobytes() for a in arrays]
        return fingerprint(*parts)


def _how_written(columns: Sequence[Column]) -> Iterator[str]:
    for style, said in WRITTEN.items():
        found = [c for c in columns if c.style == style and c.example]
        if found:
            yield f"{listed([c.name for c in found])}: {said}, such as {found[0].example!r}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names joined by commas, the first few of many.

    Example:
        >>> listed(["a", "b", "c"], most=2)
        'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def closest(name: str, names: Sequence[str]) -> str:
    """``did you mean 'age'? it has age, fare, ...``, and a hint where no line gave names."""
    near = difflib.get_close_matches(name, names, 1)
    near = near or [n for n in names if n.casefold() == name.casefold()]
    said = f"did you mean {near[0]!r}? " if near else ""
    said += f"it has {listed([repr(n) for n in names], 30)}"
    if any(_is_number(n) for n in names):
        said += "; the first line looks like data: name the columns with column_names="
    return said


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_table(
    path: str | Path | Frame,
    *,
    argument: str = "path",
    separator: str | None = None,
    decimal_comma: bool | None = None,
    encoding: str | None = None,
    null_values: Sequence[str] | None = None,
    column_names: Sequence[str] | None = None,
    only: Collection[str] | None = None,
    skip: Collection[str] = (),
    styles: Mapping[str, Style] | None = None,
) -> Table:
    """Read a CSV file (gzip too), a Parquet file or a DataFrame.

    The content of a file decides, not the ending. Every record is read, or an error names the
    line. Empty cells are missing values. A DataFrame is read like a Parquet file of its columns.

    Args:
        path: The file, or a polars or pandas DataFrame.
        argument: Name of the argument that gave a DataFrame, for messages.
        separator: Of fields; None finds comma, semicolon, tab or bar.
        decimal_comma: Whether ``1,5`` is a number; None finds it by column.
        encoding: Any of Python's; None finds UTF-8, UTF-16, UTF-32 and cp1252.
        null_values: Texts that mean a missing cell, in place of ``NA``, ``N/A``, ``NaN``, ``NULL``
            and their like; a number among them means itself however it is written.
        column_names: Names for a file whose first line is data.
        only: Columns to convert; None: all.
        skip: Columns not to convert.
        styles: How numbers are written, by column, where train decided it.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a table, holds no rows, or a record is damaged.
    """
    rules = CellRules(known=dict(styles or {}))._replace(**check_nulls(null_values))
    # a Parquet file or a DataFrame tells texts from numbers and marks what is missing
    typed_rules = rules._replace(typed=True, null_words=tuple(null_values or ()))
    if is_frame(path):
        rules, path = typed_rules, to_polars(path, f"{argument}=DataFrame")
        return _convert(CsvFrame(path), path.columns, f"{argument}=DataFrame", rules, only, skip)
    path = _existing(path)
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    if is_parquet:
        rules = typed_rules
        with _polars_errors(path.name, "Parquet; it may be cut or damaged: write it anew"):
            frame, names = _read_parquet(path, only, skip)
        parts = CsvFrame(frame)
    elif path.suffix.lower() in (".json", ".jsonl", ".ndjson"):
        raise ValueError(f"{path.name}: a table is CSV or Parquet; convert the JSON to either")
    else:
        commas = decimal_comma or "comma" in (styles or {}).values()
        parts = read_csv(
            path,
            separator=separator,
            encoding=encoding,
            column_names=column_names,
            points=not commas,
        )
        names = parts.frame.columns
        rules = rules._replace(styles=_styles(decimal_comma, parts.separator), strip=parts.blanks)
    return _convert(parts, names, path.name, rules, only, skip)


def _convert(
    parts: CsvFrame,
    names: Sequence[str],
    source: str,
    rules: CellRules,
    only: Collection[str] | None,
    skip: Collection[str],
) -> Table:
    """Convert the columns of a frame that is ours: they are taken out of it."""
    frame, rows = parts.frame, parts.frame.height
    if not rows:
        raise ValueError(f"{source} holds column names and no rows")
    columns = []
    for name in names:
        # one by one: the texts of a column are freed before the next one is read
        if name not in skip and (only is None or name in only):
            columns.append(read_column(frame.drop_in_place(name), rules))
    return Table(source, names, columns, rows, notes=parts.notes, twice=parts.twice)


def _existing(path: str | Path) -> Path:
    path = Path(path).expanduser()
    if path.is_dir():
        raise ValueError(f"{path} is a folder; pass the path of a CSV or Parquet file")
    if not path.is_file():
        folder = path.parent
        there = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
        near = difflib.get_close_matches(path.name, there, 1)
        said = f"did you mean {near[0]!r}?" if near else "pass the path of a CSV or Parquet file"
        raise FileNotFoundError(f"{path} does not exist; {said}")
    return path


@contextmanager
def _polars_errors(name: str, what: str) -> Iterator[None]:
    import polars as pl

    try:
        yield
    except BaseException as error:
        panic = type(error).__name__ == "PanicException"  # polars' own, beside all its errors
        if not (panic or isinstance(error, pl.exceptions.PolarsError | OSError | ValueError)):
            raise
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"{name} cannot be read as {what} ({first})") from error


def _read_parquet(
    path: Path, only: Collection[str] | None, skip: Collection[str]
) -> tuple[pl.DataFrame, list[str]]:
    import polars as pl

    check_parquet_file(path)  # polars would end the interpreter
    names = list(pl.read_parquet_schema(path))
    wanted = [n for n in names if n not in skip and (only is None or n in only)]
    return pl.read_parquet(path, columns=wanted, glob=False), names


def _styles(decimal_comma: bool | None, separator: str) -> tuple[Style, ...]:
    if decimal_comma is not None:
        return ("comma", "date") if decimal_comma else ("plain", "signs", "date")
    # where a comma parts fields, one inside a field groups thousands sooner than it is a point
    middle: tuple[Style, ...] = ("signs", "comma") if separator == "," else ("comma", "signs")
    return ("plain", *middle, "date")
