from __future__ import annotations

import hashlib
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
from image_files import Net, noise, quiet_trainer
from torchvision import datasets

from datamodules import CIFAR10DataModule, CIFAR100DataModule, FashionMNISTDataModule


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


class Grey(Stub):
    """As FashionMNIST: tensors without a channel axis."""

    shape = (7, 7)

    def __init__(self, root, train=True, download=False):
        super().__init__(root, train)
        self.data, self.targets = torch.from_numpy(self.data), torch.tensor(self.targets)


def stub(dataset_class=Stub, **options):
    return CIFAR10DataModule("nowhere", dataset_class=dataset_class, **{"padding": 1, **options})


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
    with pytest.raises(
        ValueError, match="test_split was given, but the dataset has its own test split"
    ):
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
        ValueError, match=r"your own dataset_class=<Stub>, .* pass dataset_class= ag"
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
