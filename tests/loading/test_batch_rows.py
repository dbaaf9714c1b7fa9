"""Images that are finished as they are made are those of a batch that is finished whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from contract import same
from script_runs import write_images
from torch import Tensor
from torchvision.transforms import v2

from datamodules import ImageFolderDataModule
from datamodules.batches.batch import Batch
from datamodules.batches.collate import collate, collate_inputs, pad_pairs
from datamodules.batches.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalizer
from datamodules.images.dataset import ImageDataset
from datamodules.loading.fetch import KeyedDataset, SampleError
from datamodules.sampling.sharded_sampler import Keys

NORMALIZER = Normalizer(IMAGENET_MEAN, IMAGENET_STD)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images"), each=6)


def batches(root, **options):
    data = ImageFolderDataModule(root, image_size=72, batch_size=4, seed=3, **options)
    data.setup()
    return [list(loader) for loader in (data.train_dataloader(), data.val_dataloader())]


@pytest.mark.parametrize("options", [{}, {"train_transform": v2.ColorJitter(0.2)}, {"mixup": 0.4}])
def test_batches_are_those_of_worker_processes_which_leave_it_to_the_end(root, options):
    if "train_transform" in options:
        options = {"train_transform": v2.Compose([v2.Resize((72, 72)), v2.ColorJitter(0.2)])}
    expected = batches(root, num_workers=1, worker_type="process", **options)
    assert same(batches(root, num_workers=0, **options), expected)
    assert same(batches(root, num_workers=2, worker_type="thread", **options), expected)


@pytest.mark.parametrize(
    ("options", "early"),
    [
        ({"num_workers": 0}, True),
        ({"num_workers": 1, "worker_type": "thread"}, True),
        ({"num_workers": 1, "worker_type": "process"}, False),
    ],
)
def test_whoever_makes_the_samples_here_finishes_them(root, options, early):
    data = ImageFolderDataModule(root, image_size=72, **options)
    data.setup()
    loader = data.train_dataloader()
    assert (loader.dataset.normalizer is loader.normalizer is not None) == early
    if early:
        made = loader.dataset.__getitems__([0, 1])
        assert made.inputs.dtype == torch.float32
        assert made.inputs.is_contiguous()


class Grey(Normalizer):
    """A user's own last step."""

    def __call__(self, batch):
        finished = super().__call__(batch)
        is_images = isinstance(batch, Tensor) and batch.ndim == 4
        return finished.mean(1, keepdim=True) if is_images else finished


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_last_step_of_the_users_own_is_called(root, kind):
    data = ImageFolderDataModule(root, image_size=72, num_workers=1, worker_type=kind)
    data.setup()
    data._normalizer_of = lambda dataset: Grey(IMAGENET_MEAN, IMAGENET_STD)
    assert next(iter(data.train_dataloader())).inputs.shape[1:] == (1, 72, 72)


class Images(ImageDataset):
    """Made of what is given, row by row."""

    def __init__(self, rows, targets=None):
        super().__init__(rows, targets, None)
        self.rows = rows

    def unnormalized(self, index, seed=None):
        return self.rows[index] if self.targets is None else (self.rows[index], index)


def image(height=5, width=4, channels=3):
    return torch.randint(0, 256, (channels, height, width), dtype=torch.uint8)


def made(rows, *, targets=None, normalizer=NORMALIZER, collate_fn=collate):
    keyed = KeyedDataset(Images(rows, targets), collate_fn=collate_fn)
    keyed.normalizer = normalizer
    return keyed.__getitems__(Keys(np.arange(len(rows)), None)), keyed


@pytest.mark.parametrize("targets", [None, torch.zeros(3, dtype=torch.int64)])
def test_with_and_without_targets(targets):
    rows = [image() for _ in range(3)]
    found, _ = made(rows, targets=targets)
    late, _ = made(rows, targets=targets, normalizer=None)
    assert same(found, NORMALIZER(late))
    inputs = found.inputs if isinstance(found, Batch) else found
    assert inputs.dtype == torch.float32


def test_two_views_of_a_image_are_no_image_and_its_target():
    rows = [(image(), image()) for _ in range(3)]
    found, _ = made(rows, collate_fn=collate_inputs)
    late, _ = made(rows, collate_fn=collate_inputs, normalizer=None)
    assert same(NORMALIZER(found), NORMALIZER(late))


def test_a_batch_that_is_kept_is_not_written_over():
    rows = [image() for _ in range(3)]
    kept, keyed = made(rows)
    copy = kept.clone()
    for _ in range(6):
        keyed.__getitems__(Keys(np.array([2, 1, 0]), None))
    assert torch.equal(kept, copy)


@pytest.mark.parametrize("odd", [image(9), torch.rand(3, 5, 4), image(channels=1), [image()]])
@pytest.mark.parametrize("place", [0, 2])
def test_samples_of_another_kind_are_joined_or_refused_as_ever(odd, place):
    rows = [image() for _ in range(3)]
    rows[place] = odd

    def answer(normalizer):
        try:
            return NORMALIZER(made(rows, normalizer=normalizer)[0])
        except (SampleError, ValueError) as error:
            return str(error)

    found, expected = answer(NORMALIZER), answer(None)
    assert same(found, expected) if isinstance(found, Tensor) else found == expected


def test_finished_samples_and_lists_stay_what_they_are():
    floats = [torch.rand(3, 5, 4) for _ in range(3)]
    found, keyed = made(floats)
    assert torch.equal(found, torch.stack(floats))
    assert keyed.normalizer is None, "not tried again"
    padded, keyed = made([image(4), image(6)], collate_fn=pad_pairs)
    assert padded.values.dtype == torch.uint8
    assert keyed.normalizer is NORMALIZER


def test_unreadable_files_leave_no_gap(tmp_path):
    root = write_images(tmp_path, each=6)
    next(iter(sorted(root.rglob("*.png")))).write_bytes(b"nothing")
    options = {"on_error": "skip", "val_split": 0, "test_split": 0, "batch_size": 4, "seed": 3}
    found = []
    for workers in ({"num_workers": 0}, {"num_workers": 1, "worker_type": "process"}):
        data = ImageFolderDataModule(root, image_size=72, **options, **workers)
        data.setup()
        with pytest.warns(UserWarning, match="cannot be read"):
            found.append(list(data.train_dataloader()))
    assert same(*found)
    assert sum(len(batch.target) for batch in found[0]) == 17
