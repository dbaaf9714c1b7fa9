"""CSV to a polars frame: whole and exact, or the line that hinders is named."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .csv_records import Layout, count_even, count_regular, find_layout, parse_records
from .distinct import MOSTLY_UNLIKE
from .encodings import Text, give_back, read_text

if TYPE_CHECKING:
    import polars as pl

log = logging.getLogger(__name__)
FLOAT = re.compile(r"-?\d+\.\d+([eE][+-]?\d+)?$")
# Fewer cells in the sample do not show whether texts come again.
MANY_CELLS = 100
NUMBER = re.compile(r"-?\d{1,15}$|" + FLOAT.pattern)


class CsvFrame(NamedTuple):
    """A CSV file as texts, or codes of them; columns of plain decimal numbers come as float64.

    Attributes:
        frame: One column a name.
        notes: What a user should know about the reading.
        twice: Names that two columns bear; the later one's was changed.
        separator: One character.
        blanks: Whether a blank follows each separator, and belongs to it.
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

    Polars reads what every reader understands alike, which one pass over the bytes tells first;
    the rest is read record by record.

    Args:
        path: The file.
        separator: See :func:`~datamodules.tables.table.read_table`, as the next two.
        encoding: As above.
        column_names: As above.
        points: Whether ``1.234`` may be read as a number at once.

    Raises:
        ValueError: If a record is ragged or a quote is left open; names the lines.
    """
    text = read_text(path, encoding)
    layout = find_layout(path.name, text, separator)
    width = len(layout.header)
    if column_names is not None and len(column_names) != width:
        raise ValueError(
            f"column_names has {len(column_names)} names, {path.name} has {width} columns"
        )
    names, twice, notes = _clean(layout.header if column_names is None else column_names)
    notes = [*text.notes, *layout.notes, *(f"{path.name}: {note}" for note in notes)]
    if path.suffix.lower() in (".parquet", ".pq"):
        notes.append(f"{path.name} holds CSV, whatever its name says")
    headed = column_names is None
    if headed and (number := _like_data(layout.header)):
        notes.append(
            f"{path.name}: the first line names the columns but holds numbers such as {number!r}; "
            "if it is data, name the columns with column_names="
        )
        log.warning(notes[-1])  # else a row would be lost unseen
    frame = _read_regular(path, text, layout, names, headed=headed, points=points)
    if frame is None:
        frame = _read_slowly(path, text, layout, names, headed)
    if headed:
        _check_repeated(path.name, frame, layout.header)
    cells = [cell for record in layout.sample for cell in record[1:]]
    blanks = bool(cells) and all(cell[:1] in (" ", "") for cell in cells)
    return CsvFrame(frame, notes, twice, layout.separator, blanks)


def _read_regular(
    path: Path, text: Text, layout: Layout, names: Sequence[str], *, headed: bool, points: bool
) -> pl.DataFrame | None:
    """Read by polars what every reader understands alike; None for anything else."""
    import polars as pl

    ends_once, has_quotes = _ends_once(text, layout.start), _has(text, b'"', layout.start)
    if ends_once is not None and has_quotes:
        return None
    data = np.frombuffer(text.data, np.uint8)[layout.start : text.end]
    if ends_once is not None:
        data = np.frombuffer(ends_once, np.uint8)
    bare = len(names) > 1 and not has_quotes
    # polars refuses a record that is too long, so that an even count shows that none is too short
    count = count_even if bare else count_regular
    records = count(data, separator=layout.separator, width=len(names))
    if records is None or any("\n" in cell or "\r" in cell for cell in layout.header):
        return None
    give_back(text)
    as_is = text.as_is and layout.start == 0
    source: Any = path if as_is else text.data[layout.start : text.end]
    source = source if ends_once is None else ends_once
    few = _few_texts(layout.sample, len(names)) if bare else set()
    texts = [pl.Categorical if i in few else pl.String for i in range(len(names))]
    floats = _float_columns(layout.sample, len(names)) if points else set()
    for numeric in (floats, set()) if floats else (set(),):
        dtypes = [pl.Float64 if i in numeric else kind for i, kind in enumerate(texts)]
        try:
            frame = pl.read_csv(
                source,
                has_header=False,
                skip_rows=int(headed),
                separator=layout.separator,
                schema=dict(zip(names, dtypes, strict=True)),
                glob=False,
            )
        except pl.exceptions.PolarsError:
            continue  # a cell further down is no number: all columns as texts then
        if frame.height == records - headed:
            return frame
    return None


def _ends_once(text: Text, start: int) -> bytes | None:
    """The text with one end for each line where lines end twice, else None.

    Python writes such lines on Windows without ``newline=""``. To polars the first return is a part
    of the cell, but for the last row, whose end is cut.
    """
    # the one byte first: three at once take 1 ns a byte
    if not _has(text, b"\r", start) or not _has(text, b"\r\r\n", start):
        return None
    return bytes(text.data[start : text.end]).replace(b"\r\r\n", b"\n")


def _has(text: Text, part: bytes, start: int) -> bool:
    return bool(text.data.find(part, start, text.end) >= 0)


def _read_slowly(
    path: Path, text: Text, layout: Layout, names: Sequence[str], headed: bool
) -> pl.DataFrame:
    """Read record by record; names the line of a damaged one."""
    import polars as pl

    records = parse_records(
        text.data[layout.start : text.end].decode(),
        name=path.name,
        separator=layout.separator,
        width=len(names),
        line=layout.line,
    )[int(headed) :]
    cells = {name: [record[i] for record in records] for i, name in enumerate(names)}
    return pl.DataFrame(cells, schema=dict.fromkeys(names, pl.String))


def _float_columns(sample: Sequence[Sequence[str]], width: int) -> set[int]:
    """Columns that are decimal numbers in the sample: read as numbers at once, a third faster."""
    found = set()
    for i in range(width):
        cells = [record[i] for record in sample if len(record) > i and record[i]]
        if cells and all(FLOAT.match(cell) for cell in cells):
            found.add(i)
    return found


def _few_texts(sample: Sequence[Sequence[str]], width: int) -> set[int]:
    """Columns whose texts come again and again in the sample: read as codes at once."""
    columns = ([record[i] for record in sample if len(record) > i] for i in range(width))
    return {i for i, c in enumerate(columns) if MANY_CELLS <= len(c) >= MOSTLY_UNLIKE * len({*c})}


def _check_repeated(name: str, frame: pl.DataFrame, header: Sequence[str]) -> None:
    import polars as pl

    if frame.schema[frame.columns[0]] == pl.Float64:
        return
    for row in (frame.to_series(0) == header[0]).arg_true().to_list():
        if [str(cell or "") for cell in frame.row(row)] == list(header):
            raise ValueError(
                f"{name} repeats its header in row {row} (counted from 0 after the header), as "
                "joined files do; remove that line"
            )


def _like_data(header: Sequence[str]) -> str:
    """A number among the names; none where whole numbers count up, as years do."""
    numbers = [cell.strip() for cell in header if NUMBER.match(cell.strip())]
    if len(numbers) > 1 and not any(FLOAT.match(number) for number in numbers):
        values = [int(number) for number in numbers]
        if values == sorted(set(values)):
            return ""
    return numbers[0] if numbers else ""


def _clean(header: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Names without blanks round them, each once; those that came twice; notes."""
    names: list[str] = []
    twice, notes = [], []
    bare = [cell.strip() for cell in header]
    if bare != list(header):
        notes.append("blanks round column names were removed")
    for i, name in enumerate(bare):
        if not name:
            name = f"unnamed_{i}"
            notes.append(f"column {i} has no name and is called {name!r}")
        first, count = name, 1
        while name in names or (count > 1 and name in bare):
            count += 1
            name = f"{first}_{count}"
        if count > 1:
            twice.append(first)
            notes.append(f"two columns are called {first!r}; the later one is called {name!r}")
        names.append(name)
    return names, twice, notes
