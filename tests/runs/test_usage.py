"""The ways in which a datamodule is used: plain loops, Fabric, torchrun, notebooks, the CLI."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import lightning as L
import pytest
import torch
from lightning.pytorch.cli import LightningCLI
from processes import Program
from two_ranks import Rows

from datamodules import ImageFolderDataModule, samples
from models import Classifier

HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def test_a_plain_training_loop():
    dm = samples.digits()
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    losses = []
    for _ in range(3):
        for images, labels in dm.train_dataloader():
            loss = torch.nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert len(losses) == 3 * len(dm.train_dataloader())
    assert sum(losses[-5:]) < sum(losses[:5]) * 0.8


def quiet(tmp_path, **flags):
    return L.Trainer(
        **{
            "accelerator": "cpu",
            "devices": 1,
            "max_epochs": 1,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "default_root_dir": tmp_path,
            "limit_train_batches": 4,
            "limit_val_batches": 2,
            **flags,
        }
    )


def test_a_loader_in_a_trainer(tmp_path):
    dm = samples.digits()
    model = Classifier(num_classes=10, input_sizes={"input_shape": [1, 8, 8]})
    quiet(tmp_path).fit(model, dm.train_dataloader(), dm.val_dataloader())


@pytest.mark.parametrize("precision", ["64-true", "bf16-true", "bf16-mixed"])
def test_precisions(tmp_path, precision):
    trainer = quiet(tmp_path, precision=precision)
    trainer.fit(Classifier(), samples.digits())
    assert torch.isfinite(trainer.callback_metrics["val_loss"])


# torch 2.14's compiler looks at the gradients of what it traces, and warns of itself
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_torch_compile(tmp_path):
    model = torch.compile(Classifier(), backend="eager")
    quiet(tmp_path).fit(model, samples.digits())


PROGRAMS = {
    "fabric": [HELPERS / "plain_ranks.py", "fabric"],
    "torchrun": [
        *("-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *(HELPERS / "plain_ranks.py", "torch"),
    ],
    "digits": [HELPERS / "notebook_launch.py", "digits", "classifier"],
    "breast_cancer": [HELPERS / "notebook_launch.py", "breast_cancer", "classifier"],
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """All of them at once."""
    started = {}
    for name, command in PROGRAMS.items():
        cache = str(tmp_path_factory.mktemp(name) / "cache")
        started[name] = Program(*command, DATAMODULES_CACHE=cache)
    yield started
    for program in started.values():
        program.end()


def ranks(program):
    output = program.finished(200)
    lines = [line for line in output.splitlines() if line.startswith("SEEN ")]
    return [found for _, found in sorted(json.loads(line[5:]) for line in lines)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["fabric", "torchrun"])
def test_each_row_once_on_two_processes_without_a_trainer(programs, name):
    found = ranks(programs[name])
    assert len(found) == 2
    dm = Rows(101)
    dm.setup()
    for epoch in (0, 1):
        trained = [i for train, _ in found for i in train[epoch]]
        assert set(trained) == set(dm.parts["train"].tolist())
        assert len(trained) - len(set(trained)) < 4
    assert found[0][0][0] != found[0][0][1]
    assert sorted(i for _, val in found for i in val[0]) == dm.parts["val"].tolist()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["digits", "breast_cancer"])  # polars and fork do not mix
def test_preview_then_a_forked_launch_as_in_a_notebook(programs, name):
    output = programs[name].finished(200)
    assert "(64,)" in output
    assert "FITTED" in output


# Lightning 2.6.6 calls names that jsonargparse 4.49 deprecated
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Starting from v1.9.0, `tensorboardX`:UserWarning")
def test_lightning_cli(tmp_path, monkeypatch):
    flags = {"--data.batch_size": 32, "--data.mode": "L", "--data.image_size": 8}
    root = samples.digits().hparams["root"]
    command = ["fit", f"--data.root={root}", *(f"{k}={v}" for k, v in flags.items())]
    command += ["--trainer.fast_dev_run=true", "--trainer.accelerator=cpu", "--model.lr=0.01"]
    command += ["--seed_everything=1"]
    monkeypatch.setattr(sys, "argv", ["cli.py", *command])
    cli = LightningCLI(Classifier, ImageFolderDataModule)
    assert cli.datamodule.hparams["batch_size"] == 32
    assert cli.trainer.state.finished
