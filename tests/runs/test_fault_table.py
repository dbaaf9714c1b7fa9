"""The table of faults that practitioners draw up: each row planted, and found where it is said."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, get_worker_info
from torchvision import transforms as T

from datamodules import DatasetDataModule
from datamodules.insight import inspect
from datamodules.insight.bisect import bisect
from datamodules.insight.tuning.stage_timing import stage_sentence
from datamodules.insight.wait_monitor import verdict
from tests.insight.test_inspect import FIXED, MEAN, Mapped, Own, own, rows, with_images


class Made(Dataset):
    """20 samples made by a function of the index."""

    def __init__(self, make, transform=None):
        self.make, self.transform, self.kept = make, transform, {}

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return self.make(index)


def sample(index):
    return torch.rand(3, generator=torch.Generator().manual_seed(index)), index % 2


def mixed_types(index):
    return (sample(index)[0] if index % 3 else Image.new("L", (2, 2))), index % 2


def grey_among_colours(index):
    return T.ToTensor()(Image.new("RGB" if index % 2 else "L", (4, 4))), 0


def dies(index):
    if get_worker_info() is not None:
        os._exit(3)
    return sample(index)


class Keeps(Made):
    def __getitem__(self, index):
        return self.kept.setdefault(index, sample(index))


RANDOM = T.Compose([T.RandomCrop(12, padding=3), *FIXED.transforms])
SORTED = rows(40, y=torch.arange(40) // 20)
OTHER_MAP = Mapped(rows(40), {"a": 0, "b": 1}), Mapped(rows(16, 1), {"b": 0, "a": 1})
FOUND = {
    "batch must contain tensors": ("batch-fails", lambda: Own(Made(mixed_types), Made(sample))),
    "each tensor to be equal size": (
        "batch-fails",
        lambda: Own(Made(grey_among_colours), Made(grey_among_colours)),
    ),
    "hangs with workers: what cannot be pickled": (
        "not-picklable",
        lambda: with_images(lambda image: FIXED(image)),
    ),
    "the metric jumps in validation": ("val-random", lambda: with_images(RANDOM, RANDOM)),
    "the first batch of each epoch is the same": (
        "train-unshuffled",
        lambda: own(train_loader={"shuffle": False}),
    ),
    "validation predicts one class: the class map": ("class-map", lambda: Own(*OTHER_MAP)),
    "validation predicts one class: sorted and unshuffled": (
        "train-unshuffled",
        lambda: own(SORTED, train_loader={"shuffle": False}),
    ),
    "memory grows": ("memory-grows", lambda: Own(Keeps(sample), Made(sample))),
    "labels of a wrong dtype": ("target-dtype", lambda: own(rows(40, y=torch.rand(40).double()))),
    "values still 0..1": ("normalize-missing", lambda: with_images(T.ToTensor())),
    "values saturated": (
        "normalize-twice",
        lambda: with_images(T.Compose([*FIXED.transforms, T.Normalize(MEAN, MEAN)])),
    ),
    "normalised before to-tensor": (
        "normalize-first",
        lambda: with_images(T.Compose([T.Normalize(MEAN, MEAN), T.ToTensor()])),
    ),
}


@pytest.mark.parametrize("symptom", FOUND)
def test_the_cause_is_found_before_training(symptom):
    code, make = FOUND[symptom]
    report = inspect(make())
    assert code in {f.code for f in report.findings if f.level != "note"}, str(report)


@pytest.mark.parametrize(
    ("make", "named"),
    [(mixed_types, "Image"), (grey_among_colours, "equal size")],
)
def test_a_failing_batch_names_its_cause(make, named):
    (found,) = [f for f in inspect(Own(Made(make), Made(sample))).findings if "batch" in f.code]
    assert named in found.sentence


def test_a_worker_that_exits_unexpectedly_is_named_by_adding_one_setting_at_a_time():
    dm = DatasetDataModule(Made(dies), batch_size=4, num_workers=2, val_split=0, test_split=0)
    found = bisect(dm, timeout_seconds=30)
    assert found.culprit.name == "1 worker"
    assert "exited unexpectedly" in found.culprit.traceback


def test_low_device_use_is_reported_by_side_and_stage():
    assert "the loader is the bottleneck" in verdict(wait=0.03, step=0.01)
    assert "the model is the bottleneck" in verdict(wait=0.0, step=0.03)
    said = [
        stage_sentence({"read": 1, "decode": 1, "transform": 1, s: 3}) for s in ("read", "decode")
    ]
    assert "pack the files" in said[0]
    assert "smaller images" in said[1]


def test_memory_of_a_batch_is_reported():
    images = np.zeros((16, 3, 100, 100), np.float32)
    dm = DatasetDataModule(torch.utils.data.TensorDataset(torch.from_numpy(images)), batch_size=8)
    facts = inspect(dm).sections["First batches"]
    assert f"train: {8 * 3 * 100 * 100 * 4 / 1e6:.2f} MB a batch" in facts


def test_every_field_of_a_batch_moves_to_the_device():
    fields = [{"a": torch.zeros(2), "b": [torch.ones(1)], "label": k % 2} for k in range(20)]
    dm = DatasetDataModule(fields, batch_size=4, num_workers=0)
    batch = next(dm.batches("train", device="meta"))
    moved = [batch.inputs["a"], batch.inputs["b"][0], batch.target]
    assert {tensor.device.type for tensor in moved} == {"meta"}
