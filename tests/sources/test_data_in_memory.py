from __future__ import annotations

import datetime
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from contract import check_datamodule
from image_files import class_folders
from trainers import quiet_trainer

from datamodules import ImageFolderDataModule, TabularDataModule, TextDataModule
from datamodules.readers.data_frame import is_frame, to_polars
from models import Classifier

ROWS = 60
DAY = datetime.date(2024, 1, 1)
TEXTS = (
    [f"word{k} and word{k % 7}" for k in range(ROWS)],
    ["ab"[k % 2] for k in range(ROWS)],
)


def columns():
    """One column per type, with missing values; ``code`` is a string column of digits."""
    return {
        "size": [None if k % 7 == 0 else k * 0.5 for k in range(ROWS)],
        "count": list(range(ROWS)),
        "color": [("red", "blue", None)[k % 3] for k in range(ROWS)],
        "code": [f"{k % 4}" for k in range(ROWS)],
        "flag": [k % 5 == 0 for k in range(ROWS)],
        "day": [DAY + datetime.timedelta(days=k) for k in range(ROWS)],
        "who": [f"p{k // 3}" for k in range(ROWS)],
        "label": ["ab"[k % 2] for k in range(ROWS)],
    }


def frame(kind):
    if kind == "polars":
        return pl.DataFrame(columns())
    made = pd.DataFrame(columns())
    made["day"] = pd.to_datetime(made["day"])
    return made.set_index(pd.Index(range(100, 100 + ROWS)))  # an index of its own is left out


def parquet(folder, kind="polars"):
    to_polars(frame(kind), "frame").write_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def same(first, second):
    """Whether two nested batches are equal to the bit."""
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    return len(first) == len(second) and all(map(same, first, second))


def batches(dm, splits=("train", "val", "test")):
    return [list(dm.batches(split)) for split in splits]


TABULAR = {"batch_size": 16, "seed": 1, "id_column": "who"}


@pytest.mark.parametrize("kind", ["polars", "pandas"])
@pytest.mark.parametrize("split_options", [{}, {"group": "who"}, {"time": "day"}], ids=str)
def test_a_table_in_memory_has_the_batches_of_its_parquet_file(tmp_path, kind, split_options):
    options = {**TABULAR, "split_options": split_options}
    held = TabularDataModule(frame(kind), "label", **options)
    read = TabularDataModule(parquet(tmp_path, kind), "label", **options)
    assert same(batches(held), batches(read))
    assert held.split_fingerprint() == read.split_fingerprint()
    assert held.fitted == read.fitted


def test_a_string_column_of_digits_is_categorical():
    dm = TabularDataModule(frame("pandas"), "label")
    assert dm.categorical_names == ["color", "code", "flag", "who"]


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_the_users_frame_is_not_modified(kind):
    data = frame(kind)
    before = data.clone() if kind == "polars" else data.copy()
    batches(TabularDataModule(data, "label", drop=["who"]))
    assert data.equals(before)


def test_tables_of_their_own_may_be_frames(tmp_path):
    rows = frame("polars")
    held = TabularDataModule(rows[:40], "label", val_path=rows[40:50], test_path=rows[50:])
    assert [len(d) for d in (held.train_dataset, held.val_dataset, held.test_dataset)] == [
        40, 10, 10,
    ]  # fmt: skip
    assert held.val_dataset.describe(0) == "row 0 of val_path=DataFrame"


def test_sources_in_memory_pass_the_contract():
    check_datamodule(lambda **options: TabularDataModule(frame("pandas"), "label", **options))
    check_datamodule(lambda **options: TextDataModule(*TEXTS, vocab_size=300, **options))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pl.DataFrame({"x": [], "label": []}), "path=DataFrame has column names but no rows"),
        (pl.DataFrame({"x": [1.0] * 9, "labl": ["a"] * 9}), "path=DataFrame has no column 'label'"),
        (
            pd.DataFrame([[1, 2, "a"]] * 9, columns=["x", "x", "label"]),
            "path=DataFrame has two columns 'x'; rename one",
        ),
        (
            pd.DataFrame({"x": [1, "two"] * 9, "label": ["a", "b"] * 9}),
            r"path=DataFrame: column 'x' mixes int and str; .*df\['x'\].astype\(str\)",
        ),
        (pl.LazyFrame({"x": [1]}), "got a LazyFrame; call .collect()"),
    ],
)
def test_a_frame_that_does_not_fit_is_named(data, message):
    with pytest.raises(ValueError, match=message):
        TabularDataModule(data, "label").setup()


def test_pandas_types_become_those_of_polars():
    data = pd.DataFrame(
        {
            "Int64": pd.array([1, None], dtype="Int64"),
            "boolean": pd.array([True, None], dtype="boolean"),
            "category": pd.Categorical(["x", None]),
            "string": pd.array(["q", None], dtype="string"),
            "float16": np.array([1, 2], "float16"),
            "seconds": np.array(["2020-01-01", "NaT"], "M8[s]"),
            "zone": pd.to_datetime(["2020-01-01", "2020-01-02"]).tz_localize("Asia/Tokyo"),
        }
    )
    read = to_polars(data, "frame")
    kinds = [kind.base_type() for kind in read.dtypes]
    assert kinds == [
        pl.Int64,
        pl.Boolean,
        pl.String,
        pl.String,
        pl.Float32,
        pl.Datetime,
        pl.Datetime,
    ]
    assert read.null_count().row(0) == (1, 1, 1, 1, 0, 1, 0)
    assert read["zone"][0] == datetime.datetime(2019, 12, 31, 15)  # UTC


def test_frames_are_recognized_and_other_values_are_not():
    assert is_frame(pl.DataFrame())
    assert is_frame(pd.DataFrame())
    assert not any(map(is_frame, ("x.csv", None, [1], {"a": 1}, np.zeros(2))))


@pytest.mark.runs
def test_pandas_is_not_imported_for_a_polars_frame():
    code = """
import sys
import polars as pl
from datamodules import TabularDataModule
TabularDataModule(pl.DataFrame({"x": range(20), "y": [0, 1] * 10}), "y").setup()
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --- checkpoints -----------------------------------------------------------------------------


def fitted(dm, folder, **options):
    trainer = quiet_trainer(max_epochs=1, default_root_dir=folder)
    trainer.fit(Classifier(**options), dm)
    trainer.save_checkpoint(folder / "x.ckpt")
    return folder / "x.ckpt"


def test_a_checkpoint_keeps_no_table_and_predicts_a_frame(tmp_path):
    data = frame("polars")
    dm = TabularDataModule(data, "label", val_path=data[:20], **TABULAR)
    assert (dm.hparams["path"], dm.hparams["val_path"]) == ("<DataFrame>", "<DataFrame>")
    checkpoint = fitted(dm, tmp_path)
    loaded = TabularDataModule.load_from_checkpoint(
        checkpoint, predict_path=data.drop("label"), num_workers=0
    )
    whole = TabularDataModule.load_from_checkpoint(checkpoint, predict_path=parquet(tmp_path))
    assert same(list(loaded.batches("predict")), list(whole.batches("predict")))
    with pytest.raises(ValueError, match=r"written with your own path=<DataFrame>, .* pass path="):
        TabularDataModule.load_from_checkpoint(checkpoint).setup()


def test_a_checkpoint_keeps_no_text_and_predicts_a_list(tmp_path):
    dm = TextDataModule(*TEXTS, vocab_size=300)
    assert (dm.hparams["path"], dm.hparams["target"]) == ("<list>", "<list>")
    checkpoint = fitted(dm, tmp_path)
    assert b"word3 and" not in checkpoint.read_bytes()
    loaded = TextDataModule.load_from_checkpoint(checkpoint, predict_path=["word3", "one of two"])
    assert loaded.preview("predict").input_ids.shape[0] == 2
    assert loaded.predict_keys == [0, 1]
    with pytest.raises(ValueError, match=r"written with your own path=<list>, .* pass path="):
        TextDataModule.load_from_checkpoint(checkpoint).setup()


# --- texts -----------------------------------------------------------------------------------


def test_texts_in_memory_have_the_batches_of_their_parquet_file(tmp_path):
    texts, labels = TEXTS
    table = pl.DataFrame({"text": texts, "kind": labels, "who": [t[:5] for t in texts]})
    table.write_parquet(tmp_path / "t.parquet")
    options = {"target": "kind", "vocab_size": 300, "batch_size": 16, "seed": 2}
    read = TextDataModule(tmp_path / "t.parquet", **options)
    expected = batches(read)
    listed = TextDataModule(texts, **{**options, "target": labels})
    pandas = pd.DataFrame(table.to_dict(as_series=False))
    for held in (TextDataModule(table, **options), TextDataModule(pandas, **options), listed):
        assert same(batches(held), expected)
        assert held.split_fingerprint() == read.split_fingerprint()
    assert listed.train_dataset.describe(0).startswith("path=list, row ")
    grouped = [
        TextDataModule(data, **options, split_options={"group": "who"})
        for data in (table, tmp_path / "t.parquet")
    ]
    assert same(*map(batches, grouped))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": ["a"]}, "path is a list of texts, so target must be a list of labels"),
        ({"path": ["a", "b"], "target": ["x"]}, "target has 1 labels for 2 texts"),
        ({"path": "t.csv", "target": ["x"]}, "target is a list of labels, so path must be a list"),
        (
            {"path": ["a"] * 9, "target": ["x"] * 9, "val_path": ["b"]},
            "val_path is a list of texts, which has no labels",
        ),
        (
            {"path": ["a"] * 9, "target": ["x"] * 9, "split_options": {"group": "who"}},
            "a list of texts has no column 'who'",
        ),
        (
            {"path": pl.DataFrame({"text": ["a"], "labels": ["b"]})},
            "column for target= of path=DataFrame 'label'; did you mean 'labels'",
        ),
        ({"path": pl.DataFrame({"text": ["a"]}), "target": 3}, "target=3, but .* has 1 columns"),
        ({"path": pl.DataFrame({"text": [1.5], "label": ["a"]})}, "must contain texts, .*row 0"),
    ],
)
def test_texts_in_memory_that_do_not_fit_are_refused(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("text,label\na,b\n")
    with pytest.raises(ValueError, match=message):
        TextDataModule(**arguments).setup()


# --- images ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_a_label_table_in_memory_has_the_batches_of_its_file(tmp_path, kind):
    class_folders(tmp_path / "p", {"a": 12, "b": 12})
    names = [f"{c}/{k}" for c in "ab" for k in range(12)]
    table = pl.DataFrame({"image": names, "breed": [n[0] for n in names], "who": [*range(12)] * 2})
    table.write_parquet(tmp_path / "p" / "t.parquet")
    options = {"file_column": "image", "target": "breed", "image_size": 8, "num_workers": 0}
    options |= {"seed": 3, "split_options": {"group": "who"}}
    data = table if kind == "polars" else pd.DataFrame(table.to_dict(as_series=False))
    held = ImageFolderDataModule(tmp_path / "p", table=data, **options)
    read = ImageFolderDataModule(tmp_path / "p", table="t.parquet", **options)
    assert same(batches(held), batches(read))
    assert held.split_fingerprint() == read.split_fingerprint()
    assert held.hparams["table"] == "<DataFrame>"


def test_a_label_table_in_memory_is_named_in_errors(tmp_path):
    class_folders(tmp_path / "p", {"a": 2})
    table = pl.DataFrame({"file": ["a/0", "a/9"], "label": ["x", "y"]})
    with pytest.raises(FileNotFoundError, match=r"table=DataFrame: 1 of 2 names in 'file'"):
        ImageFolderDataModule(tmp_path / "p", table=table).setup()
