from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from contract import same
from PIL import Image
from script_runs import write_images
from torchvision.transforms import v2

from datamodules import DatasetDataModule, ImageFolderDataModule
from datamodules.images import ram_cache
from datamodules.images.ram_cache import (
    PREFIX,
    RamCache,
    check_cache,
    free_bytes,
    memory_folder,
)

RANDOM = v2.Compose([v2.RandomCrop(6), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4)])
WAYS = {
    "alone": {"num_workers": 0},
    "threads": {"num_workers": 2, "worker_type": "thread"},
    "fork": {"num_workers": 2, "loader_options": {"multiprocessing_context": "fork"}},
    # their processes take seconds to start: one is enough to see that the cache travels
    "forkserver": {"num_workers": 1, "loader_options": {"multiprocessing_context": "forkserver"}},
    "spawn": {"num_workers": 1, "loader_options": {"multiprocessing_context": "spawn"}},
}


def folder(root, **options):
    if not root.exists():
        write_images(root)
    options = {"image_size": 8, "mode": "L", "batch_size": 16, "seed": 3, **options}
    return ImageFolderDataModule(root, train_transform=RANDOM, **options)


def epochs(dm, splits=("train", "val")):
    loaders = [getattr(dm, f"{split}_dataloader")() for split in splits]
    for epoch in range(2):
        for loader in loaders:
            loader.sampler.set_epoch(epoch)
        yield [list(loader) for loader in loaders]


@pytest.mark.runs
@pytest.mark.parametrize("way", WAYS)
def test_pixels_are_those_without_and_each_file_is_read_once(tmp_path, way):
    splits = ["train"] if way in ("forkserver", "spawn") else ["train", "val"]
    plain = list(epochs(folder(tmp_path / "images", num_workers=0), splits))
    dm = folder(
        tmp_path / "images", image_options={"cache": "ram", "cache_bytes": 1 << 20}, **WAYS[way]
    )
    cached = epochs(dm, splits)
    first = next(cached)
    for file in (tmp_path / "images").rglob("*.png"):
        file.write_bytes(b"no image any more")
    assert same([first, next(cached)], plain)
    assert not same(plain[0][0], plain[1][0])  # the augmentation was not kept
    size = sum(len(dm._dataset(split)) for split in splits)
    assert f"keeps {size} images in RAM" in str(dm)
    assert "of at most 1.0 MiB" in str(dm)


def test_colours_are_kept_as_they_are(tmp_path):
    found = []
    for cache in (None, "ram"):
        dm = folder(tmp_path / "images", mode="RGB", num_workers=0, image_options={"cache": cache})
        dm.train_transform = v2.RandomCrop(6)
        found.append(list(epochs(dm, ["train"])))
    assert same(*found)


def as_image(k):
    return Image.fromarray(np.full((8, 8, 3), k, np.uint8))


def as_grey(k):
    return Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))


def as_tensor(k):
    return torch.full((3, 8, 8), k, dtype=torch.uint8)


def as_array(k):
    return np.full((8, 8, 3), k, np.uint8)


def in_place(image):
    """A transform of the kind that would spoil what is kept."""
    if isinstance(image, Image.Image):
        image.paste(7, (0, 0, 4, 4))
    else:
        image[:4] = 7
    return image


@pytest.mark.runs
@pytest.mark.parametrize("load", [as_image, as_grey, as_tensor, as_array])
@pytest.mark.parametrize("workers", [0, 2])
def test_what_load_gives_is_kept_and_nobody_can_spoil_it(load, workers):
    found = []
    for cache in (None, "ram"):
        calls = []

        def counted(k, calls=calls):
            calls.append(k)
            return load(k)

        dm = DatasetDataModule(
            [(k, k % 2) for k in range(40)],
            load=counted,
            train_transform=in_place,
            batch_size=8,
            num_workers=workers,
            image_options={"cache": cache},
            seed=0,
        )
        found.append(list(epochs(dm)))
        # the one more is what fit() looks at
        assert workers or len(calls) == 1 + (36 if cache else 72)
    assert same(*found)
    assert sum(dm._ram_cache.counts().values()) == 36


def test_what_is_no_8_bit_image_is_refused_by_its_kind():
    options = {"batch_size": 4, "num_workers": 0, "image_options": {"cache": "ram"}}
    dm = DatasetDataModule([(1.0, 0), (2.0, 1)] * 8, load=torch.tensor, **options)
    with pytest.raises(RuntimeError, match=r"load returned Tensor of torch\.float32; convert it"):
        list(dm.train_dataloader())
    with pytest.raises(ValueError, match="keeps what load= returns; pass load="):
        DatasetDataModule([(1.0, 0)], image_options={"cache": "ram"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("disk", None), "cache must be None or 'ram', got 'disk'"),
        (("ram", 0), "cache_bytes must be a whole number of bytes, got 0"),
        (("ram", "4GB"), "cache_bytes must be a whole number of bytes, got '4GB'"),
        (("ram", True), "cache_bytes must be a whole number"),
        ((None, 5), 'no effect without cache="ram"'),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        check_cache(*settings)


def test_images_beyond_the_limit_are_decoded_each_time_and_that_is_said(tmp_path):
    plain = list(epochs(folder(tmp_path / "images", num_workers=0), ["train"]))
    dm = folder(
        tmp_path / "images", num_workers=0, image_options={"cache": "ram", "cache_bytes": 2000}
    )
    with pytest.warns(UserWarning, match='cache="ram" (has room for about|is full)') as caught:
        found = list(epochs(dm, ["train"]))
    said = [str(warning.message) for warning in caught]
    assert any('cache="ram" has room for about' in text for text in said)
    assert sum('cache="ram" is full at' in text for text in said) == 1
    assert same(found, plain)
    assert 0 < dm._ram_cache.used <= 2000


def test_a_full_memory_is_an_error_with_its_size_and_the_remedy(monkeypatch):
    with pytest.raises(RuntimeError, match=r"more than the .* free in .*lower it.*--shm-size"):
        RamCache(1 << 60)
    cache = RamCache(1 << 20)
    cache.add_part("train", 3)
    pixels = np.zeros((4, 4, 3), np.uint8)
    cache.put("train", 0, 0, pixels)

    def full(file, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ram_cache.os, "write", full)
        with pytest.raises(RuntimeError, match=r"is full: .*next image needs 64 bytes"):
            cache.put("train", 1, 0, pixels)
        patch.setattr(ram_cache.os, "write", lambda file, content: len(content) - 1)  # a part fits
        with pytest.raises(RuntimeError, match="is full"):
            cache.put("train", 1, 0, pixels)
    assert cache.get("train", 1) is None
    cache.put("train", 2, 0, pixels + 1)
    assert (cache.get("train", 2)[1] == 1).all()


def test_many_threads_and_processes_append_without_losing_a_byte(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    cache = RamCache(1 << 24)
    cache.add_part("a", 400)

    def image(k):
        return np.full((1 + k % 7, 1 + k % 5, 3), k % 251, np.uint8)

    child = os.fork()
    if child == 0:  # writes the upper half while this process writes the lower
        try:
            for k in range(200, 400):
                cache.put("a", k, 1, image(k))
        finally:
            os._exit(0)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda k: cache.put("a", k, 1, image(k)), range(200)))
    assert os.waitpid(child, 0)[1] == 0
    for k in range(400):
        kind, pixels = cache.get("a", k)
        assert kind == 1
        assert np.array_equal(pixels, image(k))


@pytest.mark.runs
def test_the_memory_is_free_again_when_the_maker_goes(monkeypatch):
    cache = RamCache(1 << 20)
    there, copy = cache.folder, pickle.loads(pickle.dumps(cache))
    cache.add_part("a", 1)
    copy.put("a", 0, 0, np.zeros((2, 2), np.uint8))
    assert cache.get("a", 0)[1].shape == (2, 2)
    del copy
    gc.collect()
    assert there.exists()
    copy = pickle.loads(pickle.dumps(cache))
    del cache
    gc.collect()
    assert not there.exists()
    assert copy.get("a", 0) is None  # as after a checkpoint's journey: nothing is kept, all is read
    copy.put("a", 0, 0, np.zeros((2, 2), np.uint8))
    assert copy.used == 0


KEPT = []


def keep_one(answers):
    KEPT.append(RamCache(1 << 20))
    answers.send(KEPT[0].folder)


def test_a_rank_that_ends_leaves_nothing():
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    rank = context.Process(target=keep_one, args=(there,))
    rank.start()
    folder = here.recv() if here.poll(60) else None
    rank.join(60)
    assert rank.exitcode == 0
    assert folder is not None
    assert not folder.exists()


def test_what_a_killed_process_left_is_removed_and_what_lives_is_not(monkeypatch):
    lives = RamCache(1 << 20)
    left = memory_folder() / f"{PREFIX}left"
    left.mkdir()
    (left / "pixels").write_bytes(b"1" * 100)
    RamCache(1 << 20)
    assert left.exists()  # younger than a minute: perhaps its maker is about to hold it
    monkeypatch.setattr(ram_cache, "NEW_SECONDS", -1)
    RamCache(1 << 20)
    assert not left.exists()
    assert lives.folder.exists()


def test_the_limit_goes_by_the_control_group_and_the_ranks(tmp_path, monkeypatch):
    monkeypatch.setattr(ram_cache, "GROUP", tmp_path)
    before = free_bytes(Path("/"))
    for name, text in {
        "memory.max": "3000000",
        "memory.current": "2500000",
        "memory.stat": "anon 5\ninactive_file 300000\n",
    }.items():
        (tmp_path / name).write_text(text)
    assert free_bytes(Path("/")) == 800000 < before
    assert RamCache().limit == 400000
    assert RamCache(ranks=2).limit == 200000
