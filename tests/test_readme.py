"""What the README shows is run as it stands there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from processes import run_program

from datamodules import DataModule

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A small folder called photos, in the working folder."""
    random = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 3), ("test", 3)):
        for label, colour in (("ash", 60), ("birch", 190)):
            folder = tmp_path / "photos" / split / label
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = random.integers(colour - 50, colour + 50, (40, 48, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_first_model_takes_six_lines(photos):
    lines = [line for line in BLOCKS[0].splitlines() if line]
    assert len(lines) <= 6
    Path("first.py").write_text(BLOCKS[0], encoding="utf-8")
    output = run_program("first.py", timeout=200, CUDA_VISIBLE_DEVICES="")
    assert "max_epochs=5" in output


@pytest.mark.timeout(300)
def test_the_same_in_one_command(photos):
    command = re.search(r"^    python (scripts/fit\.py --data Image.*)$", README, re.MULTILINE)
    script, *arguments = shlex.split(command[1])
    output = run_program(ROOT / script, *arguments, "--accelerator", "cpu", timeout=250)
    assert "accuracy" in output
    assert list(photos.glob("runs/*/checkpoints/best.ckpt"))


def test_a_datamodule_of_your_own_works():
    names: dict[str, object] = {}
    exec(BLOCKS[-1], names)
    dm = names["Squares"](rows=20, batch_size=4)
    assert isinstance(dm, DataModule)
    assert [len(b.target) for b in dm.val_dataloader()] == [2]
    assert torch.equal(dm.preview("val").inputs[:, 0] ** 2, dm.preview("val").target)


def test_every_config_and_class_that_is_named_exists():
    for name in re.findall(r"`(?:scripts/configs/)?(\w+\.yaml)`", README):
        assert (ROOT / "scripts" / "configs" / name).is_file(), name
    import datamodules

    for name in re.findall(r"`(\w+DataModule)`", README):
        assert hasattr(datamodules, name), name


def test_nothing_of_a_machine_is_in_it():
    assert str(Path.home()) not in README
    assert sys.prefix not in README
    assert str(Path.cwd()) not in README
