from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import TensorDataset

from datamodules import samples
from datamodules.figures.classes import class_bars, target_histogram
from datamodules.insight.figures import class_counts, regression_targets
from datamodules.insight.split_view import SplitView, view_splits


def labels_of(axes):
    return [tick.get_text() for tick in axes.get_yticklabels()]


def test_bars_are_shares_with_the_number_beside_and_differ_by_more_than_colour():
    counts = {"train": np.array([30, 10]), "val": np.array([3, 0])}
    drawing = class_bars(["cat", "dog"], counts)
    (axes,) = drawing.figure.axes
    first, second = axes.containers[0], axes.containers[1]
    assert [bar.get_width() for bar in first] == [75, 25]
    assert first[0].get_hatch() != second[0].get_hatch()
    written = {text.get_text() for text in axes.texts}
    assert written == {"30", "10", "3", "none"}
    assert (
        drawing.text == "train: 2 classes with 10 to 30 samples; val: 1 classes with 0 to 3 samples"
    )


def test_many_classes_are_summed_up_in_a_line():
    counts = np.arange(1, 101)
    drawing = class_bars([f"c{k}" for k in range(100)], {"train": counts})
    (axes,) = drawing.figure.axes
    assert labels_of(axes) == [f"c{k}" for k in (99, 98, 97, 96, 95, 94, 93, 92, 3, 2, 1, 0)]
    assert "and 88 more with 5 to 92 samples in train" in [text.get_text() for text in axes.texts]


def test_names_of_any_length_lie_inside_the_figure():
    names = ["x" * 200, "猫" * 30, "", "a\nb"]
    figure = class_bars(names, {"train": np.array([5, 4, 3, 2])}).figure
    figure.draw_without_rendering()
    box = figure.bbox
    for tick in figure.axes[0].get_yticklabels():
        found = tick.get_window_extent()
        assert box.x0 <= found.x0
        assert found.x1 <= figure.axes[0].get_window_extent().x0


def test_counts_of_several_labels_are_of_each_label():
    y = torch.tensor([[1.0, 1.0], [0.0, 1.0]]).repeat(10, 1)
    one = SplitView("train", TensorDataset(torch.rand(20, 3), y))
    names, counts = class_counts(None, {"train": one})
    assert names == ["0", "1"]
    assert counts["train"].tolist() == [10, 20]


def test_a_number_is_shown_in_its_own_units():
    dm = samples.diabetes()
    seen, _ = view_splits(dm)
    values = regression_targets(dm, seen)
    every = np.concatenate([found[:, 0] for found in values.values()])
    assert sorted(every.round().tolist())[:2] == [25, 31]  # of the table
    drawing = target_histogram({s: v[:, 0] for s, v in values.items()}, "progression")
    assert drawing.text.startswith("train: 25 to ")
    assert class_counts(dm, seen) is None
