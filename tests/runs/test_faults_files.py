"""Files that go away, change or are closed during a fit; disks that fill; downloads that break."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import lightning as L
import numpy as np
import pytest
import torch
from PIL import Image
from processes import run_program
from script_runs import run_folder
from torchvision.transforms import v2

from datamodules import CIFAR10DataModule, ImageFolderDataModule
from tests.sources.test_cifar10_files import write_batches

PLAIN = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
ROOT = str(Path(__file__).parents[2])


@pytest.fixture
def folder(tmp_path):
    return images(tmp_path / "root")


def images(root):
    """Two classes of 6, of grey levels 0 to 11."""
    for row in range(12):
        path = root / ("ash" if row < 6 else "birch") / f"{row:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), row, np.uint8)).save(path)
    return root


def module(root, **options):
    options = {"mode": "L", "train_transform": PLAIN, "batch_size": 4, "num_workers": 0} | options
    return ImageFolderDataModule(root, val_split=0, test_split=0, sampler="sequential", **options)


def levels(loader):
    return [(b.inputs[:, 0, 0, 0] * 255).round().int().tolist() for b in loader]


def deleted(path):
    path.unlink()


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def emptied(path):
    path.write_bytes(b"")


def made_a_pipe(path):
    path.unlink()
    os.mkfifo(path)


def made_a_folder(path):
    path.unlink()
    path.mkdir()


def made_a_page(path):
    path.write_text("<html>moved</html>")


def made_a_loop(path):
    path.unlink()
    path.symlink_to(path.name)


FATES = [deleted, cut, emptied, made_a_pipe, made_a_folder, made_a_page, made_a_loop]


@pytest.mark.timeout(100)
@pytest.mark.parametrize("fate", FATES)
def test_a_file_that_changes_during_a_fit_is_named_or_with_skip_counted(folder, fate):
    victim = folder / "ash" / "02.png"
    strict, skipping = module(folder), module(folder, on_error="skip")
    loaders = [dm.train_dataloader() for dm in (strict, skipping)]
    for loader in loaders:
        assert levels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        loader.sampler.set_epoch(1)
    fate(victim)
    with pytest.raises(Exception, match=r"02\.png"):
        list(loaders[0])
    with pytest.warns(UserWarning, match="1 of 12 train files cannot be read"):
        assert levels(loaders[1]) == [[0, 1, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert list(skipping.bad_files) == [str(victim)]


@pytest.mark.timeout(100)
def test_a_file_that_changes_is_named_by_persistent_workers(folder):
    loader = module(folder, num_workers=2, on_error="skip").train_dataloader()
    assert len(levels(loader)) == 3
    loader.sampler.set_epoch(1)
    cut(folder / "ash" / "02.png")
    deleted(folder / "birch" / "08.png")
    with pytest.warns(UserWarning, match="2 of 12 train files cannot be read"):
        assert levels(loader) == [[0, 1, 3], [4, 5, 6, 7], [9, 10, 11]]


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="no such permissions")
def test_a_file_without_read_permission_is_named_or_with_skip_counted():
    root = Path(tempfile.mkdtemp())  # the test's own folder is closed to other users
    me = os.geteuid()
    try:
        root.chmod(0o755)
        closed = images(root / "p") / "ash" / "02.png"
        closed.chmod(0)
        dm, skipping = module(root / "p"), module(root / "p", on_error="skip")
        loaders = dm.train_dataloader(), skipping.train_dataloader()
        if me == 0:
            os.seteuid(65534)  # root may read everything
        with pytest.raises(Exception, match=r"Permission denied.*02\.png"):
            list(loaders[0])
        with pytest.warns(UserWarning, match="1 of 12 train files"):
            assert levels(loaders[1])[0] == [0, 1, 3]
    finally:
        os.seteuid(me)
        shutil.rmtree(root)


FULL = """
import json, resource, signal, sys
from pathlib import Path
import numpy as np, torch
from datamodules import ImageFolderDataModule
from datamodules.readers.cache import cached, written_once
from datamodules.feature_packs.writer import write_features
from datamodules.images.packs.writer import write_pack
from predictions import PredictionTable

root, out = Path(sys.argv[1]), Path(sys.argv[2])
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 500))
dm = ImageFolderDataModule(root, mode="L", image_size=8, num_workers=0, val_split=0, test_split=0)
rows, many = np.arange(20000), {"row": list(range(20000)), "value": list(range(20000))}
table = PredictionTable(out / "p.csv", task="regression")
parquet = PredictionTable(out / "p.parquet", task="regression")
big = lambda made, path: path.write_bytes(made)
works = {
    "pack": lambda: write_pack(root, out / "x.pack", kind="resized-raw", size=64, workers=1),
    "features": lambda: write_features(dm, net, out / "x.features"),
    "csv": lambda: table._write(many, {"row": []}, rows),
    "parquet": lambda: parquet._write(many, {"row": []}, rows),
    "samples": lambda: written_once("s", lambda folder: (folder / "a").write_bytes(bytes(9000))),
    "cache": lambda: len(cached("c", lambda: bytes(9000), Path.read_bytes, big)),
}
dm.setup()
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
said = {}
for name, work in works.items():
    try:
        said[name] = [str(work())]
    except OSError as error:
        said[name] = [str(error), error.filename]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
left = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
print("SAID", json.dumps([said, left]))
"""


@pytest.mark.timeout(200)
def test_a_full_disk_is_an_error_with_the_path_and_leaves_no_half_file(tmp_path):
    root, out = images(tmp_path / "p"), tmp_path / "out"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    for path in root.rglob("*.png"):
        Image.fromarray(noise).save(path)
    out.mkdir()
    path = os.pathsep.join([ROOT, str(Path(ROOT) / "scripts")])
    printed = run_program(
        "-W", "ignore", "-c", FULL, root, out, PYTHONPATH=path, DATAMODULES_CACHE=str(out / "cache")
    )
    line = next(line for line in printed.splitlines() if line.startswith("SAID "))
    said, left = json.loads(line[5:])
    assert said.pop("cache") == ["9000"]  # a cache that cannot be written only costs time
    for work, place in {
        "pack": "x.pack.partial/00000.bin.half",
        "features": "x.features.partial/train-features.npy",
        "csv": ".p.csv.",
        "parquet": ".p.parquet.",
        "samples": "/cache/.s-",
    }.items():
        message, filename = said[work]
        assert message.startswith("[Errno 27] File too large (raise the limit"), work
        assert filename in message, work
        assert place in filename, work
    assert left == ["x.pack.partial/plan.json"]  # the next call goes on with it


@pytest.mark.parametrize("kind", ["BestCheckpoint", "LastCheckpoint"])
def test_a_checkpoint_on_a_full_disk_keeps_the_previous_one(tmp_path, kind):
    callback = getattr(run_folder, kind)(tmp_path, *([None] * (kind == "BestCheckpoint")))
    trainer = L.Trainer(accelerator="cpu", devices=1, logger=False, default_root_dir=tmp_path)
    path = tmp_path / "last.ckpt"

    def save(content, error=None):
        def saved(filepath, *_):
            Path(filepath).write_bytes(content)
            if error is not None:
                raise error

        trainer.save_checkpoint = saved
        callback._save_checkpoint(trainer, str(path))

    save(b"first")
    save(b"second")
    with pytest.raises(OSError, match=r"No space.*free some space.*last\.ckpt\.half"):
        save(b"thi", OSError(errno.ENOSPC, "No space left on device"))
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]
    assert callback._last_checkpoint_saved == str(path)


class Slow(SimpleHTTPRequestHandler):
    """Counts what is fetched; the first answer may stop half-way or wait."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.headers["Method"] == "HEAD":  # how torchvision asks for redirections
            return self.do_HEAD()
        self.server.asked.append(self.path)
        content = (Path(self.directory) / self.path.lstrip("/")).read_bytes()
        if self.server.first == "waits":
            time.sleep(1)
        half = self.server.first == "stops" and len(self.server.asked) == 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if half else content)
        return None

    def do_HEAD(self):
        self.send_response(200)
        self.end_headers()


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """A datamodule whose files come from the loopback device, and the server."""
    monkeypatch.setenv("no_proxy", "*")
    (tmp_path / "web").mkdir()
    tiny = write_batches(tmp_path / "web")
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Slow, directory=str(tmp_path / "web"))
    ) as server:
        server.asked, server.first = [], ""
        tiny.url = f"http://127.0.0.1:{server.server_port}/cifar-10-python.tar.gz"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield lambda: CIFAR10DataModule(tmp_path / "data", dataset_class=tiny, val_split=10), server
        server.shutdown()
        thread.join()


@pytest.mark.timeout(100)
def test_an_incomplete_download_is_not_used_and_is_repeated(fetched):
    made, server = fetched
    server.first = "stops"
    with pytest.raises(RuntimeError, match="corrupted"):
        made().prepare_data()
    with pytest.raises(FileNotFoundError, match="or they are damaged"):
        made().setup()
    dm = made()
    dm.prepare_data()
    dm.setup()
    assert len(server.asked) == 2
    assert [len(dm.train_dataset), len(dm.val_dataset), len(dm.test_dataset)] == [40, 10, 10]


@pytest.mark.timeout(100)
def test_an_incomplete_extraction_is_not_used_and_is_repeated(fetched, tmp_path):
    made, server = fetched
    made().prepare_data()
    batch = tmp_path / "data" / "cifar-10-batches-py" / "data_batch_4"
    cut(batch)
    (batch.parent / "data_batch_5").unlink()
    with pytest.raises(FileNotFoundError, match="or they are damaged"):
        made().setup()
    made().prepare_data()
    made().setup()
    assert len(server.asked) == 1  # the archive was whole


@pytest.mark.timeout(100)
def test_two_processes_download_the_same_files_once(fetched):
    made, server = fetched
    server.first = "waits"
    failed = []

    def fetch():
        try:
            made().prepare_data()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert len(server.asked) == 1
    made().setup()


class Jumps(L.Callback):
    """The wall clock leaps back by years, and forward again, at every batch."""

    def __init__(self, monkeypatch):
        self.monkeypatch, self.now = monkeypatch, time.time

    def on_train_batch_start(self, trainer, module, batch, index):
        offset = (-3e8, 3e8)[index % 2]
        self.monkeypatch.setattr(time, "time", lambda: self.now() + offset)


@pytest.mark.timeout(100)
@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no")
def test_a_jump_of_the_clock_changes_nothing(folder, tmp_path, monkeypatch):
    rows = []
    for callbacks in ([], [Jumps(monkeypatch)]):
        seen = []
        trainer = L.Trainer(
            accelerator="cpu", devices=1, max_epochs=2, callbacks=callbacks, logger=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
            enable_checkpointing=False, limit_val_batches=0,
        )  # fmt: skip
        trainer.fit(Records(seen), module(folder, num_workers=1, seed=0))
        monkeypatch.undo()
        rows.append(seen)
    assert rows[0] == rows[1] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]] * 2


class Records(L.LightningModule):
    def __init__(self, seen):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), seen

    def training_step(self, batch, index):
        self.seen += levels([batch])
        return self.layer(batch.inputs.flatten(1)[:, :1]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
