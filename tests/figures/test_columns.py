from __future__ import annotations

import csv

import pytest
import torch
from torch.utils.data import TensorDataset

from datamodules import DatasetDataModule, TabularDataModule
from datamodules.figures.columns import column_histograms, missing_bars, percent
from datamodules.insight.figures import column_values, missing_shares
from datamodules.insight.split_view import view_splits


@pytest.fixture
def table(tmp_path):
    rows = [
        (
            k,
            "" if k % 4 == 0 else k / 2,
            f"2024-01-{k % 28 + 1:02d}",
            ["red", "blue"][k % 2],
            k % 2,
        )
        for k in range(1, 81)
    ]
    path = tmp_path / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("whole", "half", "day $x$", "色", "y"), *rows])
    return TabularDataModule(path, "y")


def test_cells_are_those_of_the_file_without_missing_values(table):
    seen, _ = view_splits(table)
    values = {column.name: column for column in column_values(seen["train"])}
    rows = table._parts["train"].rows
    assert sorted(values["whole"].numbers.tolist()) == sorted((rows + 1).tolist())
    assert len(values["half"].numbers) == sum((row + 1) % 4 != 0 for row in rows)
    assert values["day $x$"].is_date
    assert sum(values["色"].words.values()) == len(rows)
    drawing = column_histograms(list(values.values()))
    assert len(drawing.figure.axes) == 4
    assert drawing.png().startswith(b"\x89PNG")
    assert "day $x$ from 2024-01-01 to 2024-01-28" in drawing.text


def test_missing_cells_are_shown_by_column_and_split(table):
    seen, _ = view_splits(table)
    shares = missing_shares(seen)
    assert list(shares) == ["half"]
    assert list(shares["half"]) == ["train", "val", "test"]
    rows = table._parts["val"].rows
    assert shares["half"]["val"] == sum((row + 1) % 4 == 0 for row in rows) / len(rows)
    drawing = missing_bars(shares)
    hatches = {container[0].get_hatch() for container in drawing.figure.axes[0].containers}
    assert len(hatches) == 3
    assert (percent(0.4), percent(50)) == ("0.4", "50")


def test_rows_of_ones_own_dataset_are_columns_by_number():
    dm = DatasetDataModule(TensorDataset(torch.rand(40, 3), torch.arange(40) % 2))
    seen, _ = view_splits(dm)
    values = column_values(seen["train"])
    assert [column.name for column in values] == ["0", "1", "2"]
