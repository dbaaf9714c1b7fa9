from __future__ import annotations

import os
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from contract import check_datamodule, same
from image_files import Net, quiet_trainer
from torchvision import transforms as v1
from torchvision.transforms import v2

from datamodules import CIFAR10DataModule, CIFAR100DataModule, FashionMNISTDataModule
from datamodules.sampling.plan import ShuffledPlan
from datamodules.sampling.sharded_sampler import ShardedBatchSampler

CONTEXTS = ("fork", "forkserver", "spawn")


class Stub:
    """A data set of torchvision's form: label i % 10, pixels that tell the row."""

    sizes = (50, 20)
    shape = (6, 6, 3)
    classes = tuple(f"class {k}" for k in range(10))

    def __init__(self, root, train=True, download=False):
        n = self.sizes[not train]
        self.targets = [i % len(self.classes) for i in range(n)]
        self.data = np.random.default_rng(train).integers(0, 256, (n, *self.shape), np.uint8)
        self.data[:, 0, 0] = np.arange(n).reshape(-1, *[1] * (len(self.shape) - 2)) % 256


class Large(Stub):
    sizes = (50_000, 10_000)
    shape = (2, 2, 3)


class Rows33(Stub):
    sizes = (33, 33)


class Grey(Stub):
    """As FashionMNIST: tensors without a channel axis."""

    shape = (7, 7)

    def __init__(self, root, train=True, download=False):
        super().__init__(root, train)
        self.data, self.targets = torch.from_numpy(self.data), torch.tensor(self.targets)


class Hundred(Stub):
    sizes = (400, 100)
    classes = tuple(f"class {k}" for k in range(100))


def stub(dataset_class=Stub, **options):
    return CIFAR10DataModule("nowhere", dataset_class=dataset_class, **{"padding": 1, **options})


@pytest.mark.runs
def test_the_tensor_path_passes_the_contract_with_any_workers():
    check_datamodule(stub, contexts=CONTEXTS)


def test_a_users_own_transform_passes_the_contract():
    own = v1.Compose([v1.RandomCrop(6, padding=1), v1.ToTensor()])
    check_datamodule(
        partial(stub, train_transform=own, eval_transform=v1.ToTensor()),
        contexts=("fork", "forkserver"),
    )


@pytest.mark.parametrize(
    ("source", "dataset_class", "shape"),
    [(CIFAR100DataModule, Hundred, [3, 6, 6]), (FashionMNISTDataModule, Grey, [1, 7, 7])],
)
def test_its_like_pass_the_contract(source, dataset_class, shape):
    make = partial(source, "nowhere", dataset_class=dataset_class)
    check_datamodule(make)
    dm = make(batch_size=8)
    assert dm.input_sizes == {"input_shape": shape}
    assert dm.classes == list(dataset_class.classes)
    image = dm.preview("test").inputs
    raw = dataset_class("", train=False).data[0]
    pixels = torch.as_tensor(np.asarray(raw)).reshape(*shape[1:], shape[0]).permute(2, 0, 1)
    assert torch.equal(image[0], v1.Normalize(dm.mean, dm.std)(pixels / 255))


def test_eight_cores_pass_the_contract_and_no_advice_escapes(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    check_datamodule(stub, contexts=())
    dm, net, trainer = (
        stub(predict_path=[np.zeros((9, 9, 3), np.uint8)]),
        Net(),
        quiet_trainer(tmp_path),
    )
    trainer.fit(net, dm)
    trainer.test(net, dm, verbose=False)
    trainer.predict(net, dm)


@pytest.mark.parametrize("own", [False, True])
def test_h07_augmentation_does_not_leak_into_validation(own):
    class Halves(Stub):
        sizes = (20, 4)

        def __init__(self, root, train=True, download=False):
            super().__init__(root, train)
            self.targets = [i % 2 for i in range(len(self.data))]
            self.data[:] = 0
            self.data[:, :, 3:] = 255

    flip = v2.RandomHorizontalFlip(p=1.0)
    options = {"train_transform": flip, "eval_transform": v2.Identity()} if own else {}
    dm = stub(Halves, val_split=0.2, padding=0, num_workers=0, **options)
    dm.setup("fit")

    def flipped(loader):
        images = [image for batch in loader for image in batch.inputs]
        return [bool((image[:, :, :3] > image[:, :, 3:]).all()) for image in images]

    first = flipped(dm.train_dataloader())
    assert first == [True] * 16 if own else 0 < sum(first) < 16
    assert flipped(dm.val_dataloader()) == [False] * 4
    assert torch.equal(dm.val_dataset[1][0], dm.val_dataset[1][0])
    dm.eval_transform = v2.RandomVerticalFlip(p=1.0)
    dm.setup("fit")
    assert flipped(dm.train_dataloader()) == first
    dm.train_transform = v2.Identity()
    assert flipped(dm.train_dataloader()) == [False] * 16


def test_h08_setup_run_again_moves_no_row(tmp_path):
    dm = stub(val_split=0.1)
    dm.setup("fit")

    def ids():
        return [getattr(dm, f"{split}_dataset").keys.tolist() for split in ("train", "val")]

    before = ids()
    assert sorted(before[0] + before[1]) == list(range(50))
    trainer, net = quiet_trainer(tmp_path), Net()
    trainer.fit(net, dm)
    torch.manual_seed(7)
    trainer.test(net, dm, verbose=False)
    dm.setup("fit")
    assert ids() == before


def test_h11_sizes_and_step_counts(tmp_path):
    dm = stub(Large, val_split=0.1, batch_size=128)
    sizes = [len(getattr(dm, f"{split}_dataset")) for split in ("train", "val", "test")]
    assert sizes == [45_000, 5_000, 10_000]
    assert "train 45,000, val 5,000, test 10,000" in str(dm)
    assert len(dm.train_dataloader()) == 352
    dropping = stub(Large, batch_size=128, loader_options={"drop_last": True})
    assert len(dropping.train_dataloader()) == 351
    assert torch.bincount(dm.val_dataset.targets).tolist() == [500] * 10
    again = stub(Large, val_split=0.1, batch_size=32)
    assert again.val_dataset.keys.tolist() == dm.val_dataset.keys.tolist()
    whole = stub(Large, val_split=0, batch_size=128)
    assert len(whole.train_dataset) == 50_000
    assert whole.val_dataset is None
    quiet_trainer(tmp_path, limit_train_batches=2).fit(Net(), whole)


def test_h18_everything_that_travels_pickles():
    own = v1.Compose([v1.RandomCrop(6, padding=1), v1.ToTensor()])
    for dm in (stub(), stub(train_transform=own, eval_transform=v1.ToTensor())):
        for split in ("train", "val", "test"):
            dataset = getattr(dm, f"{split}_dataset")
            copy = pickle.loads(pickle.dumps(dataset))
            assert copy.describe(0) == dataset.describe(0)
            pickle.loads(pickle.dumps(getattr(dm, f"{split}_dataloader")().collate_fn))
    dm = stub(eval_transform=lambda image: image)
    dm.loader_options["multiprocessing_context"] = "spawn"
    dm.hparams["num_workers"] = 2
    with pytest.raises(ValueError, match=r"transform cannot be sent.*module level, or num_workers"):
        dm.val_dataloader()


@pytest.mark.parametrize("own", [False, True])
def test_h21_worker_options_without_workers_do_no_harm(own):
    options = {
        "prefetch_factor": 4,
        "persistent_workers": True,
        "timeout": 5,
        "multiprocessing_context": "spawn",
    }
    transform = v1.ToTensor() if own else None
    dm = stub(num_workers=0, loader_options=options, train_transform=transform)
    assert sum(len(batch.target) for batch in dm.train_dataloader()) == 45
    loader = stub(
        num_workers=2, loader_options={"prefetch_factor": 4, "persistent_workers": True}
    ).train_dataloader()
    assert loader.prefetch_factor == 4
    assert loader.persistent_workers


def test_h23_no_train_batch_of_one_and_no_row_lost(tmp_path):
    dm = stub(Rows33, val_split=0, batch_size=32, seed=1, predict_path=list(Rows33("").data))
    net, trainer = Net(norm=True), quiet_trainer(tmp_path, max_epochs=2)
    trainer.fit(net, dm)
    assert net.train_sizes == [17, 16, 17, 16]
    trainer.test(net, dm, verbose=False)
    assert len(net.eval_targets) == 33
    assert sum(map(len, trainer.predict(net, dm))) == 33
    loader, seen = dm.train_dataloader(), set()
    for epoch in range(20):
        loader.sampler.set_epoch(epoch)
        batches = [keys.indices.tolist() for keys in loader.sampler]
        assert min(map(len, batches)) > 1
        seen |= {row for rows in batches for row in rows}
    assert seen == set(range(33))

    class Rows34(Stub):
        sizes = (34, 2)

    loader = stub(Rows34, val_split=0, batch_size=32).train_dataloader()
    assert [len(batch.target) for batch in loader] == [32, 2]


def test_h23_ten_rows_on_two_ranks():
    rows = []
    for rank in range(2):
        sampler = ShardedBatchSampler(ShuffledPlan(10, 4), 10, num_replicas=2, rank=rank, seed=0)
        sizes = [len(keys.indices) for keys in sampler]
        assert sum(sizes) == 5 or min(sizes) > 1
        rows += [row for keys in sampler for row in keys.indices.tolist()]
    assert set(rows) == set(range(10))


def test_train_batches_are_windows_of_the_padded_images():
    """Undo the normalisation and find each image, shifted and perhaps flipped, by its row."""
    dm = stub(padding=2, batch_size=45, seed=3)
    [batch] = list(dm.train_dataloader())
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (dm.mean, dm.std))
    images = (batch.inputs * std + mean).mul(255).round().byte()
    raw = torch.from_numpy(Stub("").data).permute(0, 3, 1, 2)
    [keys] = list(dm.train_dataloader().sampler)
    shifts = set()
    for image, target, index in zip(images, batch.target, keys.indices, strict=True):
        row = dm.train_dataset.keys[index]
        assert int(target) == row % 10
        whole = torch.nn.functional.pad(raw[row], [2] * 4)
        found = [
            (top, left, flip)
            for top in range(5)
            for left in range(5)
            for flip in (False, True)
            for window in [whole[:, top : top + 6, left : left + 6]]
            if torch.equal(image, window.flip(-1) if flip else window)
        ]
        assert found
        shifts |= set(found)
    assert len({flip for _, _, flip in shifts}) == 2
    assert len({(top, left) for top, left, _ in shifts}) > 10


def test_evaluation_equals_the_plain_path_to_the_bit():
    plain = v1.Compose([v1.ToTensor(), v1.Normalize(CIFAR10DataModule.mean, CIFAR10DataModule.std)])
    fast, slow = stub(), stub(eval_transform=plain, num_workers=0)
    for split in ("val", "test"):
        pair = [list(getattr(dm, f"{split}_dataloader")()) for dm in (fast, slow)]
        assert same(*pair)


def test_one_image_at_a_time_is_not_augmented():
    dm = stub(padding=2)
    raw = torch.from_numpy(Stub("").data).permute(0, 3, 1, 2)
    for index in (0, -1):
        image, target = dm.train_dataset[index]
        row = dm.train_dataset.keys[index]
        assert torch.equal(image, raw[row])
        assert target == row % 10


def test_train_draws_change_with_the_epoch_and_repeat_with_the_seed():
    def epochs(seed):
        loader = stub(seed=seed).train_dataloader()
        found = []
        for epoch in (0, 1):
            loader.sampler.set_epoch(epoch)
            found.append(list(loader))
        return found

    assert same(epochs(0), epochs(0))
    assert not same(epochs(0), epochs(1))
    first, second = epochs(0)
    assert not same(first, second)


def test_rows_are_named_by_part_and_number():
    dm = stub()
    assert dm.test_dataset.describe(3) == "test image 3"
    row = dm.val_dataset.keys[0]
    assert dm.val_dataset.describe(0) == f"train image {row}"
