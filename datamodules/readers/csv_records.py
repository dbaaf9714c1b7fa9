"""Records of delimited text: separator and header, a check of the whole, an exact reader."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .encodings import Text

Bytes = npt.NDArray[np.uint8]
SEPARATORS = (",", ";", "\t", "|")
QUOTE, NEWLINE, RETURN = 34, 10, 13
BLOCK = 1 << 18  # bytes that stay in the cache from one step to the next


class Layout(NamedTuple):
    """How the records lie in the text.

    Attributes:
        separator: One character.
        header: Cells of the first record.
        start: First byte of the first record.
        line: Number of its line, from 1.
        sample: The records behind it, up to 1,000, as far as a look at the head shows them.
        notes: What a user should know, such as lines left out before the header.
    """

    separator: str
    header: list[str]
    start: int
    line: int
    sample: list[list[str]]
    notes: list[str]


def find_layout(name: str, text: Text, separator: str | None = None) -> Layout:
    """Find separator and header from the head of the text.

    Empty lines and lines that begin with ``#`` are passed over before the header, unless a ``#``
    is the beginning of the header itself.

    Args:
        name: The file's name, for messages.
        text: The text.
        separator: One character where it is known.

    Raises:
        ValueError: If ``separator`` is longer than one character.
    """
    separator = {"\\t": "\t", "tab": "\t"}.get(separator or "", separator)
    if separator is not None and len(separator.encode()) != 1:
        raise ValueError(f"separator must be one character, got {separator!r}")
    head = _head(text)
    lines = head.split("\n")
    lead = 0
    while lead < len(lines) - 1 and (lines[lead].startswith("#") or not lines[lead].strip()):
        lead += 1
    records = {d: _records("\n".join(lines[lead:]), d) for d in SEPARATORS}
    chosen = separator or max(SEPARATORS, key=lambda d: _fit(records[d]))
    if lead and lines[lead - 1].startswith("#"):
        named = _records(lines[lead - 1], chosen)[0]
        if 1 < len(named) == len(_records(lines[lead], chosen)[0]):
            lead -= 1  # "#chrom,start,end" names columns
    sample = _records("\n".join(lines[lead:]), chosen)
    if text.start + len(head.encode()) < text.end:
        sample = sample[:-1] if len(sample) > 1 else sample  # the last one may be cut
    skipped = "\n".join(lines[:lead]) + "\n" if lead else ""
    notes = [f"{name}: {lead} lines before the header were passed over"] if lead else []
    return Layout(
        chosen, sample[0], text.start + len(skipped.encode()), lead + 1, sample[1:], notes
    )


def count_regular(data: Bytes, *, separator: str, width: int) -> int | None:
    """Number of records, if each has ``width`` fields and each quote stands where it may.

    One vectorised pass; a file that passes means the same to every CSV reader.

    Args:
        data: (B,) uint8, from the first record to the last, without the closing line end.
        separator: One character.
        width: Number of fields a record.

    Returns:
        The count; None where a record or a quote is out of order.
    """
    sign, inside, phase, records = ord(separator), False, 0, 1
    for at in range(0, len(data), BLOCK):
        block = data[at : at + BLOCK]
        marked = (block == sign) | (block == NEWLINE)
        quotes = block == QUOTE
        if inside or quotes.any():
            where = np.flatnonzero(quotes)
            if not _quotes_fit(data, at + where, inside, sign):
                return None
            within = np.logical_xor.accumulate(quotes) ^ inside
            marked &= ~within
            inside = bool(within[-1])
        ends = block.take(np.flatnonzero(marked)) == NEWLINE  # half of a mask's time
        # a record is width - 1 separators and a line end; phase counts those seen of it
        expected = np.arange(width - 1 - phase, len(ends), width)
        if not np.array_equal(np.flatnonzero(ends), expected):
            return None
        phase = (phase + len(ends)) % width
        records += len(expected)
    return records if not inside and phase == width - 1 else None


def count_even(data: Bytes, *, separator: str, width: int) -> int | None:
    """Number of records of text without quotes, if they have ``width`` fields on average.

    A reader that refuses a record with more fields, and finds so many records, has met none with
    fewer. A tenth of the time of :func:`count_regular`. The last record is looked at: polars 2.1
    overlooks an empty field too many before the end of the text.

    Args:
        data: As there.
        separator: As there.
        width: As there, at least 2.

    Returns:
        The count; None where the separators fit no number of records.
    """
    last = data[-BLOCK:].tobytes().rpartition(b"\n")[2]
    if last.count(separator.encode()) != width - 1:  # or a line longer than a block
        return None
    separators, found = 0, np.empty(BLOCK, np.bool_)
    for at in range(0, len(data), BLOCK):
        block = data[at : at + BLOCK]
        matches = np.equal(block, ord(separator), out=found[: len(block)])
        separators += int(np.count_nonzero(matches))
    records, over = divmod(separators, width - 1)
    return None if over else records


def parse_records(
    text: str, *, name: str, separator: str, width: int, line: int
) -> list[list[str]]:
    """Read records one by one, as RFC 4180 has it; empty lines are passed over.

    Args:
        text: From the first record on.
        name: The file's name, for messages.
        separator: One character.
        width: Number of fields a record.
        line: Number of the first line of ``text``, from 1.

    Raises:
        ValueError: If a record has another number of fields, or a quote is left open; the line
            is named.
    """
    records: list[list[str]] = []
    wrong: list[tuple[int, int]] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    with _long_fields():
        try:
            for record in _numbered(reader, line):
                first, cells = record
                if not cells and width > 1:
                    continue
                if len(cells or [""]) != width:
                    wrong.append((first, len(cells)))
                records.append(cells or [""])
        except _Broken as broken:
            raise ValueError(f"{name}, line {broken.line}: {broken}") from broken
    if wrong:
        said = ", ".join(f"line {at} has {count}" for at, count in wrong[:5])
        more = ", ..." if len(wrong) > 5 else ""
        raise ValueError(
            f"{name} has {len(wrong)} ragged rows: the header has {width} fields, {said}{more}; "
            f"mend them, or check separator={separator!r} and the quotes"
        )
    return records


class _Broken(ValueError):
    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def _numbered(reader: Iterator[list[str]], line: int) -> Iterator[tuple[int, list[str]]]:
    while True:
        first = reader.line_num + line  # type: ignore[attr-defined]
        try:
            yield first, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            at = reader.line_num + line - 1  # type: ignore[attr-defined]
            if "end of data" in str(error):
                raise _Broken("a quote is opened here and never closed", first) from error
            if "expected after" in str(error):
                raise _Broken(
                    "text stands behind a closing quote; a quote inside a quoted field is "
                    "written twice, a backslash does not protect it",
                    at,
                ) from error
            raise _Broken(str(error), at) from error


@contextmanager
def _long_fields() -> Iterator[None]:
    before = csv.field_size_limit(1 << 30)  # 131,072 characters otherwise
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _quotes_fit(data: Bytes, where: npt.NDArray[np.int64], inside: bool, sign: int) -> bool:
    """Opening quotes follow a separator or line end, closing ones stand before one."""
    first = 1 if inside else 0
    opening, closing = where[first::2], where[1 - first :: 2]
    before = data[opening[opening > 0] - 1]
    after = data[closing[closing < len(data) - 1] + 1]
    ends = (sign, NEWLINE, QUOTE)
    return bool(np.isin(before, ends).all() and np.isin(after, (*ends, RETURN)).all())


def _head(text: Text) -> str:
    """The first 64 KiB, more where the lines are longer, as whole characters."""
    size = 1 << 16
    while True:
        head = text.data[text.start : min(text.start + size, text.end)]
        if head.count(b"\n") > 1 or text.start + size >= text.end:
            return codecs.getincrementaldecoder("utf-8")("replace").decode(head)
        size *= 8


def _records(head: str, separator: str, most: int = 1001) -> list[list[str]]:
    with _long_fields():
        lines = io.StringIO(head, newline="")
        found = (record for record in csv.reader(lines, delimiter=separator) if record)
        return [record for record, _ in zip(found, range(most), strict=False)] or [[""]]


def _fit(records: Sequence[Sequence[str]]) -> tuple[bool, float, int]:
    """How well a separator parts the records: header as wide as most, share of those, width."""
    width, count = Counter(map(len, records[:100])).most_common(1)[0]
    if width == 1:
        return False, 0.0, 1
    return len(records[0]) == width, count / len(records[:100]), width
