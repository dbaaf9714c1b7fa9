from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from torchvision.transforms import v2
from warm_start import run_warm

from datamodules import ImageFolderDataModule
from datamodules.core.accessors import bad_rows_of

HELPERS = Path(__file__).parents[1] / "helpers"
PLAIN = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


def grey(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4), level, np.uint8)).save(path)


def broken(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"<html>no image</html>")


def levels(batches) -> list[list[int]]:
    return [(b.inputs[:, 0, 0, 0] * 255).round().int().tolist() for b in batches]


@pytest.fixture
def folder(tmp_path):
    """train: 2 classes of 6, of grey levels 0 to 11; rows 2, 3 and 7 cannot be read."""
    for row in range(12):
        name = f"{row:02}.png"
        path = tmp_path / "root" / "train" / ("ash" if row < 6 else "birch") / name
        (broken(path) if row in (2, 3, 7) else grey(path, row))
    for row in (0, 6):
        grey(tmp_path / "root" / "val" / ("ash" if row < 6 else "birch") / f"{row}.png", row)
    return tmp_path / "root"


def module(root, **options):
    options = {"mode": "L", "train_transform": PLAIN, "eval_transform": PLAIN} | options
    return ImageFolderDataModule(
        root, **{"batch_size": 4, "num_workers": 0, "sampler": "sequential"} | options
    )


@pytest.mark.parametrize("num_workers", [0, 2])
def test_bad_files_are_left_out_listed_and_said_once(folder, num_workers):
    dm = module(folder, on_error="skip", num_workers=num_workers, worker_type="process")
    loader = dm.train_dataloader()
    with pytest.warns(UserWarning, match="3 of 12 train files cannot be read.*bad_files") as said:
        assert levels(loader) == [[0, 1], [4, 5, 6], [8, 9, 10, 11]]
    assert len(said) == 1
    assert len(loader) == 3
    assert [Path(path).name for path in dm.bad_files] == ["02.png", "03.png", "07.png"]
    assert all("text, not an image" in reason for reason in dm.bad_files.values())
    assert bad_rows_of(dm, "train") == [2, 3, 7]
    loader.sampler.set_epoch(1)
    assert list(chain(*levels(loader))) == [0, 1, 4, 5, 6, 8, 9, 10, 11]  # and no second warning


@pytest.mark.parametrize("num_workers", [0, 2])
def test_h05_skipping_yields_the_five_good_images(cases_dir, num_workers):
    dm = ImageFolderDataModule(
        cases_dir / "folders_damaged", image_size=8, batch_size=8, num_workers=num_workers,
        on_error="skip", val_split=0, test_split=0, sampler="sequential",
    )  # fmt: skip
    with pytest.warns(UserWarning, match="3 of 8 train files"):
        batches = list(dm.train_dataloader())
    assert sum(len(batch.inputs) for batch in batches) == 5
    assert sorted(Path(path).name for path in dm.bad_files) == [
        "c2_cut.jpg", "c3_zero.jpg", "c4_text.jpg",
    ]  # fmt: skip
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


@pytest.mark.parametrize("num_workers", [0, 2])
def test_h05_by_default_the_run_stops_and_names_the_file(folder, num_workers):
    with pytest.raises(Exception, match=r"02\.png"):
        list(module(folder, num_workers=num_workers).train_dataloader())


def test_h05_a_class_without_a_readable_file_is_an_error_that_names_it(folder):
    for path in (folder / "train" / "birch").iterdir():
        broken(path)
    dm = module(folder, on_error="skip", batch_size=7)
    with pytest.raises(RuntimeError, match="none of the 6 train files of class 'birch'"):
        list(dm.train_dataloader())


def test_more_bad_files_than_max_errors_stop_the_run(folder):
    dm = module(folder, on_error="skip", max_errors=2)
    with pytest.raises(RuntimeError, match="3 train files cannot be read, more than max_errors=2"):
        list(dm.train_dataloader())


def test_a_batch_of_which_nothing_is_left_is_an_error(folder):
    dm = module(folder, on_error="skip", batch_size=2)
    with pytest.raises(RuntimeError, match="none of the 2 files of a train batch can be read"):
        list(dm.train_dataloader())


def test_a_predict_batch_may_be_of_no_rows(folder):
    flat = folder / "train" / "ash"
    dm = module(None, predict_path=flat, on_error="skip", eval_batch_size=2, with_rows=True)
    with pytest.warns(UserWarning, match="2 of 6 predict files"):
        batches = list(dm.predict_dataloader())
    assert [batch.rows.tolist() for batch in batches] == [[0, 1], [], [4, 5]]
    assert [len(batch.inputs) for batch in batches] == [2, 0, 2]


def test_a_file_that_goes_away_is_skipped_and_a_transforms_own_error_is_not(folder):
    dm = module(folder, on_error="skip")
    dm.setup("fit")
    (folder / "train" / "ash" / "00.png").unlink()
    with pytest.warns(UserWarning, match="4 of 12"):
        assert levels(dm.train_dataloader())[0] == [1]
    dm.train_transform = OpensAnother()
    with pytest.raises(RuntimeError, match="elsewhere"):
        list(dm.train_dataloader())


class OpensAnother:
    def __call__(self, image):
        with open("elsewhere"):  # noqa: PTH123
            return image


def test_options_are_checked(folder):
    with pytest.raises(ValueError, match="on_error"):
        module(folder, on_error="ignore")
    with pytest.raises(ValueError, match="max_errors must be at least 0, got -1"):
        module(folder, max_errors=-1)


@pytest.mark.runs
@pytest.mark.parametrize(("devices", "num_workers"), [(1, 0), (2, 2)])
def test_every_rank_takes_the_same_steps(folder, devices, num_workers):
    command = (HELPERS / "skipping_ranks.py", folder, str(devices), str(num_workers))
    output = run_warm(*command, ranks=devices, timeout=200)
    seen = [json.loads(x.removeprefix("SEEN ")) for x in output.splitlines() if x[:5] == "SEEN "]
    assert len(seen) == devices
    assert {rank["steps"] for rank in seen} == {2 * 4 // devices}
    good = [row for row in range(12) if row not in (2, 3, 7)]
    for epoch in (0, 1):
        assert sorted(chain(*(rank["train"][epoch] for rank in seen))) == good
    assert sorted(chain(*(rank["bad"] for rank in seen))) == ["02.png", "03.png", "07.png"]
