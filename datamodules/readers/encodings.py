"""A text file as UTF-8: byte-order marks, encodings found or given, line ends, gzip."""

from __future__ import annotations

import codecs
import gzip
import mmap
import re
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

BLOCK = 1 << 24
BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Text(NamedTuple):
    """A text file as UTF-8.

    Attributes:
        data: All bytes; a memory map where nothing had to be converted.
        start: First byte behind a byte-order mark.
        end: Last byte before the closing line ends.
        as_is: Whether the file itself holds ``data``, so that it may be read by its path.
        notes: What a user should know, such as an encoding that was found.
    """

    data: bytes | mmap.mmap
    start: int
    end: int
    as_is: bool
    notes: list[str]


def read_text(path: Path, encoding: str | None = None) -> Text:
    """Map a file into memory and turn it into UTF-8 where it is something else.

    Without ``encoding`` a byte-order mark decides, then UTF-8; what is not UTF-8 is read as
    cp1252 (Latin-1 and the Windows signs) where that gives words of a Western language.

    Raises:
        ValueError: If the file is empty, an archive, or in an encoding that was not found.
    """
    data, as_is = _opened(path)
    found = _encoding(path.name, data) if encoding is None else encoding
    notes = []
    if encoding is None and found == "cp1252":
        notes = [f"{path.name} is not UTF-8 and was read as cp1252; encoding= says otherwise"]
    if _known(found) != "utf-8":
        data, as_is = _decoded(path.name, data[:], found).encode(), False
    elif encoding is not None:
        _decoded(path.name, data[:], found)  # a promise that has to hold
    head = data[: 1 << 20]
    if b"\n" not in head and b"\r" in head:
        data, as_is = data[:].replace(b"\r", b"\n"), False
    start, end = len(codecs.BOM_UTF8) * head.startswith(codecs.BOM_UTF8), len(data)
    while end > start and data[end - 1] in b"\r\n":
        end -= 1
    if end == start:
        raise ValueError(f"{path.name} holds no rows: it is empty but for line ends")
    plain = start == 0 and data[end : end + 3] in (b"", b"\n", b"\r\n")
    return Text(data, start, end, as_is and plain, notes)


def give_back(text: Text) -> None:
    """Give a mapped file's pages back to the system; they are read anew when asked for.

    They count as this process's memory until then: 400 MB of a file of 400 MB.
    """
    if isinstance(text.data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        text.data.madvise(mmap.MADV_DONTNEED)


def _opened(path: Path) -> tuple[bytes | mmap.mmap, bool]:
    """Bytes of a file, unzipped where need be, and whether the file itself holds them."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name} holds no rows: it has 0 bytes")
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if data[:4] == b"PK\x03\x04":
        raise ValueError(
            f"{path.name} is a zip archive or a spreadsheet; unpack it, or save it as CSV"
        )
    if data[:2] != b"\x1f\x8b":
        return data, True
    try:
        unzipped = gzip.decompress(data[:])
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path.name} is a damaged gzip file ({error}); get it anew") from error
    if not unzipped:
        raise ValueError(f"{path.name} holds no rows: it has 0 bytes within the gzip file")
    return unzipped, False


def _encoding(name: str, data: bytes | mmap.mmap) -> str:
    for mark, encoding in BOMS:
        if data[: len(mark)] == mark:
            _decoded(name, data[:], encoding)  # a mark is a promise: the rest may break it
            return encoding
    head = data[:4096]
    for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if head[first::2].count(0) > 0.4 * len(head) / 2:
            return encoding
    decoder, whole = codecs.getincrementaldecoder("utf-8")(), np.frombuffer(data, np.uint8)
    try:
        for at in range(0, len(whole), BLOCK):
            block = whole[at : at + BLOCK]
            if decoder.getstate()[0] or block.max() > 127:
                decoder.decode(block.tobytes(), final=at + BLOCK >= len(whole))
    except UnicodeDecodeError as error:
        wrong = at + error.start
        del block, whole
        if _is_western(data[:]):
            return "cp1252"
        raise ValueError(
            f"{name} is not UTF-8: byte 0x{data[wrong]:02x} in line {data[:wrong].count(10) + 1}; "
            "pass encoding=, such as 'cp1252' or 'cp1251', or mend the file"
        ) from error
    return "utf-8"


def _is_western(data: bytes) -> bool:
    """Whether cp1252 gives words, in which letters with accents are the smaller part."""
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return False
    words = "".join(re.findall(r"\w*[^\W\x00-\x7f]\w*", text))
    return 2 * sum(letter > "\x7f" for letter in words) <= len(words)


def _known(encoding: str) -> str:
    try:
        return codecs.lookup(encoding).name
    except LookupError as error:
        raise ValueError(
            f"unknown encoding {encoding!r}; write it as Python does, such as 'utf-8' or 'cp1252'"
        ) from error


def _decoded(name: str, data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(10) + 1
        raise ValueError(
            f"{name} is not {encoding}: byte 0x{data[error.start]:02x} in line {line}; pass the "
            "encoding it was written in, leave encoding= out to have it found, or mend the file"
        ) from error
