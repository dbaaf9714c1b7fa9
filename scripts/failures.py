"""Turn errors of the scripts into exit codes and one-line messages, and end all processes."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning as L
from lightning.fabric.utilities.exceptions import MisconfigurationException

from names import UsageError

INTERRUPTED = 130  # as in shells: 128 plus the number of the signal
EXPECTED = (ValueError, OSError, RuntimeError, ImportError, MisconfigurationException)
FIRST_ERROR = "DATAMODULES_FIRST_ERROR"  # path of a file: the first process to fail creates it

# Warnings of the libraries that a user of the scripts cannot act on.
FOREIGN_WARNINGS = (
    # Lightning 2.6 asks torch 2.9's tree specs in the old way (pytorch-lightning#21376)
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    # metrics are logged once per epoch
    r"The number of training batches \(\d+\) is smaller than the logging interval",
    # datamodules.loading.make_loader chooses the number of workers
    r"The '\w+' does not have many workers",
    # resuming in the middle of an epoch is exact here
    r"You're resuming from a checkpoint that ended before the epoch ended",
    # a resumed fit with other options has other callbacks
    r"Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
    # evaluation here counts each row once
    r"Using `DistributedSampler` with the dataloaders",
    # --accelerator cpu is a choice
    r"(GPU|MPS|TPU) available but not used",
)


def exit_code(body: Callable[[list[str], Ranks], None], arguments: Sequence[str]) -> int:
    """Run a script and return its exit code.

    Args:
        body: Takes the arguments and a :class:`Ranks`.
        arguments: Without the program's name; with ``--traceback`` tracebacks are printed.

    Returns:
        0 for success, 1 for wrong data or a failed run, 2 for wrong usage, 130 for Ctrl-C.
    """
    ranks = Ranks()
    shorten_warnings(ranks.is_first)
    try:
        body(list(arguments), ranks)
        code = 0
    except KeyboardInterrupt as interrupt:
        if ranks.is_first:
            print(f"\ninterrupted; {str(interrupt) or 'nothing was written'}", file=sys.stderr)
        code = INTERRUPTED
    except Exception as error:
        usage = isinstance(error, UsageError)
        lost = ranks.failed_process() if isinstance(error, RuntimeError) else ""
        if ranks.claim_error():
            if "--traceback" in arguments or not isinstance(error, (UsageError, *EXPECTED)):
                traceback.print_exc()
            else:
                print(f"error: {lost or one_line(error)}", file=sys.stderr)
        code = 2 if usage else 1
    ranks.end(failed=code != 0)
    if code and not ranks.is_first:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the group of processes may wait for the others in its own clean-up
    return code


def one_line(error: BaseException) -> str:
    """Return the message of an error and of its cause, without a worker's traceback.

    Example:
        >>> one_line(ValueError("lower one of them"))
        'lower one of them'
    """
    text = str(error) or type(error).__name__
    if "Traceback (most recent call last)" in text:
        # from a worker or a spawned process: keep the last error of the traceback
        *_, text = re.split(r"\n[\w.]*(?:Error|Exception|Interrupt): ", text)
    text = re.sub(r"\s*\n\s*", " ", text.strip())
    if "DataLoader worker" in text and "--data.num_workers" not in text:
        text += " Run with --data.num_workers 0 to see the original error."
        if "us error" in text and (shared := Path("/dev/shm")).is_dir():
            free = shutil.disk_usage(shared).free >> 20
            text += f" A bus error means that shared memory is full: /dev/shm has {free} MiB free."
    cause = error.__cause__
    if cause is not None and str(cause) and not isinstance(error, UsageError):
        cause_text = one_line(cause)
        if cause_text not in text:
            text += f"\n  caused by {type(cause).__name__}: {cause_text}"
    return text


def shorten_warnings(is_first: bool) -> None:
    """Print warnings and notes in one line, on the first process only; silence Lightning's info."""
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in FOREIGN_WARNINGS:
        warnings.filterwarnings("ignore", message=message)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if is_first:
            print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

    warnings.showwarning = show
    notes = logging.getLogger("datamodules")
    if is_first and not notes.handlers:
        notes.addHandler(Notes())
        notes.setLevel(logging.INFO)


class Notes(logging.Handler):
    """Prints the log messages of the datamodules."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        print(f"note: {' '.join(record.getMessage().split())}", file=sys.stderr)


class Ranks:
    """The processes of one run, which end together.

    Lightning starts the others by running the script again. If one of them fails, Lightning kills
    the first within 5 seconds; if the first fails, the others may wait for half an hour. Here the
    first process that fails prints its error, and all end with its exit code.
    """

    def __init__(self) -> None:
        local = os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_PROCID") or "0"
        self.is_first = os.environ.get("RANK", local) == "0"
        if self.is_first:
            name = f"datamodules-{os.getpid()}-{time.time_ns()}"
            os.environ[FIRST_ERROR] = str(Path(tempfile.gettempdir()) / name)
        self._trainer: L.Trainer | None = None
        self._ending = False

    def watch(self, trainer: L.Trainer) -> None:
        """End this process if one that it launched fails."""
        self._trainer = trainer
        if self.is_first and trainer.world_size > 1:
            threading.Thread(target=self._watch_launched, daemon=True).start()

    def claim_error(self) -> bool:
        """Whether this process failed first; errors of the others are consequences."""
        marker = os.environ.get(FIRST_ERROR)
        if marker is None:
            return True
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        except OSError:
            return True
        return True

    def failed_process(self) -> str:
        """Return which launched process failed and how, or ``""``."""
        for _ in range(5):
            for rank, process in enumerate(self._launched(), 1):
                if code := process.poll():
                    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
                    return f"process {rank} {how}" + (
                        ", which the kernel sends if memory runs out" if code == -9 else ""
                    )
            if not self._launched():
                break
            time.sleep(0.1)  # the connection may break a moment before the process is gone
        return ""

    def end(self, *, failed: bool) -> None:
        """Wait for the launched processes, or kill them if the run failed."""
        self._ending = True
        for process in self._launched():
            if failed:
                process.kill()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.is_first:
            with contextlib.suppress(OSError):
                Path(os.environ.get(FIRST_ERROR, "")).unlink(missing_ok=True)

    def _launched(self) -> list[subprocess.Popen[bytes]]:
        launcher = getattr(getattr(self._trainer, "strategy", None), "launcher", None)
        found = getattr(launcher, "procs", [])
        return [process for process in found if isinstance(process, subprocess.Popen)]

    def _watch_launched(self) -> None:
        while not self._ending:
            time.sleep(0.2)
            codes = {process.poll() for process in self._launched()}
            if not codes - {None, 0, INTERRUPTED}:
                continue
            time.sleep(1)  # the first process may have noticed, and end by itself
            if self._ending:
                return
            if self.claim_error():
                print(f"error: {self.failed_process()}", file=sys.stderr)
            self.end(failed=True)
            sys.stderr.flush()
            os._exit(1)
