"""What belongs to the user's program is the same before and after setup and a fit."""

from __future__ import annotations

import os
import random
import warnings

import lightning as L
import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from script_runs import write_images
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info
from torch.utils.data._utils import worker as torch_worker
from trainers import quiet_trainer as trainer

from datamodules import DatasetDataModule, ImageFolderDataModule
from datamodules.core.sync_guard import SyncGuard

# true of any datamodule: Lightning's note that the module's hook is used
pytestmark = pytest.mark.filterwarnings("ignore:You have overridden `on_after_batch:UserWarning")

WORKERS = {
    "none": {"num_workers": 0},
    "processes": {"num_workers": 2, "worker_type": "process"},
    "threads": {"num_workers": 2, "worker_type": "thread"},
}


class Model(L.LightningModule):
    """Overrides the hook that normalization must not take away; fails at a step if told to."""

    def __init__(self, fails_at=None):
        super().__init__()
        self.layer, self.fails_at, self.transferred = torch.nn.Linear(1, 1), fails_at, 0

    def on_after_batch_transfer(self, batch, dataloader_idx):
        self.transferred += 1
        return batch

    def training_step(self, batch, index):
        if index == self.fails_at:
            raise ValueError("the model fails")
        return self.layer(batch[0].float().mean()[None, None]).mean()

    def validation_step(self, batch, index):
        self.log("val", batch[0].float().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def program_state():
    """Everything that a library could change for the rest of the program."""
    return {
        "warning filters": list(warnings.filters),
        "showwarning": warnings.showwarning,
        "environment": dict(os.environ),
        "torch": torch.get_rng_state().tolist(),
        "numpy": str(np.random.get_state()),
        "random": random.getstate(),
        "threads": torch.get_num_threads(),
        "default dtype": torch.get_default_dtype(),
        "Pillow": (
            Image.MAX_IMAGE_PIXELS,
            ImageFile.LOAD_TRUNCATED_IMAGES,
            ImageFile.ImageFile.load,
            Image.Image.load,
        ),
        "worker info": (torch_worker._worker_info, get_worker_info()),
    }


def check_unchanged(before):
    now = program_state()
    assert [name for name in before if before[name] != now[name]] == []


@pytest.fixture(params=WORKERS)
def images(request, tmp_path):
    write_images(tmp_path / "images")
    return ImageFolderDataModule(
        tmp_path / "images", image_size=8, batch_size=4, seed=1, **WORKERS[request.param]
    )


def test_setup_and_loaders_change_nothing(images):
    before = program_state()
    images.setup()
    check_unchanged(before)
    for loader in (images.train_dataloader(), images.val_dataloader()):
        list(loader)
    check_unchanged(before)


@pytest.mark.parametrize("fails_at", [None, 1])
def test_a_fit_changes_nothing(images, fails_at):
    model, run = Model(fails_at), trainer(max_epochs=1)
    before = program_state()
    if fails_at is None:
        run.fit(model, images)
        assert model.transferred
    else:
        with pytest.raises(ValueError, match="the model fails"):
            run.fit(model, images)
    check_unchanged(before)
    assert "log" not in vars(model)


@pytest.mark.parametrize("fails_at", [None, 1])
def test_a_fit_without_validation_restores_the_warning_filters(fails_at):
    data = DatasetDataModule(
        TensorDataset(torch.rand(8, 1), torch.arange(8) % 2),
        val_split=0,
        batch_size=2,
        num_workers=0,
    )
    before = list(warnings.filters)
    model = Model(fails_at)
    if fails_at is None:
        trainer(max_epochs=1).fit(model, data)
    else:
        with pytest.raises(ValueError, match="the model fails"):
            trainer(max_epochs=1).fit(model, data)
    assert warnings.filters == before


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`:UserWarning")
def test_other_peoples_loaders_still_get_lightnings_advice(images, monkeypatch):
    module = "lightning.pytorch.trainer.connectors.data_connector"
    monkeypatch.setattr(f"{module}.suggested_max_num_workers", lambda devices: 4)
    images.setup()
    images.train_dataloader()
    stock = DataLoader(TensorDataset(torch.zeros(4, 1), torch.zeros(4)), num_workers=0)
    with pytest.warns(UserWarning, match="'train_dataloader' does not have many workers"):
        trainer(max_epochs=1, limit_val_batches=0).fit(Model(), stock)


def test_an_exception_in_a_run_restores_the_modules_log(images):
    model = Model()
    images._guard.watch(model, samples=1, ranks=2)
    assert "log" in vars(model)
    images.on_exception(ValueError("of the run"))
    assert "log" not in vars(model)


def test_a_log_of_the_users_own_is_restored():
    model, guard = Model(), SyncGuard()
    own = model.__dict__["log"] = lambda *args, **kwargs: None
    guard.watch(model, samples=1, ranks=2)
    guard.release()
    assert vars(model)["log"] is own


class Shards(IterableDataset):
    """Remembers what ``get_worker_info`` returned while its samples were read."""

    def __iter__(self):
        for number in range(8):
            yield torch.tensor([float(number)]), int(get_worker_info() is None)


def test_the_worker_info_is_hidden_only_while_a_users_stream_is_read():
    data = DatasetDataModule(train=Shards(), batch_size=2, num_workers=2, train_transform=seen)
    batches = list(data.train_dataloader())
    assert [batch.target.tolist() for batch in batches] == [[1, 1]] * 4, "hidden from the stream"
    inside_worker = [batch.inputs[:, 0].tolist() for batch in batches]
    assert inside_worker == [[1.0, 1.0]] * 4, "known to the transform"


def seen(inputs):
    return torch.tensor([float(get_worker_info() is not None)])
