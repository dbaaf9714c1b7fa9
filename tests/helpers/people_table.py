"""A small table of people, and a datamodule and a Trainer for it."""

from __future__ import annotations

import lightning as L
import numpy as np

from datamodules.tabular import TabularDataModule


def write(path, rows, header):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def write_people(folder):
    """Write a CSV file of 60 rows: numbers with gaps, categories, an id, a number to predict."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(60):
        kind = "abc"[i % 3]
        age = "" if i % 7 == 0 else 20 + i % 40
        rows.append([f"p{i}", round(float(rng.normal()), 4), age, kind, i % 2 == 0, i % 3, i / 4])
    return write(folder / "people.csv", rows, "id,x,age,kind,flag,label,pay")


def made(people, **options):
    settings = {"drop": ["pay"], "id_column": "id", "val_split": 0.2, "test_split": 0.2}
    return TabularDataModule(people, "label", **(settings | options))


def trainer(tmp_path, **flags):
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "max_epochs": 1,
        "default_root_dir": tmp_path,
    }
    return L.Trainer(**(quiet | flags))
