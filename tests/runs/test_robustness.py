"""``scripts/bench.py robustness``: files that break programs, compared with their true content."""

from __future__ import annotations

import csv
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import script_runs  # noqa: F401 - puts the scripts on the path
from PIL import Image

from benchmarks import nasty_images, nasty_tables, robustness
from benchmarks.nasty import refused


@pytest.mark.parametrize("part", ["images", "tables"])
def test_every_nasty_file_is_read_right_or_refused_by_name(data_dir, part):
    pytest.importorskip("pandas")
    [result] = robustness.measure(Namespace(root=data_dir, only=[part]))
    assert len(result.rows) == {"images": 57, "tables": 55 + 12}[part]
    assert [row for row in result.rows if not row["here"].startswith("right")] == []
    assert "; here: " in result.notes[0]
    assert result.notes[0].endswith(f"{len(result.rows)} right, 0 silently wrong")
    stock = [row for row in result.rows if "WRONG, silent" in row[list(row)[2]]]
    assert len(stock) >= 8  # the comparison finds the errors of stock code


def image(folder, pixels, **options):
    path = folder / "a.png"
    Image.fromarray(pixels).save(path, **options)
    return path


def test_an_image_is_compared_by_size_orientation_and_colour(tmp_path):
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[:2] = 200
    path = image(tmp_path, pixels)
    truth = nasty_images.true_image(path, "PNG RGB 6x4 load ok", "none")
    assert truth.size == (4, 6)

    def judged(answer):
        return nasty_images.judge(lambda _: answer, path, truth)

    assert judged(pixels).right
    assert judged(pixels + 2).right
    assert judged(pixels + 9).silent
    assert judged(pixels[::-1]).silent
    assert "wrong orientation" in str(judged(pixels.transpose(1, 0, 2)))
    gone = nasty_images.true_image(path, "OPEN FAILS", "cut")
    assert nasty_images.judge(lambda _: pixels, path, gone).silent


def test_the_true_pixels_of_16_bit_and_transparent_images(tmp_path):
    path = image(tmp_path, np.full((2, 2), 257 * 90, np.uint16))
    deep = nasty_images.true_image(path, "PNG I;16 2x2 RGB ok but clipped", "")
    assert deep.pixels.tolist() == [[[90] * 3] * 2] * 2
    path = image(tmp_path, np.array([[[9, 9, 9, 0], [9, 9, 9, 255]]], np.uint8))
    clear = nasty_images.true_image(path, "PNG RGBA 2x1 load ok", "")
    assert clear.pixels.tolist() == [[[255] * 3, [9] * 3]]


def test_an_error_is_right_only_if_the_file_is_damaged_and_named():
    path = Path("folder/a.png")
    named, bare = ValueError("'folder/a.png': cut off"), ValueError("cut off")
    assert refused(named, path, whole=False).right
    assert str(refused(named, path, whole=False)) == "right: refused: cut off"
    assert not refused(bare, path, whole=False).right
    assert not refused(named, path, whole=True).right
    assert not any(refused(error, path, whole=w).silent for error in (named, bare) for w in (0, 1))


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"a": [1, 2], "b": ["x", "00501"]}, "right: 2 x 2"),
        ({"a": [1.0, "2"], "b": ["x", "00501"]}, "right"),
        ({"a": [1, 2], "b": ["x", 501]}, "WRONG, silent: 1 cells, such as 501 for '00501'"),
        ({"a": [1, None], "b": ["x", "00501"]}, "WRONG, silent: 1 cells"),
        ({"a": [1], "b": ["x"]}, "WRONG, silent: 1 x 2 for 2 x 2"),
        ({"a": [1, 2]}, "WRONG, silent: 2 x 1 for 2 x 2"),
    ],
)
def test_a_table_is_compared_cell_by_cell(tmp_path, cells, said):
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,00501\n")
    form = nasty_tables.Form()
    limit = csv.field_size_limit()
    truth = nasty_tables.true_cells(tmp_path / "t.csv", form)
    assert csv.field_size_limit() == limit, "it is the whole process's"
    answer = nasty_tables.judge(lambda *_: (cells, ""), tmp_path / "t.csv", (form, truth))
    assert str(answer).startswith(said)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="pass --root"):
        robustness.measure(Namespace(root=None, only=["images"]))
    with pytest.raises(FileNotFoundError, match="pass --root, the folder above it"):
        robustness.measure(Namespace(root=tmp_path, only=["images"]))
