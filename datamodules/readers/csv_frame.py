"""Read CSV files into polars frames; a damaged record is an error that names its line."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .csv_layout import Layout, count_even, count_regular, find_layout
from .delimited import read_records
from .distinct import MEAN_REPEATS
from .encodings import Text, read_text, release_pages

if TYPE_CHECKING:
    import polars as pl

log = logging.getLogger(__name__)
FLOAT = re.compile(r"-?\d+\.\d+([eE][+-]?\d+)?$")
NUMBER = re.compile(r"-?\d{1,15}$|" + FLOAT.pattern)
# Fewer cells do not show whether texts repeat.
MANY_CELLS = 100


class CsvFrame(NamedTuple):
    """Cells of a CSV file as strings or categories; columns of plain decimal numbers as float64.

    Attributes:
        frame: One column per name.
        notes: Notes for the user.
        twice: Names of two columns each; the second column was renamed.
        separator: One character.
        blanks: Whether each separator is followed by a blank that is not part of the cell.
    """

    frame: pl.DataFrame
    notes: Sequence[str] = ()
    twice: Sequence[str] = ()
    separator: str = ""
    blanks: bool = False


def read_csv(
    path: Path,
    *,
    separator: str | None = None,
    encoding: str | None = None,
    column_names: Sequence[str] | None = None,
    points: bool = True,
) -> CsvFrame:
    """Read a CSV file.

    Polars reads text on which every CSV reader agrees, as one pass over the bytes shows first;
    any other text is read record by record.

    Args:
        path: The file.
        separator: See :func:`~datamodules.tables.table.read_table`.
        encoding: See :func:`~datamodules.tables.table.read_table`.
        column_names: See :func:`~datamodules.tables.table.read_table`.
        points: Whether ``1.234`` may be read as a number.

    Raises:
        ValueError: If a record is ragged or a quote is not closed; names the lines.
    """
    text = read_text(path, encoding)
    layout = find_layout(path.name, text, separator)
    width = len(layout.header)
    if column_names is not None and len(column_names) != width:
        raise ValueError(
            f"column_names has {len(column_names)} names, {path.name} has {width} columns"
        )
    names, twice, notes = _unique_names(layout.header if column_names is None else column_names)
    notes = [*text.notes, *layout.notes, *(f"{path.name}: {note}" for note in notes)]
    if path.suffix.lower() in (".parquet", ".pq"):
        notes.append(f"{path.name} is CSV, despite its name")
    has_header = column_names is None
    if has_header and (number := _number_in(layout.header)):
        notes.append(
            f"{path.name}: the first line names the columns but contains numbers such as "
            f"{number!r}; if it is data, name the columns with column_names="
        )
        log.warning(notes[-1])  # a row would be lost unseen
    frame = _read_regular(path, text, layout, names, has_header=has_header, points=points)
    if frame is None:
        frame = _read_by_record(path, text, layout, names, has_header=has_header)
    if has_header:
        _check_repeated_header(path.name, frame, layout.header)
    cells = [cell for record in layout.sample for cell in record[1:]]
    blanks = bool(cells) and all(cell[:1] in (" ", "") for cell in cells)
    return CsvFrame(frame, notes, twice, layout.separator, blanks)


def _read_regular(
    path: Path, text: Text, layout: Layout, names: Sequence[str], *, has_header: bool, points: bool
) -> pl.DataFrame | None:
    """Read by polars if every CSV reader agrees on the text; return None otherwise."""
    import polars as pl

    single_ends, has_quotes = _single_ends(text, layout.start), _has(text, b'"', layout.start)
    if single_ends is None:
        data = np.frombuffer(text.data, np.uint8)[layout.start : text.end]
    elif has_quotes:
        return None
    else:
        data = np.frombuffer(single_ends, np.uint8)
    bare = len(names) > 1 and not has_quotes
    # polars refuses a record that is too long: an even count then shows that none is too short
    count = count_even if bare else count_regular
    records = count(data, separator=layout.separator, width=len(names))
    if records is None or any("\n" in cell or "\r" in cell for cell in layout.header):
        return None
    release_pages(text)
    source: Any = single_ends
    if single_ends is None:
        as_is = text.as_is and layout.start == 0
        source = path if as_is else text.data[layout.start : text.end]
    repeating = _repeating_columns(layout.sample, len(names)) if bare else set()
    texts = [pl.Categorical if i in repeating else pl.String for i in range(len(names))]
    floats = _float_columns(layout.sample, len(names)) if points else set()
    for numeric in (floats, set()) if floats else (set(),):
        dtypes = [pl.Float64 if i in numeric else kind for i, kind in enumerate(texts)]
        try:
            frame = pl.read_csv(
                source,
                has_header=False,
                skip_rows=int(has_header),
                separator=layout.separator,
                schema=dict(zip(names, dtypes, strict=True)),
                glob=False,
            )
        except pl.exceptions.PolarsError:
            continue  # a later cell is no number: read all columns as strings
        if frame.height == records - has_header:
            return frame
    return None


def _single_ends(text: Text, start: int) -> bytes | None:
    r"""Return the text with ``\r\r\n`` replaced by ``\n``, or None if there is nothing to replace.

    Python writes such lines on Windows without ``newline=""``. Polars would keep ``\r`` as part of
    the last cell of a row.
    """
    # one byte first: searching for three takes 1 ns per byte
    if not _has(text, b"\r", start) or not _has(text, b"\r\r\n", start):
        return None
    return bytes(text.data[start : text.end]).replace(b"\r\r\n", b"\n")


def _has(text: Text, part: bytes, start: int) -> bool:
    return bool(text.data.find(part, start, text.end) >= 0)


def _read_by_record(
    path: Path, text: Text, layout: Layout, names: Sequence[str], *, has_header: bool
) -> pl.DataFrame:
    import polars as pl

    content = text.data[layout.start : text.end].decode()
    try:
        records = read_records(content, layout.separator, first_line=layout.line).cells
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    cells = {n: [record[i] for record in records[has_header:]] for i, n in enumerate(names)}
    return pl.DataFrame(cells, schema=dict.fromkeys(names, pl.String))


def _float_columns(sample: Sequence[Sequence[str]], width: int) -> set[int]:
    """Return columns of decimal numbers in the sample: read as float64, a third faster."""
    columns = ([r[i] for r in sample if len(r) > i and r[i]] for i in range(width))
    return {i for i, cells in enumerate(columns) if cells and all(map(FLOAT.match, cells))}


def _repeating_columns(sample: Sequence[Sequence[str]], width: int) -> set[int]:
    """Return columns whose strings repeat in the sample: read as categories."""
    columns = ([r[i] for r in sample if len(r) > i] for i in range(width))
    return {i for i, c in enumerate(columns) if MANY_CELLS <= len(c) >= MEAN_REPEATS * len({*c})}


def _check_repeated_header(name: str, frame: pl.DataFrame, header: Sequence[str]) -> None:
    import polars as pl

    if frame.schema[frame.columns[0]] == pl.Float64:
        return
    for row in (frame.to_series(0) == header[0]).arg_true().to_list():
        if [str(cell or "") for cell in frame.row(row)] == list(header):
            raise ValueError(
                f"{name} repeats its header in row {row} (counted from 0 after the header), as "
                "joined files do; remove that line"
            )


def _number_in(header: Sequence[str]) -> str:
    """Return a number among the names, or ``""``; ascending whole numbers, such as years, pass."""
    numbers = [cell.strip() for cell in header if NUMBER.match(cell.strip())]
    if len(numbers) > 1 and not any(FLOAT.match(number) for number in numbers):
        values = [int(number) for number in numbers]
        if values == sorted(set(values)):
            return ""
    return numbers[0] if numbers else ""


def _unique_names(header: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Strip and number the names so that each is unique; return them, those repeated, and notes."""
    names: list[str] = []
    twice, notes = [], []
    bare = [cell.strip() for cell in header]
    if bare != list(header):
        notes.append("blanks around column names were removed")
    for i, name in enumerate(bare):
        if not name:
            name = f"unnamed_{i}"
            notes.append(f"column {i} has no name and is now called {name!r}")
        first, count = name, 1
        while name in names or (count > 1 and name in bare):
            count += 1
            name = f"{first}_{count}"
        if count > 1:
            twice.append(first)
            notes.append(f"two columns are called {first!r}; the second one is now called {name!r}")
        names.append(name)
    return names, twice, notes
