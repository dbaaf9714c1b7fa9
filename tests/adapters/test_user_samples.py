"""The raw sample of a dataset, before any transform."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset

from datamodules.adapters.dataset import Parts, WrappedDataset
from datamodules.adapters.user_samples import raw_image
from datamodules.insight.split_view import class_names

LEVELS = torch.arange(5 * 2 * 3 * 3, dtype=torch.uint8).reshape(5, 2, 3, 3)  # (N, H, W, C)


class Images(Dataset):
    """Pairs of an image and a label; a transform as torchvision's datasets have it."""

    def __init__(self, transform=None, **attributes):
        self.transform = transform
        vars(self).update(attributes)

    def __len__(self):
        return len(LEVELS)

    def __getitem__(self, index):
        image = Image.fromarray(LEVELS[index].numpy())
        apply = getattr(self, "transforms", None)
        if apply is not None:
            return apply(image, index)
        return (image if self.transform is None else self.transform(image)), index


class Needing(Images):
    def __getitem__(self, index):
        return self.transform(LEVELS[index]), index


class Bare(Dataset):
    def __len__(self):
        return len(LEVELS)

    def __getitem__(self, index):
        return {"image": LEVELS[index].numpy(), "label": index}


def black(image):
    return torch.zeros(3, 2, 3)


ROWS = np.array([4, 1])
HOLDERS = {
    "a transform": Images(black),
    "none": Images(),
    "both of torchvision's": Images(black, transforms=lambda image, label: (0, label)),
    "rows of it": Subset(Images(black), [2, 0]),
    "wrapped": WrappedDataset(Images(black), ROWS, Parts()),
    "wrapped with a transform": WrappedDataset(
        Bare(), ROWS, Parts(input_key="image", transform=black)
    ),
    "rows of what is wrapped": Subset(
        WrappedDataset(Bare(), ROWS, Parts(input_key="image", transform=black)), [1]
    ),
}
FIRST = {
    "rows of it": 2,
    "wrapped": 4,
    "wrapped with a transform": 4,
    "rows of what is wrapped": 1,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_an_image_is_shown_as_it_was_before_any_transform(holder):
    found = raw_image(HOLDERS[holder], 0)
    assert torch.equal(found, LEVELS[FIRST.get(holder, 0)].permute(2, 0, 1))


def test_looking_leaves_the_dataset_its_transform():
    dataset = Images(black)
    raw_image(dataset, 0)
    assert dataset.transform is black
    assert torch.equal(dataset[0][0], torch.zeros(3, 2, 3))


@pytest.mark.parametrize("dataset", [Needing(black), Bare()])
def test_no_image_is_shown_where_none_can_be_had(dataset):
    assert raw_image(dataset, 0) is None


class Unread:
    @property
    def classes(self):
        raise RuntimeError("the source was not read")


class Known:
    task, classes = "multiclass", ("ash", 7)


class Numbers:
    task, classes = "regression", ("ash", "oak")


@pytest.mark.parametrize(
    ("dm", "expected"), [(Known(), ["ash", "7"]), (Unread(), None), (Numbers(), None)]
)
def test_class_names_are_texts_or_none(dm, expected):
    assert class_names(dm) == expected
