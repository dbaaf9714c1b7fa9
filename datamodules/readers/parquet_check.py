"""Check the headers of a Parquet file before polars reads it.

Polars allocates memory for as many values as a header promises, and a damaged promise aborts the
interpreter, which no ``try`` catches: https://github.com/pola-rs/polars/issues/15342. Delete this
file when polars raises an error instead, in the oldest supported release; tests/readers/
test_parquet_check.py shows that. The format is documented at github.com/apache/parquet-format.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

MAGIC = b"PAR1"
MAX_DEPTH = 24  # of structs in structs; real files have 7
MAX_PAGE_HEADER = 1 << 16
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
REPEATED = 2
UNCOMPRESSED = 0

Content = bytes | mmap.mmap
Fields = dict[int, Any]


def check_parquet_file(path: Path, columns: Collection[str] | None = None) -> None:
    """Check a file without reading it whole; see :func:`check_parquet`."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        check_parquet(content, columns)


def check_parquet(content: Content, columns: Collection[str] | None = None) -> None:
    """Raise an error if the footer or page headers are truncated, damaged or inconsistent.

    Args:
        content: The whole file.
        columns: Columns whose pages are checked; None: all.

    Raises:
        ValueError: Names what is inconsistent, but not the file.
    """
    size = len(content)
    if size < 12 or content[:4] != MAGIC or content[-4:] != MAGIC:
        raise ValueError("it does not begin and end with PAR1")
    length = int.from_bytes(content[-8:-4], "little")
    end = size - 8 - length
    if end < 4:
        raise ValueError(f"its footer has {length} bytes, the file only {size}")
    try:
        footer = _Thrift(content[end : size - 8]).read_struct()
        _check_groups(content, footer, end, columns)
    except (IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ValueError("its headers are damaged") from error


def _check_groups(
    content: Content, footer: Fields, end: int, columns: Collection[str] | None
) -> None:
    groups = footer.get(4, [])
    rows = [group[3] for group in groups]
    if min(rows, default=0) < 0 or sum(rows) != footer[3]:
        raise ValueError(f"it has {footer[3]} rows, but its row groups have {sum(rows)}")
    leaves = _leaves(footer[2])
    for group in groups:
        if len(group[1]) != len(leaves):
            raise ValueError(f"a row group has {len(group[1])} columns, the schema {len(leaves)}")
        for chunk, (name, is_flat) in zip(group[1], leaves, strict=True):
            meta = chunk[3]
            if meta[3][0] != name:
                raise ValueError(f"column {name!r} of the schema is {meta[3][0]!r} in a row group")
            if is_flat and meta[5] != group[3]:
                raise ValueError(f"column {name!r} has {meta[5]} values for {group[3]} rows")
            if columns is None or name in columns:
                _check_pages(content, meta, end, repr(name))


def _leaves(schema: list[Fields]) -> list[tuple[str, bool]]:
    """Return the top-level column of each leaf, and whether it has one value per row."""
    elements = iter(schema[1:])
    leaves: list[tuple[str, bool]] = []

    def walk(top: str | None, is_flat: bool, depth: int) -> None:
        element = next(elements, None)
        if element is None or depth > MAX_DEPTH:
            raise ValueError("its schema is incomplete or nested too deep")
        name = top or element[4]
        is_flat = is_flat and element.get(3) != REPEATED
        children = element.get(5, 0)
        if not children:
            leaves.append((name, is_flat))
        for _ in range(children):
            walk(name, is_flat, depth + 1)

    for _ in range(schema[0].get(5, 0)):
        walk(None, True, 0)
    if next(elements, None) is not None:
        raise ValueError("its schema has elements that belong to no column")
    return leaves


def _check_pages(content: Content, meta: Fields, end: int, name: str) -> None:
    """Walk the pages of one column in one row group."""
    at = min(offset for offset in (meta[9], meta.get(11)) if offset)
    stop = at + meta[7]
    if at < 4 or stop > end or meta[7] < 0 or meta[6] < 0:
        raise ValueError(f"the pages of column {name} do not fit into the file")
    values = 0
    while values < meta[5] and at < stop:
        header = _Thrift(content[at : min(at + MAX_PAGE_HEADER, stop)])
        page = header.read_struct()
        at += header.at
        unpacked, packed = page[2], page[3]
        if packed < 0 or not 0 <= unpacked <= meta[6] or at + packed > stop:
            raise ValueError(f"a page of column {name} does not fit into the file")
        if meta[4] == UNCOMPRESSED and unpacked != packed:
            raise ValueError(f"a page of column {name} has two sizes, {unpacked} and {packed}")
        if 4 in page and zlib.crc32(content[at : at + packed]) != page[4] & 0xFFFFFFFF:
            raise ValueError(f"the checksum of a page of column {name} is wrong")
        values += _count_values(page, name)
        at += packed
    if values != meta[5]:
        raise ValueError(f"column {name} has {meta[5]} values, but its pages have {values}")


def _count_values(page: Fields, name: str) -> int:
    """Return the number of values in a data page, 0 for a dictionary."""
    kind, size = page[1], page[2]
    if kind == DICTIONARY_PAGE and not 0 <= page[7][1] <= size:
        raise ValueError(f"column {name} has {page[7][1]} dictionary entries in {size} bytes")
    if kind not in (DATA_PAGE, DATA_PAGE_V2):
        return 0
    header = page[5 if kind == DATA_PAGE else 8]
    count: int = header[1]
    if kind == DATA_PAGE_V2:
        levels = header.get(5, 0), header.get(6, 0)
        if min(levels) < 0 or sum(levels) > page[3] or not 0 <= header[2] <= count:
            raise ValueError(f"the header of a page of column {name} is inconsistent")
    if count < 0:
        raise ValueError(f"a page of column {name} has {count} values")
    return count


class _Thrift:
    """Reader of structs in Thrift's compact protocol; a struct is a dict by field number."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def read_struct(self, depth: int = 0) -> Fields:
        fields: Fields = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 15  # 1 and 2 are the booleans themselves
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth + 1)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ValueError("its headers are nested too deep")
        if kind in (1, 2):  # an item of a list
            return self._byte() == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 7:
            self.at += 8
            return struct.unpack_from("<d", self.data, self.at - 8)[0]
        if kind == 8:
            length = self._length()
            self.at += length
            return self.data[self.at - length : self.at].decode("utf-8", "surrogateescape")
        if kind in (9, 10):
            head = self._byte()
            count = self._length() if head >> 4 == 15 else head >> 4
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.read_struct(depth)
        raise ValueError("its headers are damaged")  # maps do not occur

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _length(self) -> int:
        length = self._varint()
        if length > len(self.data) - self.at:
            raise ValueError("its headers are damaged")
        return length

    def _integer(self) -> int:
        raw = self._varint()
        return (raw >> 1) ^ -(raw & 1)

    def _varint(self) -> int:
        value = shift = 0
        while shift <= 63:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("its headers are damaged")
