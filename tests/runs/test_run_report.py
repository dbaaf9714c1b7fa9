from __future__ import annotations

import re
from pathlib import Path

import lightning as L
import pytest
import torch
from html_pages import read_page
from script_runs import (  # noqa: F401 - a fixture that is there by being known
    OWN,
    as_if_alone,
    fit,
    on_images,
    write_images,
)
from torch.utils.data import DataLoader, TensorDataset

import inspect_data
from run_report import AnswersHeard


@pytest.fixture
def images(tmp_path):
    return on_images(write_images(tmp_path / "images"))


def run(*arguments):
    return fit.main([str(argument) for argument in arguments])


def test_a_run_writes_a_report_of_the_model_errors(images, capfd):
    assert run(*images, "--max_epochs", 1) == 0
    out = capfd.readouterr().out
    place = Path("runs/image_folder-1/report.html")
    assert f"report            {place}" in out
    page = read_page(place.read_text(encoding="utf-8"))
    accuracy = re.search(r"│ accuracy +│ +([01]\.\d{4}) │", out)[1]
    assert accuracy in page.text
    wrong = round(12 * (1 - float(accuracy)))
    assert f"12 test samples, {wrong} wrong" in page.text
    assert not page.addresses
    assert len(page.images) == 1 + 12  # the confusion matrix and every test image
    names = re.findall(r"images/\w+/\w+\.png", page.text)
    assert len(set(names)) == 12


def test_the_report_is_optional_and_shows_val_without_a_test_split(images):
    assert run(*images, "--max_epochs", 1, "--report", "false") == 0
    assert not Path("runs/image_folder-1/report.html").exists()
    assert run(*images, "--max_epochs", 1, "--data.test_split", 0) == 0
    text = Path("runs/image_folder-2/report.html").read_text(encoding="utf-8")
    assert "Val (there is no test split), best checkpoint" in text
    assert "What the model gets wrong in val" in text


def test_the_report_of_a_run_can_be_written_later_with_the_same_or_other_data(images, capfd):
    assert run(*images, "--max_epochs", 1, "--report", "false") == 0
    best = "runs/image_folder-1/checkpoints/best.ckpt"
    capfd.readouterr()
    assert inspect_data.main(["--ckpt_path", best, "--report", "look"]) == 0
    said = capfd.readouterr().out
    assert "12 test samples, " in said
    page = read_page(Path("look/report.html").read_text(encoding="utf-8"))
    assert "What the model gets wrong in test" in page.text
    root = next(a for a in images if a.startswith("--data.root"))
    given = ["--data", "ImageFolderDataModule", root, "--data.image_size=8", "--data.mode=L"]
    assert inspect_data.main([*given, "--data.test_split=0", "--ckpt_path", best]) == 0
    assert re.search(r"\d+ val samples, ", capfd.readouterr().out)
    assert inspect_data.main(["--data", "wine", "--ckpt_path", best]) == 1
    assert "of ImageFolderDataModule, not of TabularDataModule" in capfd.readouterr().err


def quiet():
    return L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


class Plain(L.LightningModule):
    """Calls itself, its net, or something of another shape."""

    def __init__(self, way):
        super().__init__()
        self.net, self.way = torch.nn.Linear(2, 2), way

    def forward(self, x):
        return {"of another kind": x} if self.way == "dict" else self.net(x)

    def test_step(self, batch, index):
        _ = self.net(batch[0]) if self.way == "net" else self(batch[0])


class Stock(L.LightningDataModule):
    def __init__(self, **options):
        super().__init__()
        rows = TensorDataset(torch.rand(10, 2), torch.arange(10) % 2)
        self.loader = DataLoader(rows, batch_size=4, **options)

    def test_dataloader(self):
        return self.loader


@pytest.mark.filterwarnings("ignore:The 'test_dataloader' does not have many workers")
@pytest.mark.filterwarnings("ignore:Your `test_dataloader`'s sampler has shuffling enabled")
@pytest.mark.parametrize(
    ("way", "options", "said"),
    [
        ("self", {}, ""),
        ("net", {}, "does not call the model itself"),
        ("dict", {}, "one row for each of 4 samples, got dict"),
        ("self", {"shuffle": True}, "pass shuffle=False"),
    ],
)
def test_outputs_that_cannot_be_recorded_are_reported_and_do_not_stop_the_run(way, options, said):
    heard, trainer = AnswersHeard("test", k=3), quiet()
    trainer.callbacks.append(heard)
    model = Plain(way)
    trainer.test(model, Stock(**options), verbose=False)
    assert said in heard.hindrance
    assert (heard.found is None) == bool(said)
    assert not model._forward_hooks
    if not said:
        assert heard.found.looked_at == 10
        assert len(heard.found.samples) == 3
