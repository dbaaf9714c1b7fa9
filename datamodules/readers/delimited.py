"""Delimited text to rows, whatever its quotes: every row is kept, or an error names the line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

QUOTE_REMEDY = 'double the quotes inside quoted fields, or pass quote="" if quotes mean nothing'
SEPARATORS = (",", "\t", ";", "|")


class Rows(NamedTuple):
    """Rows of equal length.

    Attributes:
        cells: The fields of each row.
        lines: The line on which each row begins, counted from 1.
    """

    cells: list[list[str]]
    lines: list[int]


def split_rows(
    content: str,
    *,
    fits: Callable[[list[str]], bool],
    separators: Sequence[str],
    quote: str | None = None,
    columns: int = 2,
) -> Rows | list[str]:
    """Split by the first separator whose first row fits and under which all rows are equally long.

    Args:
        content: The whole file.
        fits: Tells whether a first row can be right.
        separators: Tried in this order; a blank splits into ``columns`` fields, the last of which
            takes the rest of the line.
        quote: The quote character, ``""`` for none; None: quotes as in :func:`split_quoted`, save
            that in a file separated by tabs they are plain characters unless all are well formed.
        columns: Fields of a line whose separator is a blank.

    Returns:
        Rows, or where no first row fits, the longest first row that was found.

    Raises:
        ValueError: If a row has another number of fields or a quote is left open.
    """
    failure: ValueError | None = None
    longest: list[str] = []
    for separator in separators:
        first = _first_row(content, separator, quote, columns)
        longest = max(longest, first, key=len)
        if not fits(first):
            continue
        try:
            return _split(content, separator, quote, columns)
        except ValueError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return longest


def _split(content: str, separator: str, quote: str | None, columns: int) -> Rows:
    if separator == " ":
        return _equal(_lines(content), lambda line: line.split(" ", columns - 1))
    if quote == "":
        return split_plain(content, separator)
    if quote is not None or separator != "\t":
        return split_quoted(content, separator, quote or '"')
    try:
        plain = split_plain(content, separator)
    except ValueError:
        # a tab or a line break stands inside a field, so quotes must mean something
        return split_quoted(content, separator, '"')
    if '"' not in content:
        return plain
    try:
        quoted = split_quoted(content, separator, '"')
    except ValueError:
        return plain
    return quoted if len(quoted.cells) == len(plain.cells) else plain


def split_plain(content: str, separator: str) -> Rows:
    """Rows of a file whose quotes are plain characters.

    Raises:
        ValueError: If a row has another number of fields than the first.
    """
    return _equal(_lines(content), lambda line: line.split(separator))


def split_quoted(content: str, separator: str, quote: str) -> Rows:
    """Rows of a file whose fields may stand in quotes (RFC 4180).

    A quote inside an unquoted field is a plain character.

    Raises:
        ValueError: If a quote is left open, text follows a closing one, or a row has another
            number of fields than the first.
    """
    cells, lines, start = [], [], 1
    reader = csv.reader(
        io.StringIO(content, newline=""), delimiter=separator, quotechar=quote, strict=True
    )
    with _long_fields(len(content)):
        try:
            for row in reader:
                cells.append(row)
                lines.append(start)
                start = reader.line_num + 1
        except csv.Error as error:
            what = str(error)
            if "expected after" in what:
                what = "text follows a closing quote"
            elif "unexpected end" in what:
                what = "a quote opens and never closes"
            raise ValueError(f"line {start}: {what}; {QUOTE_REMEDY}") from None
    return _checked(cells, lines)


@contextmanager
def _long_fields(longest: int) -> Iterator[None]:
    before = csv.field_size_limit()  # 131,072: a long text is no error
    csv.field_size_limit(max(before, longest))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _first_row(content: str, separator: str, quote: str | None, columns: int) -> list[str]:
    line = next((line for line in _lines(content) if line), "")
    if separator == " ":
        return line.split(" ", columns - 1)
    if quote == "":
        return line.split(separator)
    reader = csv.reader(
        io.StringIO(content, newline=""), delimiter=separator, quotechar=quote or '"'
    )
    with _long_fields(len(content)):
        try:
            return next((row for row in reader if row), [])
        except csv.Error:  # a lone CR inside a field
            return line.split(separator)


def _lines(content: str) -> Iterator[str]:
    """Lines without their ends: LF, CRLF, or CR where there is no LF at all."""
    end = "\n" if "\n" in content else "\r"
    lines = content.split(end)
    if not lines[-1]:
        lines.pop()
    return (line.removesuffix("\r") for line in lines)


def _equal(lines: Iterator[str], split: Callable[[str], list[str]]) -> Rows:
    cells = [split(line) if line else [] for line in lines]
    return _checked(cells, list(range(1, len(cells) + 1)))


def _checked(cells: list[list[str]], lines: list[int]) -> Rows:
    """Leave blank lines out, which in a single column are empty texts, and compare lengths."""
    width = next((len(row) for row in cells if row), 0)
    if width == 1:
        cells = [row or [""] for row in cells]
    elif not all(cells):
        lines = [line for row, line in zip(cells, lines, strict=True) if row]
        cells = [row for row in cells if row]
    wrong = [i for i, row in enumerate(cells) if len(row) != width]
    if wrong:
        said = ", ".join(f"line {lines[i]} has {len(cells[i])}" for i in wrong[:3])
        raise ValueError(
            f"rows must have {width} field{'s' * (width > 1)} as line {lines[0]} has, {said}"
            f"{f' and {len(wrong) - 3} more rows differ' if len(wrong) > 3 else ''}; quote fields "
            "that hold the separator, or pass separator="
        )
    return Rows(cells, lines)
