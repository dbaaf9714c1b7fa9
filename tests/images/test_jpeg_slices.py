from __future__ import annotations

import io
import shutil
import sys

import numpy as np
import pytest
import torch
from made_images import blocks, encode
from PIL import Image

from datamodules.images.decode.decode import decode_image
from datamodules.images.packs.jpeg_slices import (
    NotSliceable,
    cut,
    decode_box,
    from_bytes,
    read_frame,
    to_bytes,
)
from datamodules.images.packs.jpegtran import jpegtran, recut

needs_jpegtran = pytest.mark.skipif(shutil.which("jpegtran") is None, reason="needs jpegtran")


def noisy(width: int, height: int, seed: int = 0) -> Image.Image:
    """Shapes and noise: no two units alike."""
    draws = np.random.default_rng(seed)
    smooth = np.asarray(blocks(width, height)).astype(int)
    return Image.fromarray(
        (smooth + draws.integers(-40, 40, smooth.shape)).clip(0, 255).astype("u1")
    )


def whole(content: bytes, mode: str = "RGB") -> torch.Tensor:
    pixels = np.atleast_3d(np.array(decode_image(content, mode=mode)))
    return torch.from_numpy(pixels).permute(2, 0, 1)


SHAPES = [
    (500, 375),
    (375, 500),
    (64, 48),
    (17, 33),
    (8, 8),
    (1, 1),
    (3, 200),
    (257, 5),
    (129, 131),
]
KINDS = {
    "444": {"subsampling": 0},
    "422": {"subsampling": 1},
    "420": {"subsampling": 2},
    "progressive": {"subsampling": 2, "progressive": True},
    "restarts": {"subsampling": 2, "restart_marker_blocks": 3},
    "grey": {},
}


@needs_jpegtran
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_box_equals_the_crop_of_the_whole(kind, shape):
    width, height = shape
    image = noisy(width, height).convert("L" if kind == "grey" else "RGB")
    content = encode(image, "JPEG", quality=88, **KINDS[kind])
    sliced, pixels = recut(content), whole(content)
    assert torch.equal(whole(sliced.data.tobytes()), pixels)
    draws = np.random.default_rng(1)
    for _ in range(12):
        h, w = draws.integers(1, height + 1), draws.integers(1, width + 1)
        top, left = draws.integers(0, height - h + 1), draws.integers(0, width - w + 1)
        box = tensor_box(sliced, int(top), int(left), int(h), int(w))
        assert torch.equal(box, pixels[:, top : top + h, left : left + w]), (top, left, h, w)


def tensor_box(sliced, *box, mode="RGB"):
    return torch.from_numpy(np.array(decode_box(sliced, *box, mode=mode))).permute(2, 0, 1)


@needs_jpegtran
@pytest.mark.parametrize("kind", ["grey", "420"])
def test_without_simplejpeg_the_pixels_are_the_same(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    image = noisy(120, 90).convert("L" if kind == "grey" else "RGB")
    content = encode(image, "JPEG", **KINDS[kind])
    box = tensor_box(recut(content), 20, 30, 40, 50)
    assert torch.equal(box, whole(content)[:, 20:60, 30:80])


@needs_jpegtran
@pytest.mark.parametrize("kind", ["grey", "420"])
def test_grey_of_a_box_is_the_grey_of_the_whole(kind):
    image = noisy(120, 90).convert("L" if kind == "grey" else "RGB")
    content = encode(image, "JPEG", **KINDS[kind])
    box = tensor_box(recut(content), 20, 30, 40, 50, mode="L")
    assert torch.equal(box, whole(content, "L")[:, 20:60, 30:80])


@needs_jpegtran
def test_a_slice_is_smaller_and_read_by_any_decoder():
    content = encode(noisy(500, 375), "JPEG", quality=90)
    part, top, left = cut(recut(content), 100, 130, 60, 60)
    assert len(part) < len(content) / 4
    image = Image.open(io.BytesIO(part.tobytes())).convert("RGB")
    seen = np.array(image)[top : top + 60, left : left + 60]
    assert np.array_equal(seen, np.array(decode_image(content))[100:160, 130:190])


@needs_jpegtran
def test_stored_and_read_back_it_is_the_same():
    sliced = recut(encode(noisy(200, 100), "JPEG"))
    again = from_bytes(np.frombuffer(to_bytes(sliced), np.uint8))
    assert again.frame == sliced.frame
    assert np.array_equal(again.starts, sliced.starts)
    assert np.array_equal(again.data, sliced.data)
    assert again.per_row == sliced.per_row


@needs_jpegtran
@pytest.mark.parametrize("place", range(8))
def test_numbers_that_do_not_fit_are_refused(place):
    stored = bytearray(to_bytes(recut(encode(noisy(200, 100), "JPEG"))))
    if place in (0, 6):  # the frame's place and the channels are bound by nothing else
        stored[4 * place : 4 * place + 4] = b"\xff" * 4 if place == 0 else b"\0" * 4
        if place == 6:
            stored = stored[:100]
    else:
        stored[4 * place] ^= 0xFF
        stored[4 * place + 1] ^= 0xFF
    with pytest.raises(ValueError, match="damaged"):
        from_bytes(np.frombuffer(bytes(stored), np.uint8))


@needs_jpegtran
@pytest.mark.parametrize(
    ("box", "said"),
    [
        ((0, 0, 0, 5), "height, width >= 1"),
        ((-1, 0, 5, 5), "top, left"),
        ((90, 0, 11, 5), "is not inside the image"),
    ],
)
def test_an_impossible_box_is_refused(box, said):
    with pytest.raises(ValueError, match=said):
        cut(recut(encode(noisy(200, 100), "JPEG")), *box)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a JPEG"),
        (encode(blocks(), "PNG"), "not a JPEG"),
        (encode(blocks().convert("CMYK"), "JPEG"), "CMYK"),
        (encode(blocks(), "JPEG")[:100], "damaged header"),
    ],
    ids=["empty", "png", "cmyk", "cut"],
)
def test_other_files_are_told_apart_by_their_header(content, said):
    with pytest.raises(NotSliceable, match=said):
        read_frame(content)


@needs_jpegtran
def test_a_file_that_is_cut_off_is_not_made_whole():
    content = encode(noisy(300, 200), "JPEG")
    with pytest.raises(NotSliceable, match="jpegtran"):
        recut(content[: len(content) // 2])


def test_without_jpegtran_it_says_where_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match="libjpeg-turbo-progs"):
        jpegtran()


@pytest.mark.parametrize("factors", [0x00, 0x10, 0x01, 0x15, 0xF1])
def test_sampling_factors_that_no_jpeg_has_are_a_damaged_header(factors):
    content = bytearray(encode(noisy(32, 32), "JPEG", subsampling=0))
    content[read_frame(bytes(content)).at + 11] = factors
    with pytest.raises(NotSliceable, match="damaged header"):
        read_frame(bytes(content))


@needs_jpegtran
@pytest.mark.parametrize(
    "numbers",
    [
        {1: 1 << 17, 3: 1 << 17, 5: 1},  # width, unit and interval that fit each other
        {2: 70_000, 4: 70_000},  # height and unit
        {4: 40},
    ],
)
def test_stored_sizes_that_no_jpeg_has_are_a_damaged_pack(numbers):
    stored = np.frombuffer(to_bytes(recut(encode(noisy(60, 6), "JPEG"))), np.uint8).copy()
    head = stored[:32].view("<u4")
    for number, value in numbers.items():
        head[number] = value
    with pytest.raises(ValueError, match="the pack is damaged"):
        from_bytes(stored)
