"""Split delimited text into records; every record is kept, or the error names its line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

SEPARATORS = (",", "\t", ";", "|")
QUOTE_REMEDY = "double the quotes inside quoted fields (backslash escapes are not supported)"
NO_QUOTES = ', or pass quote="" if quotes have no meaning'


class Records(NamedTuple):
    """Records of equal length.

    Attributes:
        cells: Fields of each record.
        lines: Line on which each record begins, counted from 1.
    """

    cells: list[list[str]]
    lines: list[int]


def read_records(
    text: str, separator: str, *, quote: str = '"', first_line: int = 1, hint: str = ""
) -> Records:
    r"""Read records whose fields may be quoted (RFC 4180); blank lines are skipped.

    In a single column a blank line is an empty cell. A quote inside an unquoted field is an
    ordinary character.

    Args:
        text: All records.
        separator: One character.
        quote: One character.
        first_line: Number of the first line of ``text``.
        hint: Another remedy for quotes that do not pair.

    Raises:
        ValueError: If a quote is not closed, text follows a closing quote, or a record has
            another number of fields than the first; names the lines.

    Example:
        >>> read_records('a,b\n"x, y",1\n', ",").cells
        [['a', 'b'], ['x, y', '1']]
    """
    cells, lines, start = [], [], first_line
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, quotechar=quote, strict=True
    )
    with _long_fields():
        try:
            for row in reader:
                cells.append(row)
                lines.append(start)
                start = first_line + reader.line_num
        except csv.Error as error:
            line, problem = first_line + reader.line_num - 1, str(error)
            if "unexpected end" in problem:
                line, problem = start, "a quote opens and never closes"
            elif "expected after" in problem:
                problem = "text follows a closing quote"
            raise ValueError(f"line {line}: {problem}; {QUOTE_REMEDY}{hint}") from error
    return _equal_length(cells, lines)


def head_records(text: str, separator: str, *, quote: str = '"', most: int = 1) -> list[list[str]]:
    """Read the first records of text that may be cut or damaged, blank lines left out."""
    with _long_fields():
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quotechar=quote)
        return list(islice(filter(None, reader), most)) or [[""]]


def split_rows(
    text: str,
    *,
    fits: Callable[[list[str]], bool],
    separators: Sequence[str],
    quote: str | None = None,
    columns: int = 2,
) -> Records | list[str]:
    """Split by the first separator whose first row fits and whose rows have equal length.

    Args:
        text: The whole file.
        fits: Returns whether a first row can be right.
        separators: Tried in this order; a blank splits a line into ``columns`` fields, the last
            of which is the remaining line.
        quote: The quote character, ``""`` for none. None: ``"`` as in :func:`read_records`; in
            tab-separated text it is an ordinary character unless all quotes are well formed.
        columns: Fields of a line whose separator is a blank.

    Returns:
        The records; if no first row fits, the longest first row.

    Raises:
        ValueError: If a row has another number of fields or a quote is not closed.
    """
    failure: ValueError | None = None
    longest: list[str] = []
    for separator in separators:
        if separator == " " or quote == "":
            line = next((line for line in _lines(text) if line), "")
            first = line.split(separator, columns - 1 if separator == " " else -1)
        else:
            first = head_records(text, separator, quote=quote or '"')[0]
        longest = max(longest, first, key=len)
        if fits(first):
            try:
                return _split(text, separator, quote, columns)
            except ValueError as error:
                failure = failure or error
    if failure is not None:
        raise failure
    return longest


def _split(text: str, separator: str, quote: str | None, columns: int) -> Records:
    if separator == " ":
        return _split_lines(text, separator, columns - 1)
    if quote == "":
        return _split_lines(text, separator)
    if quote is not None or separator != "\t":
        return read_records(text, separator, quote=quote or '"', hint=NO_QUOTES)
    try:
        plain = _split_lines(text, separator)
    except ValueError:  # a tab or a line break inside a field: quotes must have a meaning
        return read_records(text, separator, hint=NO_QUOTES)
    if '"' not in text:
        return plain
    try:
        quoted = read_records(text, separator)
    except ValueError:
        return plain
    return quoted if len(quoted.cells) == len(plain.cells) else plain


def _split_lines(text: str, separator: str, most: int = -1) -> Records:
    """Split each line, quotes being ordinary characters."""
    cells = [line.split(separator, most) if line else [] for line in _lines(text)]
    return _equal_length(cells, range(1, len(cells) + 1))


def _lines(text: str) -> Iterator[str]:
    """Lines without their ends: LF, CRLF, or CR if there is no LF at all."""
    end = "\n" if "\n" in text else "\r"
    return (line.removesuffix("\r") for line in text.removesuffix(end).split(end))


def _equal_length(cells: list[list[str]], lines: Iterable[int]) -> Records:
    """Drop blank lines, which are empty cells in a single column, and compare lengths."""
    numbers = list(lines)
    width = next((len(row) for row in cells if row), 0)
    if width == 1:
        cells = [row or [""] for row in cells]
    elif not all(cells):
        numbers = [line for row, line in zip(cells, numbers, strict=True) if row]
        cells = [row for row in cells if row]
    ragged = [i for i, row in enumerate(cells) if len(row) != width]
    if ragged:
        listed = ", ".join(f"line {numbers[i]} has {len(cells[i])}" for i in ragged[:5])
        raise ValueError(
            f"{len(ragged)} ragged rows: line {numbers[0]} has {width} "
            f"field{'s' * (width > 1)}, {listed}{', ...' * (len(ragged) > 5)}; quote fields that "
            "contain the separator, or pass separator="
        )
    return Records(cells, numbers)


@contextmanager
def _long_fields() -> Iterator[None]:
    before = csv.field_size_limit(1 << 30)  # 131,072 characters otherwise
    try:
        yield
    finally:
        csv.field_size_limit(before)
