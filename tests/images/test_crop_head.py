"""A transform split into head and tail gives the same results from the same random numbers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from made_images import exif_block
from PIL import Image
from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import InterpolationMode, v2

from datamodules.images.dataset import ImageDataset
from datamodules.images.fast.crop_head import flatten, resized_size, split_head
from datamodules.images.regions import WholeImage
from datamodules.readers.path_list import PathList
from datamodules.seeding.random_state import random_state, seed_all

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CUBIC = InterpolationMode.BICUBIC
TO_FLOAT = v2.ToDtype(torch.float32, scale=True)


def photo(width, height, seed=0):
    """Smooth shapes under a little noise, as photographs are."""
    draws = np.random.default_rng(seed)
    coarse = Image.fromarray(draws.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    noise = draws.normal(0, 6, smooth.shape)
    return Image.fromarray((smooth + noise).clip(0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Sizes, formats, modes and turns of files as they come."""
    folder = tmp_path_factory.mktemp("files")
    wide, tall = photo(90, 60), photo(50, 97, 1)
    wide.save(folder / "wide.jpg", quality=92)
    tall.save(folder / "tall.png")
    photo(30, 20, 2).save(folder / "small.jpg", quality=95)
    photo(130, 21, 3).save(folder / "flat.jpg")
    wide.convert("L").save(folder / "grey.jpg")
    wide.convert("L").save(folder / "grey.png")
    see_through = tall.copy()
    see_through.putalpha(Image.linear_gradient("L").resize(tall.size))
    see_through.save(folder / "alpha.png")
    deep = np.asarray(wide.convert("L"), np.uint16) * 257
    Image.fromarray(deep).save(folder / "deep.png")
    for turn in (3, 6, 7):
        wide.save(folder / f"turned{turn}.jpg", exif=exif_block(turn), quality=92)
    wide.convert("CMYK").save(folder / "cmyk.jpg")
    wide.quantize(32).save(folder / "palette.png")
    return sorted(map(str, folder.iterdir()))


def both(paths, transform, *, mode="RGB", seed=0):
    """Rows and states of the random generators by the short and by the plain way."""
    found = []
    for fast in (True, False):
        dataset = ImageDataset(PathList(paths), None, transform, mode=mode, fast=fast)
        assert (dataset._fast is not None) == fast, "the fast transform is used"
        rows = []
        for index in range(len(dataset)):
            seed_all(1000 * seed + index)
            rows.append((dataset[index], random_state()))
        assert (dataset._fast is not None) == fast, "and stays in use"
        found.append(rows)
    return found


def assert_near(fast, plain, *, most_mean, most, scale=1.0):
    means = []
    for (ours, our_state), (theirs, their_state) in zip(fast, plain, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        assert type(ours) is torch.Tensor
        assert torch.equal(our_state[0], their_state[0]), "torch draws the same numbers"
        assert our_state[2] == their_state[2], "and so does random"
        difference = (ours.double() - theirs.double()).abs() * scale
        assert difference.max() <= most
        means.append(float(difference.mean()))
    assert sum(means) / len(means) <= most_mean


ON_IMAGES = {
    "v2 preset": v2.Compose([v2.RandomResizedCrop(53, antialias=True), v2.RandomHorizontalFlip()]),
    "v1": v1.Compose([v1.RandomResizedCrop((43, 53)), v1.RandomHorizontalFlip(0.3)]),
    "bare": v2.RandomResizedCrop(47, scale=(0.3, 0.9), ratio=(0.5, 0.8)),
    "never fits": v1.RandomResizedCrop(16, scale=(1, 1), ratio=(9, 12)),
    "bicubic": v2.RandomResizedCrop(53, interpolation=CUBIC),
    "larger": v1.Compose([v1.RandomResizedCrop([199]), v1.RandomVerticalFlip()]),
    "nested": v2.Compose([v2.Compose([v2.RandomResizedCrop(53)]), v2.RandomVerticalFlip(0.7)]),
    "mixed": v1.Compose([v2.RandomResizedCrop(53), v1.RandomHorizontalFlip(), v2.ToImage()]),
    "sequential": nn.Sequential(v1.RandomResizedCrop(53), v1.RandomHorizontalFlip()),
    "all flips": v2.Compose(
        [v2.RandomResizedCrop(53), v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(1.0)]
    ),
    "eval": v2.Compose([v2.Resize(37), v2.CenterCrop(27)]),
    "eval v1": v1.Compose([v1.Resize((29, 41)), v1.CenterCrop((28, 23))]),
    "eval bicubic": v1.Compose([v1.Resize(37, interpolation=CUBIC), v1.CenterCrop(27)]),
    "eval padded": v2.Compose([v2.Resize(19), v2.CenterCrop(31)]),
    "resize, random crop": v2.Compose([v2.Resize(37), v2.RandomCrop(32)]),
    "resize, random crop v1": v1.Compose([v1.Resize(37), v1.RandomCrop(32)]),
}
ON_BYTES = {
    "random crop": v2.Compose([v2.RandomCrop(20), v2.RandomHorizontalFlip(), v2.PILToTensor()]),
    "random crop v1": v1.Compose([v1.RandomCrop((17, 20)), v1.PILToTensor()]),
    "centre": v2.CenterCrop(21),
    "centre, one padded": v1.CenterCrop((22, 31)),
    "centre, padded": v2.CenterCrop(140),
    "image first": v2.Compose(
        [v2.ToImage(), v2.ToDtype(torch.uint8), v2.RandomResizedCrop(24), v2.RandomVerticalFlip()]
    ),
    "image first, bicubic": v2.Compose(
        [v2.PILToTensor(), v2.RandomResizedCrop(24, interpolation="bicubic"), v2.ToPureTensor()]
    ),
    "image first, eval": v2.Compose([v2.ToImage(), v2.Resize(32), v2.CenterCrop(28)]),
    "image first, jitter": v2.Compose(
        [v2.ToImage(), v2.RandomResizedCrop(24), v2.ColorJitter(0.3), v2.RandomRotation(20)]
    ),
}


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("spelling", ON_IMAGES)
def test_draws_are_the_same_and_pixels_those_of_pillow_but_for_rounding(paths, spelling, mode):
    for seed in range(2):
        fast, plain = both(paths, ON_IMAGES[spelling], mode=mode, seed=seed)
        # where a box is twice as large, rounding goes the other way at every half
        assert_near(fast, plain, most_mean=0.26, most=2 if "bicubic" in spelling else 1)


@pytest.mark.parametrize("spelling", ["train", "eval"])
def test_photographs_differ_by_less_than_a_twentieth_of_a_level(tmp_path, spelling):
    for k in range(6):
        photo(500, 375, k).save(tmp_path / f"{k}.jpg", quality=90)
    crop = [v1.RandomResizedCrop(224), v1.RandomHorizontalFlip()]
    steps = crop if spelling == "train" else [v1.Resize(256), v1.CenterCrop(224)]
    fast, plain = both(sorted(map(str, tmp_path.iterdir())), v1.Compose(steps))
    assert_near(fast, plain, most_mean=0.05, most=1)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("spelling", ON_BYTES)
def test_without_pillows_resizing_nothing_differs(paths, spelling, mode):
    paths = paths if "random crop" not in spelling else [p for p in paths if "flat" not in p]
    for seed in range(2):
        fast, plain = both(paths, ON_BYTES[spelling], mode=mode, seed=seed)
        assert_near(fast, plain, most_mean=0, most=0)


TAILS = {
    "jitter": [v2.ColorJitter(0.4), v1.ToTensor(), v1.Normalize(MEAN, STD)],
    "jitter, image": [v2.ColorJitter(0.4), v2.ToImage(), TO_FLOAT, v2.Normalize(MEAN, STD)],
    "image, jitter": [v2.ToImage(), v2.RandomGrayscale(), TO_FLOAT, v2.Normalize(MEAN, STD)],
    "erasing": [v1.ToTensor(), v1.Normalize(MEAN, STD), v1.RandomErasing(p=1)],
    "auto": [v2.TrivialAugmentWide(), v2.PILToTensor(), v2.ConvertImageDtype(), v2.RandomErasing()],
    "randaugment": [v1.RandAugment(), v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)],
    "order": [v1.RandomOrder([v1.ColorJitter(0.2), v1.RandomRotation(9)]), v1.ToTensor()],
    "own": [lambda image: image.rotate(5), v1.ToTensor(), v1.Normalize(MEAN, STD)],
    "choice": [v2.RandomChoice([v2.ColorJitter(0.2), v2.RandomRotation(9)]), v2.ToImage()],
}


@pytest.mark.parametrize("tail", TAILS)
def test_the_tail_gets_the_same_input_as_in_the_transform(paths, tail):
    # cropping alone changes no pixel, so that what follows is the same to the bit
    steps = [v2.RandomCrop(20), v2.RandomHorizontalFlip(), *TAILS[tail]]
    fast, plain = both([p for p in paths if "flat" not in p], v1.Compose(steps))
    assert_near(fast, plain, most_mean=0, most=0)


@pytest.mark.parametrize("tail", ["jitter", "image, jitter", "erasing"])
def test_a_resized_crop_works_with_any_tail(paths, tail):
    steps = [v2.RandomResizedCrop(53), v2.RandomHorizontalFlip(), *TAILS[tail]]
    fast, plain = both(paths, v2.Compose(steps))
    assert_near(fast, plain, most_mean=0.08, most=6, scale=255 * 0.229)


class Subclass(v2.RandomResizedCrop):
    pass


@pytest.mark.parametrize(
    "transform",
    [
        None,
        Subclass(24),
        v2.RandomResizedCrop(24, antialias=False),
        v2.RandomResizedCrop(24, interpolation=InterpolationMode.NEAREST),
        v1.RandomResizedCrop(24, interpolation=InterpolationMode.LANCZOS),
        v2.Resize(24, max_size=40),
        v2.RandomCrop(24, padding=2),
        v1.RandomCrop(24, pad_if_needed=True),
        v2.Compose([v2.RandomRotation(3), v2.RandomResizedCrop(24)]),
        v2.Compose([v2.Lambda(lambda image: image), v2.CenterCrop(2)]),
        v2.Compose([v2.RandomHorizontalFlip(), v2.RandomResizedCrop(24)]),
        v2.Compose([v1.ToTensor(), v2.RandomResizedCrop(24)]),
        v2.RandomApply([v2.RandomResizedCrop(24)]),
        lambda image: image,
        [v2.RandomResizedCrop(24)],
    ],
)
def test_other_first_steps_are_not_a_head(transform):
    assert split_head(list(flatten(transform))) is None


def test_an_image_smaller_than_a_random_crop_is_refused_as_torchvision_does(tmp_path):
    photo(20, 12).save(tmp_path / "x.png")
    for step in (v1.RandomCrop(16), v2.RandomCrop(16)):
        for fast in (False, True):
            data = ImageDataset(PathList([str(tmp_path / "x.png")]), None, step, fast=fast)
            with pytest.raises(ValueError, match="Required crop size"):
                data[0]


def test_a_tail_that_expects_tensors_gets_tensors(paths):
    class Tensors(nn.Module):
        def forward(self, image):
            if not isinstance(image, torch.Tensor):
                raise TypeError("tensors only")
            return image + torch.randint(0, 2, (1,), dtype=torch.uint8)

    steps = v2.Compose([v2.RandomResizedCrop(24), Tensors()])
    rows = []
    for fast in (True, False):
        data = ImageDataset(PathList(paths), None, steps, fast=fast)
        for index in range(3):
            seed_all(index)
            rows.append(data[index])
    assert all(torch.equal(rows[i], rows[3 + i]) for i in range(3))


def test_a_transform_may_be_changed_between_epochs(paths):
    steps = v2.Compose([v2.RandomResizedCrop(24), v2.RandomHorizontalFlip()])
    data = ImageDataset(PathList(paths), None, steps, fast=True)
    assert data[0].shape == (3, 24, 24)
    steps.transforms[0].size = (40, 32)
    assert data[0].shape == (3, 40, 32)


def test_rows_are_memory_of_their_own():
    pixels = np.zeros((20, 20, 3), np.uint8)
    for step in (v2.CenterCrop(20), v2.CenterCrop((20, 4)), v2.Resize(20), v2.RandomCrop(20)):
        row = ImageDataset([pixels], None, step, fast=True)[0]
        row += 1
        assert not pixels.any()
    pixels.flags.writeable = False
    assert not ImageDataset([pixels], None, v2.CenterCrop(9), fast=True)[0].any()


def test_only_the_box_of_the_crop_is_read():
    asked = []

    class Watched(WholeImage):
        def box(self, *box):
            asked.append(box)
            return super().box(*box)

    image = Watched(np.asarray(photo(90, 60)), "RGB")
    split_head([v2.RandomCrop(8)])(image)
    split_head([v2.RandomResizedCrop(8, scale=(0.1, 0.2))])(image)
    assert asked[0][2:] == (8, 8)
    assert asked[1][2] * asked[1][3] <= 0.21 * 90 * 60


@pytest.mark.parametrize("size", [7, [31], (5, 9)])
@pytest.mark.parametrize("shape", [(60, 90), (97, 50), (33, 33), (1, 77)])
def test_sizes_are_those_of_torchvision(size, shape):
    resized = v2.Resize(size)(torch.zeros(1, *shape, dtype=torch.uint8))
    assert tuple(resized.shape[1:]) == resized_size(*shape, size)


def test_the_dataset_pickles(paths):
    steps = v2.Compose([v2.RandomResizedCrop(24), v1.ToTensor(), v1.Normalize(MEAN, STD)])
    data = ImageDataset(PathList(paths), None, steps, fast=True)
    again = pickle.loads(pickle.dumps(data))
    seed_all(3)
    row = data[0]
    seed_all(3)
    assert torch.equal(again[0], row)
    assert again._fast.has_run
    assert data.unnormalized(0).dtype == again.unnormalized(0).dtype == torch.uint8
