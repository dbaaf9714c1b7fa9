from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from datamodules import (
    DataModule,
    DatasetDataModule,
    ImageFolderDataModule,
    TabularDataModule,
    TextDataModule,
)
from datamodules.splits.options import SplitInput, SplitOptions, split_by_options


class Rows(DataModule):
    def __init__(self, rows: int = 40, **options):
        super().__init__(**options)

    def read(self):
        self.parts = self.split_samples(self.hparams.rows)

    def dataset(self, split):
        return TensorDataset(torch.arange(self.hparams.rows)[self.parts[split], None])


def parts_of(samples, *, val=0.2, test=0.2, seed=0, **options):
    return split_by_options(samples, SplitOptions.of(options), val=val, test=test, seed=seed)


def whole(parts, n):
    return sorted(np.concatenate(list(parts.values())).tolist()) == list(range(n))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": "x"}, "did you mean 'group'"),
        ({"group": "x", "time": "y"}, "has group and time; keep one of them"),
        ({"fold": 1}, "fold=1 needs folds="),
        ({"folds": 1}, "at least 2"),
        ({"folds": 3, "fold": 3}, "fold must be 0 to 2, got 3"),
        ({"folds": 3, "repeat": -1}, "at least 0"),
        ({"folds": 2.5}, "whole number"),
        ({"folds": 3, "time": "when"}, "not by time"),
        ({"stratify": "no"}, "True or False"),
        ([], "must be a dict"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SplitOptions.of(options)


def test_the_latest_times_are_test_and_equal_times_stay_together():
    times = ["2024-01-03", "2024-01-01", "2024-01-02", "2024-01-05T10:00", "2024-01-04"]
    parts = parts_of(SplitInput(5), val=1, test=1, time=times)
    assert {s: p.tolist() for s, p in parts.items()} == {
        "train": [0, 1, 2],
        "val": [4],
        "test": [3],
    }
    tied = parts_of(SplitInput(6), val=1, test=1, time=[1, 2, 3, 4, 4, 4])
    assert [p.tolist() for p in tied.values()] == [[0, 1, 2], [], [3, 4, 5]]
    with pytest.raises(ValueError, match="time does not split them"):
        parts_of(SplitInput(4), val=1, test=0.0, time=[7, 7, 7, 7])
    with pytest.raises(ValueError, match=r"time of row 1 .* is 'soon'"):
        parts_of(SplitInput(2), time=["2024-01-01", "soon"])
    with pytest.raises(ValueError, match="missing in 1 rows, the first is row 1"):
        parts_of(SplitInput(2), time=[1.0, np.nan])


def test_the_folds_cover_all_samples_and_share_one_test_split():
    labels = np.arange(50) % 3
    made = [
        parts_of(SplitInput(50, labels), val=0.0, test=0.2, folds=4, fold=fold) for fold in range(4)
    ]
    assert all(whole(parts, 50) for parts in made)
    assert all((parts["test"] == made[0]["test"]).all() for parts in made)
    held = np.concatenate([parts["val"] for parts in made])
    assert sorted([*held, *made[0]["test"]]) == list(range(50))


def test_a_column_or_values_must_fit_the_samples(tmp_path):
    with pytest.raises(ValueError, match="does not have; pass one value per sample"):
        parts_of(SplitInput(4), group="patient")
    with pytest.raises(ValueError, match="group has 3 values, there are 4 samples"):
        parts_of(SplitInput(4), group=[1, 2, 3])
    parts = parts_of(SplitInput(4), column=["train", "Dev", "TEST", "train"])
    assert {s: p.tolist() for s, p in parts.items()} == {"train": [0, 3], "val": [1], "test": [2]}
    with pytest.raises(ValueError, match=r"row 1 .* is 'holdout'"):
        parts_of(SplitInput(2), column=["train", "holdout"])


def test_index_files_list_row_numbers_or_keys(tmp_path):
    (tmp_path / "val.txt").write_text("b.png\n\n2\n")
    np.save(tmp_path / "test.npy", np.array([0]))
    files = {"val": str(tmp_path / "val.txt"), "test": str(tmp_path / "test.npy")}
    keys = ["a.png", "b.png", "c.png", "d.png", "e.png"]
    parts = parts_of(SplitInput(5, keys=lambda: keys), files=files)
    assert {s: p.tolist() for s, p in parts.items()} == {
        "train": [3, 4],
        "val": [1, 2],
        "test": [0],
    }
    with pytest.warns(UserWarning, match="1 of 3 samples are in none of the files"):
        parts_of(SplitInput(3), files={"train": [0], "val": [2]})
    for files, message in (
        ({"val": [0], "test": [0]}, "lists row 0, which is in val already"),
        ({"val": [9]}, "lists row 9, rows must be 0 to 4"),
        ({"val": ["z.png"]}, "lists 'z.png', which is not a sample; use keys such as 'a.png'"),
        ({"dev": [1]}, "unknown split in files 'dev'"),
    ):
        with pytest.raises(ValueError, match=message):
            parts_of(SplitInput(5, keys=lambda: keys), files=files)
    with pytest.raises(FileNotFoundError, match="the index file of val, does not exist"):
        parts_of(SplitInput(5), files={"val": str(tmp_path / "gone.txt")})


def test_a_users_datamodule_has_all_split_options():
    dm = Rows(split_options={"folds": 4, "fold": 1}, limit=5)
    dm.setup()
    assert {s: len(p) for s, p in dm.parts.items()} == {"train": 5, "val": 5, "test": 0}
    full = Rows(split_options={"folds": 4, "fold": 1})
    full.setup()
    assert set(dm.parts["train"]) <= set(full.parts["train"])
    assert set(dm.parts["val"]) <= set(full.parts["val"])
    with pytest.raises(ValueError, match="folds, which decides; leave val_split out"):
        Rows(split_options={"folds": 4}, val_split=0.2).setup()


def write_png(path, level):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (9, 9), (level * 9, level, 40)).save(path)


def folder(tmp_path: Path, *, given=False) -> Path:
    for k in range(24):
        place = tmp_path / "photos" / ("train" if given else "") / "ab"[k % 2]
        write_png(place / f"p{k // 4}_{k}.png", k)
    if given:
        write_png(tmp_path / "photos" / "val" / "a" / "p0_99.png", 9)
    return tmp_path / "photos"


def test_image_folders_split_by_group_in_the_path_or_by_index_file(tmp_path):
    root = folder(tmp_path)
    dm = ImageFolderDataModule(
        root, image_size=8, val_split=0.2, test_split=0.2, split_options={"group": r"(p\d+)_"}
    )
    patients = {
        split: {Path(getattr(dm, f"{split}_dataset").describe(i)).name[:2] for i in range(n)}
        for split, n in ((s, len(getattr(dm, f"{s}_dataset"))) for s in ("train", "val", "test"))
    }
    assert sorted(p for found in patients.values() for p in found) == [f"p{k}" for k in range(6)]
    (tmp_path / "val.txt").write_text("a/p0_0.png\nb/p0_1.png\n")
    files = {"val": str(tmp_path / "val.txt")}
    dm = ImageFolderDataModule(root, image_size=8, split_options={"files": files})
    assert [Path(dm.val_dataset.describe(i)).name for i in range(2)] == ["p0_0.png", "p0_1.png"]
    with pytest.raises(ValueError, match=r"does not match 'a/p0_0.png'"):
        ImageFolderDataModule(root, split_options={"group": "subject"}).setup()


def test_split_folders_that_share_a_group_are_refused(tmp_path):
    dm = ImageFolderDataModule(folder(tmp_path, given=True), split_options={"group": r"p\d+"})
    with pytest.raises(ValueError, match=r"train and val share 1 groups of .* 'p0'"):
        dm.setup()
    dm = ImageFolderDataModule(tmp_path / "photos", split_options={"folds": 3})
    with pytest.raises(ValueError, match="folds, but the source has a val split of its own"):
        dm.setup()


def test_limit_keeps_each_class_in_every_split(tmp_path):
    dm = ImageFolderDataModule(folder(tmp_path), image_size=8, limit=4)
    assert [len(d) for d in (dm.train_dataset, dm.val_dataset, dm.test_dataset)] == [4, 2, 2]
    assert dm.class_counts == [2, 2]
    with pytest.raises(ValueError, match="limit=1 leaves 1 train samples of 2 classes"):
        ImageFolderDataModule(tmp_path / "photos", limit=1).setup()


def table(tmp_path: Path) -> Path:
    rows = "".join(
        f"{k},g{k // 3},2024-01-{k % 28 + 1:02},{'train' if k % 3 else 'val'},{k % 2}\n"
        for k in range(60)
    )
    path = tmp_path / "t.csv"
    path.write_text("x,who,day,part,label\n" + rows)
    return path


@pytest.mark.parametrize(
    ("options", "feature"),
    [({"group": "who"}, "who"), ({"column": "part"}, "part"), ({"time": "day"}, None)],
)
def test_tables_split_by_group_column_or_time(tmp_path, options, feature):
    dm = TabularDataModule(table(tmp_path), "label", drop=["x"], split_options=options)
    parts = {split: part.rows.tolist() for split, part in (dm.setup(), dm._parts)[1].items()}
    assert sorted(row for rows in parts.values() for row in rows) == list(range(60))
    assert feature not in [*dm.feature_names, *dm.categorical_names]
    if options == {"group": "who"}:
        groups = [{row // 3 for row in rows} for rows in parts.values()]
        assert sum(map(len, groups)) == len(set.union(*groups)) == 20
    if options == {"time": "day"}:
        assert max(r % 28 for r in parts["train"]) < min(r % 28 for r in parts["val"])
    if options == {"column": "part"}:
        assert parts["val"] == list(range(0, 60, 3))


def test_a_table_split_by_a_column_has_no_folds(tmp_path):
    with pytest.raises(ValueError, match="not by column; keep one"):
        TabularDataModule(table(tmp_path), "label", split_options={"column": "part", "folds": 3})


def test_texts_split_by_group_and_datasets_by_values(tmp_path):
    path = tmp_path / "texts.csv"
    path.write_text(
        "text,label,who\n" + "".join(f"word{k} here,{'ab'[k % 2]},w{k // 6}\n" for k in range(60))
    )
    dm = TextDataModule(path, vocab_size=300, split_options={"group": "who"}, val_split=0.2)
    dm.setup()
    groups = {split: {int(row) // 6 for row in rows} for split, (_, rows) in dm._rows.items()}
    assert sum(map(len, groups.values())) == 10
    assert groups["val"]
    values = [k // 5 for k in range(40)]
    data = [(torch.tensor([float(k)]), k % 2) for k in range(40)]
    dm = DatasetDataModule(data, split_options={"group": values})
    dm.setup()
    groups = [{values[row] for row in rows} for rows in dm._rows.values()]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 8


def test_a_fold_and_a_limit_are_part_of_the_fingerprint(tmp_path):
    prints = set()
    for options in ({}, {"limit": 10}, {"split_options": {"folds": 3}}):
        dm = TabularDataModule(table(tmp_path), "label", **options)
        dm.setup()
        prints.add(dm.split_fingerprint())
    assert len(prints) == 3


def drawn_options(draws, n):
    """Options of a random kind that may or may not be possible for ``n`` samples."""
    options, kind = {}, draws.integers(4)
    if kind == 0:
        options["group"] = [f"g{g}" for g in draws.integers(0, max(1, n // 3), n)]
    elif kind == 1:
        return {"time": draws.integers(0, 20, n)}
    if draws.integers(2):
        options |= {"folds": int(draws.integers(2, 5)), "repeat": int(draws.integers(3))}
        options["fold"] = int(draws.integers(options["folds"]))
    return options


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.filterwarnings("ignore::UserWarning")  # of classes and shares that are too small
def test_each_sample_is_in_one_split_whatever_the_options(seed):
    draws, possible, refused = np.random.default_rng(seed), 0, []
    for _ in range(60):
        n = int(draws.integers(0, 60))
        labels = draws.integers(0, 5, n) if draws.integers(2) else None
        options = drawn_options(draws, n)
        val, test = (draws.choice([0, 3, 0.2, 0.5]).item() for _ in range(2))
        shares = {"val": 0 if "folds" in options else val, "test": test}
        shares = {k: int(v) if v in (0, 3) else v for k, v in shares.items()}
        try:
            parts = parts_of(SplitInput(n, labels), seed=seed, **shares, **options)
        except ValueError as error:
            refused.append(str(error))
            continue
        possible += 1
        assert whole(parts, n)
        assert all(rows.dtype == np.int64 and (np.diff(rows) > 0).all() for rows in parts.values())
        if "group" in options:
            groups = [{options["group"][row] for row in rows} for rows in parts.values()]
            assert sum(map(len, groups)) == len(set.union(*groups))
        again = parts_of(SplitInput(n, labels), seed=seed, **shares, **options)
        assert all((parts[part] == again[part]).all() for part in parts)
    assert possible > 25
    known = ("too few for", "val_split and test_split take", "time")
    assert all(any(word in message for word in known) for message in refused)
