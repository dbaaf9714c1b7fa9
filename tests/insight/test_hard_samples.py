from __future__ import annotations

import json
from pathlib import Path

import lightning as L
import numpy as np
import pytest
import torch
from hardest_ranks import FourthIsA, data
from html_pages import read_page
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset
from warm_start import run_warm

from datamodules import DatasetDataModule, ImageFolderDataModule, TextDataModule, samples
from datamodules.insight import hardest
from datamodules.insight.html_page import Page
from models import Classifier, Regressor

PROGRAM = Path(__file__).parents[1] / "helpers" / "hardest_ranks.py"


def page_of(found):
    page = Page("t")
    found.show(page)
    return read_page(page.html())


def quiet(**flags):
    return L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **flags,
    )


def test_pairs_and_samples_are_those_counted_by_hand():
    found = hardest(FourthIsA(), data(), "test", k=6)
    assert (found.looked_at, found.whole, found.wrong) == (23, 23, 4)
    assert [tuple(pair) for pair in found.confused] == [("b", "a", 2, 2 / 8), ("c", "a", 2, 2 / 7)]
    # wrong rows 4, 8, 16, 20: the surer the worse; then the least sure of the right ones
    assert [sample.row for sample in found.samples] == [20, 16, 8, 4, 0, 1]
    first = found.samples[0]
    assert first.loss == pytest.approx(21, abs=1e-4)
    assert (first.name, first.target, first.answer) == ("row 20", "c (0%)", "a (100%)")


@pytest.mark.runs
def test_two_ranks_find_what_one_finds(tmp_path):
    output = run_warm(PROGRAM, tmp_path, timeout=150)
    lines = [line for line in output.splitlines() if line.startswith("SEEN ")]
    seen = dict(json.loads(line.removeprefix("SEEN ")) for line in lines)
    assert sorted(seen) == [0, 1]
    assert seen[0] == seen[1] == str(hardest(FourthIsA(), data(), "test", k=6))


def test_probabilities_count_as_logits_do():
    class Shares(FourthIsA):
        def forward(self, x):
            return super().forward(x).softmax(1)

    one, other = (hardest(net(), data(), "val") for net in (FourthIsA, Shares))
    assert [s.row for s in one.samples[:4]] == [s.row for s in other.samples[:4]]
    assert other.samples[0].loss == pytest.approx(one.samples[0].loss, abs=0.1)
    assert one.confused == other.confused


def test_the_first_samples_alone_are_evaluated_where_there_are_many():
    found = hardest(FourthIsA(), data(), "val", most=8)
    assert (found.looked_at, found.whole) == (8, 23)
    assert "8 val samples (of 23), 1 wrong" in str(found)


def test_numbers_are_said_in_their_own_units():
    dm = samples.diabetes()
    module = Regressor(lr=1e-3)
    quiet(limit_train_batches=2, limit_val_batches=1).fit(module, dm)
    found = hardest(module, dm, "val", k=3)
    assert (found.wrong, found.confused) == (None, [])
    losses = [sample.loss for sample in found.samples]
    assert losses == sorted(losses, reverse=True)
    batch = next(iter(dm.val_dataloader()))
    scale = dm.target_scale
    units = batch.target * scale["std"][0] + scale["mean"][0]
    worst = found.samples[0]
    assert float(worst.target) == pytest.approx(float(units[worst.row]), rel=1e-3)
    assert "diabetes.csv" in worst.name
    shown = page_of(found).text
    assert "bmi" in shown


def test_several_labels_a_sample_are_all_said():
    y = torch.tensor([[1.0, 0.0], [1.0, 1.0]]).repeat(6, 1)
    rows = TensorDataset(torch.cat([y, 1 - y], 1), y)
    dm = DatasetDataModule(train=rows, val=rows, task="multilabel", classes=["red", "round"])

    class SaysRed(torch.nn.Module):
        def forward(self, x):
            return torch.tensor([[9.0, -9.0]]).expand(len(x), 2)

    found = hardest(SaysRed(), dm, "val", k=2)
    assert (found.wrong, found.confused) == (6, [])
    assert [(s.target, s.answer) for s in found.samples] == [("red, round", "red")] * 2


@pytest.fixture
def images(tmp_path):
    draws = np.random.default_rng(0)
    for name in ('<ash> & "oak"', "yew"):
        (tmp_path / name).mkdir()
        for k in range(10):
            pixels = draws.integers(0, 256, (20, 24, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{k}.png")
    return ImageFolderDataModule(tmp_path, image_size=16, num_workers=0, val_split=8)


def test_images_are_shown_with_their_file_names(images):
    module = Classifier()
    quiet(limit_train_batches=1, limit_val_batches=1).fit(module, images)
    training = module.training
    found = hardest(module, images, "val", k=4)
    assert module.training == training
    page = page_of(found)
    assert len(page.images) == 4
    assert all(source.startswith("data:image/png") and alt for source, alt in page.images)
    for sample in found.samples:
        assert Path(sample.name).exists()
        assert sample.name in page.text


def test_a_file_that_is_gone_is_said_on_the_page(images):
    module = Classifier()
    quiet(limit_train_batches=1, limit_val_batches=1).fit(module, images)
    gone = Path(images.val_dataset.describe(0))
    kept = gone.read_bytes()
    loader = images.val_dataloader()
    batches = list(loader)
    gone.unlink()
    images.val_dataloader = lambda: WithBatches(loader, batches)
    found = hardest(module, images, "val", k=8)
    assert len(found.samples) == 8
    assert "cannot be shown" in page_of(found).text
    gone.write_bytes(kept)


class WithBatches:
    def __init__(self, loader, batches):
        self.batches = batches
        self.batch_sampler, self.sampler = loader.batch_sampler, loader.sampler

    def __iter__(self):
        return iter(self.batches)


def test_texts_are_shown_as_they_were_written(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f'"Zeile {k}\n<b>{"viel " * k}</b>",{"pn"[k % 2]}' for k in range(40)]
    path.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    dm = TextDataModule(path, vocab_size=300)
    module = Classifier()
    quiet(limit_train_batches=1, limit_val_batches=1).fit(module, dm)
    found = hardest(module, dm, "test", k=2)
    shown = page_of(found)
    for sample in found.samples:
        row = int(dm.test_dataset.rows[sample.row])
        assert f"Zeile {row}\n<b>{'viel ' * row}</b>" in shown.text
    assert "t.csv" in found.samples[0].name


class Stock(L.LightningDataModule):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def val_dataloader(self):
        rows = data().val_dataset.dataset
        return DataLoader(rows, batch_size=4, **self.options)


def test_a_datamodule_of_another_base_will_do():
    found = hardest(FourthIsA(), Stock(), "val", k=4)
    assert [sample.row for sample in found.samples] == [20, 16, 8, 4]
    assert found.samples[0].target == "class 2 (0%)"
    with pytest.raises(ValueError, match="pass shuffle=False"):
        hardest(FourthIsA(), Stock(shuffle=True), "val")


def test_answers_that_do_not_fit_are_refused():
    for net, said in (
        (torch.nn.Linear(2, 2), "check num_classes"),
        (torch.nn.Flatten(0), "one row for each of 4 samples"),
    ):
        with pytest.raises(ValueError, match=said):
            hardest(net, data(), "val")
    with pytest.raises(ValueError, match="k and most"):
        hardest(FourthIsA(), data(), "val", k=0)
    with pytest.raises(ValueError, match="is a stream, or there is none"):
        hardest(FourthIsA(), DatasetDataModule(data().val_dataset, val_split=0), "val")
