"""Looks at a Parquet file before it is read: what it says of itself must fit together.

Polars 2.1 takes memory for as many values as a damaged header promises, and a promise of 2^61 ends
the whole interpreter, which no ``try`` can catch. The format: github.com/apache/parquet-format; its
headers are Thrift structs in the compact protocol.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

MAGIC = b"PAR1"
DEEPEST = 24  # structs in structs; real files have 7
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
REPEATED = 2
UNCOMPRESSED = 0

Content = bytes | mmap.mmap
Fields = dict[int, Any]


def check_parquet_file(path: Path, columns: Collection[str] | None = None) -> None:
    """As :func:`check_parquet`, for a file, of which little is read."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        check_parquet(content, columns)


def check_parquet(content: Content, columns: Collection[str] | None = None) -> None:
    """Refuse a file whose footer or page headers are cut, damaged or contradict each other.

    Args:
        content: The whole file.
        columns: Columns whose pages are looked at; None: all.

    Raises:
        ValueError: Says what does not fit, without the file's name.
    """
    size = len(content)
    if size < 12 or content[:4] != MAGIC or content[-4:] != MAGIC:
        raise ValueError("it does not begin and end with PAR1")
    length = int.from_bytes(content[-8:-4], "little")
    end = size - 8 - length
    if end < 4:
        raise ValueError(f"its footer says {length} bytes, the file has {size}")
    try:
        footer, _ = _read_struct(content[end : size - 8], 0)
        _check_groups(content, footer, end, columns)
    except (IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ValueError("its headers are damaged") from error


def _check_groups(
    content: Content, footer: Fields, end: int, columns: Collection[str] | None
) -> None:
    groups = footer.get(4, [])
    rows = [group[3] for group in groups]
    if min(rows, default=0) < 0 or sum(rows) != footer[3]:
        raise ValueError(f"it says {footer[3]} rows, its row groups {sum(rows)}")
    flat = _flat_leaves(footer[2])
    for group in groups:
        if len(group[1]) != len(flat):
            raise ValueError(f"a row group has {len(group[1])} columns, the schema {len(flat)}")
        for chunk, (name, single) in zip(group[1], flat, strict=True):
            meta = chunk[3]
            if meta[3][0] != name:
                raise ValueError(f"column {name!r} of the schema is {meta[3][0]!r} in a row group")
            if single and meta[5] != group[3]:
                raise ValueError(f"column {name!r} has {meta[5]} values for {group[3]} rows")
            if columns is None or name in columns:
                _check_pages(content, meta, end, repr(name))


def _flat_leaves(schema: list[Fields]) -> list[tuple[str, bool]]:
    """Top column of each leaf, and whether it has one value a row."""
    leaves: list[tuple[str, bool]] = []
    at = 1

    def walk(top: str | None, single: bool, depth: int) -> None:
        nonlocal at
        if depth > DEEPEST:
            raise ValueError("its schema is nested too deep")
        element = schema[at]
        at += 1
        name = top or element[4]
        single = single and element.get(3) != REPEATED
        children = element.get(5, 0)
        if not children:
            leaves.append((name, single))
        for _ in range(children):
            walk(name, single, depth + 1)

    for _ in range(schema[0].get(5, 0)):
        walk(None, True, 0)
    if at != len(schema):
        raise ValueError(f"its schema has {len(schema)} parts, of which {at} belong together")
    return leaves


def _check_pages(content: Content, meta: Fields, end: int, name: str) -> None:
    """Walk the pages of one column of one row group."""
    starts = [offset for offset in (meta[9], meta.get(11)) if offset]
    at = min(starts)
    stop = at + meta[7]
    if at < 4 or stop > end or meta[7] < 0 or meta[6] < 0:
        raise ValueError(f"the pages of column {name} would lie at {at} to {stop} of {end} bytes")
    values = 0
    while values < meta[5]:
        if at >= stop:
            raise ValueError(f"column {name} has {values} values in its pages, {meta[5]} are said")
        page, used = _read_struct(content[at : min(at + (1 << 16), stop)], 0)
        unpacked, packed = page[2], page[3]
        at += used
        if packed < 0 or not 0 <= unpacked <= meta[6] or at + packed > stop:
            raise ValueError(f"a page of column {name} does not fit into the file")
        if meta[4] == UNCOMPRESSED and unpacked != packed:
            raise ValueError(f"a page of column {name} has two sizes, {unpacked} and {packed}")
        if 4 in page and zlib.crc32(content[at : at + packed]) != page[4] & 0xFFFFFFFF:
            raise ValueError(f"the checksum of a page of column {name} is wrong")
        values += _count(page, name)
        at += packed
    if values != meta[5]:
        raise ValueError(f"column {name} has {values} values in its pages, {meta[5]} are said")


def _count(page: Fields, name: str) -> int:
    """Values of a data page; a dictionary counts none."""
    kind, size = page[1], page[2]
    if kind == DICTIONARY_PAGE:
        if not 0 <= page[7][1] <= size:
            raise ValueError(f"column {name} has {page[7][1]} dictionary entries in {size} bytes")
        return 0
    if kind == DATA_PAGE_V2:
        header = page[8]
        levels = header.get(5, 0), header.get(6, 0)
        if min(levels) < 0 or sum(levels) > page[3] or not 0 <= header[2] <= header[1]:
            raise ValueError(f"a page of column {name} contradicts itself")
    elif kind == DATA_PAGE:
        header = page[5]
    else:
        return 0
    count = header[1]
    if not isinstance(count, int) or count < 0:
        raise ValueError(f"a page of column {name} has {count} values")
    return count


def _read_struct(data: bytes, at: int, depth: int = 0) -> tuple[Fields, int]:
    """Fields of a struct by number, and the place behind it."""
    if depth > DEEPEST:
        raise ValueError("its headers are nested too deep")
    fields: Fields = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _read_number(data, at)
        fields[number], at = _read_value(data, at, head & 15, depth)
    return fields, at + 1


def _read_value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        return _read_number(data, at)
    if kind == 7:
        return struct.unpack_from("<d", data, at)[0], at + 8
    if kind == 8:
        length, at = _read_length(data, at)
        return data[at : at + length].decode("utf-8", "surrogateescape"), at + length
    if kind in (9, 10):
        return _read_list(data, at, depth)
    if kind == 12:
        return _read_struct(data, at, depth + 1)
    raise ValueError("its headers are damaged")  # maps do not occur in them


def _read_list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    head = data[at]
    count, kind, at = head >> 4, head & 15, at + 1
    if count == 15:
        count, at = _read_length(data, at)
    found = []
    for _ in range(count):
        if kind in (1, 2):
            value, at = data[at] == 1, at + 1
        else:
            value, at = _read_value(data, at, kind, depth)
        found.append(value)
    return found, at


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    length, at = _read_varint(data, at)
    if length > len(data) - at:
        raise ValueError("its headers are damaged")
    return length, at


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    raw, at = _read_varint(data, at)
    return (raw >> 1) ^ -(raw & 1), at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("its headers are damaged")
