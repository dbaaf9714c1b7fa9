"""Fast transforms in a datamodule: kinds of workers, each split, packs."""

from __future__ import annotations

import pickle
import random

import lightning as L
import numpy as np
import pytest
import torch
from contract import same
from image_files import class_folders, quiet_trainer
from PIL import Image
from script_runs import write_images
from torch import nn
from torchvision import transforms as v1
from torchvision.transforms import v2

from datamodules import ImageFolderDataModule
from datamodules.batches.collate import collate
from datamodules.core.run import Run
from datamodules.images.dataset import ImageDataset
from datamodules.images.packs.writer import write_pack
from datamodules.loading.fetch import KeyedDataset
from tests.images.test_crop_head import MEAN, STD, photo
from tests.images.test_jpeg_slices import needs_jpegtran

# a crop alone changes no pixel, so that the plain way gives the same bits
TRAIN = v1.Compose(
    [
        *(v1.RandomCrop(6), v1.RandomHorizontalFlip(), v1.ColorJitter(0.3)),
        *(v1.ToTensor(), v1.Normalize(MEAN, STD)),
    ]
)
EVAL = v2.Compose(
    [v2.CenterCrop(6), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(STD, MEAN)]
)


def folder(tmp_path, **options):
    root = tmp_path / "images"
    if not root.exists():
        class_folders(root, {"ash": 15, "birch": 12})
    transforms = {"train_transform": TRAIN, "eval_transform": EVAL}
    options = {"batch_size": 5, "seed": 3, "image_size": 6, "num_workers": 0, **options}
    return ImageFolderDataModule(root, predict_path=str(root / "ash"), **{**transforms, **options})


@pytest.mark.parametrize(
    "workers",
    [
        {},
        {"num_workers": 2, "worker_type": "process"},
        {"num_workers": 2, "worker_type": "thread"},
    ],
    ids=str,
)
def test_batches_equal_the_plain_ones_with_any_kind_of_worker(tmp_path, workers):
    for split in ("train", "val", "predict"):
        found = []
        for options in ({"image_options": {"fast_transforms": False}}, workers):
            loader = getattr(folder(tmp_path, **options), f"{split}_dataloader")()
            loader.sampler.set_epoch(1)
            before = torch.get_rng_state()
            found.append(list(loader))
            assert torch.equal(torch.get_rng_state(), before)
        assert same(found[0], found[1])


def test_resized_crops_are_equal_with_any_kind_of_worker(tmp_path):
    steps = v2.Compose([v2.RandomResizedCrop(6), v2.RandomHorizontalFlip()])
    found = []
    for kind, count in (("process", 0), ("process", 2), ("thread", 2)):
        options = {"train_transform": steps, "worker_type": kind, "num_workers": count}
        found.append(list(folder(tmp_path, **options).train_dataloader()))
    assert same(found[0], found[1])
    assert same(found[0], found[2])


@pytest.mark.parametrize("crossing", [False, True])
def test_each_split_is_normalized_by_its_own_transform(tmp_path, monkeypatch, crossing):
    class Recorder(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), []

        def note(self, stage, inputs):
            self.seen.append((stage, inputs.clone()))

        def training_step(self, batch, index):
            self.note("train", batch.inputs)
            return self.layer(batch.inputs.mean()[None, None]).mean()

        def validation_step(self, batch, index):
            self.note("val", batch.inputs)

        def test_step(self, batch, index):
            self.note("test", batch.inputs)

        def predict_step(self, batch, index):
            self.note("predict", batch)
            return batch.sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    found = []
    for options in ({"image_options": {"fast_transforms": False}}, {}):
        dm, model = folder(tmp_path, **options), Recorder()
        if crossing and not options:
            monkeypatch.setattr(Run, "moves_to_device", True)
        trainer = quiet_trainer(tmp_path, num_sanity_val_steps=1, max_epochs=2)
        trainer.fit(model, dm)
        trainer.test(model, dm, verbose=False)
        trainer.predict(model, dm)
        found.append(model.seen)
    assert [stage for stage, _ in found[0]] == [stage for stage, _ in found[1]]
    assert {stage for stage, _ in found[0]} == {"train", "val", "test", "predict"}
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(*found, strict=True))


def test_a_sample_of_the_dataset_is_normalized_by_the_transform(tmp_path):
    fast, plain = folder(tmp_path), folder(tmp_path, image_options={"fast_transforms": False})
    assert torch.equal(fast.val_dataset[0][0], plain.val_dataset[0][0])
    assert fast.val_dataset.unnormalized(0)[0].dtype == torch.uint8
    assert plain.val_dataset.unnormalized(0)[0].dtype == torch.float32


def test_the_presets_are_fast_unless_switched_off(tmp_path):
    presets = {"train_transform": None, "eval_transform": None, "image_size": 65}
    for split in ("train", "val"):
        first = [
            getattr(
                folder(tmp_path, image_options={"fast_transforms": on}, **presets),
                f"{split}_dataset",
            )._fast
            for on in (True, False)
        ]
        assert first[0].head.tail == []
        assert first[1] is None
    with pytest.raises(ValueError, match="fast_transforms must be True or False, got 'no'"):
        folder(tmp_path, image_options={"fast_transforms": "no"})


@pytest.mark.parametrize("kind", ["slice", "resized-raw", "resized-jpeg"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
@needs_jpegtran
def test_a_pack_read_by_boxes_equals_a_pack_read_whole(tmp_path, kind, mode):
    root = tmp_path / "images"
    for k in range(8):
        path = root / "ab"[k % 2] / f"{k}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = photo(150, 110, k)
        (image.convert("L") if k == 3 else image).save(path, quality=90)
    photo(70, 90, 9).save(root / "a" / "9.png")
    write_pack(root, tmp_path / "x.pack", kind=kind, size=80)
    crops = {
        "bytes": [v2.RandomCrop(50), v2.RandomHorizontalFlip()],
        "resized": [v2.ToImage(), v2.RandomResizedCrop(53), v2.RandomHorizontalFlip()],
    }
    for steps in crops.values():
        found = []
        for fast in (True, False):
            dm = ImageFolderDataModule(
                root,
                image_options={"pack": tmp_path / "x.pack", "fast_transforms": fast},
                train_transform=v2.Compose(steps),
                mode=mode,
                batch_size=3,
                num_workers=0,
                val_split=0,
                test_split=0,
                seed=1,
            )
            found.append(list(dm.train_dataloader()))
        assert same(found[0], found[1])


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "kind",
    [v1.Compose, v2.Compose, lambda steps: v1.Compose(tuple(steps)), lambda s: nn.Sequential(*s)],
)
def test_changing_the_list_of_steps_is_refused_and_changing_a_step_is_not(kind, nested):
    inner = kind([v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(0.0)])
    image = Image.effect_noise((40, 30), 90).convert("RGB")
    data = ImageDataset([image], None, v2.Compose([inner]) if nested else inner, fast=True)
    assert data._fast is not None
    torch.manual_seed(0)
    before = data[0]
    pickle.loads(pickle.dumps(data))[0]  # its steps are still its own
    steps = inner if isinstance(inner, nn.Sequential) else inner.transforms
    steps[1].p = 1.0
    torch.manual_seed(0)
    assert torch.equal(data[0], before.flip(-1))
    if isinstance(steps, tuple):
        inner.transforms = (*steps, v2.RandomVerticalFlip(1.0))
    else:
        steps.append(v2.RandomVerticalFlip(1.0))
    with pytest.raises(RuntimeError, match="assign it again"):
        data[0]


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (0, "max_size", 41),
        (0, "interpolation", v2.InterpolationMode.NEAREST),
        (1, "padding", 2),
        (2, "scale", False),
        (3, "mean", [0.0] * 3),
        (3, "std", [2.0] * 3),
    ],
)
def test_changing_a_setting_that_is_read_once_is_refused(place, name, value):
    steps = [v2.Resize(24), v1.RandomCrop(20), v2.ToDtype(torch.float32, scale=True)]
    chain = v2.Compose([v2.ToImage(), *steps, v2.Normalize(MEAN, STD)])
    image = Image.effect_noise((40, 30), 90).convert("RGB")
    data = ImageDataset([image], None, chain, fast=True)
    keyed = KeyedDataset(data, collate_fn=collate)
    keyed.__getitems__([0])
    setattr(chain.transforms[place + 1], name, value)
    with pytest.raises(RuntimeError, match="assign it again"):
        data[0]
    with pytest.raises(RuntimeError, match="assign it again"):
        keyed.__getitems__([0])


def drawing(samples):
    """A collate that draws, as MixUp in it does."""
    return torch.rand(3), random.random(), float(np.random.rand())


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_collate_fn_that_draws_gets_the_random_state_of_its_samples(workers, tmp_path):
    root = write_images(tmp_path, each=6)
    options = {"batch_size": 3, "seed": 1, "num_workers": workers, "image_size": 72}
    options |= {"val_split": 0, "test_split": 0, "loader_options": {"collate_fn": drawing}}
    found = []
    for fast in (True, False):
        dm = ImageFolderDataModule(root, image_options={"fast_transforms": fast}, **options)
        torch.manual_seed(len(found))
        found.append(list(dm.train_dataloader()))
    assert same(*found)
    assert len({float(rand[0]) for rand, *_ in found[0]}) == len(found[0])


def test_a_step_changed_during_an_epoch_leaves_the_random_state_of_the_consumer_alone(tmp_path):
    root = write_images(tmp_path, each=8)
    steps = [v2.RandomResizedCrop(72), v2.RandomHorizontalFlip()]
    dm = ImageFolderDataModule(
        root, batch_size=2, train_transform=v2.Compose(steps), num_workers=2, worker_type="thread"
    )
    torch.manual_seed(0)
    expected = torch.rand(6)
    torch.manual_seed(0)
    drawn = []
    for number, _ in zip(range(6), dm.train_dataloader(), strict=False):
        steps[0].scale = (0.05 + number / 100, 1.0)
        drawn.append(torch.rand(1))
    assert torch.equal(torch.cat(drawn), expected)
