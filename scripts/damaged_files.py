"""Small whole files of each format that is read, and what reads them: what ``fuzz.py`` damages."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

IMAGES = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "ICO")
CSV = (
    b'id,city,size,price,label\n1,Bonn,3.5,"1,200",a\n2,"New\nYork",NA,3,b\n'
    b'3,"say ""no""",1e9,-4,a\n4,,inf,5,b\n'
)
LINES = b'{"text": "a \\u00e9", "label": 1}\n{"text": null, "label": "b"}\n{"label": 2.5}\n'
TEXTS = b'label,text\na,"one, two"\nb,"say ""no"""\na,\nb,\xc3\xa9\n'
LABELS = b"file,label\na.png,x\nb.png,y\nsub/c,x\n"
Files = Mapping[str, bytes]


class Target(NamedTuple):
    """What one kind of file is, and what reads it.

    Attributes:
        variants: Whole inputs, each one file or the files of one folder, by relative name.
        read: Reads the input in a folder, every part of it.
        is_named: Whether an error says which input it is about.
        seal: Writes digests anew after damage, so that what lies behind them is reached.
    """

    variants: Sequence[Files]
    read: Callable[[Path], object]
    is_named: Callable[[Exception], bool]
    seal: Callable[[Path], None] | None = None


def target_of(name: str, folder: Path) -> Target:
    """A target by name; ``folder`` takes what its inputs point to."""
    return TARGETS[name](folder)


def _decode(folder: Path) -> Target:
    from datamodules.images.decode.decode import decode_image

    variants = [{"input.img": _image(kind)} for kind in IMAGES]
    return Target(variants, _read_file(partial(decode_image, max_pixels=1 << 20)), _says("input"))


def _table(folder: Path) -> Target:
    from datamodules.tables.table import read_table

    kinds = [CSV, CSV.replace(b",", b";"), CSV.decode().encode("utf-16"), b"\xef\xbb\xbf" + CSV]
    variants = [{"input.csv": content} for content in [*kinds, _packed(CSV)]]
    return Target(variants, _read_file(read_table), _says("input"))


def _text(folder: Path) -> Target:
    from datamodules.texts.reader import read_texts

    rows = b"[" + LINES.strip().replace(b"\n", b",") + b"]"
    variants = [
        {"input.csv": TEXTS},
        {"input.tsv": TEXTS.replace(b",", b"\t")},
        {"input.txt": TEXTS.replace(b",", b"|").decode().encode("utf-16")},
        {"input.jsonl": LINES},
        {"input.json": rows},
        {"input.csv.gz": _packed(TEXTS)},
    ]
    return Target(variants, _read_file(read_texts), _says("input"))


def _labels(folder: Path) -> Target:
    from datamodules.images.label_table import read_label_table

    root = folder / "images"
    (root / "sub").mkdir(parents=True)
    for name in ("a.png", "b.png", "sub/c.png"):
        (root / name).touch()

    def read(path: Path) -> object:
        return read_label_table(path, root, file_column="file", label_column="label")

    flags = LABELS.replace(b"x", b"1").replace(b"y", b"0")
    variants = [
        {"input.csv": LABELS},
        {"input.tsv": LABELS.replace(b",", b"\t")},
        {"input.csv.gz": _packed(flags)},
    ]
    return Target(variants, _read_file(read), _says("input"))


def _parquet(folder: Path) -> Target:
    from datamodules.tables.table import read_table
    from datamodules.texts.reader import read_texts

    def read(path: Path) -> None:
        try:
            read_table(path)
        finally:
            read_texts(path)

    import polars as pl

    frame = pl.DataFrame(
        {"text": ["a", None, "é" * 9], "label": [1, 0, 1], "size": [0.5, None, 1e9]}
    )
    variants = []
    for compression in ("uncompressed", "zstd", "snappy"):
        stream = io.BytesIO()
        frame.write_parquet(stream, compression=compression)
        variants.append({"input.parquet": stream.getvalue()})
    return Target(variants, _read_file(read), _says("input"))


def _jpeg(folder: Path) -> Target:
    from datamodules.images.decode.jpeg import plain_header
    from datamodules.images.packs.jpeg_slices import (
        NotSliceable,
        decode_box,
        from_bytes,
        read_frame,
    )

    def read(path: Path) -> None:
        content = path.read_bytes()
        if path.suffix == ".jpg":
            plain_header(content)
            read_frame(content)
            return
        sliced = from_bytes(np.frombuffer(content, np.uint8))
        frame = sliced.frame
        decode_box(sliced, 0, 0, 1, 1)
        decode_box(sliced, frame.height // 2, frame.width // 2, 1, 1, mode="L")

    def is_named(error: Exception) -> bool:
        return isinstance(error, NotSliceable) or "damaged" in str(error)

    exif = Image.Exif()
    exif[0x0112] = 6
    variants = [
        {"input.jpg": _image("JPEG")},
        {"input.jpg": _image("JPEG", exif=exif.tobytes(), progressive=True)},
        {"input.stored": _stored_slices()},
        {"input.stored": _stored_slices("L")},
    ]
    return Target(variants, _read_file(read), is_named)


def _pack(folder: Path) -> Target:
    from datamodules.images.packs import image_pack as packs
    from datamodules.splits.split import fingerprint

    raw = np.array([2, 3, 3], "<u4").tobytes() + bytes(range(18))
    contents = [(packs.FILE, _image("PNG")), (packs.PIXELS, raw)]
    contents += [(packs.SLICES, _stored_slices()), (packs.SLICES, _stored_slices("L"))]
    records, shard = np.zeros(len(contents), packs.RECORD), b""
    for row, (form, content) in enumerate(contents):
        records[row] = (0, form, len(shard), len(content), 9, 9)
        shard += content
    stream = io.BytesIO()
    np.save(stream, records, allow_pickle=False)
    names = "\0".join(f"{row}.png" for row in range(len(contents))).encode()
    manifest = {
        "format": packs.FORMAT,
        "version": packs.VERSION,
        "kind": "slice",
        "size": 0,
        "count": len(contents),
        "report": {},
        "source": "x",
        "shards": [len(shard)],
        "index": fingerprint(stream.getvalue(), names),
    }
    variant = {
        packs.MANIFEST: json.dumps(manifest).encode(),
        packs.RECORDS: stream.getvalue(),
        packs.NAMES: names,
        packs.shard_name(0): shard,
    }

    def read(path: Path) -> None:
        pack = packs.ImagePack(path)
        pack.names()
        for row in range(len(pack)):
            pack.content(row)
            pack.decode_box(row, 0, 0, 1, 1)

    def seal(path: Path) -> None:
        said = {**manifest, "index": packs.index_digest(path)}
        said["shards"] = [(path / packs.shard_name(0)).stat().st_size]
        (path / packs.MANIFEST).write_text(json.dumps(said), encoding="utf-8")

    # a message without the pack's name is given the image's by the dataset that asked
    return Target([variant], read, _says("input", "the pack is damaged"), seal)


def _features(folder: Path) -> Target:
    from datamodules.feature_packs import feature_pack as feature_packs
    from datamodules.splits.split import fingerprint

    variant: dict[str, bytes] = {}
    arrays: dict[str, npt.NDArray[Any]] = {
        "features": np.ones((3, 2), np.float32),
        "targets": np.arange(3),
    }
    for name, array in arrays.items():
        stream = io.BytesIO()
        np.save(stream, array, allow_pickle=False)
        variant[f"train-{name}.npy"] = stream.getvalue()
    manifest: dict[str, Any] = {
        "format": feature_packs.FORMAT,
        "version": feature_packs.VERSION,
        "keys": {"data": "a", "transform": "b", "weights": "c"},
        "parts": {"train": {name: fingerprint(a.tobytes()) for name, a in arrays.items()}},
    }
    variant[feature_packs.MANIFEST] = json.dumps(manifest).encode()

    def seal(path: Path) -> None:
        digests = {}
        for name in arrays:
            try:
                array = np.load(path / f"train-{name}.npy", mmap_mode="r", allow_pickle=False)
            except Exception:  # what cannot be read cannot be sealed
                return
            digests[name] = fingerprint(array.tobytes())
        said = json.dumps({**manifest, "parts": {"train": digests}})
        (path / feature_packs.MANIFEST).write_text(said, encoding="utf-8")

    return Target([variant], feature_packs.read_features, _says("input"), seal)


TARGETS: dict[str, Callable[[Path], Target]] = {
    "decode": _decode,
    "jpeg": _jpeg,
    "pack": _pack,
    "features": _features,
    "table": _table,
    "text": _text,
    "labels": _labels,
    "parquet": _parquet,
}


def _read_file(read: Callable[[Path], object]) -> Callable[[Path], object]:
    """Read the one file of a folder."""
    return lambda folder: read(next(folder.iterdir()))


def _says(*texts: str) -> Callable[[Exception], bool]:
    return lambda error: any(text in str(error) for text in texts)


def _packed(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def _image(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    stream = io.BytesIO()
    image = Image.linear_gradient("L").resize((24, 16)).convert(mode)
    image.save(stream, kind, **options)
    return stream.getvalue()


def _stored_slices(mode: str = "RGB") -> bytes:
    """A JPEG with a restart marker after each row of units, as a pack stores it."""
    from datamodules.images.packs.jpeg_slices import Sliced, read_frame, to_bytes

    content = _image("JPEG", mode, restart_marker_rows=1, subsampling=0)
    data, frame = np.frombuffer(content, np.uint8), read_frame(content)
    scan = data[frame.scan :]
    marks = np.flatnonzero((scan[:-1] == 0xFF) & (scan[1:] >= 0xD0) & (scan[1:] <= 0xD7))
    starts = np.concatenate([[0], marks + 2, [len(scan)]]).astype(np.int64) + frame.scan
    return to_bytes(Sliced(data, starts, frame, 1))
