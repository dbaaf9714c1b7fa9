from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from datamodules import DatasetDataModule, TextDataModule, samples
from datamodules.insight.figures import drawings
from datamodules.insight.split_view import view_splits


def test_images_of_a_batch_stand_under_their_labels(tmp_path):
    dm = samples.digits()
    figure = dm.plot("val", most=5)
    figure.savefig(tmp_path / "val.png")
    assert (tmp_path / "val.png").stat().st_size > 1000
    labels = dm.preview("val").target[:5].tolist()
    assert [axes.get_title() for axes in figure.axes] == [dm.classes[k] for k in labels]


def test_an_image_is_drawn_as_it_was_before_normalization():
    dm = samples.digits()
    raw = dm.val_dataset[0][0]
    (drawn,) = dm.plot("val", most=1).axes
    shown = drawn.images[0].get_array()
    assert np.allclose(shown[:, :, 0], raw[0].numpy() / 255, atol=1e-5)


def test_every_datamodule_has_the_method():
    assert [axes.get_title() for axes in samples.digits().plot("val", most=1).axes] == ["0"]
    titles = [axes.get_title(loc="left") for axes in samples.wine().plot().axes]
    assert titles[:2] == ["alcohol", "malic_acid"]
    assert len(titles) == 12


def test_texts_are_drawn_by_length(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,label\n" + "".join(f"word {'w ' * k},{k % 2}\n" for k in range(40)))
    (axes,) = TextDataModule(path, vocab_size=300).plot("train").axes
    assert axes.get_xlabel() == "tokens per text"


def test_mixed_images_show_both_labels():
    dm = samples.digits(mixup=1.0)
    titles = [axes.get_title() for axes in dm.plot(most=16).axes]
    assert any("," in title and "%" in title for title in titles)


def test_what_cannot_be_drawn_is_refused_with_another_way():
    dm = DatasetDataModule(TensorDataset(torch.zeros(20, 2, 2, 2, 2), torch.arange(20) % 2))
    with pytest.raises(ValueError, match="inspect"):
        dm.plot()
    with pytest.raises(ValueError, match="did you mean 'train'"):
        dm.plot("trian")


def test_a_figure_that_fails_costs_itself_alone(monkeypatch):
    dm = samples.wine()
    seen, _ = view_splits(dm)
    monkeypatch.setattr("datamodules.insight.figures.class_bars", lambda *_: 1 / 0)
    failed: list[str] = []
    assert [d.name for d in drawings(dm, seen, failed)] == ["columns"]
    assert failed == ["classes by split could not be drawn: ZeroDivisionError: division by zero"]
