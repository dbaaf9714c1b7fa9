"""Open image files: detect the format, check the size before memory is allocated, refuse damage.

This file calls Pillow's file readers; ``decode`` converts the pixels.
"""

from __future__ import annotations

import io
import os
import re
import stat
import struct
import zlib
from collections.abc import Callable
from typing import IO, Any

from PIL import Image, ImageFile, JpegImagePlugin, TiffImagePlugin

from datamodules.batches.bad_samples import ImageError

MAX_PIXELS = 178_956_970
"""Default of ``max_pixels``: the size that Pillow refuses, twice the size it warns at."""

MAX_BYTES = 1 << 30
"""Default of ``max_bytes``, the size of a file."""

# Formats with a signature in their first bytes. Not read on purpose: formats that run another
# program (EPS), that any bytes may match (TGA, PCX), and measurements without a scale (FITS, GRIB,
# HDF5).
_FORMATS = ("PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF", "JPEG2000", "PPM", "ICO", "QOI")
_JPEG = b"\xff\xd8\xff"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEAD_BYTES = 1 << 16

_Factory = Callable[[IO[bytes], Any], ImageFile.ImageFile]


def refusal(name: str, problem: str, remedy: str) -> ImageError:
    """Return an error; ``repr`` keeps a name with newlines or undecodable bytes on one line."""
    return ImageError(f"{name!r}: {problem}; {remedy}", name)


def damage(name: str, part: str, error: Exception) -> ImageError:
    """Return an error for what Pillow raised (one of a dozen types) while it read ``part``."""
    reason = str(error)
    if "unknown pixel mode" in reason:
        problem = f"the {part} has a pixel layout not read here (signed, 32-bit or float colours)"
        return refusal(name, problem, "save it as 8 bits, or read it in a dataset of your own")
    if isinstance(error, Image.DecompressionBombError):
        remedy = "raise PIL.Image.MAX_IMAGE_PIXELS if the file can be trusted, or remove it"
        return refusal(name, f"the {part} promises too much ({reason.rstrip('.')})", remedy)
    why = "" if reason in ("", "not identified by this driver") else f" ({reason})"
    return refusal(name, f"the {part} is damaged or cut off{why}", "replace or remove the file")


def check_size(name: str, width: int, height: int, max_pixels: int | None) -> None:
    """Refuse W x H pixels beyond ``max_pixels``; None: no limit."""
    if max_pixels is not None and width * height > max_pixels:
        problem = f"{width} x {height} pixels are more than max_pixels={max_pixels}"
        raise refusal(name, problem, "raise max_pixels if the file can be trusted, or remove it")


def check_bytes(name: str, size: int, max_bytes: int | None) -> None:
    """Refuse a file beyond ``max_bytes``; None: no limit."""
    if max_bytes is not None and size > max_bytes:
        problem = f"{size} bytes are more than max_bytes={max_bytes}"
        raise refusal(name, problem, "raise max_bytes if the file can be trusted, or remove it")


def open_file(path: str, name: str, max_bytes: int | None) -> io.FileIO:
    """Open a regular file; other kinds are refused first, as opening a pipe blocks.

    Raises:
        ImageError: If ``path`` is not a regular file, or has more than ``max_bytes``.
        OSError: The system's own, with the path: FileNotFoundError, PermissionError and so on.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - pathlib adds 5 % to a thumbnail's time
    except ValueError as error:  # a NUL, or a character that no file system can hold
        problem = f"no file can have this name ({error})"
        raise refusal(name, problem, "correct the path") from error
    if not stat.S_ISREG(found.st_mode):
        kinds = {stat.S_IFDIR: "folder", stat.S_IFIFO: "named pipe", stat.S_IFSOCK: "socket"}
        kind = kinds.get(stat.S_IFMT(found.st_mode), "device")
        raise refusal(name, f"expected a file, found a {kind}", "pass the path of an image file")
    check_bytes(name, found.st_size, max_bytes)
    return io.FileIO(path)


class _Jpeg(JpegImagePlugin.JpegImageFile):
    """The (first) image of a JPEG or MPO file.

    Pillow reads the EXIF block on opening to find the dots per inch. That takes longer than the
    other header blocks together and warns about a broken block. The override only saves time.
    """

    def _read_dpi_from_exif(self) -> None:
        return


def open_image(stream: IO[bytes], name: str, max_pixels: int | None) -> ImageFile.ImageFile:
    """Open an image by its content, without decoding it (an icon is decoded).

    Args:
        stream: Seekable, at its beginning.
        name: For messages.
        max_pixels: Compared with the header before memory for pixels is allocated.

    Raises:
        ImageError: If it is not an image of a known format, has a damaged header, or is too big.
    """
    head = stream.read(16)
    kind, factory = ("JPEG", _Jpeg) if head.startswith(_JPEG) else _recognise(head, stream, name)
    if kind == "ICO":
        stream, factory = _largest_icon(head + stream.read(), name, max_pixels)
    elif kind in ("WEBP", "AVIF", "JPEG2000"):  # allocate memory when opened, or by another size
        head += stream.read(_HEAD_BYTES)
        check_size(name, *_declared_size(kind, head), max_pixels)
        factory = _avif if kind == "AVIF" else factory
    stream.seek(0)
    try:
        image = factory(stream, "")
    except MemoryError:
        raise
    except Exception as error:
        raise damage(name, f"{kind} header", error) from error
    check_size(name, *image.size, max_pixels)
    if image.format == "ICO" and image.mode != "RGBA":  # LOAD_TRUNCATED_IMAGES: mask left out
        raise damage(name, "ICO mask", ValueError())
    return image


def check_png(content: bytes, name: str) -> None:
    """Refuse a PNG that ends before its end chunk, or with a damaged chunk before its pixels.

    Pillow accepts the first if the cut is between chunks, and both with LOAD_TRUNCATED_IMAGES.
    """
    at, before_pixels = len(PNG_SIGNATURE), True
    while at + 12 <= len(content):
        length, kind = struct.unpack_from(">L4s", content, at)
        end = at + 8 + length
        if kind == b"IEND":
            return
        before_pixels = before_pixels and kind != b"IDAT"
        if before_pixels and content[end : end + 4] != _crc(content[at + 4 : end]):
            problem = f"the checksum of its {kind.decode('latin-1')} chunk is wrong"
            raise refusal(name, problem, "replace or remove the file")
        at = end + 4
    raise refusal(name, "the PNG data is cut off (no end chunk)", "replace or remove the file")


def _crc(chunk: bytes) -> bytes:
    return zlib.crc32(chunk).to_bytes(4, "big")


def _recognise(head: bytes, stream: IO[bytes], name: str) -> tuple[str, _Factory]:
    for load_readers in (Image.preinit, Image.init):  # the second imports about forty modules
        load_readers()
        for kind in _FORMATS:
            factory, accept = Image.OPEN.get(kind, (None, None))
            verdict = accept(head) if accept is not None else False
            if isinstance(verdict, str):
                raise refusal(name, f"{kind} is not in this build of Pillow", "install a full one")
            if verdict and factory is not None:
                return kind, factory
    raise refusal(name, _what_it_is(head + stream.read(1008)), "replace or remove the file")


def _what_it_is(head: bytes) -> str:
    if not head:
        return "the file is empty (0 bytes)"
    if head[4:8] == b"ftyp":
        return f"a {head[8:12].decode('latin-1').strip()!r} media file is not read here"
    if re.search(rb"<svg[\s>]", head):
        return "an SVG drawing has no pixels"
    text = head.decode("utf-8", "replace").removesuffix("\ufffd")  # its last letter may be cut
    if "\ufffd" not in text and not re.search(r"[\0-\x08\x0e-\x1f]", text):
        return f"it holds text, not an image (begins {text[:24]!r})"
    return f"no image format read here begins with the bytes {head[:8].hex(' ')}"


def _declared_size(kind: str, head: bytes) -> tuple[int, int]:
    """Return width and height by the first bytes; (0, 0) if unknown: Pillow checks later."""
    if kind == "WEBP":
        if head[12:16] == b"VP8X":
            return _little(head[24:27]) + 1, _little(head[27:30]) + 1
        if head[12:16] == b"VP8L":
            bits = _little(head[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        return _little(head[26:28]) & 0x3FFF, _little(head[28:30]) & 0x3FFF
    if kind == "AVIF":  # one file holds several images: tiles, alpha, thumbnails
        ends = [found.end() + 4 for found in re.finditer(b"ispe", head[:-12])]
        sizes = [struct.unpack_from(">II", head, end) for end in ends]
        width, height = max(sizes, key=lambda size: size[0] * size[1], default=(0, 0))
        return width, height
    start = head.find(b"\xff\x4f\xff\x51")  # memory is allocated for the code stream, not the box
    if start < 0 or start + 24 > len(head):
        return 0, 0
    right, bottom, left, top = struct.unpack_from(">IIII", head, start + 8)
    return max(right - left, 0), max(bottom - top, 0)


def _little(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


def _avif(stream: IO[bytes], filename: str) -> ImageFile.ImageFile:
    """Open an AVIF image, if necessary without its EXIF block: Pillow fails on a broken one."""
    stock = Image.OPEN["AVIF"][0]
    try:
        return stock(stream, filename)
    except Exception:
        stream.seek(0)
        content = stream.read()
        bare = re.sub(rb"(infe.{8})Exif", rb"\1skip", content, flags=re.DOTALL)
        if bare == content:
            raise
        return stock(io.BytesIO(bare), filename)


def _largest_icon(data: bytes, name: str, max_pixels: int | None) -> tuple[IO[bytes], _Factory]:
    """Return the largest image of an icon as a file: the directory may have a wrong size."""
    try:
        count = struct.unpack_from("<H", data, 4)[0]
        entries = [struct.unpack_from("<BBBBHHII", data, 6 + 16 * i) for i in range(count)]
        best = max(entries, key=lambda entry: ((entry[0] or 256) * (entry[1] or 256), entry[5]))
        *directory, size, offset = best
        payload = data[offset : offset + size]
        if len(payload) < max(size, 16):
            raise ValueError(f"{offset + size} bytes wanted, {len(data)} there")
    except (struct.error, ValueError) as error:
        raise damage(name, "ICO directory", error) from error
    if payload.startswith(PNG_SIGNATURE):
        return io.BytesIO(payload), Image.OPEN["PNG"][0]
    width, height = struct.unpack_from("<ii", payload, 4)
    check_size(name, abs(width), abs(height) // 2, max_pixels)  # the mask counts as height
    header = struct.pack("<HHHBBBBHHII", 0, 1, 1, *directory, size, 22)
    return io.BytesIO(header + payload), Image.OPEN["ICO"][0]


def orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 if there is none or it cannot be read.

    Reads the same places as ``PIL.ImageOps.exif_transpose`` (EXIF, a PNG's text profile, XMP), but
    never fails, warns or decodes. Pillow orients TIFF images itself.
    """
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return 1
    info = image.info
    exif, found = info.get("exif"), None
    try:
        if exif is None and "Raw profile type exif" in info:
            exif = bytes.fromhex("".join(info["Raw profile type exif"].split("\n")[3:]))
        if exif:
            found = exif_orientation(exif)
        if found is None and (xmp := info.get("XML:com.adobe.xmp") or info.get("xmp")):
            text = xmp.decode("latin-1") if isinstance(xmp, bytes) else xmp
            match = re.search(r'tiff:Orientation(?:="|>)([0-9])', text)
            found = int(match[1]) if match else None
    except Exception:  # broken metadata does not change the pixels
        return 1
    return found if found is not None and 1 <= found <= 8 else 1


_EXIF_INTEGERS = {1: "B", 3: "H", 4: "L", 6: "b", 8: "h", 9: "l"}


def exif_orientation(exif: bytes) -> int | None:
    """Return tag 0x0112 of the first directory of an EXIF block."""
    while exif.startswith(b"Exif\0\0"):
        exif = exif[6:]
    order = {b"II": "<", b"MM": ">"}[exif[:2]]
    start = struct.unpack_from(order + "L", exif, 4)[0]
    entries = struct.unpack_from(order + "H", exif, start)[0]
    for at in range(start + 2, start + 2 + 12 * entries, 12):
        tag, kind, count = struct.unpack_from(order + "HHL", exif, at)
        if tag == 0x0112 and count == 1 and kind in _EXIF_INTEGERS:
            value: int = struct.unpack_from(order + _EXIF_INTEGERS[kind], exif, at + 8)[0]
            return value
    return None
