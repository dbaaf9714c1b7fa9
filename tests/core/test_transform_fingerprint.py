from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import lightning as L
import pytest
import torch
from torch.utils.data import TensorDataset
from torchvision import transforms as v1
from torchvision.transforms import v2
from trainers import quiet_trainer

from datamodules import DatasetDataModule
from datamodules.core.transform_fingerprint import check_transforms, print_transforms, printed


def shift(x, by=1.0):
    return x + by


def double(x):
    return x * 2


class Scale:
    """No repr of its own."""

    def __init__(self, by=1.0):
        self.by = by

    def __call__(self, x):
        return x * self.by


def closure(by):
    return lambda x: x + by


PAIRS = {
    "another function": (shift, double),
    "another argument": (partial(shift, by=1.0), partial(shift, by=2.0)),
    "another value in a closure": (closure(1), closure(2)),
    "another lambda": (lambda x: x + 1, lambda x: x + 2),
    "another parameter": (v2.RandomCrop(8), v2.RandomCrop(9)),
    "another member": (
        v2.Compose([v2.RandomCrop(8), v2.RandomHorizontalFlip()]),
        v2.Compose([v2.RandomCrop(8), v2.RandomHorizontalFlip(0.4)]),
    ),
    "another order": (v1.Compose([shift, double]), v1.Compose([double, shift])),
    "another lambda in a chain": (
        v1.Compose([v1.Lambda(shift)]),
        v1.Compose([v1.Lambda(double)]),
    ),
    "in a module": (
        torch.nn.Sequential(v2.RandomCrop(8)),
        torch.nn.Sequential(v2.RandomCrop(9)),
    ),
    "given and not given": (shift, None),
    "another class": (Scale(), closure),
}


@pytest.mark.parametrize("name", PAIRS)
def test_tells_apart(name):
    one, other = PAIRS[name]
    assert printed(one) != printed(other)


def test_what_holds_an_address_raises_no_false_alarm():
    assert printed(Scale(1.0)) == printed(Scale(2.0))
    assert " at 0x" not in printed(v1.Compose([Scale(), shift, v1.Lambda(Scale())]))
    assert " at 0x" not in printed(torch.nn.Sequential(v2.Lambda(shift)))


PROGRAM = """
from functools import partial
from datamodules.core.transform_fingerprint import printed

class Scale:
    def __call__(self, x):
        return x * 2

def member(x, by=1):
    return x if str(x) in {"a", "b", "c", "d"} else (lambda y: y + by)

print(printed([member, partial(member, by=2), Scale(), {"scale": Scale().__call__}]))
"""


@pytest.mark.runs
@pytest.mark.timeout(300)
def test_is_the_same_in_every_process():
    said = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_other_versions_and_older_states_are_not_compared():
    now = print_transforms({"train_transform": shift})
    then = print_transforms({"train_transform": double})
    check_transforms({**then, "versions": "Python 3.0"}, now)
    check_transforms({"versions": now["versions"]}, now)
    check_transforms(None, now)
    with pytest.raises(RuntimeError, match="another train_transform: it was double"):
        check_transforms(then, now)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch, index):
        return (self.weight * batch.inputs).mean()

    def validation_step(self, batch, index):
        """Silences Lightning's warning of a loader without its step."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def fit(tmp_path, ckpt=None, *, max_steps=-1, **options):
    data = TensorDataset(torch.arange(16.0)[:, None], torch.zeros(16, dtype=torch.int64))
    dm = DatasetDataModule(train=data, batch_size=4, num_workers=0, seed=0, val_split=0, **options)
    trainer = quiet_trainer(max_steps=max_steps, max_epochs=2, default_root_dir=tmp_path)
    trainer.fit(Net(), dm, ckpt_path=ckpt, weights_only=None if ckpt is None else True)
    path = tmp_path / "stop.ckpt"
    trainer.save_checkpoint(path)
    return str(path), trainer.global_step


def test_a_changed_transform_is_refused_in_the_middle_of_an_epoch(tmp_path):
    ckpt, step = fit(tmp_path, max_steps=2, train_transform=partial(shift, by=1.0))
    assert step == 2
    with pytest.raises(RuntimeError, match=r"train_transform: it was .*by=1.0.*, now .*by=2.0"):
        fit(tmp_path, ckpt, train_transform=partial(shift, by=2.0))
    assert fit(tmp_path, ckpt, train_transform=partial(shift, by=1.0))[1] > step


def test_a_changed_collate_is_refused_in_the_middle_of_an_epoch(tmp_path):
    ckpt, _ = fit(tmp_path, max_steps=2)
    with pytest.raises(RuntimeError, match="another collate"):
        fit(tmp_path, ckpt, collate="pad")


def test_a_changed_transform_may_begin_an_epoch(tmp_path):
    ckpt, step = fit(tmp_path, max_steps=4, train_transform=shift)
    assert step == 4
    assert fit(tmp_path, ckpt, train_transform=double)[1] == 8
