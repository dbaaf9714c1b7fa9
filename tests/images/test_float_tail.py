"""The end of a transform, done by batch, gives the bits of the transform itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import v2

from datamodules.batches.collate import collate_inputs
from datamodules.batches.normalize import Normalizer
from datamodules.images.dataset import ImageDataset
from datamodules.images.fast.float_tail import split_float_tail
from datamodules.readers.path_list import PathList
from datamodules.seeding.random_state import seed_all
from tests.images.test_crop_head import MEAN, STD, TO_FLOAT, both, paths, photo  # noqa: F401 - a fixture

NORMALIZE = v1.Normalize(MEAN, STD)
ENDS = {
    "v1": [v1.ToTensor(), NORMALIZE],
    "v1 alone": [v1.ToTensor()],
    "v1 bytes": [v1.PILToTensor(), v1.ConvertImageDtype(torch.float32), NORMALIZE],
    "v2": [v2.ToImage(), TO_FLOAT, v2.Normalize(MEAN, STD)],
    "v2 pure": [v2.PILToTensor(), TO_FLOAT, v2.Normalize(MEAN, STD), v2.ToPureTensor()],
    "v2 old": [v2.ToImage(), v2.ConvertImageDtype(), v1.Normalize(tuple(MEAN), tuple(STD))],
    "v2 nested": [v2.Compose([v2.ToImage(), v2.Compose([TO_FLOAT])]), v2.Identity()],
    "in place": [v1.ToTensor(), v1.Normalize(np.array(MEAN), torch.tensor(STD), inplace=True)],
    "wide": [v1.ToTensor(), v1.Normalize([0.5] * 3, [1e-3, 2.0, 70.0])],
}
BEFORE = {
    "crop": [v2.RandomCrop(20), v2.RandomHorizontalFlip()],
    "unknown": [v1.RandomAffine(10), v1.CenterCrop(20)],
    "image": [v2.ToImage(), v2.RandomResizedCrop(23), v2.ColorJitter(0.2)],
    "own": [lambda image: image.resize((9, 7))],
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("end", ENDS)
def test_a_normalized_batch_is_the_batch_of_normalized_samples(paths, before, end):  # noqa: F811
    if before == "image" and end in ("v1", "v1 alone", "v1 bytes", "in place", "wide"):
        pytest.skip("torchvision refuses to convert a tensor again")
    paths = [path for path in paths if "flat" not in path]
    steps = v1.Compose([*BEFORE[before], *ENDS[end]])
    fast, plain = both(paths, steps)
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(fast, plain, strict=True))
    data = ImageDataset(PathList(paths), None, steps, fast=True)
    rows = []
    for index in range(len(data)):
        seed_all(index)
        rows.append(data.unnormalized(index))
    batch = collate_inputs(rows)
    assert batch.dtype == torch.uint8, "four bytes less to carry"
    assert torch.equal(data.normalizer(batch), torch.stack([row for row, _ in plain]))


@pytest.mark.parametrize(
    "steps",
    [
        [v2.RandomCrop(8)],
        [v2.ToImage()],
        [TO_FLOAT],  # passes a PIL image on as it is
        [TO_FLOAT, v2.Normalize(MEAN, STD)],
        [v2.ToImage(), v2.ToDtype(torch.float32)],
        [v2.ToImage(), v2.ToDtype(torch.float16, scale=True)],
        [v2.ToImage(), v2.ToDtype({torch.Tensor: torch.float32}, scale=True)],
        [v2.ToImage(), v2.ToPILImage(), TO_FLOAT],
        [v2.ToImage(), lambda image: image, TO_FLOAT],
        [v1.ToTensor(), v1.RandomErasing()],
        [v1.ToTensor(), NORMALIZE, v1.RandomErasing()],
        [v1.ToTensor(), NORMALIZE, NORMALIZE],
        [v1.ToTensor(), v2.ToDtype(torch.uint8, scale=True)],
        [v1.ToTensor(), v1.Normalize(MEAN, [0.2, 0.0, 0.2])],
        [v1.ToTensor(), v1.Normalize(MEAN, [0.2, -0.2, 0.2])],
        [v1.ToTensor(), v1.Normalize(MEAN, STD[:2])],
        [type("Own", (v1.ToTensor,), {})()],
        [],
    ],
)
def test_other_last_steps_are_not_a_float_tail(steps):
    assert split_float_tail(v1.Compose(steps), 3) is None


def test_with_another_default_dtype_to_tensor_is_not_a_float_tail():
    torch.set_default_dtype(torch.float64)
    try:
        assert split_float_tail(v1.ToTensor(), 3) is None
    finally:
        torch.set_default_dtype(torch.float32)


ODD = {
    "grey": [v1.Grayscale(1), v1.ToTensor(), v1.Normalize([0.5], [0.5])],
    "one mean": [v1.ToTensor(), v1.Normalize([0.5], [0.5])],
    "floats already": [v1.ToTensor(), v2.ColorJitter(0.2), TO_FLOAT, v2.Normalize(MEAN, STD)],
    "an array": [np.array, v1.ToTensor(), NORMALIZE],
}


@pytest.mark.parametrize("case", ODD)
def test_other_samples_are_left_to_the_steps_of_the_user(case, paths):  # noqa: F811
    fast, plain = both(paths[:4], v1.Compose([v2.CenterCrop(15), *ODD[case]]))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(fast, plain, strict=True))


def test_a_transform_of_two_views_is_not_split(paths):  # noqa: F811
    steps = v1.Compose([v1.RandomResizedCrop(20), v1.ToTensor(), NORMALIZE])

    def two(image):
        return steps(image), steps(image)

    data = ImageDataset(PathList(paths[:1]), None, two, fast=True)
    assert data.normalizer is None
    assert len(data[0]) == 2


def test_a_grey_image_is_normalized_by_one_mean():
    image = photo(20, 20).convert("L")
    steps = v1.Compose([v1.CenterCrop(9), v1.ToTensor(), v1.Normalize([0.5], [0.5])])
    data = ImageDataset([image], None, steps, mode="L", fast=True)
    assert data.unnormalized(0).dtype == torch.uint8
    assert torch.equal(data[0], steps(image))


def test_multiplying_differs_from_dividing_in_the_last_place_alone():
    levels = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    divided, multiplied = (
        Normalizer([0.0], [1.0], scale=scale)(levels) for scale in ("divide", "multiply")
    )
    assert torch.equal(divided[0], v1.ToTensor()(Image.fromarray(levels[0, 0].numpy())))
    assert torch.equal(multiplied[0], TO_FLOAT(levels[0]))
    assert not torch.equal(divided, multiplied)
    assert torch.allclose(divided, multiplied, rtol=1e-6)
