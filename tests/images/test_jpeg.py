from __future__ import annotations

import struct

import numpy as np
import pytest
from made_images import blocks, encode, exif_block

from datamodules.batches.bad_samples import ImageError
from datamodules.images.decode import jpeg
from datamodules.images.decode.decode import decode_image, decode_pixels
from datamodules.images.decode.jpeg import plain_header


@pytest.fixture(params=["simplejpeg", "torchvision"])
def decoder(request, monkeypatch):
    """Each decoder in turn; the second as where simplejpeg is not installed."""
    if request.param == "simplejpeg":
        pytest.importorskip("simplejpeg")
    else:
        monkeypatch.setattr(jpeg, "simplejpeg_decoder", lambda: None)
    return request.param


def outcome(function, content, mode):
    try:
        return np.atleast_3d(np.asarray(function(content, mode=mode, name="x")))
    except ImageError as error:
        return str(error)


def agree(content, mode="RGB"):
    plain, fast = outcome(decode_image, content, mode), outcome(decode_pixels, content, mode)
    if isinstance(plain, str) or isinstance(fast, str):
        assert isinstance(plain, str)
        assert plain == fast
    else:
        np.testing.assert_array_equal(plain, fast)
    return plain


@pytest.mark.parametrize("size", [(1, 1), (7, 13), (64, 48), (333, 65)])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_plain_jpegs_decode_to_the_same_bits(decoder, size, subsampling, progressive, mode):
    for stored in ("RGB", "L"):
        content = encode(
            blocks(*size).convert(stored),
            "JPEG",
            subsampling=subsampling,
            progressive=progressive,
            quality=83,
        )
        header = plain_header(content)
        assert header is not None
        assert (header.width, header.height) == size
        agree(content, mode)


@pytest.mark.parametrize("number", range(1, 9))
def test_orientation_is_applied(decoder, number):
    content = encode(blocks(), "JPEG", exif=exif_block(number))
    header = plain_header(content)
    assert header is not None
    assert header.orientation == number
    agree(content)


@pytest.mark.parametrize(
    "content",
    [
        encode(blocks().convert("CMYK"), "JPEG"),
        encode(blocks(), "JPEG")[:-40],
        encode(blocks(), "JPEG") + b"behind",
        encode(blocks(), "JPEG", keep_rgb=True),
        encode(blocks(), "JPEG", exif=b"Exif\0\0broken block"),
        encode(blocks(), "PNG"),
        b"",
    ],
    ids=["cmyk", "cut", "longer", "rgb", "exif", "png", "empty"],
)
def test_other_files_are_decoded_by_pillow(decoder, content):
    assert plain_header(content) is None
    agree(content)


def test_damaged_files_give_the_same_answer_as_pillow(decoder):
    random = np.random.default_rng(5)
    whole = encode(blocks(96, 80), "JPEG", quality=90)
    refused = 0
    for _ in range(150):
        content = bytearray(whole)
        for at in random.integers(2, len(content) - 2, random.integers(1, 4)):
            content[at] = random.integers(0, 256)
        refused += isinstance(agree(bytes(content)), str)
    assert refused


def test_a_header_that_promises_too_much_is_refused_before_memory_is_taken(decoder):
    content = encode(blocks(), "JPEG")
    at = content.index(b"\xff\xc0") + 5
    huge = content[:at] + struct.pack(">HH", 20_000, 20_000) + content[at + 4 :]
    assert plain_header(huge) is not None
    assert "max_pixels" in agree(huge)


def test_real_and_nasty_files_decode_alike(decoder, data_dir):
    names = sorted((data_dir / "nasty" / "files").iterdir())
    names += sorted((data_dir / "images" / "clothing").rglob("*.jpg"))[:60]
    plain = 0
    for name in names:
        if name.is_file():
            content = name.read_bytes()
            plain += plain_header(content) is not None
            for mode in ("RGB", "L"):
                agree(content, mode)
    assert plain > 20
