from __future__ import annotations

from pathlib import Path

import pytest
import torch
from contract import check_datamodule
from image_files import class_folders

from datamodules import ImageFolderDataModule


def small(root, **options):
    """Images of 8 x 8, everything in the main process."""
    return ImageFolderDataModule(root, **{"image_size": 8, "num_workers": 0, **options})


def labels(dataset):
    return [] if dataset is None else dataset.targets.tolist()


def test_a_table_passes_the_contract(tmp_path):
    class_folders(tmp_path, {"x": 20})
    rows = [f"x/{i}.png,{'cd'[i % 2]}\n" for i in range(20)]
    (tmp_path / "t.csv").write_text("file,label\n" + "".join(rows))
    check_datamodule(
        lambda **o: ImageFolderDataModule(tmp_path, table="t.csv", image_size=8, **o),
        contexts=("fork", "forkserver"),
    )


def test_several_labels_pass_the_contract(tmp_path):
    class_folders(tmp_path, {"x": 30})
    rows = [f"{i},{i % 2},{i % 3 > 0}\n" for i in range(30)]
    (tmp_path / "t.csv").write_text("file,odd,third\n" + "".join(rows))
    check_datamodule(
        lambda **o: ImageFolderDataModule(
            tmp_path, table="t.csv", target=["odd", "third"], image_size=8, **o
        )
    )


def test_a_table_gives_the_labels(tmp_path):
    class_folders(tmp_path / "photos", {"x": 10})
    rows = [f"{i},{['pug', 'collie'][i % 2]}\n" for i in range(10)]
    (tmp_path / "train.csv").write_text("image,breed\n" + "".join(rows))
    options = {"file_column": "image", "target": "breed", "val_split": 2, "test_split": 0}
    dm = small(tmp_path / "photos", table=tmp_path / "train.csv", **options)
    assert dm.classes == ["collie", "pug"]
    assert dm.class_counts == [4, 4]
    for path, label in zip(dm.train_dataset.sources, labels(dm.train_dataset), strict=True):
        assert dm.classes[label] == ["pug", "collie"][int(Path(path).stem) % 2]
    other = class_folders(tmp_path / "other", {"x": 1})
    with pytest.raises(ValueError, match="a table goes with one root"):
        small([tmp_path / "photos", other], table="train.csv").setup()


@pytest.mark.parametrize("form", ["one cell", "columns"])
def test_several_labels_a_row(tmp_path, form):
    class_folders(tmp_path, {"x": 8})
    if form == "one cell":
        rows = [f"{i},{'haze ' * (i % 2)}clear\n" for i in range(8)]
        content, options = "file,tags\n", {"target": "tags", "label_separator": " "}
    else:
        rows = [f"{i},1,{i % 2}\n" for i in range(8)]
        content, options = "file,clear,haze\n", {"target": ["clear", "haze"]}
    (tmp_path / "t.csv").write_text(content + "".join(rows))
    dm = small(tmp_path, table="t.csv", val_split=0, test_split=0, **options)
    assert dm.task == "multilabel"
    assert dm.classes == ["clear", "haze"]
    assert dm.class_counts == [8, 4]
    [batch] = list(dm.train_dataloader())
    assert batch.target.dtype == torch.float32
    assert batch.target.shape == (8, 2)
    by_file = {
        int(Path(p).stem): t
        for p, t in zip(dm.train_dataset.sources, dm.train_dataset.targets, strict=True)
    }
    assert all(by_file[i].tolist() == [1, i % 2] for i in range(8))


@pytest.mark.parametrize(
    "options",
    [
        {"label_separator": " "},
        {"target": ["a", "b"]},
        {"table": "t.csv", "target": []},
        {"table": "t.csv", "label_separator": ""},
        {"table": "t.csv", "target": ["a"], "label_separator": " "},
    ],
)
def test_label_options_that_do_not_fit_are_refused_when_built(tmp_path, options):
    with pytest.raises(ValueError, match="label_separator"):
        small(tmp_path, **options)
