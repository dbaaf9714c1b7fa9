from __future__ import annotations

import logging
import os
import unicodedata
from pathlib import Path

import pytest
from image_files import solid

from datamodules.images.decode.decode import decode_image
from datamodules.images.listing import USUAL_ENDINGS, list_classes, list_images
from datamodules.readers.folders import (
    CLUTTER,
    IMAGE_SUFFIXES,
    split_folders,
)

STRANGE = ["a\nb.png", os.fsdecode(b"caf\xe9.png"), "cafe\u0301.png", "caf\u00e9.png", " .png"]


def names(paths):
    return [Path(path).name for path in paths]


def test_a_folder_equals_asking_each_entry_what_it_is(tmp_path):
    made = [
        "1.png",
        "2.PNG",
        "3.Jpg",
        "b.jpeg",
        "c.tiff",
        "d.webp",
        ".jpg",
        "..png",
        "-.png",
        "~.bmp",
    ]
    made += [
        "sub/1.png",
        "sub.png/2.jpg",
        "sub/.x.png",
        "sub-a/3.png",
        "notes.txt",
        "png",
        "a.b/c.gif",
    ]
    for name in made:
        (tmp_path / "a" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / name).touch()
    expected, passed = [], 0
    for path in sorted((tmp_path / "a").rglob("*"), key=str):
        if path.is_file() and not path.name.startswith("."):
            shown = path.suffix.lower() in IMAGE_SUFFIXES
            expected += [str(path)] * shown
            passed += not shown
    found, skipped = list_images(tmp_path / "a")
    assert found == expected
    assert found == list(list_classes([tmp_path]).paths)
    assert skipped.total() == passed > 1
    assert not any(name.endswith(tuple(USUAL_ENDINGS)) for name in CLUTTER)


def test_h02_clutter_is_neither_class_nor_sample(tmp_path):
    for name in ("ash", "birch"):
        for i in range(3):
            solid(tmp_path / name / f"{i}.png", (230, 20, 20))
    solid(tmp_path / ".ipynb_checkpoints" / "0-checkpoint.png", (1, 2, 3))
    solid(tmp_path / "__MACOSX" / "0.png", (1, 2, 3))
    solid(tmp_path / "@eaDir" / "0.png" / "thumb.jpg", (1, 2, 3))
    solid(tmp_path / "ash" / "@eaDir" / "0.png" / "thumb.jpg", (1, 2, 3))
    (tmp_path / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (tmp_path / "ash" / "._0.png").write_bytes(b"\0\5\x16\7" + b"\0" * 60)
    (tmp_path / "ash" / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
    (tmp_path / "birch" / "notes.txt").write_text("not an image\n")
    solid(tmp_path / "birch" / "3.png", (20, 230, 20)).rename(tmp_path / "birch" / "3.PNG")
    found = list_classes([tmp_path])
    assert found.classes == ["ash", "birch"]
    assert found.labels == ["ash"] * 3 + ["birch"] * 4
    assert names(found.paths) == ["0.png", "1.png", "2.png", "0.png", "1.png", "2.png", "3.PNG"]
    assert all(decode_image(path).size == (12, 10) for path in found.paths)


def test_several_roots_join_equal_classes_and_go_down(tmp_path):
    for path in ("one/b/1.png", "one/a/deep/er/2.png", "two/a/0.png", "two/c/3.png"):
        solid(tmp_path / path, 0)
    found = list_classes([tmp_path / "one", tmp_path / "two"])
    assert found.labels == ["a", "a", "b", "c"]
    assert names(found.paths) == ["2.png", "0.png", "1.png", "3.png"]


def test_the_order_of_roots_is_the_given_one_wherever_they_lie(tmp_path):
    for path in ("z/a/1.png", "y/a/2.png"):
        solid(tmp_path / path, 0)
    found = list_classes([tmp_path / "z", tmp_path / "y"])
    assert names(found.paths) == ["1.png", "2.png"]


def test_what_is_passed_over_is_counted_in_the_log(tmp_path, caplog):
    solid(tmp_path / "a" / "1.png", 0)
    solid(tmp_path / "stray.png", 0)
    for name in ("x.txt", "y.txt", "README"):
        (tmp_path / "a" / name).write_text("")
    with caplog.at_level(logging.INFO):
        list_classes([tmp_path])
    assert "2 .txt, 1 no ending, 1 outside the class folders" in caplog.text


def test_strange_names_are_listed_as_they_are(tmp_path):
    for name in STRANGE:
        solid(tmp_path / "a" / "x.png", 7).rename(tmp_path / "a" / name)
    assert sorted(names(list_images(tmp_path)[0])) == sorted(STRANGE)
    assert len({unicodedata.normalize("NFC", name) for name in STRANGE}) == len(STRANGE) - 1


def test_linked_classes_and_images_are_followed(tmp_path):
    solid(tmp_path / "elsewhere" / "real" / "1.png", 0)
    (tmp_path / "root" / "b").mkdir(parents=True)
    (tmp_path / "root" / "a").symlink_to(tmp_path / "elsewhere" / "real")
    (tmp_path / "root" / "b" / "2.png").symlink_to(tmp_path / "elsewhere" / "real" / "1.png")
    found = list_classes([tmp_path / "root"])
    assert found.labels == ["a", "b"]


@pytest.mark.parametrize("target", [".", "..", "../.."])
def test_a_link_that_goes_in_circles_is_refused(tmp_path, target):
    solid(tmp_path / "root" / "a" / "1.png", 0)
    (tmp_path / "root" / "a" / "again").symlink_to(target)
    with pytest.raises(ValueError, match="again' points to a folder above it; remove it"):
        list_classes([tmp_path / "root"])


@pytest.mark.parametrize("link", ["a/2.png", "b"])
@pytest.mark.parametrize("target", ["missing", "b", "2.png"])
def test_a_link_to_nothing_or_to_itself_is_refused(tmp_path, link, target):
    solid(tmp_path / "a" / "1.png", 0)
    (tmp_path / link).symlink_to(target)
    with pytest.raises(FileNotFoundError, match="is broken; remove it"):
        list_classes([tmp_path])


def test_a_lost_link_to_what_is_no_image_does_no_harm(tmp_path):
    solid(tmp_path / "a" / "1.png", 0)
    (tmp_path / "a" / "notes.txt").symlink_to("missing")
    assert len(list_classes([tmp_path]).paths) == 1


def test_folders_with_a_images_ending_are_folders(tmp_path):
    solid(tmp_path / "a" / "album.png" / "1.png", 0)
    assert names(list_classes([tmp_path]).paths) == ["1.png"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_a_folder_that_may_not_be_read_is_named(tmp_path):
    solid(tmp_path / "a" / "1.png", 0)
    (tmp_path / "a").chmod(0)
    try:
        with pytest.raises(PermissionError, match="a'"):
            list_classes([tmp_path])
    finally:
        (tmp_path / "a").chmod(0o700)


def test_no_class_folder_says_what_was_found(tmp_path):
    with pytest.raises(ValueError, match=r"one folder for each class; it is empty"):
        list_classes([tmp_path])
    for i in range(6):
        solid(tmp_path / f"{i}.png", 0)
    message = r"it contains 6 files \(0.png, 1.png, 2.png, 3.png, ...\)"
    with pytest.raises(ValueError, match=message):
        list_classes([tmp_path])


def test_class_folders_without_a_image_say_so(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    message = r"hold no images; it contains 2 folders \(a, b\)"
    with pytest.raises(ValueError, match=message):
        list_classes([tmp_path])


def test_train_may_be_a_class_beside_bus(tmp_path):
    for name in ("train", "bus"):
        solid(tmp_path / name / "1.png", 0)
    assert split_folders(tmp_path) == {}
    assert list_classes([tmp_path]).classes == ["bus", "train"]
