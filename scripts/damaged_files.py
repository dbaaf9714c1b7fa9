"""Small valid files of each format, and their readers, for ``fuzz.py`` to damage."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
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
    """One kind of input and its reader.

    Attributes:
        variants: Valid inputs: the files of a folder, by relative name.
        read: Reads every part of the input in a folder.
        is_named: Whether an error names the input.
        seal: Updates digests after damage, so that the code behind the check is reached.
    """

    variants: Sequence[Files]
    read: Callable[[Path], object]
    is_named: Callable[[Exception], bool]
    seal: Callable[[Path], None] | None = None


def _decode(folder: Path) -> Target:
    from datamodules.images.decode.decode import decode_image

    variants = [{"input.img": _image(kind)} for kind in IMAGES]
    return Target(variants, _read_file(partial(decode_image, max_pixels=1 << 20)), _names("input"))


def _table(folder: Path) -> Target:
    from datamodules.tables.table import read_table

    kinds = [CSV, CSV.replace(b",", b";"), CSV.decode().encode("utf-16"), b"\xef\xbb\xbf" + CSV]
    variants = [{"input.csv": content} for content in [*kinds, _packed(CSV)]]
    return Target(variants, _read_file(read_table), _names("input"))


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
    return Target(variants, _read_file(read_texts), _names("input"))


def _labels(folder: Path) -> Target:
    from datamodules.images.label_table import read_label_table

    root = folder / "images"
    (root / "sub").mkdir(parents=True)
    for name in ("a.png", "b.png", "sub/c.png"):
        (root / name).touch()

    def read(path: Path) -> object:
        return read_label_table(path, root, file_column="file", target="label")

    flags = LABELS.replace(b"x", b"1").replace(b"y", b"0")
    variants = [
        {"input.csv": LABELS},
        {"input.tsv": LABELS.replace(b",", b"\t")},
        {"input.csv.gz": _packed(flags)},
    ]
    return Target(variants, _read_file(read), _names("input"))


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
    return Target(variants, _read_file(read), _names("input"))


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
        sealed = {**manifest, "index": packs.index_digest(path)}
        sealed["shards"] = [(path / packs.shard_name(0)).stat().st_size]
        (path / packs.MANIFEST).write_text(json.dumps(sealed), encoding="utf-8")

    # the dataset adds the name of the image to an error without the pack's name
    return Target([variant], read, _names("input", "the pack is damaged"), seal)


def _features(folder: Path) -> Target:
    import torch

    from datamodules import DatasetDataModule
    from datamodules.feature_packs import format as feature_packs
    from datamodules.feature_packs.writer import write_features
    from datamodules.splits.split import fingerprint

    written = folder / "features"
    samples = [(torch.ones(2), label) for label in range(3)]
    data = DatasetDataModule(train=samples, val_split=0, test_split=0, num_workers=0)
    write_features(data, torch.nn.Identity(), written)
    variant = {path.name: path.read_bytes() for path in written.iterdir()}
    manifest = json.loads(variant[feature_packs.MANIFEST])

    def seal(path: Path) -> None:
        digests = {}
        for name in manifest["parts"]["train"]:
            try:
                array = np.load(path / f"train-{name}.npy", mmap_mode="r", allow_pickle=False)
            except Exception:  # too damaged for a digest
                return
            digests[name] = fingerprint(array.tobytes())
        text = json.dumps({**manifest, "parts": {"train": digests}})
        (path / feature_packs.MANIFEST).write_text(text, encoding="utf-8")

    return Target([variant], feature_packs.read_features, _names("input"), seal)


# each takes an empty folder, for files that its inputs refer to
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
    """Return a reader of the only file of a folder."""
    return lambda folder: read(next(folder.iterdir()))


def _names(*texts: str) -> Callable[[Exception], bool]:
    return lambda error: any(text in str(error) for text in texts)


def _packed(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def _image(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    stream = io.BytesIO()
    image = Image.linear_gradient("L").resize((24, 16)).convert(mode)
    image.save(stream, kind, **options)
    return stream.getvalue()


def _stored_slices(mode: str = "RGB") -> bytes:
    """Make a JPEG with a restart marker after each row of blocks, as stored in a pack."""
    from datamodules.images.packs.jpeg_slices import Sliced, read_frame, to_bytes

    content = _image("JPEG", mode, restart_marker_rows=1, subsampling=0)
    data, frame = np.frombuffer(content, np.uint8), read_frame(content)
    scan = data[frame.scan :]
    marks = np.flatnonzero((scan[:-1] == 0xFF) & (scan[1:] >= 0xD0) & (scan[1:] <= 0xD7))
    starts = np.concatenate([[0], marks + 2, [len(scan)]]).astype(np.int64) + frame.scan
    return to_bytes(Sliced(data, starts, frame, 1))
