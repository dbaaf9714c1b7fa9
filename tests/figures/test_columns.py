from __future__ import annotations

import csv

import pytest
import torch
from torch.utils.data import TensorDataset

from datamodules import DatasetDataModule, TabularDataModule
from datamodules.figures.columns import (
    column_histograms,
    column_values,
    listed_gaps,
    missing_bars,
    missing_shares,
)
from datamodules.insight.split_view import look


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


def test_cells_are_those_of_the_file_without_the_gaps(table):
    seen, _ = look(table)
    values = {column.name: column for column in column_values(table, seen["train"])}
    rows = table._parts["train"].rows
    assert sorted(values["whole"].numbers.tolist()) == sorted((rows + 1).tolist())
    assert len(values["half"].numbers) == sum((row + 1) % 4 != 0 for row in rows)
    assert values["day $x$"].dated
    assert sum(values["色"].words.values()) == len(rows)
    drawing = column_histograms(list(values.values()))
    assert len(drawing.figure.axes) == 4
    assert drawing.png().startswith(b"\x89PNG")
    assert "day $x$ from 2024-01-01 to 2024-01-28" in drawing.text


def test_gaps_are_shown_by_column_and_split(table):
    seen, _ = look(table)
    shares = missing_shares(table, seen)
    assert list(shares) == ["half"]
    assert list(shares["half"]) == ["train", "val", "test"]
    rows = table._parts["val"].rows
    assert shares["half"]["val"] == sum((row + 1) % 4 == 0 for row in rows) / len(rows)
    drawing = missing_bars(shares)
    hatches = {container[0].get_hatch() for container in drawing.figure.axes[0].containers}
    assert len(hatches) == 3
    assert next(iter(listed_gaps({"a": {"train": 0.004, "val": 0.5}}))) == ("a", "0.4%", "50%")


def test_rows_of_ones_own_dataset_are_columns_by_number():
    dm = DatasetDataModule(TensorDataset(torch.rand(40, 3), torch.arange(40) % 2))
    seen, _ = look(dm)
    values = column_values(dm, seen["train"])
    assert [column.name for column in values] == ["0", "1", "2"]
