"""Convert pixels of any depth and mode to 8 bits per channel by the rules of ``decode_image``."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image, ImageCms, TiffImagePlugin

from .open_image import check_size, damage, refusal


def from_pixels(pixels: np.ndarray[Any, Any], name: str, max_pixels: int | None) -> Image.Image:
    """Convert an array to an image of 8 bits per channel.

    Args:
        pixels: (H, W) or (H, W, C), C in 1 to 4, of bool, uint8, uint16 or float in [0, 1].
        name: For messages.
        max_pixels: Largest number of pixels; None: no limit.

    Raises:
        ImageError: If the shape, the size or the levels are others.
    """
    if pixels.ndim not in (2, 3) or 0 in pixels.shape or (pixels.ndim == 3 and pixels.shape[2] > 4):
        problem = f"expected pixels (H, W) or (H, W, C) with C in 1 to 4, got shape {pixels.shape}"
        raise refusal(name, problem, "move the channels to the end: pixels.transpose(1, 2, 0)")
    check_size(name, pixels.shape[1], pixels.shape[0], max_pixels)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.dtype == np.bool_:
        pixels = pixels.astype(np.uint8) * np.uint8(255)
    elif pixels.dtype.kind == "f":
        pixels = _float_to_8_bits(pixels, name)
    elif pixels.dtype.kind == "u" and pixels.dtype.itemsize == 2:
        pixels = _scale(pixels, 65535)
    elif pixels.dtype != np.uint8:
        span = f" from {pixels.min()} to {pixels.max()}" if pixels.dtype.kind in "iu" else ""
        problem = f"{pixels.dtype} pixels{span} have no scale"
        raise refusal(name, problem, "convert them to uint8, uint16, or floats in [0, 1]")
    image = Image.fromarray(pixels)
    return image.copy() if image.readonly else image  # grey shares the array's memory


def _scale(levels: np.ndarray[Any, Any], top: int) -> np.ndarray[Any, Any]:
    """Scale 0..top to 0..255, rounded; both maxima are odd, so there are no ties."""
    return ((levels.astype(np.uint32) * 255 + top // 2) // top).astype(np.uint8)


def _float_to_8_bits(values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= 1):  # NaN fails, too
        problem = f"float pixels must be in [0, 1], found {low:.6g} to {high:.6g}"
        raise refusal(name, problem, "scale them, or save the image as 8 or 16 bits")
    return (values * 255 + 0.5).astype(np.uint8)


def to_8_bits(image: Image.Image, name: str) -> Image.Image:
    """Convert deep pixels to 8 bits; other images are returned unchanged."""
    top, inverted = _check_tiff(image, name)
    deep = image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))
    if deep:
        levels = np.asarray(image)
        grey = Image.fromarray(_scale(levels, top))
        key = image.info.get("transparency")
        if isinstance(key, int):  # one level that is transparent, at its full depth
            grey.putalpha(Image.fromarray((levels != key).astype(np.uint8) * np.uint8(255)))
    elif image.mode == "F":
        grey = Image.fromarray(_float_to_8_bits(np.asarray(image), name))
    elif image.mode == "I":
        low, high = image.getextrema()
        problem = f"32-bit or signed pixels from {low} to {high} have no scale"
        raise refusal(name, problem, "save the image as 8 or 16 bits")
    else:
        return image
    return Image.eval(grey, lambda level: 255 - level) if inverted else grey


def _check_tiff(image: Image.Image, name: str) -> tuple[int, bool]:
    """Return the maximum level of a grey TIFF and whether 0 is white, which Pillow ignores."""
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return 65535, False
    tags = image.tag_v2
    if image.mode == "L" and 2 in tags.get(TiffImagePlugin.SAMPLEFORMAT, ()):
        raise refusal(name, "signed 8-bit pixels have no scale", "save the image as unsigned")
    top = 4095 if tags.get(TiffImagePlugin.BITSPERSAMPLE) == (12,) else 65535
    return top, tags.get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == 0


def to_mode(
    image: Image.Image, mode: str, background: tuple[int, int, int], name: str
) -> Image.Image:
    """Convert an image of 8 bits per channel to ``"RGB"`` or ``"L"``.

    Args:
        image: The image, with its ``info``.
        mode: ``"RGB"`` or ``"L"``.
        background: Color behind transparent pixels.
        name: For messages.

    Raises:
        ImageError: If the transparent color is ambiguous, or the color profile is damaged.
    """
    if image.has_transparency_data:
        return _over(image, background, name).convert(mode)
    if image.mode == "RGB" and (profile := image.info.get("icc_profile")):
        image = _by_table(image, profile, name)
    if image.mode not in ("RGB", "L", "1"):
        image = image.convert("RGB")
    return image if image.mode == mode else image.convert(mode)


def _over(image: Image.Image, background: tuple[int, int, int], name: str) -> Image.Image:
    key = image.info.get("transparency")
    if image.mode == "RGB" and isinstance(key, tuple) and max(key) > 255:
        problem = "which of these 16-bit colours is the transparent one is lost at 8 bits"
        raise refusal(name, problem, "save it with an alpha channel")
    layer = image.convert("LA" if image.mode == "La" else "RGBA").convert("RGBA")
    canvas = Image.new("RGB", image.size, background)
    canvas.paste(layer, mask=layer.getchannel("A"))
    return canvas


def _by_table(image: Image.Image, profile: Any, name: str) -> Image.Image:
    """Convert to sRGB if the profile has only a lookup table; else keep the pixels."""
    tags = profile[128 : 132 + 12 * 64]
    if b"A2B0" not in tags or b"rXYZ" in tags:
        return image
    try:
        table = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        converted = ImageCms.profileToProfile(image, table, ImageCms.createProfile("sRGB"))
    except Exception as error:
        raise damage(name, "colour profile", error) from error
    return image if converted is None else converted
