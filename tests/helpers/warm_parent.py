"""A process that has imported what is slow, and forks a program from itself for each request.

``python warm_parent.py`` reads requests from its input, one JSON object a line, and answers each
with one line: ``{"start": [FILE, ARGUMENT, ...], "environment": {}, "folder": "", "output": ""}``
starts a program and gives its process id, ``{"ended": ID}`` gives its exit code or null while it
runs. It ends when its input does.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import lightning.pytorch
import numpy as np
import torchvision.transforms.v2
from lightning.fabric.utilities import rank_zero
from trainers import quiet_trainer

import models
from datamodules import DatasetDataModule

IMPORTED = (lightning.pytorch, torchvision.transforms.v2, models, quiet_trainer, DatasetDataModule)


def started(request: dict[str, Any]) -> int:
    """The new process's id; 0 in the new process itself."""
    if pid := os.fork():
        return pid
    os.setsid()
    os.chdir(request["folder"])
    output = os.open(request["output"], os.O_WRONLY | os.O_APPEND)
    for number, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(source, number)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["start"]
    beside = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [str(Path(sys.argv[0]).parent), *beside, *sys.path[1:]]
    # what a new interpreter has of its own, and what is read when a module is imported
    np.random.seed()
    tempfile.tempdir = None
    rank_zero.rank_zero_only.rank = int(os.environ.get("LOCAL_RANK", 0))
    return 0


def ended(pid: int) -> int | None:
    """Exit code of a program, negative for a signal; None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def serve() -> bool:
    """Answer requests; True in a process that shall go on as a program."""
    gc.freeze()  # a child that ends need not look through, and so copy, all of this
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := sys.stdin.readline():
        request = json.loads(line)
        answer = ended(request["ended"]) if "ended" in request else started(request)
        if answer == 0 and "start" in request:
            return True
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()
    return False


if __name__ == "__main__" and serve():
    runpy.run_path(sys.argv[0], run_name="__main__")
