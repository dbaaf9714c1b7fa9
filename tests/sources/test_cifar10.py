from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from contract import check_datamodule, same
from image_files import Net, noise, quiet_trainer
from torchvision import datasets
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


# --- the contract ----------------------------------------------------------------------------


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


# --- acceptance cases ------------------------------------------------------------------------


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


# --- the tensor path -------------------------------------------------------------------------


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


# --- files -----------------------------------------------------------------------------------


def write_batches(folder, rows=10):
    """Write tiny CIFAR-10 files, with a subclass that knows their sums."""
    base = folder / "cifar-10-batches-py"
    base.mkdir(parents=True)
    sums = {}
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"]
    for k, name in enumerate(names):
        content = {
            "data": np.random.default_rng(k).integers(0, 256, (rows, 3072), dtype=np.uint8),
            "labels": [i % 10 for i in range(rows)],
        }
        if name == "batches.meta":
            content = {"label_names": [f"class {i}" for i in range(10)]}
        (base / name).write_bytes(pickle.dumps(content))
        sums[name] = hashlib.md5((base / name).read_bytes()).hexdigest()
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(base, "cifar-10-batches-py")
    return own_class(folder / "cifar-10-python.tar.gz", sums)


def own_class(archive, sums, url="http://127.0.0.1:9/"):
    members = {
        "url": f"{url}{archive.name}",
        "filename": archive.name,
        "tgz_md5": hashlib.md5(archive.read_bytes()).hexdigest(),
        "train_list": [[name, md5] for name, md5 in sums.items() if name.startswith("data")],
        "test_list": [["test_batch", sums["test_batch"]]],
        "meta": {**datasets.CIFAR10.meta, "md5": sums["batches.meta"]},
    }
    return type("Tiny", (datasets.CIFAR10,), members)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        if self.headers["Method"] != "HEAD":  # how torchvision asks for redirections
            self.server.asked.append(self.path)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Serves ``tmp_path / "web"`` over the loopback device; ``asked`` lists the requests."""
    monkeypatch.setenv("no_proxy", "*")
    (tmp_path / "web").mkdir()
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "web")
    ) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.parametrize("split", [None, "fit", "test"])
def test_h11_setup_downloads_nothing_and_says_what_to_do(tmp_path, server, split):
    tiny = write_batches(tmp_path / "web")
    tiny.url = f"http://127.0.0.1:{server.server_port}/cifar-10-python.tar.gz"
    dm = CIFAR10DataModule(tmp_path / "data", dataset_class=tiny)
    with pytest.raises(
        FileNotFoundError, match=r"data' does not hold the files of Tiny.* call dm.pr"
    ):
        dm.setup(split)
    assert server.asked == []
    assert not (tmp_path / "data").exists()


def test_prepare_data_downloads_once_and_verifies(tmp_path, server):
    tiny = write_batches(tmp_path / "web")
    tiny.url = f"http://127.0.0.1:{server.server_port}/cifar-10-python.tar.gz"
    dm = CIFAR10DataModule(tmp_path / "data", dataset_class=tiny, val_split=10)
    dm.prepare_data()
    dm.prepare_data()
    assert server.asked == ["/cifar-10-python.tar.gz"]
    dm.setup("fit")
    assert [len(dm.train_dataset), len(dm.val_dataset), len(dm.test_dataset)] == [40, 10, 10]
    assert dm.input_sizes == {"input_shape": [3, 32, 32]}


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_archive_is_refused(tmp_path, server, damage):
    tiny = write_batches(tmp_path / "web")
    tiny.url = f"http://127.0.0.1:{server.server_port}/cifar-10-python.tar.gz"
    archive = tmp_path / "web" / "cifar-10-python.tar.gz"
    content = archive.read_bytes()
    archive.write_bytes(content[:-100] if damage == "cut" else content[:-1] + b"x")
    dm = CIFAR10DataModule(tmp_path / "data", dataset_class=tiny)
    with pytest.raises(RuntimeError, match="corrupted"):
        dm.prepare_data()
    with pytest.raises(FileNotFoundError, match="or they are damaged"):
        dm.setup()


def test_damaged_files_are_refused_and_fetched_anew(tmp_path, server):
    tiny = write_batches(tmp_path / "web")
    tiny.url = f"http://127.0.0.1:{server.server_port}/cifar-10-python.tar.gz"
    shutil.copytree(tmp_path / "web", tmp_path / "data")
    batch = tmp_path / "data" / "cifar-10-batches-py" / "data_batch_3"
    batch.write_bytes(batch.read_bytes()[:-1] + b"x")
    dm = CIFAR10DataModule(tmp_path / "data", dataset_class=tiny)
    with pytest.raises(FileNotFoundError, match="or they are damaged"):
        dm.setup()
    dm.prepare_data()
    dm.setup()
    assert server.asked == [], "the archive beside them was whole"


def test_the_small_set_is_read_and_trains(data_dir, tmp_path):
    folder = data_dir / "images" / "cifar10_batches_small"
    lines = (folder / "cifar-10-batches-py" / "MD5SUMS").read_text().splitlines()
    sums = {name: md5 for md5, name in map(str.split, lines)}
    tiny = own_class(folder / "cifar-10-python.tar.gz", sums)
    dm = CIFAR10DataModule(folder, dataset_class=tiny, batch_size=128)
    dm.prepare_data()
    dm.setup()
    assert [len(dm.train_dataset), len(dm.val_dataset), len(dm.test_dataset)] == [900, 100, 200]
    assert dm.classes[0] == "airplane"
    quiet_trainer(tmp_path).fit(Net(), dm)


def test_root_in_any_spelling(tmp_path, monkeypatch):
    tiny = write_batches(tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for root in ("~/home", "home", "home/", Path("home"), tmp_path / "home"):
        dm = CIFAR10DataModule(root, dataset_class=tiny)
        dm.prepare_data()
        dm.setup()
    monkeypatch.chdir("/")
    assert len(list(dm.train_dataloader())) == 2


# --- options, checkpoints, prediction --------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding": -1}, "padding must be at least 0, got -1"),
        ({"batch_size": 0}, "batch_size must be a whole number, at least 1, got 0"),
        ({"val_split": 1.5}, "val_split=1.5 is a float and so a fraction"),
    ],
)
def test_impossible_options_are_refused_when_built(options, message):
    with pytest.raises(ValueError, match=message):
        stub(**options)


def test_what_does_not_fit_the_data_is_refused():
    with pytest.raises(ValueError, match="test_split was given, but the set has a test part"):
        stub(test_split=0.1).setup()
    with pytest.raises(
        ValueError, match=r"val_split and test_split take 60 \+ 0 samples, there are 50"
    ):
        stub(val_split=60).setup()
    message = "have 1 channels, the mean and std of CIFAR10DataModule 3; write a subclass"
    with pytest.raises(ValueError, match=message):
        stub(Grey).setup()


@pytest.mark.parametrize("source", [CIFAR10DataModule, CIFAR100DataModule, FashionMNISTDataModule])
def test_absent_files_are_named(tmp_path, source):
    with pytest.raises(
        FileNotFoundError, match=r"does not hold the files of .*call dm.prepare_dat"
    ):
        source(tmp_path).setup()


def test_a_callable_without_a_name_makes_the_data_set_too(tmp_path):
    dm = CIFAR10DataModule(tmp_path, dataset_class=partial(datasets.CIFAR10))
    with pytest.raises(FileNotFoundError, match="does not hold the files of partial"):
        dm.setup()


def test_a_plain_split_on_request():
    dm = stub(split_options={"stratify": False}, val_split=10)
    assert len(dm.val_dataset) == 10
    assert torch.bincount(dm.val_dataset.targets, minlength=10).tolist() != [1] * 10


def test_a_checkpoint_predicts_alone_and_downloads_nothing(tmp_path):
    dm, trainer = stub(), quiet_trainer(tmp_path)
    trainer.fit(Net(), dm)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    state = torch.load(tmp_path / "x.ckpt", weights_only=True)["CIFAR10DataModule"]
    assert state["fitted"]["classes"] == list(Stub.classes)
    for i in range(3):
        noise(tmp_path / "flat" / f"{i}.png", i, size=(9 - i, 7))
    loaded = CIFAR10DataModule.load_from_checkpoint(
        tmp_path / "x.ckpt", predict_path=tmp_path / "flat", dataset_class=Absent, num_workers=0
    )
    answers = quiet_trainer(tmp_path).predict(Net(), loaded)
    assert [answer.shape for answer in answers] == [(3, 10)]
    assert loaded.classes == list(Stub.classes)
    assert [Path(key).name for key in loaded.predict_keys] == ["0.png", "1.png", "2.png"]
    loaded.predict_path = np.zeros((2, 5, 5, 3), np.uint8)
    assert loaded.predict_keys == ["image 0", "image 1"]
    assert next(iter(loaded.predict_dataloader())).shape == (2, 3, 6, 6)


class Absent(Stub):
    def __init__(self, root, train=True, download=False):
        raise AssertionError("the set was asked for")


def test_a_data_set_of_ones_own_has_to_be_given_again(tmp_path):
    trainer = quiet_trainer(tmp_path)
    trainer.fit(Net(), stub())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    loaded = CIFAR10DataModule.load_from_checkpoint(tmp_path / "x.ckpt")
    with pytest.raises(
        ValueError, match=r"dataset_class=<Stub> of your own.*pass dataset_class= ag"
    ):
        loaded.setup("test")


def test_the_split_is_named_in_the_fingerprint():
    def digest(**options):
        dm = stub(**options)
        dm.setup()
        return dm.split_fingerprint()

    assert digest() == digest()
    assert (
        len({digest(), digest(split_seed=1), digest(val_split=10), digest(dataset_class=Large)})
        == 4
    )
