"""Decode a crop from a part of a JPEG with restart markers.

A restart marker resets the Huffman state and the DC predictors, so the intervals between markers
can be cut out and joined. The intervals of a box, after the same header with another height and
width, are a small JPEG that any decoder reads.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from datamodules.images.regions import in_mode

Bytes = npt.NDArray[np.uint8]
HEAD = 8  # numbers before the starts of a stored JPEG
UNITS = (8, 16, 24, 32)  # pixels of a coded unit: a block times its sampling factor
MARGIN = 2  # pixels that smooth chroma upsampling looks beyond a box


class NotSliceable(ValueError):
    """A file is not a plain JPEG and is packed unchanged; the message is the reason."""


class Frame(NamedTuple):
    """Header of a JPEG.

    Attributes:
        at: Offset of the frame marker.
        scan: Offset after the header of the first scan.
        width: Pixels.
        height: Pixels.
        mcu_width: Pixels of a coded unit.
        mcu_height: Pixels of a coded unit.
        restart: Units between restart markers, 0 for none.
        components: 1 grey, 3 colour, 4 CMYK.
    """

    at: int
    scan: int
    width: int
    height: int
    mcu_width: int
    mcu_height: int
    restart: int
    components: int


class Sliced(NamedTuple):
    """A JPEG with restart markers, and the starts of its intervals.

    Attributes:
        data: (B,) uint8, the file.
        starts: (rows * per_row + 1,) int64, offset of each interval; the last one is B.
        frame: Header; ``restart`` divides the units of a row.
        per_row: Intervals in a row of units.
    """

    data: Bytes
    starts: npt.NDArray[np.int64]
    frame: Frame
    per_row: int


def read_frame(data: bytes | Bytes) -> Frame:
    """Read a JPEG's header up to its first scan.

    Raises:
        NotSliceable: If it is not a JPEG, or of a rare kind.
    """
    content = data if isinstance(data, bytes) else data.tobytes()
    if content[:3] != b"\xff\xd8\xff":
        raise NotSliceable("not a JPEG")
    at, restart, frame = 2, 0, None
    while at + 4 <= len(content) and content[at] == 0xFF:
        marker, length = content[at + 1], int.from_bytes(content[at + 2 : at + 4], "big")
        body = content[at + 4 : at + 2 + length]
        if len(body) != length - 2:
            break
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            frame = (at, *_frame(body))
        elif marker == 0xDD and length == 4:
            restart = int.from_bytes(body, "big")
        at += 2 + length
        if marker == 0xDA:
            if frame is None:
                break
            start, width, height, across, down, components = frame
            return Frame(start, at, width, height, across, down, restart, components)
    raise NotSliceable("damaged header")


def _frame(body: bytes) -> tuple[int, int, int, int, int]:
    """Return width, height, width and height of a unit, and components."""
    if len(body) < 6 or len(body) != 6 + 3 * body[5]:
        raise NotSliceable("damaged header")
    height, width = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
    components = body[5]
    if body[0] != 8:
        raise NotSliceable(f"{body[0]} bits a channel")
    if components not in (1, 3):
        raise NotSliceable("CMYK" if components == 4 else f"{components} channels")
    if not width or not height:
        raise NotSliceable("height unknown to the header")
    factors = [body[7 + 3 * k] for k in range(components)]
    if not all(1 <= side <= 4 for f in factors for side in (f >> 4, f & 15)):
        raise NotSliceable("damaged header")
    if components == 1:
        return width, height, 8, 8, 1
    return width, height, 8 * max(f >> 4 for f in factors), 8 * max(f & 15 for f in factors), 3


def cut(sliced: Sliced, top: int, left: int, height: int, width: int) -> tuple[Bytes, int, int]:
    """Cut out the part of a JPEG that covers a box.

    Args:
        sliced: The JPEG.
        top: First row of the box, in pixels.
        left: First column.
        height: Rows, at least 1.
        width: Columns, at least 1.

    Returns:
        (B,) uint8, a JPEG; and the box's top and left in its image.

    Raises:
        ValueError: If the box is empty or not inside the image.
    """
    frame, per_row, starts = sliced.frame, sliced.per_row, sliced.starts
    if min(top, left) < 0 or min(height, width) < 1:
        raise ValueError(
            f"a box needs top, left >= 0 and height, width >= 1, got {(top, left, height, width)}"
        )
    if top + height > frame.height or left + width > frame.width:
        raise ValueError(
            f"box {(top, left, height, width)} is not inside the image of {frame.height} x "
            f"{frame.width}"
        )
    across, down = frame.restart * frame.mcu_width, frame.mcu_height
    rows = -(-frame.height // down)
    c0, r0 = max(0, left - MARGIN) // across, max(0, top - MARGIN) // down
    c1 = min(per_row, -(-(left + width + MARGIN) // across))
    r1 = min(rows, -(-(top + height + MARGIN) // down))
    row = np.arange(r0, r1)
    begin, end = starts[row * per_row + c0], starts[row * per_row + c1]
    parts = [sliced.data[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)]
    out = np.concatenate([sliced.data[: frame.scan], *parts])
    high = (frame.height if r1 == rows else r1 * down) - r0 * down
    wide = (frame.width if c1 == per_row else c1 * across) - c0 * across
    out[frame.at + 5 : frame.at + 9] = [high >> 8, high & 255, wide >> 8, wide & 255]
    # each interval ends with its marker, two bytes before the next start: renumber them
    ends = starts[row[:, None] * per_row + np.arange(c0 + 1, c1 + 1)]
    moved = np.concatenate([[0], np.cumsum(end - begin)[:-1]]) + frame.scan - begin
    at = (ends + moved[:, None] - 1).reshape(-1)
    out[at] = 0xD0 | (np.arange(len(at)) & 7)
    out[-2:] = 0xFF, 0xD9
    return out, top - r0 * down, left - c0 * across


def decode_box(
    sliced: Sliced,
    top: int,
    left: int,
    height: int,
    width: int,
    *,
    mode: Literal["RGB", "L"] = "RGB",
) -> Bytes:
    """Decode one box, equal to the bit to decoding the whole image and cropping.

    Args:
        sliced: The JPEG.
        top: First row of the box, in pixels.
        left: First column.
        height: Rows.
        width: Columns.
        mode: ``"RGB"``, or ``"L"``: the grey of the RGB image.

    Returns:
        (height, width, C) uint8, a view of the decoded part.

    Raises:
        ValueError: If the box is not inside the image.
        RuntimeError: If the data is damaged.
    """
    part, top, left = cut(sliced, top, left, height, width)
    pixels = _decode(part, grey=sliced.frame.components == 1)
    return in_mode(pixels[top : top + height, left : left + width], mode)


def _decode(part: Bytes, *, grey: bool) -> Bytes:
    """Decode to (H, W, C) uint8, by simplejpeg if installed: 1.25 times as fast as Pillow."""
    try:
        return (_by_simplejpeg() or _by_pillow)(part, grey)
    except Exception as error:  # Pillow raises many types
        raise RuntimeError(f"a slice cannot be decoded ({error}); the pack is damaged") from error


def _by_simplejpeg() -> Callable[[Bytes, bool], Bytes] | None:
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None
    return lambda part, grey: decode_jpeg(part, colorspace="GRAY" if grey else "RGB")


def _by_pillow(part: Bytes, grey: bool) -> Bytes:
    with Image.open(io.BytesIO(part.tobytes())) as image:
        return np.atleast_3d(np.array(image.convert("L" if grey else "RGB")))


class SlicedImage:
    """A JPEG with restart markers, of which only the slices of a box are decoded.

    Args:
        sliced: The JPEG.
        mode: ``"RGB"`` or ``"L"``.
    """

    def __init__(self, sliced: Sliced, mode: Literal["RGB", "L"]) -> None:
        self.sliced, self.mode = sliced, mode
        self.height, self.width = sliced.frame.height, sliced.frame.width

    def box(self, top: int, left: int, height: int, width: int) -> Bytes:
        """Return (height, width, C) uint8; see :class:`~datamodules.images.regions.Boxes`."""
        return decode_box(self.sliced, top, left, height, width, mode=self.mode)


def to_bytes(sliced: Sliced) -> bytes:
    """Return a JPEG with its offsets, as a pack stores it."""
    f = sliced.frame
    head = [f.at, f.width, f.height, f.mcu_width, f.mcu_height, f.restart, f.components]
    numbers = np.concatenate([[*head, len(sliced.starts)], sliced.starts]).astype("<u4")
    return numbers.tobytes() + sliced.data.tobytes()


def from_bytes(stored: Bytes) -> Sliced:
    """Read what :func:`to_bytes` wrote, without a copy of the file.

    Args:
        stored: (B,) uint8.

    Raises:
        ValueError: If the numbers are inconsistent: the pack is damaged.
    """
    damaged = ValueError("the offsets of a sliced JPEG are inconsistent; the pack is damaged")
    if len(stored) < 4 * HEAD:
        raise damaged
    head = stored[: 4 * HEAD].view("<u4").tolist()
    at, width, height, across, down, restart, components, count = head
    begin = 4 * (HEAD + count)
    if begin > len(stored) or not (across and down and restart and width and height and count):
        raise damaged
    starts = stored[4 * HEAD : begin].view("<u4").astype(np.int64)
    data = stored[begin:]
    per_row = -(-width // across) // restart
    fits = (
        per_row * -(-height // down) + 1 == count
        and starts[-1] == len(data)
        and bool((np.diff(starts) >= 2).all())
        and at + 9 <= starts[0]
        and max(width, height) < 1 << 16  # the maximum of a frame header
        and across in UNITS
        and down in UNITS
    )
    if not fits:
        raise damaged
    frame = Frame(at, int(starts[0]), width, height, across, down, restart, components)
    return Sliced(data, starts, frame, per_row)
