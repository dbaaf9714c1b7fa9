"""The examples of the README run as they are written."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from processes import Program
from script_runs import write_photos

from datamodules import DataModule

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The first model and the command, each beside a small folder called photos, both at once."""
    command = re.search(r"^    python (scripts/fit\.py --data Image.*)$", README, re.MULTILINE)
    script, *arguments = shlex.split(command[1])
    commands = {
        "model": ["first.py"],
        "command": [ROOT / script, *arguments, "--accelerator", "cpu"],
    }
    started = {}
    for name, given in commands.items():
        folder = tmp_path_factory.mktemp(name)
        write_photos(folder)
        (folder / "first.py").write_text(BLOCKS[0], encoding="utf-8")
        started[name] = folder, Program(*given, folder=folder, CUDA_VISIBLE_DEVICES="")
    yield started
    for _, program in started.values():
        program.end()


@pytest.mark.timeout(300)
def test_a_first_model_takes_six_lines(programs):
    lines = [line for line in BLOCKS[0].splitlines() if line]
    assert len(lines) <= 6
    _, program = programs["model"]
    assert "max_epochs=5" in program.finished(250)


@pytest.mark.timeout(300)
def test_the_same_in_one_command(programs):
    folder, program = programs["command"]
    assert "accuracy" in program.finished(250)
    assert list(folder.glob("runs/*/checkpoints/best.ckpt"))


def test_a_datamodule_of_your_own_works():
    names: dict[str, object] = {}
    exec(BLOCKS[-1], names)
    dm = names["Squares"](rows=20, batch_size=4)
    assert isinstance(dm, DataModule)
    assert [len(b.target) for b in dm.val_dataloader()] == [2]
    assert torch.equal(dm.preview("val").inputs[:, 0] ** 2, dm.preview("val").target)


def test_every_named_config_and_class_exists():
    for name in re.findall(r"`(?:scripts/configs/)?(\w+\.yaml)`", README):
        assert (ROOT / "scripts" / "configs" / name).is_file(), name
    import datamodules

    for name in re.findall(r"`(\w+DataModule)`", README):
        assert hasattr(datamodules, name), name


def test_the_readme_contains_no_local_paths():
    assert str(Path.home()) not in README
    assert sys.prefix not in README
    assert str(Path.cwd()) not in README
