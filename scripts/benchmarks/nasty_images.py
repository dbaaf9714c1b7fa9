"""Images that break programs: the answer here and by torchvision, each held against the truth.

What is right follows from ``TABLE.tsv`` beside the files and from Pillow alone, step by step: the
size and the turn that the table states, deep levels scaled down, transparency over white, colours
that need a table converted; or a refusal that names the file, where the image is not whole.
"""

from __future__ import annotations

import io
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .nasty import Answer, counted, read_list, refused
from .tables import Result

Pixels = npt.NDArray[np.uint8]
NEAR = 3.0  # mean difference in levels (of 255) that decoders of one file may have


class Truth(NamedTuple):
    """What a file holds.

    Attributes:
        size: Height and width as a person sees it; None: the file is to be refused.
        pixels: (H, W, 3) uint8.
    """

    size: tuple[int, int] | None
    pixels: Pixels | None = None


def compare(folder: Path) -> Result:
    """One row a file of ``folder/nasty``."""
    rows: list[dict[str, Any]] = []
    answers: dict[str, list[Answer]] = {"torchvision": [], "here": []}
    for listed in read_list(folder / "nasty" / "TABLE.tsv"):
        path, what = folder / "nasty" / "files" / listed["file"], listed["what is wrong"]
        opened = next(text for name, text in listed.items() if name.startswith("PIL"))
        truth = true_image(path, opened, what)
        row = {"file": listed["file"], "what is wrong": what}
        for who, read in (("torchvision", _torchvision), ("here", _here)):
            answers[who].append(judge(read, path, truth))
            row[who] = str(answers[who][-1])
        rows.append(row)
    notes = [
        "; ".join(counted(found, who) for who, found in answers.items()),
        "Right: size, turn and colours as a person sees them, transparency over white; or an error "
        "that names the file.",
    ]
    return Result("Images that break programs", rows, notes=notes)


def true_image(path: Path, opened: str, what: str) -> Truth:
    """The image by Pillow's own steps, sized as the table's line ``opened`` says."""
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
        if "clipped" in opened:  # 16 bits, of which convert() cuts what is above 255
            grey = np.round(np.asarray(image, np.float64) / 257).astype(np.uint8)
            return Truth((height, width), np.stack([grey] * 3, axis=-1))
        try:
            turned: Any = ImageOps.exif_transpose(image)
        except Exception:  # a broken block of notes turns nothing
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
    """Let a reader open a file and hold the answer against the truth."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            pixels = np.asarray(read(path))
        except Exception as error:
            return refused(error, path, whole=truth.size is not None)
    height, width = pixels.shape[:2]
    if truth.size is None or truth.pixels is None:
        return Answer(False, f"{width} x {height} of a file that is not whole", silent=True)
    if (height, width) != truth.size:
        return Answer(False, f"{width} x {height}, not turned", silent=True)
    away = float(np.abs(pixels.astype(np.int64) - truth.pixels).mean())
    if away > NEAR:
        return Answer(False, f"{width} x {height}, {away:.0f} levels off", silent=True)
    return Answer(True, f"{width} x {height}")


def _here(path: Path) -> Any:
    from datamodules.images.decode.decode import decode_image

    return decode_image(path)


def _torchvision(path: Path) -> Any:
    """As ``torchvision.datasets.ImageFolder`` reads a file."""
    from torchvision.datasets.folder import default_loader

    return default_loader(str(path))
