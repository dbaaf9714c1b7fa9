from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from contract import check_datamodule

from datamodules import samples
from datamodules.images.decode.decode import decode_image
from datamodules.readers.cache import written_once


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("DATAMODULES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_digits_are_scikit_learns_pixel_by_pixel(cache):
    from sklearn.datasets import load_digits

    dm, data = samples.digits(), load_digits()
    assert dm.classes == [str(digit) for digit in range(10)]
    assert dm.input_sizes == {"input_shape": [1, 8, 8]}
    paths = sorted((cache / "digits").rglob("*.png"))
    assert len(paths) == 1797
    for path in paths[::100]:
        row = int(path.stem)
        assert path.parent.name == str(data.target[row])
        pixels = np.array(decode_image(path, mode="L"))
        assert np.array_equal(pixels, (data.images[row] * 255 / 16).round())
    sizes = [len(getattr(dm, f"{split}_dataset")) for split in ("train", "val", "test")]
    assert sizes == [1797 - 2 * 180, 180, 180]


@pytest.mark.runs
def test_digits_pass_the_contract(cache):
    check_datamodule(lambda **options: samples.digits(**options))


def test_digits_are_written_once(cache):
    samples.digits().setup()
    written = {path: path.stat().st_mtime_ns for path in cache.rglob("*.png")}
    samples.digits().setup()
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.png")} == written
    assert [path.name for path in cache.iterdir()] == ["digits"], "nothing else is left"


def test_options_reach_the_datamodule(cache):
    dm = samples.digits(batch_size=7, mode="RGB", image_size=16)
    assert dm.preview("train").inputs.shape == (7, 3, 16, 16)


def test_a_writer_that_fails_leaves_nothing(cache):
    def write(folder: Path):
        (folder / "half").write_text("")
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="disk on fire"):
        written_once("x", write)
    assert list(cache.iterdir()) == []


def test_the_faster_of_two_writers_wins(cache):
    def write(folder: Path):
        written_once("x", lambda other: (other / "mine").write_text("first"))
        (folder / "mine").write_text("second")

    assert (written_once("x", write) / "mine").read_text() == "first"
    assert [path.name for path in cache.iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("name", "rows", "classes"),
    [("breast_cancer", 569, ["benign", "malignant"]), ("wine", 178, None), ("diabetes", 442, None)],
)
def test_tables_hold_all_rows(cache, name, rows, classes):
    dm = getattr(samples, name)()
    splits = (dm.train_dataset, dm.val_dataset, dm.test_dataset)
    assert sum(map(len, splits)) == rows
    assert classes is None or dm.classes == classes
    assert dm.task == ("regression" if name == "diabetes" else "multiclass")
