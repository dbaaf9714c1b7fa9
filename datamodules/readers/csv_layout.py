"""Find separator and header of delimited text, and check that readers agree on its records."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .delimited import SEPARATORS, head_records
from .encodings import Text

Bytes = npt.NDArray[np.uint8]
QUOTE, NEWLINE, RETURN = 34, 10, 13
BLOCK = 1 << 18  # bytes that stay in the processor's cache from one step to the next
MOST_RECORDS = 1001  # the header and 1,000 records


class Layout(NamedTuple):
    """Separator, header and first records of delimited text.

    Attributes:
        separator: One character.
        header: Cells of the first record.
        start: Offset of the first record in bytes.
        line: Line number of the first record, from 1.
        sample: Up to 1,000 records after the header, from the head of the file.
        notes: Notes for the user, such as lines skipped before the header.
    """

    separator: str
    header: list[str]
    start: int
    line: int
    sample: list[list[str]]
    notes: list[str]


def find_layout(name: str, text: Text, separator: str | None = None) -> Layout:
    """Detect separator and header from the head of the text.

    Empty lines and lines that begin with ``#`` are skipped before the header, unless the header
    itself begins with ``#``.

    Args:
        name: Name of the file, for messages.
        text: The text.
        separator: One character; None: detected.

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
    body = "\n".join(lines[lead:])
    chosen = separator or max(SEPARATORS, key=lambda s: _fit(head_records(body, s, most=100)))
    if lead and lines[lead - 1].startswith("#"):
        named = head_records(lines[lead - 1], chosen)[0]
        if 1 < len(named) == len(head_records(lines[lead], chosen)[0]):
            lead -= 1  # "#chrom,start,end" names columns
    sample = head_records("\n".join(lines[lead:]), chosen, most=MOST_RECORDS)
    if text.start + len(head.encode()) < text.end:
        sample = sample[:-1] if len(sample) > 1 else sample  # the last record may be cut
    skipped = "\n".join(lines[:lead]) + "\n" if lead else ""
    notes = [f"{name}: {lead} lines before the header were skipped"] if lead else []
    return Layout(
        chosen, sample[0], text.start + len(skipped.encode()), lead + 1, sample[1:], notes
    )


def count_regular(data: Bytes, *, separator: str, width: int) -> int | None:
    """Count records if each has ``width`` fields and quotes only enclose whole fields.

    One vectorized pass; every CSV reader agrees on a text that passes.

    Args:
        data: (B,) uint8, from the first record to the last, without the last line end.
        separator: One character.
        width: Fields in a record.

    Returns:
        The count; None for a ragged record or a misplaced quote.
    """
    mark, inside, phase, records = ord(separator), False, 0, 1
    for at in range(0, len(data), BLOCK):
        block = data[at : at + BLOCK]
        marked = (block == mark) | (block == NEWLINE)
        quotes = block == QUOTE
        if inside or quotes.any():
            where = np.flatnonzero(quotes)
            if not _quotes_fit(data, at + where, inside, mark):
                return None
            within = np.logical_xor.accumulate(quotes) ^ inside
            marked &= ~within
            inside = bool(within[-1])
        ends = (
            block.take(np.flatnonzero(marked)) == NEWLINE
        )  # takes half the time of a boolean mask
        # a record is width - 1 separators and a line end; phase counts those of the open record
        expected = np.arange(width - 1 - phase, len(ends), width)
        if not np.array_equal(np.flatnonzero(ends), expected):
            return None
        phase = (phase + len(ends)) % width
        records += len(expected)
    return records if not inside and phase == width - 1 else None


def count_even(data: Bytes, *, separator: str, width: int) -> int | None:
    """Count records of text without quotes if they have ``width`` fields on average.

    If a reader that refuses longer records finds as many records, none is shorter. Takes a tenth
    of the time of :func:`count_regular`. The last record is checked here: polars 2.1 accepts an
    additional empty field at the end of the text.

    Args:
        data: As in :func:`count_regular`.
        separator: As in :func:`count_regular`.
        width: As in :func:`count_regular`, at least 2.

    Returns:
        The count; None if the number of separators is not divisible by ``width - 1``.
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


def _quotes_fit(data: Bytes, where: npt.NDArray[np.int64], inside: bool, mark: int) -> bool:
    """Return whether opening quotes follow a separator or line end and closing ones precede one."""
    first = 1 if inside else 0
    opening, closing = where[first::2], where[1 - first :: 2]
    before = data[opening[opening > 0] - 1]
    after = data[closing[closing < len(data) - 1] + 1]
    ends = (mark, NEWLINE, QUOTE)
    return bool(np.isin(before, ends).all() and np.isin(after, (*ends, RETURN)).all())


def _head(text: Text) -> str:
    """Return the first 64 KiB, more if the lines are longer, as whole characters."""
    size = 1 << 16
    while True:
        head = text.data[text.start : min(text.start + size, text.end)]
        if head.count(b"\n") > 1 or text.start + size >= text.end:
            return codecs.getincrementaldecoder("utf-8")("replace").decode(head)
        size *= 8


def _fit(records: Sequence[Sequence[str]]) -> tuple[bool, float, int]:
    """Rank a separator: header as long as most records, share of these records, their length."""
    width, count = Counter(map(len, records)).most_common(1)[0]
    if width <= 1:
        return False, 0.0, 1
    return len(records[0]) == width, count / len(records), width
