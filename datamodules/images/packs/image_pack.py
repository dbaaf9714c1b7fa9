"""Read packs: many images in a few memory-mapped files, checked when they are opened.

A pack is a folder::

    pack.json      kind, version, sizes of the shards, digest of the index, report
    records.npy    (N,) RECORD: place of each image, and size and mtime of its file
    names.bin      N names relative to the packed folder, with "/", separated by zero bytes
    00000.bin ...  the images

It contains no pickle, and every number is checked before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from datamodules.images.decode.decode import decode_pixels
from datamodules.images.regions import Boxes, WholeImage
from datamodules.readers.npy import open_array
from datamodules.splits.split import fingerprint

from .jpeg_slices import Bytes, Sliced, SlicedImage, from_bytes

FORMAT, VERSION = "lightning-datamodules images", 1
MANIFEST, RECORDS, NAMES = "pack.json", "records.npy", "names.bin"
PARTIAL = ".partial"  # ending of a pack that is being written
KINDS = ("slice", "resized-raw", "resized-jpeg")
FILE, SLICES, PIXELS = 0, 1, 2  # forms: an image file, a JPEG with restart markers, (H, W, C) bytes
RECORD = np.dtype(
    [
        ("shard", "<u4"),
        ("form", "<u4"),
        ("offset", "<i8"),
        ("length", "<i8"),
        ("size", "<i8"),  # of the file it was made from, in bytes
        ("changed", "<i8"),  # mtime of the file, in ns
    ]
)
Records = npt.NDArray[Any]


class PackError(ValueError):
    """A pack is damaged, unfinished, of another version or made from other files."""


class ImagePack:
    """Images packed by ``scripts/pack_images.py``, read from shared memory-mapped files.

    Args:
        path: Folder of the pack.

    Attributes:
        kind: ``"slice"``: the pixels of the files; ``"resized-raw"`` and ``"resized-jpeg"``:
            smaller images, with other pixels.
        size: Short side of resized images; 0 for slices.
        report: Counts and names of the packed files, as plain values.
        source: Digest of names, sizes and mtimes of the packed files.

    Raises:
        FileNotFoundError: If there is no such pack, or it is still being written.
        PackError: If it is damaged or of another version.

    Example::

        pack = ImagePack("photos-slice.pack")
        crop = pack.decode_box(0, top=10, left=20, height=224, width=224)  # (3, 224, 224) uint8
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()
        manifest = _manifest(self.path)
        self.kind, self.size = manifest["kind"], manifest["size"]
        self.report: dict[str, Any] = manifest["report"]
        self.source: str = manifest["source"]
        self._shard_bytes: list[int] = manifest["shards"]
        self._check_files(manifest)
        self._records: Records | None = None
        self._shards: dict[int, Bytes] = {}

    def __len__(self) -> int:
        return len(self.records)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_records": None, "_shards": {}}  # mapped anew in each process

    @property
    def records(self) -> Records:
        """(N,) RECORD, mapped; all processes read the same memory."""
        if self._records is None:
            # a plain view: indexing a memmap takes 5 us
            self._records = np.asarray(open_array(self.path / RECORDS))
        return self._records

    def names(self) -> list[str]:
        """Return N names relative to the packed folder."""
        stored = (self.path / NAMES).read_bytes()
        return stored.decode("utf-8", "surrogateescape").split("\0") if stored else []

    def rows_of(self, names: Sequence[str], paths: Iterable[str]) -> npt.NDArray[np.int64]:
        """Find images by name, and check that their files did not change since they were packed.

        Args:
            names: M names relative to the packed folder, with ``/``.
            paths: Their files.

        Returns:
            (M,) int64, rows in the pack.

        Raises:
            PackError: If an image is not in the pack, or its file changed.
        """
        row_of = {name: row for row, name in enumerate(self.names())}
        remedy = "run scripts/pack_images.py again"
        missing = [name for name in names if name not in row_of]
        if missing:
            raise PackError(
                f"pack {str(self.path)!r} has no entry for {len(missing)} of {len(names)} images, "
                f"the first is {missing[0]!r}; {remedy}, or pass the folder that was packed"
            )
        rows = np.fromiter((row_of[name] for name in names), np.int64, len(names))
        stats = [Path(path).stat() for path in paths]
        packed = self.records[rows]
        sizes = np.array([status.st_size for status in stats], np.int64)
        times = np.array([status.st_mtime_ns for status in stats], np.int64)
        changed = np.flatnonzero((packed["size"] != sizes) | (packed["changed"] != times))
        if len(changed):
            at = int(changed[0])
            what = "another mtime"
            if packed["size"][at] != sizes[at]:
                what = f"{packed['size'][at]} bytes then, {sizes[at]} now"
            raise PackError(
                f"pack {str(self.path)!r} was made before {len(changed)} of {len(names)} images "
                f"changed, the first is {names[at]!r} ({what}); {remedy}"
            )
        return rows

    def stored(self, row: int) -> tuple[int, Bytes]:
        """Return form and bytes of one image, without a copy."""
        shard, form, offset, length, _, _ = self.records[row].item()
        if shard not in self._shards:
            self._shards[shard] = self._map(shard)
        return form, self._shards[shard][offset : offset + length]

    def content(self, row: int) -> bytes | npt.NDArray[np.uint8]:
        """Return a source for :func:`decode_image`: the bytes of a file, or pixels (H, W, C)."""
        form, stored = self.stored(row)
        if form == PIXELS:
            return _pixels(stored, self.path)
        return (_sliced(stored, self.path).data if form == SLICES else stored).tobytes()

    def image(
        self,
        row: int,
        *,
        mode: Literal["RGB", "L"] = "RGB",
        name: Callable[[], str] | None = None,
    ) -> Boxes:
        """Return one image that is read by boxes: only the slices of a box are decoded.

        Args:
            row: Row of the image.
            mode: Mode of the boxes.
            name: Returns the name for messages.

        Raises:
            PackError: If its record is damaged.
            ImageError: If an unchanged file cannot be decoded.
        """
        form, stored = self.stored(row)
        if form == SLICES:
            return SlicedImage(_sliced(stored, self.path), mode)
        if form == PIXELS:
            return WholeImage(_pixels(stored, self.path), mode)
        text = f"image {row} of {self.path}" if name is None else name()
        return WholeImage(decode_pixels(stored.tobytes(), mode=mode, name=text), mode)

    def decode_box(
        self,
        row: int,
        top: int,
        left: int,
        height: int,
        width: int,
        *,
        mode: Literal["RGB", "L"] = "RGB",
    ) -> Tensor:
        """Decode one box of one image, equal to the bit to decoding it all and cropping.

        Args:
            row: Row of the image.
            top: First row of the box, in pixels.
            left: First column.
            height: Rows.
            width: Columns.
            mode: ``"RGB"`` or ``"L"``.

        Returns:
            (C, height, width) uint8.

        Raises:
            ValueError: If the box leaves the image.
        """
        image = self.image(row, mode=mode)
        if min(top, left) < 0 or top + height > image.height or left + width > image.width:
            raise ValueError(
                f"box {(top, left, height, width)} is not inside the image of {image.height} x "
                f"{image.width}"
            )
        box = np.array(image.box(top, left, height, width))
        return torch.from_numpy(box).permute(2, 0, 1)

    def _map(self, shard: int) -> Bytes:
        if not self._shard_bytes[shard]:
            return np.empty(0, np.uint8)  # an empty file cannot be mapped
        return np.asarray(np.memmap(self.path / shard_name(shard), np.uint8, "r"))

    def _check_files(self, manifest: dict[str, Any]) -> None:
        where = f"pack {str(self.path)!r}"
        for shard, size in enumerate(self._shard_bytes):
            file = self.path / shard_name(shard)
            found = file.stat().st_size if file.is_file() else None
            if found != size:
                state = "is missing" if found is None else f"has {found:,} bytes"
                raise PackError(
                    f"{where} is damaged: {file.name} should have {size:,} bytes and {state}; copy "
                    "it again, or run scripts/pack_images.py again"
                )
        try:
            digest = index_digest(self.path)
            records = open_array(self.path / RECORDS)
        except (OSError, ValueError) as error:
            raise PackError(f"{where} is damaged: its index cannot be read ({error})") from error
        if digest != manifest["index"]:
            raise PackError(
                f"{where} is damaged: its index was changed; run scripts/pack_images.py again"
            )
        if records.dtype != RECORD or records.ndim != 1 or len(records) != manifest["count"]:
            raise PackError(
                f"{where} is damaged: its index does not have {manifest['count']} records"
            )
        sizes = np.array([*self._shard_bytes, 0], np.int64)
        known = records["shard"] < len(self._shard_bytes)
        room = sizes[np.where(known, records["shard"].astype(np.int64), -1)]
        fits = (records["offset"] >= 0) & (records["length"] >= 0) & (records["form"] <= PIXELS)
        fits &= known & (records["length"] <= room) & (records["offset"] <= room)
        fits &= records["offset"] <= room - records["length"]
        if not fits.all() or len(self.names()) != len(records):
            raise PackError(f"{where} is damaged: its index points outside the files")


def shard_name(shard: int) -> str:
    """Return the file name of a shard.

    Example:
        >>> shard_name(7)
        '00007.bin'
    """
    return f"{shard:05d}.bin"


def index_digest(folder: Path) -> str:
    """Return the digest of a pack's index."""
    return fingerprint((folder / RECORDS).read_bytes(), (folder / NAMES).read_bytes())


def _manifest(path: Path) -> dict[str, Any]:
    where, file = f"pack {str(path)!r}", path / MANIFEST
    if not file.is_file():
        if path.with_name(path.name + PARTIAL).is_dir():
            raise FileNotFoundError(
                f"{where} is not finished: it is being written, or the writing was stopped; wait, "
                "or run scripts/pack_images.py again, which resumes it"
            )
        state = f"is not a pack, it has no {MANIFEST}" if path.exists() else "does not exist"
        raise FileNotFoundError(f"{where} {state}; make it with scripts/pack_images.py ROOT")
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise PackError(f"{where} is damaged: {MANIFEST} cannot be read ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PackError(
            f"{where} is not a pack of images: the format in {MANIFEST} is not {FORMAT!r}"
        )
    if manifest.get("version") != VERSION:
        raise PackError(
            f"{where} has version {manifest.get('version')!r}, this release reads {VERSION}; run "
            "scripts/pack_images.py again"
        )
    types = {"size": int, "count": int, "report": dict, "source": str, "index": str, "shards": list}
    wrong = [name for name, kind in types.items() if not isinstance(manifest.get(name), kind)]
    if manifest.get("kind") not in KINDS:
        wrong.append("kind")
    if wrong or not all(isinstance(size, int) and size >= 0 for size in manifest["shards"]):
        raise PackError(
            f"{where} is damaged: {MANIFEST} has invalid values of {wrong or ['shards']}"
        )
    return manifest


def _sliced(stored: Bytes, path: Path) -> Sliced:
    try:
        return from_bytes(stored)
    except ValueError as error:
        raise PackError(f"pack {str(path)!r}: {error}; run scripts/pack_images.py again") from error


def _pixels(stored: Bytes, path: Path) -> npt.NDArray[np.uint8]:
    height, width, channels = stored[:12].view("<u4").tolist() if len(stored) >= 12 else (0, 0, 0)
    if channels not in (1, 3) or height * width * channels != len(stored) - 12 or len(stored) == 12:
        raise PackError(f"pack {str(path)!r} is damaged: {len(stored)} bytes are not an image")
    return stored[12:].reshape(height, width, channels)
