from __future__ import annotations

import csv

import lightning as L
import numpy as np
import pytest
import torch
from image_files import class_folders
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset
from torchvision import transforms as T
from torchvision.transforms import v2

from datamodules import (
    DatasetDataModule,
    ImageFolderDataModule,
    TabularDataModule,
    TextDataModule,
)
from datamodules.images.in_memory import PixelDataset
from datamodules.images.transform_steps import steps_in_order
from datamodules.insight import SampleStep, inspect
from datamodules.insight.sample_trace import SEED, summarize, trace
from datamodules.insight.split_view import SplitView
from datamodules.insight.terminal_report import aligned
from datamodules.seeding.random_state import kept_random_state, seed_all


def folder(tmp_path, **options):
    root = class_folders(tmp_path, {"ash": 6, "birch": 6})
    options = {"image_size": 8, "num_workers": 0, **options}
    return ImageFolderDataModule(root, **options)


def followed(dm, split="train"):
    return [step for step in inspect(dm).steps if step.split == split]


def test_an_image_is_followed_from_the_file_to_the_batch(tmp_path):
    steps = followed(folder(tmp_path))
    assert [step.step for step in steps] == [
        "file", "decode", "Resize", "RandomCrop", "RandomHorizontalFlip", "sample", "normalize",
        "first batch",
    ]  # fmt: skip
    file, decode, *_, sample, normalizer, batch = steps
    assert ".png" in file.size
    assert "PNG RGB 8 x 8" in file.size
    assert decode[2:4] == ("8 x 8 pixels, RGB", "uint8")
    assert sample[2:4] == ("3 x 8 x 8", "uint8")
    assert normalizer[2:4] == ("3 x 8 x 8", "float32")
    assert batch.size.endswith("x 3 x 8 x 8")
    low, _, high = normalizer.values.partition(" to ")
    assert -3 < float(low) < 0 < float(high) < 3


@pytest.mark.parametrize(
    "transform",
    [
        v2.Compose(
            [v2.RandomCrop(6), v2.Compose([v2.RandomHorizontalFlip(), v2.ColorJitter(0.4)])]
        ),
        T.Compose([T.RandomApply([T.RandomRotation(30)], 0.9), T.ToTensor()]),
        torch.nn.Sequential(v2.ToImage(), v2.RandomErasing(1.0)),
        lambda image: image.resize((5, 4)),
        lambda tensor: tensor.flip(-1)[:, :7],  # takes tensors alone
    ],
)
def test_the_steps_one_by_one_make_the_datasets_own_sample(tmp_path, transform):
    dm = folder(tmp_path, train_transform=transform, loader_options={"collate_fn": list})
    data = dm.train_dataset
    with kept_random_state():
        data[0]
        seed_all(SEED)
        row = data[0][0]
    steps = [s for s in trace(dm, SplitView("train", data)) if s.step == "sample"]
    assert steps == [SampleStep("train", "sample", *summarize(row))]


def test_what_a_random_step_holds_is_not_run_on_its_own():
    inner = T.RandomApply([T.RandomRotation(30)])
    assert steps_in_order(T.Compose([inner, T.Compose([T.ToTensor()])]))[0] is inner
    assert len(steps_in_order(T.RandomChoice([T.ToTensor(), T.ToTensor()]))) == 1


class Images(Dataset):
    """A user's own, which transforms inside."""

    def __init__(self, transform):
        levels = np.random.default_rng(0).integers(0, 256, (12, 9, 7, 3), np.uint8)
        self.images, self.transform = [Image.fromarray(level) for level in levels], transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), index % 2


class Own(L.LightningDataModule):
    def __init__(self, data):
        super().__init__()
        self.data = data

    def train_dataloader(self):
        return DataLoader(self.data, batch_size=4, shuffle=True)


def test_a_users_dataset_is_followed_through_the_transform_that_it_holds():
    compose = T.Compose([T.RandomCrop(5), T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)])
    steps = followed(Own(Subset(Images(compose), range(3, 12))))
    names = [step.step for step in steps]
    assert names == ["read", "RandomCrop", "ToTensor", "Normalize", "dataset", "first batch"]
    assert steps[0].size == "9 x 7 pixels, RGB"
    assert steps[3].values == steps[4].values.partition(";")[0]


def test_a_dataset_whose_steps_cannot_be_parted_is_shown_as_it_is():
    class Late(Images):
        def __getitem__(self, index):  # does more to what the transform gave
            return self.transform(self.images[index]) * 2, 0

    assert [s.step for s in followed(Own(Late(T.ToTensor())))] == ["dataset", "first batch"]


def test_the_step_that_fails_says_why_and_is_the_last(tmp_path):
    def broken(image):
        raise OverflowError("no such colour")

    transform = v2.Compose([v2.RandomCrop(6), broken])
    steps = followed(folder(tmp_path, train_transform=transform))
    assert [step.step for step in steps][:3] == ["file", "decode", "RandomCrop"]
    assert steps[-1].values == "fails: OverflowError: no such colour"


def test_images_in_memory_are_shifted_and_flipped():
    data = PixelDataset(torch.arange(48).view(1, 3, 4, 4).to(torch.uint8), torch.zeros(1).long())
    data.padding, data.flip = 0, True
    steps = trace(None, SplitView("train", data))
    assert [(step.step, step.values) for step in steps] == [
        ("pixels", "0 to 47"),
        ("flip", "0 to 47"),
    ]


def test_a_row_is_shown_as_written_and_as_encoded(tmp_path):
    path = tmp_path / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = [[k, "xy"[k % 2], "no" if k % 3 else "yes"] for k in range(30)]
        csv.writer(file).writerows([["size", "kind", "y"], *rows])
    steps = {step.step: step for step in followed(TabularDataModule(path, "y"))}
    assert list(steps) == [
        "row", "target as written", "numbers", "category indices", "target",
    ]  # fmt: skip
    assert steps["row"].values == "size=0, kind=x"
    assert steps["target as written"].values == "y=yes"
    assert steps["numbers"].values.startswith("size -1.")
    assert steps["category indices"].values.startswith("kind 2 ")
    assert steps["target"].values == "1 (yes)"


def test_a_text_is_shown_as_text_tokens_ids_and_padding(tmp_path):
    path = tmp_path / "texts.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        texts = [("a žába " * (k + 1), "ab"[k % 2]) for k in range(20)]
        csv.writer(file).writerows([("text", "label"), *texts])
    dm = TextDataModule(path, vocab_size=300, max_length=8, batch_size=4)
    steps = {step.step: step for step in followed(dm)}
    assert list(steps) == ["text", "tokens", "ids", "padded", "target"]
    assert steps["text"].size == "7 characters, 9 bytes"
    assert steps["tokens"].values.startswith("'<cls>' ")
    ids = dm.train_dataset.tokens[int(dm.train_dataset.rows[0])]
    assert steps["ids"].values == ", ".join(map(str, ids.tolist()))
    assert steps["padded"].size == "8"
    assert steps["padded"].values.startswith(f"{len(ids)} tokens and {8 - len(ids)} of padding")
    assert steps["target"].values == "0 (a)"


def test_a_brought_dataset_is_followed_through_load_and_transform():
    data = [({"path": k}, k % 2) for k in range(20)]
    dm = DatasetDataModule(
        data, load=lambda item: np.full(3, item["path"]), train_transform=lambda x: x / 2
    )
    steps = followed(dm)
    assert [step.step for step in steps] == ["dataset", "load", "<lambda>", "input", "first batch"]
    assert steps[3][2:4] == ("3", "float32")


def test_streams_and_empty_splits_have_no_sample_to_trace():
    assert trace(None, SplitView("val", iter(()))) == []
    assert trace(None, SplitView("val", TensorDataset(torch.zeros(0, 2)))) == []


def test_steps_are_printed_in_columns():
    steps = [
        SampleStep("val", "read", "2 x 3", "uint8", "0 to 9"),
        SampleStep("val", "Normalize", "x" * 40, "float32", "-1 to 1"),
    ]
    first, second = aligned(steps)
    assert first.index("uint8") == 2 + len("Normalize") + 2 + 32 + 2
    assert "x" * 40 in second
