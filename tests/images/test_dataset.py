from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from contract import same
from image_files import noise, solid
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import v2

from datamodules.images.dataset import ImageDataset
from datamodules.images.in_memory import PixelDataset
from datamodules.images.sources import predict_sources
from datamodules.readers.path_list import PathList
from datamodules.seeding.sample_seeds import draw_integers


def pixels(n=4, height=3, width=5, channels=3):
    generator = torch.Generator().manual_seed(0)
    shape = (n, channels, height, width)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def seeds(n):
    return np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B9) % np.uint64(2**32)


# --- one by one ------------------------------------------------------------------------------


def test_items_are_a_image_and_its_target(tmp_path):
    paths = PathList([str(solid(tmp_path / "a.png", (7, 8, 9), (2, 1)))])
    image, target = ImageDataset(paths, torch.tensor([3]), None)[0]
    assert image.tolist() == [[[7, 7]], [[8, 8]], [[9, 9]]]
    assert target == 3
    assert type(target) is int
    multilabel = ImageDataset(paths, torch.tensor([[0.0, 1.0]]), None)[-1][1]
    assert multilabel.tolist() == [0, 1]
    bare = ImageDataset(paths, None, None, mode="L")[0]
    assert bare.shape == (1, 1, 2)


def test_iteration_ends(tmp_path):
    paths = PathList([str(noise(tmp_path / f"{i}.png", i)) for i in range(3)])
    assert len(list(ImageDataset(paths, None, None))) == 3
    assert len(list(ImageDataset(pixels(), torch.arange(4), None))) == 4
    assert len(list(PixelDataset(pixels(), torch.arange(4)))) == 4


@pytest.mark.parametrize(
    "source",
    [
        Image.fromarray(np.full((2, 3, 3), 9, np.uint8)),
        np.full((2, 3, 3), 9, np.uint8),
        np.full((2, 3), 9, np.uint8),
        torch.full((3, 2, 3), 9, dtype=torch.uint8),
        torch.full((1, 2, 3), 9, dtype=torch.uint8),
        torch.full((2, 3), 9, dtype=torch.uint8),
        np.full((2, 3), 9 / 255, np.float32),
    ],
    ids=["PIL", "array", "grey array", "tensor", "one channel", "grey tensor", "floats"],
)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_images_in_memory_are_sources_too(source, mode):
    dataset = ImageDataset([source], None, None, mode=mode)
    assert dataset[0].shape == (3 if mode == "RGB" else 1, 2, 3)
    assert (dataset[0] == 9).all()
    assert dataset.describe(0) == "image 0"


def test_orientation_is_applied(tmp_path):
    upright = np.zeros((2, 4, 3), np.uint8)
    upright[:, :2] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees to the left: to be turned back
    turned = Image.fromarray(np.ascontiguousarray(np.rot90(upright)))
    turned.save(tmp_path / "x.png", exif=exif)
    row = ImageDataset(PathList([str(tmp_path / "x.png")]), None, None)[0]
    assert torch.equal(row, torch.from_numpy(upright).permute(2, 0, 1))


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_a_transform_that_changes_the_channels_is_refused(mode, channels):
    change = v1.Grayscale(1) if mode == "RGB" else v2.RGB()
    dataset = ImageDataset(pixels(), None, change, mode=mode)
    message = f"uint8 image of {4 - channels} channels, mode '{mode}' has {channels}"
    with pytest.raises(ValueError, match=message):
        dataset[0]
    floats = ImageDataset(pixels(), None, v1.Compose([change, v1.ToTensor()]), mode=mode)
    assert len(floats[0]) == 4 - channels, "what is finished is the user's own"


def test_keys_name_images_that_have_no_path():
    for dataset in (
        ImageDataset(pixels(), None, None, keys=np.array([7, 3, 5, 1]), part="train"),
        PixelDataset(pixels(), torch.arange(4), keys=np.array([7, 3, 5, 1]), part="train"),
    ):
        assert dataset.describe(2) == "train image 5"
        assert pickle.loads(pickle.dumps(dataset)).describe(-1) == "train image 1"


# --- a batch at a time -----------------------------------------------------------------------


@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_batch_equals_slicing_and_flipping_one_by_one(padding, flip, channels):
    data, n = pixels(6, 3, 5, channels), 40
    rows = np.random.default_rng(1).integers(0, 6, n)
    dataset = PixelDataset(data, torch.arange(6), padding=padding, flip=flip)
    batch = dataset.get_batch(rows, seeds(n))
    side = 2 * padding + 1
    places = draw_integers(seeds(n), side**2, stream=1).tolist() if padding else [0] * n
    mirrored = draw_integers(seeds(n), 2, stream=2).tolist()
    for k, row in enumerate(rows):
        whole = torch.zeros(channels, 3 + 2 * padding, 5 + 2 * padding, dtype=torch.uint8)
        whole[:, padding : padding + 3, padding : padding + 5] = data[row]
        top, left = divmod(places[k], side)
        window = whole[:, top : top + 3, left : left + 5]
        expected = window.flip(-1) if flip and mirrored[k] else window
        assert torch.equal(batch.inputs[k], expected)
    assert batch.target.tolist() == rows.tolist()
    if padding == 1:
        assert set(places) == set(range(9)), "every window comes up"
    assert 5 < sum(mirrored) < 35


@pytest.mark.parametrize("padding", [0, 2])
def test_images_may_lie_in_memory_in_any_order(padding):
    data = pixels(5)
    turned = data.to(memory_format=torch.channels_last)
    assert not turned.is_contiguous()
    batches = [
        PixelDataset(p, torch.arange(5), padding=padding, flip=True).get_batch(
            np.array([4, 0, 2]), seeds(3)
        )
        for p in (data, turned)
    ]
    assert torch.equal(batches[0].inputs, batches[1].inputs)


@pytest.mark.parametrize("padding", [0, 2])
def test_without_seeds_a_batch_is_the_images_themselves(padding):
    data = pixels()
    dataset = PixelDataset(data, torch.arange(4), padding=padding, flip=True)
    rows = np.array([2, 0, 3])
    assert torch.equal(dataset.get_batch(rows, None).inputs, data[[2, 0, 3]])
    assert torch.equal(dataset[-1][0], data[3])
    assert dataset[1][1] == 1
    for outside in (np.array([4]), np.array([0, -1])):
        with pytest.raises(IndexError):
            dataset.get_batch(outside, seeds(len(outside)))


def test_a_batch_is_the_callers_own():
    data = pixels()
    dataset = PixelDataset(data, torch.arange(4), flip=True)
    batch = dataset.get_batch(np.arange(4), seeds(4))
    batch.inputs.zero_()
    assert torch.equal(dataset.get_batch(np.arange(4), None).inputs, pixels())


def test_only_random_steps_draw():
    assert PixelDataset(pixels(), torch.arange(4), padding=1).is_random
    assert PixelDataset(pixels(), torch.arange(4), flip=True).is_random
    assert not PixelDataset(pixels(), torch.arange(4)).is_random


def test_a_sample_draws_the_same_in_any_batch():
    dataset = PixelDataset(pixels(20), torch.arange(20), padding=2, flip=True)
    whole = dataset.get_batch(np.arange(20), seeds(20))
    parts = [dataset.get_batch(np.arange(i, i + 5), seeds(20)[i : i + 5]) for i in (0, 5, 10, 15)]
    assert torch.equal(whole.inputs, torch.cat([part.inputs for part in parts]))


def test_no_images_make_no_batch():
    dataset = PixelDataset(pixels(0), torch.arange(0), padding=2)
    assert len(dataset) == 0
    assert dataset.get_batch(np.empty(0, np.int64), None).inputs.shape == (0, 3, 3, 5)


def test_the_fast_path_equals_the_plain_one_sample_by_sample():
    data, target = pixels(), torch.arange(4)
    fast, plain = PixelDataset(data, target), ImageDataset(data, target, v2.PILToTensor())
    assert same([fast[i] for i in range(4)], [plain[i] for i in range(4)])


# --- what is to be predicted -----------------------------------------------------------------


def test_h15_a_folder_gives_its_images_in_order(tmp_path):
    for name in ("p10", "p2", "sub/p1"):
        noise(tmp_path / f"{name}.png", 0)
    (tmp_path / "notes.txt").write_text("")
    expected = [str(tmp_path / name) for name in ("p10.png", "p2.png", "sub/p1.png")]
    for path in (tmp_path, str(tmp_path), f"{tmp_path}/"):
        assert list(predict_sources(path)) == expected


def test_a_file_a_list_of_paths_and_lists_of_images(tmp_path, monkeypatch):
    file = noise(tmp_path / "p.png", 0)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert list(predict_sources(file)) == [str(file)]
    assert list(predict_sources("~/p.png")) == [str(file)]
    given = predict_sources([file, str(file)])
    assert isinstance(given, PathList)
    assert list(given) == [str(file)] * 2
    array, opened = np.zeros((2, 2, 3), np.uint8), Image.new("RGB", (2, 2))
    mixed = predict_sources([file, array, opened])
    assert mixed == [str(file), array, opened]
    assert [ImageDataset(mixed, None, None).describe(i) for i in range(3)] == [
        str(file),
        "image 1",
        "image 2",
    ]
    assert predict_sources(opened) == [opened]
    assert len(predict_sources(np.zeros((5, 2, 2, 3), np.uint8))) == 5
    assert len(predict_sources(p for p in [file])) == 1


def test_an_invalid_predict_path_is_refused(tmp_path):
    with pytest.raises(ValueError, match="pass predict_path="):
        predict_sources(None)
    with pytest.raises(ValueError, match="has no images; it is empty"):
        predict_sources(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"predict_path='.*nowhere' does not exist"):
        predict_sources(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="empty list"):
        predict_sources([])
    with pytest.raises(ValueError, match=r"one array \(2, 2, 3\); pass a list"):
        predict_sources(np.zeros((2, 2, 3)))
