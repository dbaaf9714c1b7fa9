"""Read text files as UTF-8, whatever their encoding, byte-order mark, line ends or gzip."""

from __future__ import annotations

import codecs
import gzip
import mmap
import re
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

BLOCK = 1 << 24
BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Text(NamedTuple):
    """A text file as UTF-8.

    Attributes:
        data: All bytes; a memory map if nothing had to be converted.
        start: Offset after a byte-order mark.
        end: Offset of the line ends that close the file.
        as_is: Whether ``data`` is the content of the file, so that the path may be read instead.
        notes: Notes for the user, such as a detected encoding.
    """

    data: bytes | mmap.mmap
    start: int
    end: int
    as_is: bool
    notes: list[str]


def read_text(path: Path, encoding: str | None = None) -> Text:
    """Map a file into memory; convert it to UTF-8 if it has another encoding.

    Without ``encoding``, a byte-order mark decides, then UTF-8 is tried, then cp1252 (Windows
    Latin-1), which must give words of a Western language.

    Raises:
        ValueError: If the file is empty, an archive, or its encoding is not detected.
    """
    data, as_is = _open(path)
    notes = []
    try:
        found = _find_encoding(data) if encoding is None else encoding
        if encoding is None and found == "cp1252":
            notes = [f"{path.name} is not UTF-8 and was read as cp1252; encoding= changes that"]
        if encoding is not None or found != "utf-8":
            text = decode(data[:], found)
            if codecs.lookup(found).name != "utf-8":
                data, as_is = text.encode(), False
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    head = data[: 1 << 20]
    if b"\n" not in head and b"\r" in head:
        data, as_is = data[:].replace(b"\r", b"\n"), False
    start, end = len(codecs.BOM_UTF8) * head.startswith(codecs.BOM_UTF8), len(data)
    while end > start and data[end - 1] in b"\r\n":
        end -= 1
    if end == start:
        raise ValueError(f"{path.name} has no rows: it contains line ends only")
    plain = start == 0 and data[end : end + 3] in (b"", b"\n", b"\r\n")
    return Text(data, start, end, as_is and plain, notes)


def release_pages(text: Text) -> None:
    """Return the pages of a mapped file to the system, which reads them again on access.

    Until then they count as memory of this process: 400 MB for a file of 400 MB.
    """
    if isinstance(text.data, mmap.mmap) and sys.platform == "linux":
        text.data.madvise(mmap.MADV_DONTNEED)


def _open(path: Path) -> tuple[bytes | mmap.mmap, bool]:
    """Return the bytes of a file, decompressed, and whether the file was not compressed."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path.name} has no rows: it has 0 bytes")
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
        raise ValueError(
            f"{path.name} is a damaged gzip file ({error}); download it again"
        ) from error
    if not unzipped:
        raise ValueError(f"{path.name} has no rows: the gzip file contains 0 bytes")
    return unzipped, False


def _find_encoding(data: bytes | mmap.mmap) -> str:
    if encoding := find_bom(data):
        decode(data[:], encoding)  # the text after the mark may be something else
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
        raise ValueError(wrong_byte(data, wrong, "UTF-8")) from error
    return "utf-8"


def _is_western(data: bytes) -> bool:
    """Return whether cp1252 gives words with fewer accented than plain letters."""
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return False
    words = "".join(re.findall(r"\w*[^\W\x00-\x7f]\w*", text))
    return 2 * sum(letter > "\x7f" for letter in words) <= len(words)


def find_bom(data: bytes | mmap.mmap) -> str | None:
    """Return the encoding of a byte-order mark."""
    return next((encoding for mark, encoding in BOMS if data[: len(mark)] == mark), None)


def decode(data: bytes, encoding: str) -> str:
    r"""Decode bytes; a byte-order mark is kept.

    Raises:
        ValueError: If the encoding is unknown, or is not that of the data; names the line.

    Example:
        >>> decode(b"caf\xe9", "utf-8")
        Traceback (most recent call last):
        ValueError: line 1: byte 0xe9 is not utf-8; pass encoding=, such as 'cp1252' or 'gb18030'
    """
    try:
        return data.decode(encoding)
    except LookupError as error:
        raise ValueError(
            f"unknown encoding {encoding!r}; pass a name of Python, such as 'utf-8' or 'cp1252'"
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(wrong_byte(data, error.start, encoding)) from error


def wrong_byte(data: bytes | mmap.mmap, at: int, encoding: str) -> str:
    """Return the message for a byte that is not in an encoding."""
    line = data[:at].count(b"\n") + 1
    return (
        f"line {line}: byte 0x{data[at]:02x} is not {encoding}; pass encoding=, such as 'cp1252' "
        "or 'gb18030'"
    )
