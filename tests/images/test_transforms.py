from __future__ import annotations

import pickle
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import v2

from datamodules.images.transforms import ImageTransform, eval_preset, to_row, train_preset
from datamodules.seeding.random_state import random_state, seed_all


def pil_image(width=12, height=10, mode="RGB"):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def pixels_of(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@pytest.mark.parametrize("size", [8, 64, 65, 224])
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("shape", [(12, 10), (300, 200), (1, 400)])
def test_presets_give_one_size_from_any(size, mode, shape):
    for preset in (train_preset(size), train_preset(size, flip=False), eval_preset(size)):
        row = ImageTransform(preset)(pil_image(*shape, mode=mode))
        assert row.shape == (3 if mode == "RGB" else 1, size, size)
        assert row.dtype == torch.uint8


def test_presets_pickle_and_eval_is_fixed():
    image = pil_image(300, 200)
    for size in (8, 100):
        preset = pickle.loads(pickle.dumps(eval_preset(size)))
        assert np.array_equal(preset(image), eval_preset(size)(image))


def test_train_preset_flips_only_where_it_may():
    image = pil_image(8, 8)
    seen = {
        flip: {np.array(train_preset(8, flip=flip)(image)).tobytes() for _ in range(300)}
        for flip in (True, False)
    }
    mirrored = np.array(image)[:, ::-1].tobytes()
    assert mirrored in seen[True]
    assert mirrored not in seen[False]


def test_no_transform_passes_the_pixels_on():
    image = pil_image()
    assert torch.equal(ImageTransform(None)(image), pixels_of(image))


def scaled(image):
    return np.asarray(image) / 255  # float64


PIL_ONLY = {
    "a method of PIL's": lambda image: image.resize((4, 5)),
    "v1": v1.Resize((5, 4)),
    "v2": v2.Resize((5, 4)),
    "v1 to uint8": v1.Compose([v1.Resize((5, 4)), v1.PILToTensor()]),
    "v2 to uint8": v2.Compose([v2.Resize((5, 4)), v2.ToImage()]),
    "NumPy": lambda image: np.asarray(image)[:5, :4][:, ::-1],
}


@pytest.mark.parametrize("transform", PIL_ONLY.values(), ids=PIL_ONLY)
def test_images_and_uint8_tensors_become_plain_rows(transform):
    row = ImageTransform(transform)(pil_image())
    assert type(row) is torch.Tensor
    assert row.dtype == torch.uint8
    assert row.shape == (3, 5, 4)
    torch.stack([row, row])


FLOAT = {
    "v1 ToTensor": v1.ToTensor(),
    "v1 Normalize": v1.Compose([v1.ToTensor(), v1.Normalize([0.0] * 3, [1.0] * 3)]),
    "v2": v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
    "tensors alone, v2": v2.Compose(
        [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.0] * 3, [1.0] * 3)]
    ),
    "tensors alone, v1": v1.ConvertImageDtype(torch.float32),
    "tensors alone, method": lambda tensor: tensor.float() / 255,
    "tensors alone, operator": lambda tensor: tensor / 255,
    "NumPy": scaled,
}


@pytest.mark.parametrize("transform", FLOAT.values(), ids=FLOAT)
def test_float_results_are_finished_and_float32(transform):
    image = pil_image()
    row = ImageTransform(transform)(image)
    assert type(row) is torch.Tensor
    assert row.dtype == torch.float32
    assert torch.allclose(row, pixels_of(image) / 255, atol=1e-6)


class Counting:
    """Takes tensors alone, draws before it finds out, and counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, tensor):
        self.calls += 1
        draw = torch.rand(())
        return tensor.float() * 0 + draw


def test_a_transform_of_tensors_is_asked_twice_for_the_first_image_alone():
    transform = Counting()
    framed = ImageTransform(transform)
    rows = []
    for _ in range(3):
        seed_all(5)
        rows.append(framed(pil_image()))
    assert transform.calls == 4
    assert torch.equal(rows[0], rows[1]), "the first image drew from its own stream"


def test_a_failure_of_the_transform_itself_is_not_hidden():
    def broken(image):
        return image.no_such_method()

    before = random_state()[0]
    with pytest.raises(AttributeError, match=r"Image.*no_such_method"):
        ImageTransform(broken)(pil_image())
    assert torch.equal(random_state()[0], before)

    def other(image):
        raise KeyError("lookup")

    with pytest.raises(KeyError, match="lookup"):
        ImageTransform(other)(pil_image())


class Views(NamedTuple):
    weak: object
    strong: object


@pytest.mark.parametrize("kind", [tuple, list, lambda pair: Views(*pair)])
def test_two_views_stay_two(kind):
    row = ImageTransform(lambda image: kind([image, v1.ToTensor()(image)]))(pil_image())
    assert type(row) is type(kind([0, 0]))
    assert row[0].dtype == torch.uint8
    assert row[1].dtype == torch.float32


def test_bits_and_palettes_become_levels():
    image = pil_image(mode="L")
    assert set(to_row(image.convert("1")).unique().tolist()) == {0, 255}
    assert torch.equal(
        to_row(pil_image().quantize(4)), to_row(pil_image().quantize(4).convert("RGB"))
    )


@pytest.mark.parametrize("transform", [v2.RandomHorizontalFlip, "resize", 3])
def test_what_cannot_be_called_is_refused(transform):
    with pytest.raises(TypeError, match=r"a transform must be a callable, such as Flip\(\), got"):
        ImageTransform(transform)


def test_a_dict_of_images_is_a_dict_of_rows():
    row = to_row({"image": pil_image(), "name": "x"})
    assert row["image"].shape == (3, 10, 12)
    assert row["name"] == "x"


def test_rows_do_not_share_memory_with_the_image():
    pixels = np.zeros((2, 2, 3), np.uint8)
    row = to_row(pixels[::-1])
    row += 1
    assert pixels.sum() == 0


def test_the_frame_pickles():
    framed = ImageTransform(v2.Resize((5, 4)))
    framed(pil_image())
    assert pickle.loads(pickle.dumps(framed))(pil_image()).shape == (3, 5, 4)
