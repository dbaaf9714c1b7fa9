from __future__ import annotations

from pathlib import Path

import pytest

from datamodules.readers.folders import (
    check_folder,
    check_roots,
    contents,
    split_folders,
    visible_entries,
)


@pytest.mark.parametrize(
    ("folders", "found"),
    [
        (["train", "val", "test"], {"train": "train", "val": "val", "test": "test"}),
        (["Train", "Valid"], {"train": "Train", "val": "Valid"}),
        (["training", "validation"], {"train": "training", "val": "validation"}),
        (["train", "notes"], {"train": "train"}),
        (["cat", "test"], {}),
        (["cat", "test", "val"], {}),
        ([".hidden", "__MACOSX", "train"], {"train": "train"}),
    ],
)
def test_split_folders_are_found_by_name(tmp_path, folders, found):
    for folder in folders:
        (tmp_path / folder / "cat").mkdir(parents=True)
    assert split_folders(tmp_path) == {split: tmp_path / name for split, name in found.items()}


@pytest.mark.parametrize("pair", [("val", "validation"), ("Train", "train")])
def test_two_folders_for_one_split_are_refused(tmp_path, pair):
    for name in {"train", *pair}:
        (tmp_path / name).mkdir(exist_ok=True)
    if len(list(tmp_path.iterdir())) < len({"train", *pair}):
        pytest.skip("this file system ignores case")
    with pytest.raises(ValueError, match=f"{pair[0]}/ and {pair[1]}/, both could be"):
        split_folders(tmp_path)


def test_val_and_test_alone_are_refused_unless_train_is_not_needed(tmp_path):
    for name in ("val", "test"):
        (tmp_path / name / "cat").mkdir(parents=True)
    with pytest.raises(ValueError, match="has test, val but no train/; add it"):
        split_folders(tmp_path)
    assert set(split_folders(tmp_path, need_train=False)) == {"val", "test"}


def test_contents_are_counted_and_named(tmp_path):
    assert contents(tmp_path) == "it is empty"
    (tmp_path / "a").mkdir()
    (tmp_path / "x.txt").write_text("")
    assert contents(tmp_path) == "it contains 1 folder (a) and 1 file (x.txt)"


def test_a_folder_is_found_by_relative_absolute_and_home_paths(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    for written in ("photos", "./photos/", "~/photos", Path("photos"), str(tmp_path / "photos")):
        assert check_folder(written, "root") == tmp_path / "photos"


def test_a_wrong_path_names_the_nearest_folder(tmp_path):
    (tmp_path / "photos").mkdir()
    message = r"root='.*fotos/cats' does not exist; the nearest folder is '.*' and it contains 1"
    with pytest.raises(FileNotFoundError, match=message):
        check_folder(tmp_path / "fotos" / "cats", "root")
    with pytest.raises(ValueError, match="root is an empty string; pass a folder"):
        check_folder("", "root")
    (tmp_path / "a.zip").write_text("")
    with pytest.raises(NotADirectoryError, match=r"root='.*a.zip' is a file; pass a folder"):
        check_folder(tmp_path / "a.zip", "root")


@pytest.mark.parametrize(
    "again", ["photos", "photos/", "photos/../photos", "link", "photos/in", "."]
)
def test_a_root_given_twice_or_inside_another_is_refused(tmp_path, monkeypatch, again):
    (tmp_path / "photos" / "in").mkdir(parents=True)
    (tmp_path / "link").symlink_to("photos")
    monkeypatch.chdir(tmp_path)
    assert check_roots(["photos/in"]) == [tmp_path / "photos" / "in"]
    with pytest.raises(ValueError, match="would be read twice; name one of them"):
        check_roots(["photos", again])


def test_hidden_entries_clutter_and_broken_links_to_other_files_are_skipped(tmp_path):
    for name in (".git", "__MACOSX", "@eaDir", "cat"):
        (tmp_path / name).mkdir()
    for name in ("Thumbs.db", "desktop.ini", "a.png"):
        (tmp_path / name).touch()
    (tmp_path / "notes.txt").symlink_to("missing")
    assert sorted(entry.name for entry in visible_entries(tmp_path)) == ["a.png", "cat"]


@pytest.mark.parametrize("name", ["b.png", "dog"])
def test_a_broken_link_to_an_image_or_folder_is_an_error(tmp_path, name):
    (tmp_path / name).symlink_to("missing")
    with pytest.raises(FileNotFoundError, match=f"{name}' is broken; remove it, or restore its"):
        visible_entries(tmp_path)
