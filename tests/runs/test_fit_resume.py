from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from script_runs import (  # noqa: F401 - an autouse fixture
    CPU,
    as_if_alone,
    metrics,
)

from datamodules import ImageFolderDataModule
from models import Classifier


def test_an_interrupted_run_prints_the_command_that_resumes_it_exactly(run, images, own):
    assert run(*images, "--max_epochs", 4)[0] == 0
    code, out, err = run(*images, "--max_epochs", 4, "--callbacks", "own.Interrupt")
    assert code == 130
    assert out.count("epoch ") == 2
    command = re.search(r"resume with: python \S+ (.*)\n", err)[1].split()
    code, out, err = run(*command, "--callbacks", "null")
    assert (code, err) == (0, "")
    assert "epoch 3/4" in out
    assert "epoch 2/4" not in out
    whole, rest = (metrics(Path(f"runs/image_folder-{n}"))["train_loss"] for n in (1, 3))
    assert rest == whole[2:]
    ends = [torch.load(f"runs/image_folder-{n}/checkpoints/last.ckpt") for n in (1, 3)]
    torch.testing.assert_close(ends[0]["state_dict"], ends[1]["state_dict"], rtol=0, atol=0)


def test_a_resumed_run_keeps_the_best_checkpoint_of_the_first(run, images):
    assert run(*images, "--max_epochs", 12)[0] == 0
    assert max(metrics(Path("runs/image_folder-1"))["val_accuracy"]) == 1.0
    last = "runs/image_folder-1/checkpoints/last.ckpt"
    code, out, err = run(*images, "--max_epochs", 13, "--ckpt_path", last)
    assert (code, err) == (0, "")
    assert "checkpoint        runs/image_folder-1/checkpoints/best.ckpt" in out
    assert "best checkpoint, val_accuracy 1.0000" in out


def test_a_checkpoint_with_all_epochs_completed_is_refused_and_leaves_no_folder(run, images):
    assert run(*images, "--max_epochs", 1)[0] == 0
    last = "runs/image_folder-1/checkpoints/last.ckpt"
    code, _, err = run(*images, "--max_epochs", 1, "--ckpt_path", last)
    assert code == 2
    assert "has completed all of its epochs; raise --max_epochs" in err
    assert [folder.name for folder in Path("runs").iterdir()] == ["image_folder-1"]


def test_h30_model_and_data_load_from_the_checkpoint_alone_and_the_fit_resumes(run, images):
    assert run(*images, "--max_epochs", 1)[0] == 0
    best = "runs/image_folder-1/checkpoints/best.ckpt"
    data, model = ImageFolderDataModule("images"), Classifier.load_from_checkpoint(best)
    data = ImageFolderDataModule.load_from_checkpoint(best)
    assert data.hparams.batch_size == 17
    saved = torch.load(best, weights_only=True)
    assert saved["written_by"] == {
        "model_class": "models.classifier.Classifier",
        "data_class": "datamodules.image_folder.ImageFolderDataModule",
    }
    again = Classifier.load_from_checkpoint(best)
    inputs = torch.randn(5, 1, 8, 8)
    torch.testing.assert_close(model.eval()(inputs), again.eval()(inputs), rtol=0, atol=1e-6)
    assert run(*images, "--max_epochs", 2, "--ckpt_path", best)[0] == 0
    Path("images").rename("elsewhere")
    assert ImageFolderDataModule.load_from_checkpoint(best).classes == ["dark", "grey", "light"]


def test_h30_data_and_model_may_have_hyperparameters_of_the_same_name(run, own):
    flags = ["--data", "own.Plain", "--model", "own.OwnModel", "--data.num_classes", 3]
    code, _, err = run(*flags, "--model.num_classes", 2, "--max_epochs", 1, *CPU)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("name", ["absent.ckpt", "own.py"])
def test_a_file_that_is_not_a_checkpoint_is_reported_in_one_line(run, images, own, name):
    code, _, err = run(*images, "--ckpt_path", name)
    assert code == 1
    assert name in err
    assert err.count("\n") == 1
