"""Images that break programs: the pixels decoded here and by torchvision, compared with the truth.

The true pixels come from ``TABLE.tsv`` beside the files and from Pillow alone: the size and the
orientation in the list, 16 bits scaled to 8, transparency over white, colour spaces converted. A
damaged file must be refused by name.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .nasty import Answer, compare_readers, read_list, refused
from .tables import Result

Pixels = npt.NDArray[np.uint8]
MAX_DIFFERENCE = 3.0  # mean, in levels of 255, between decoders of the same file


class Truth(NamedTuple):
    """The true content of a file.

    Attributes:
        size: Height and width as a person sees it; None: the file must be refused.
        pixels: (H, W, 3) uint8.
    """

    size: tuple[int, int] | None
    pixels: Pixels | None = None


def compare(folder: Path) -> Result:
    """Make a table with one row per file of ``folder/nasty``."""

    def cases() -> Iterator[tuple[Path, str, Truth]]:
        for row in read_list(folder / "nasty" / "TABLE.tsv"):
            path, what = folder / "nasty" / "files" / row["file"], row["what is wrong"]
            opened = next(text for name, text in row.items() if name.startswith("PIL"))
            yield path, what, true_image(path, opened, what)

    return compare_readers(
        "Images that break programs",
        cases(),
        {"torchvision": _torchvision, "here": _here},
        judge,
        "Right: size, orientation and colours as a person sees them, transparency over white; or "
        "an error that names the file.",
    )


def true_image(path: Path, opened: str, what: str) -> Truth:
    """Decode an image with Pillow alone, with the size from the list's column ``opened``."""
    from PIL import Image, ImageOps

    found = re.search(r"(\d+)x(\d+)", opened)
    if "FAILS" in opened or found is None:
        return Truth(None)
    width, height = int(found[1]), int(found[2])
    if re.search(r"orient=[5-8]", opened):
        width, height = height, width
    with warnings.catch_warnings(), Image.open(path) as image:
        warnings.simplefilter("ignore")
        image.load()
        if "clipped" in opened:  # 16 bits, which convert() clips at 255
            grey = np.round(np.asarray(image, np.float64) / 257).astype(np.uint8)
            return Truth((height, width), np.stack([grey] * 3, axis=-1))
        try:
            turned: Any = ImageOps.exif_transpose(image)
        except Exception:  # a broken EXIF block rotates nothing
            turned = image
        return Truth((height, width), np.asarray(_in_srgb(turned, what)))


def _in_srgb(image: Any, what: str) -> Any:
    from PIL import Image, ImageCms

    srgb = ImageCms.createProfile("sRGB")
    if "LAB" in what:
        return ImageCms.profileToProfile(
            image, ImageCms.createProfile("LAB"), srgb, outputMode="RGB"
        )
    if "XYB" in what:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(image.info["icc_profile"]))
        return ImageCms.profileToProfile(image, profile, srgb, outputMode="RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")


def judge(read: Any, path: Path, truth: Truth) -> Answer:
    """Read a file and compare the pixels with the true ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            pixels = np.asarray(read(path))
        except Exception as error:
            return refused(error, path, whole=truth.size is not None)
    height, width = pixels.shape[:2]
    if truth.size is None or truth.pixels is None:
        return Answer(False, f"{width} x {height} of a damaged file", silent=True)
    if (height, width) != truth.size:
        return Answer(False, f"{width} x {height}, wrong orientation", silent=True)
    away = float(np.abs(pixels.astype(np.int64) - truth.pixels).mean())
    if away > MAX_DIFFERENCE:
        return Answer(False, f"{width} x {height}, {away:.0f} levels off", silent=True)
    return Answer(True, f"{width} x {height}")


def _here(path: Path) -> Any:
    from datamodules.images.decode.decode import decode_image

    return decode_image(path)


def _torchvision(path: Path) -> Any:
    """Read a file like ``torchvision.datasets.ImageFolder``."""
    from torchvision.datasets.folder import default_loader

    return default_loader(str(path))
