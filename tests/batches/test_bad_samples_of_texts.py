"""``on_error="skip"`` for a folder of text files: left out before the split, counted and said."""

from __future__ import annotations

from pathlib import Path

import pytest

from datamodules import TextDataModule
from datamodules.core.accessors import bad_rows_of


@pytest.fixture
def folder(tmp_path):
    """Two classes of 6 files; two of the first are not UTF-8."""
    for row in range(12):
        path = tmp_path / "texts" / ("ham" if row < 6 else "spam") / f"{row:02}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"caf\xe9 noir" if row in (2, 3) else f"text number {row}".encode())
    return tmp_path / "texts"


def module(path, **options):
    fixed = {"val_split": 0, "test_split": 0, "batch_size": 5, "on_error": "skip"}
    return TextDataModule(path, **fixed | options)


def test_files_that_cannot_be_decoded_are_left_out_listed_and_said(folder):
    dm = module(folder)
    with pytest.warns(UserWarning, match=r"2 of 12 train files cannot be read.*02\.txt.*0xe9"):
        dm.setup()
    assert len(dm.train_dataset) == 10
    assert dm.class_counts == [4, 6]
    assert [len(batch.target) for batch in dm.train_dataloader()] == [5, 5]
    assert [Path(path).name for path in dm.bad_files] == ["02.txt", "03.txt"]
    assert all("0xe9 is not utf-8" in reason for reason in dm.bad_files.values())
    assert bad_rows_of(dm, "train") == []


def test_by_default_the_run_stops_and_names_the_file(folder):
    dm = module(folder, on_error="raise")
    with pytest.raises(ValueError, match=r"02\.txt'.*byte 0xe9 is not utf-8"):
        dm.setup()


def test_predicted_files_are_left_out_too(folder):
    dm = module(folder, predict_path=folder / "ham")
    with pytest.warns(UserWarning, match="2 of 6 predict files cannot be read"):
        dm.setup("predict")
    assert [Path(key).name for key in dm.predict_keys] == ["00.txt", "01.txt", "04.txt", "05.txt"]


@pytest.mark.parametrize(
    ("damaged", "options", "said"),
    [
        ((), {"max_errors": 1}, "2 train files cannot be read, more than max_errors=1"),
        ((0, 1, 4, 5), {}, "no train file of class 'ham' can be read"),
    ],
)
def test_too_many_or_a_whole_class_stop_the_run(folder, damaged, options, said):
    for row in damaged:
        (folder / "ham" / f"{row:02}.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(RuntimeError, match=said):
        module(folder, **options).setup()


def test_options_are_checked(folder):
    with pytest.raises(ValueError, match="on_error"):
        module(folder, on_error="ignore")
