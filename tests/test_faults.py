"""What happens to a run when something around it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import members

SCRIPTS = Path(__file__).parent.parent / "scripts"
DYING = """
import os
import torch
from torch.utils.data import Dataset, get_worker_info
from datamodules import DatasetDataModule


class Dying(Dataset):
    targets = [i % 2 for i in range(40)]

    def __len__(self):
        return 40

    def __getitem__(self, i):
        if i == 5 and get_worker_info() is not None:
            DEATH
        return torch.full((3,), float(i)), i % 2


class Module(DatasetDataModule):
    def __init__(self, **options):
        super().__init__(Dying(), **options)
"""


@pytest.mark.parametrize(
    ("death", "said"),
    [("os._exit(1)", "exited unexpectedly"), ("os.kill(os.getpid(), 7)", "/dev/shm has")],
)
def test_h22_a_worker_that_dies_ends_the_run_with_the_next_step(tmp_path, death, said):
    (tmp_path / "dying.py").write_text(DYING.replace("DEATH", death))
    command = [sys.executable, SCRIPTS / "fit.py", "--data", "dying.Module", "--max_epochs", "1"]
    command += ["--data.num_workers", "2", "--accelerator", "cpu", "--devices", "1"]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [*map(str, command), "--data.val_split", "0", "--data.test_split", "0"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 1, output
        assert said in output
        assert "--data.num_workers 0" in output
        assert not members(process.pid)
    finally:
        if members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
