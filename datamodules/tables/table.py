"""Read CSV files, Parquet files and DataFrames into NumPy columns; polars objects are freed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datamodules.readers.csv_frame import CsvFrame, read_csv
from datamodules.readers.data_frame import Frame, is_frame, to_polars
from datamodules.readers.parquet_check import check_parquet_file
from datamodules.settings.arguments import did_you_mean
from datamodules.splits.split import fingerprint

from .column import CellRules, Column, Style, null_rules, read_column

if TYPE_CHECKING:
    import polars as pl
FORMAT_NOTES: dict[Style, str] = {
    "signs": "read as numbers with signs or thousands separators",
    "comma": "read as numbers with a decimal comma (decimal_comma=False otherwise)",
    "date": "read as dates, in days since 1970-01-01",
}


class Table:
    """N rows by column.

    Args:
        name: Name of the file, for messages.
        names: Names of all columns of the file, in order.
        columns: Columns that were read.
        rows: N.
        notes: Notes for the user.
        twice: Names of two columns each; the second column was renamed.

    Example:
        >>> table = Table("people.csv", ["age"], [Column("age", np.array([30.0, 41.0]))], 2)
        >>> len(table), table.column("age").numbers.tolist()
        (2, [30.0, 41.0])
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
        self.notes += _format_notes(columns)
        self._twice = set(twice)

    def __len__(self) -> int:
        return self.rows

    def column(self, name: str, role: str = "column") -> Column:
        """Return a column by name.

        Raises:
            ValueError: If no column, or two, have this name, or its cells are neither numbers nor
                strings.
        """
        self.check_name(name, role)
        if name not in self.columns:
            raise ValueError(f"{self.name}: column {name!r} ({role}) is left out by drop=")
        if self.columns[name].refused:
            raise ValueError(
                f"{self.name}: {name!r} ({role}) {self.columns[name].refused}, not numbers, "
                f"strings, dates or booleans; pass drop=[{name!r}], or convert it to columns"
            )
        return self.columns[name]

    def check_name(self, name: str, role: str) -> None:
        """Raise an error if no column, or two, have this name.

        Raises:
            ValueError: Suggests the closest name and lists all.
        """
        if name in self._twice and role != "feature":
            raise ValueError(f"{self.name} has two columns {name!r} ({role}); rename one of them")
        if name not in self.names:
            raise ValueError(
                f"{self.name} has no column {name!r} ({role}); {closest(name, self.names)}"
            )

    @cached_property
    def digest(self) -> str:
        """Digest that changes with any name or cell that was read."""
        parts: list[Any] = []
        for name, column in self.columns.items():
            parts += [name, "\n".join(column.words)]
            arrays = (a for a in (column.numbers, column.codes) if a is not None)
            parts += [np.ascontiguousarray(a).tobytes() for a in arrays]
        return fingerprint(*parts)


def _format_notes(columns: Sequence[Column]) -> Iterator[str]:
    for style, note in FORMAT_NOTES.items():
        found = [c for c in columns if c.style == style and c.example]
        if found:
            yield f"{listed([c.name for c in found])}: {note}, such as {found[0].example!r}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Join names by commas; of many, the first few.

    Example:
        >>> listed(["a", "b", "c"], most=2)
        'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def closest(name: str, names: Sequence[str]) -> str:
    """Suggest the closest column and list all; if names are numbers, suggest ``column_names=``.

    Example:
        >>> closest("agee", ["age", "fare"])
        "did you mean 'age'? it has 'age', 'fare'"
    """
    hint = f"{did_you_mean(name, names)}it has {listed([repr(n) for n in names], 30)}"
    if any(_is_number(n) for n in names):
        hint += "; the first line looks like data: name the columns with column_names="
    return hint


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
    """Read a CSV file (gzip too), a Parquet file or a DataFrame; a file's content decides.

    Every record is read, or the error names its line. Empty cells are missing values. A DataFrame
    is read like a Parquet file of its columns.

    Args:
        path: The file, or a polars or pandas DataFrame.
        argument: Name of the argument that gave a DataFrame, for messages.
        separator: Separator of fields; None detects comma, semicolon, tab or bar.
        decimal_comma: Whether ``1,5`` is a number; None detects it by column.
        encoding: An encoding of Python; None detects UTF-8, UTF-16, UTF-32 and cp1252.
        null_values: Strings that are missing values, in place of ``NA``, ``N/A``, ``NaN``, ``NULL``
            and the like; a number among them matches in any format.
        column_names: Names for a file without a header.
        only: Columns to convert; None: all.
        skip: Columns not to convert.
        styles: Number format by column, as fitted on train.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it is not a table, has no rows, or a record is damaged.
    """
    rules = CellRules(known=dict(styles or {}))._replace(**null_rules(null_values))
    # a Parquet file or a DataFrame distinguishes strings from numbers and marks missing values
    typed_rules = rules._replace(typed=True, null_words=tuple(null_values or ()))
    if is_frame(path):
        rules, path = typed_rules, to_polars(path, f"{argument}=DataFrame")
        return _convert(CsvFrame(path), path.columns, f"{argument}=DataFrame", rules, only, skip)
    path = _existing(path)
    with path.open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    if is_parquet:
        rules = typed_rules
        with _polars_errors(path.name, "Parquet; it is truncated or damaged: write it again"):
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
        raise ValueError(f"{source} has column names but no rows")
    columns = []
    for name in names:
        # one by one: the strings of a column are freed before the next column is converted
        if name not in skip and (only is None or name in only):
            columns.append(read_column(frame.drop_in_place(name), rules))
    return Table(source, names, columns, rows, notes=parts.notes, twice=parts.twice)


def _existing(path: str | Path) -> Path:
    path = Path(path).expanduser()
    if path.is_dir():
        raise ValueError(f"{path} is a folder; pass the path of a CSV or Parquet file")
    if not path.is_file():
        folder = path.parent
        names = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
        hint = did_you_mean(path.name, names).strip() or "pass the path of a CSV or Parquet file"
        raise FileNotFoundError(f"{path} does not exist; {hint}")
    return path


@contextmanager
def _polars_errors(name: str, what: str) -> Iterator[None]:
    import polars as pl

    try:
        yield
    except BaseException as error:
        # a panic of polars is a BaseException
        kinds = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError)
        if not isinstance(error, kinds):
            raise
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"{name} cannot be read as {what} ({first})") from error


def _read_parquet(
    path: Path, only: Collection[str] | None, skip: Collection[str]
) -> tuple[pl.DataFrame, list[str]]:
    import polars as pl

    check_parquet_file(path)  # polars would abort the interpreter
    names = list(pl.read_parquet_schema(path))
    wanted = [n for n in names if n not in skip and (only is None or n in only)]
    return pl.read_parquet(path, columns=wanted, glob=False), names


def _styles(decimal_comma: bool | None, separator: str) -> tuple[Style, ...]:
    if decimal_comma is not None:
        return ("comma", "date") if decimal_comma else ("plain", "signs", "date")
    # if a comma separates fields, a comma inside a field more likely groups thousands
    middle: tuple[Style, ...] = ("signs", "comma") if separator == "," else ("comma", "signs")
    return ("plain", *middle, "date")
