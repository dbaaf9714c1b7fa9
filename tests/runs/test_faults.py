"""What happens to a run when something around it fails.

SIGTERM and SIGKILL in the middle of an epoch, and going on from there: ``test_resume.py``. Files,
disks and downloads: ``test_faults_files.py``. Shared memory and hung reads:
``test_worker_faults.py``. One writer of a pack: ``test_packs.py``.
"""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
import torch
from processes import Program, members
from script_runs import SCRIPTS, write_images
from warm_start import run_warm

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
        if i % 20 == 5:
            DEATH
        return torch.full((3,), float(i)), i % 2


class Module(DatasetDataModule):
    def __init__(self, **options):
        super().__init__(Dying(), **options)
"""


def on_dying(folder, death, *options, module="Module"):
    """``fit.py`` on a dataset whose items 5 and 25 end their process: command and environment."""
    (folder / "dying.py").write_text(DYING.replace("DEATH", death))
    command = [SCRIPTS / "fit.py", "--data", f"dying.{module}", "--max_epochs", 1, *options]
    command += ["--accelerator", "cpu", "--data.val_split", 0, "--data.test_split", 0]
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return command, {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("death", "said"),
    [("os._exit(1)", "exited unexpectedly"), ("os.kill(os.getpid(), 7)", "/dev/shm has")],
)
def test_h22_a_dead_worker_ends_the_run_with_a_remedy(tmp_path, monkeypatch, death, said):
    monkeypatch.chdir(tmp_path)
    death = f"if get_worker_info() is not None: {death}"
    command, environment = on_dying(tmp_path, death, "--devices", 1, "--data.num_workers", 2)
    output = run_warm(*command, code=1, **environment)
    assert said in output
    assert "--data.num_workers 0" in output


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Runs that take long, at once: (folder, program)."""
    two = ["--devices", 2, "--strategy", "ddp", "--data.num_workers", 0]
    two += ["--data.sampler", "sequential"]
    started = {}
    for rank in (0, 1):
        folder = tmp_path_factory.mktemp("killed")
        death = f"os.environ.get('LOCAL_RANK', '0') == '{rank}' and os.kill(os.getpid(), 9)"
        command, environment = on_dying(folder, death, *two)
        started[f"rank {rank}"] = Program(*command, folder=folder, **environment)
    images = write_images(tmp_path_factory.mktemp("growth") / "images", each=6)
    started["growth"] = Program("-c", GROWTH, images, OMP_NUM_THREADS="1")
    yield started
    for program in started.values():
        program.end()


@pytest.mark.timeout(280)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_the_other_at_once(programs, rank):
    process = programs[f"rank {rank}"].process
    output, _ = process.communicate(timeout=180)
    assert process.returncode == (-9 if rank == 0 else 1), output
    if rank == 1:
        assert "error: process 1 was killed by signal 9" in output
    gone = time.monotonic() + 60
    while members(process.pid) and time.monotonic() < gone:
        time.sleep(0.1)
    assert not members(process.pid), output


@pytest.mark.timeout(200)
def test_ctrl_c_ends_a_run_with_workers_and_keeps_its_checkpoints(tmp_path):
    write_images(tmp_path / "images", each=4)
    command = ["--data", "ImageFolderDataModule", "--data.root", tmp_path / "images"]
    command += ["--data.image_size", 8, "--data.num_workers", 2]
    command += ["--max_epochs", 5000, "--accelerator", "cpu", "--devices", 1]
    program = Program(SCRIPTS / "fit.py", *command, folder=tmp_path, OMP_NUM_THREADS="1")
    try:
        for line in program.process.stdout:
            if line.startswith("epoch 2/"):
                os.killpg(program.process.pid, signal.SIGINT)  # as a terminal does: to all of them
                break
        assert "Traceback" not in program.finished(150, code=130)
    finally:
        program.end()
    [run] = (tmp_path / "runs").iterdir()
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == [
        "best.ckpt",
        "last.ckpt",
    ]
    for path in (run / "checkpoints").iterdir():
        assert torch.load(path, weights_only=True)["state_dict"]


GROWTH = """
import gc, json, os, sys, time, warnings
from pathlib import Path
import lightning as L, torch
from datamodules import ImageFolderDataModule

warnings.simplefilter("ignore")

def memory(pid):
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

def counts():
    me = os.getpid()
    pids = Path(f"/proc/{me}/task/{me}/children").read_text().split()
    shared = [name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{me}_")]
    return {"descriptors": len(os.listdir("/proc/self/fd")), "children": len(pids),
            "threads": len(os.listdir("/proc/self/task")), "shared": len(shared),
            "mib": (memory(me) + sum(map(memory, pids))) / 1024}

def settled(before):
    # workers and the threads of their queues end when they get to it
    gc.collect()
    if not before:
        time.sleep(1)
    end = time.monotonic() + 30
    while (found := counts()) and before and time.monotonic() < end:
        if all(found[name] <= before[name] for name in found if name != "mib"):
            break
        time.sleep(0.2)
    return found

class Counts(L.Callback):
    def __init__(self):
        self.seen = {}
    def on_train_epoch_end(self, trainer, module):
        if trainer.current_epoch in (4, 19):
            self.seen[trainer.current_epoch + 1] = settled(self.seen.get(5))

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(192, 3)
    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.layer(batch.inputs.flatten(1)), batch.target)
    def validation_step(self, batch, index):
        self.training_step(batch, index)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

ways = [("process", True), ("process", False), ("thread", False)]
for kind, stays in ways:
    options = {"persistent_workers": stays} if kind == "process" else {}
    dm = ImageFolderDataModule(sys.argv[1], image_size=8, num_workers=2, worker_type=kind,
                               batch_size=8, loader_options=options)
    counter = Counts()
    L.Trainer(accelerator="cpu", devices=1, max_epochs=20, logger=False, callbacks=[counter],
              enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
              num_sanity_val_steps=0).fit(Net(), dm)
    print("SEEN", json.dumps([kind, stays, counter.seen[5], counter.seen[20]]))
"""


@pytest.mark.timeout(280)
def test_twenty_epochs_with_workers_leak_no_resources(programs):
    """Descriptors, threads, children, shared memory: no more after epoch 20 than after 5."""
    output = programs["growth"].finished(250)
    lines = [line for line in output.splitlines() if line.startswith("SEEN ")]
    assert len(lines) == 3
    for line in lines:
        kind, stays, early, late = json.loads(line[5:])
        assert late.pop("mib") < early.pop("mib") + 24, (kind, stays)
        assert all(late[name] <= early[name] for name in late), (kind, stays, early, late)
        assert early["children"] >= 4 or (kind, stays) != ("process", True)
