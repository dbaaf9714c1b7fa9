"""How the scripts end: exit codes, one line for a user's mistake, and no process left behind."""

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

INTERRUPTED = 130  # as shells count Ctrl-C: 128 and the number of the signal
EXPECTED = (ValueError, OSError, RuntimeError, ImportError, MisconfigurationException)
FIRST_ERROR = "DATAMODULES_FIRST_ERROR"  # a file that the first process to fail makes

# Sent by the libraries below, about nothing that a user of the scripts could change.
FOREIGN_WARNINGS = (
    # Lightning 2.6 asks torch 2.9's tree specs in the old way (pytorch-lightning#21376)
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",
    # figures are logged once an epoch, whatever the interval
    r"The number of training batches \(\d+\) is smaller than the logging interval",
    # the loader's worker count is chosen, see datamodules.loading.make_loader
    r"The '\w+' does not have many workers",
    # resuming in the middle of an epoch is exact here
    r"You're resuming from a checkpoint that ended before the epoch ended",
    # the script's own callbacks differ between fit and a resumed fit with other options
    r"Be aware that when using `ckpt_path`, callbacks used to create the checkpoint",
    # one test after a fit on several processes: evaluation here counts each row once
    r"Using `DistributedSampler` with the dataloaders",
    # a datamodule's accelerator is not always wanted
    r"(GPU|MPS|TPU) available but not used",
)


def exit_code(body: Callable[[list[str], Ranks], None], arguments: Sequence[str]) -> int:
    """Run a script: 0 for success, 1 for data or a failed run, 2 for usage, 130 for Ctrl-C.

    Args:
        body: Gets the arguments and the watch over the processes.
        arguments: Without the program's name; ``--traceback`` among them shows everything.
    """
    ranks = Ranks()
    be_quiet(ranks.is_first)
    try:
        body(list(arguments), ranks)
        code = 0
    except KeyboardInterrupt as interrupt:
        if ranks.is_first:
            print(f"\ninterrupted; {str(interrupt) or 'nothing was written'}", file=sys.stderr)
        code = INTERRUPTED
    except Exception as error:
        usage = isinstance(error, UsageError)
        lost = ranks.lost() if isinstance(error, RuntimeError) else ""
        if ranks.may_speak():
            if "--traceback" in arguments or not isinstance(error, (UsageError, *EXPECTED)):
                traceback.print_exc()
            else:
                print(f"error: {lost or in_one_line(error)}", file=sys.stderr)
        code = 2 if usage else 1
    ranks.end(failed=code != 0)
    if code and not ranks.is_first:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the group of processes may wait for the others in its own clean-up
    return code


def in_one_line(error: BaseException) -> str:
    """An error's text and its cause's; of an error in a worker only the error itself.

    Example:
        >>> in_one_line(ValueError("lower one of them"))
        'lower one of them'
    """
    text = str(error) or type(error).__name__
    if "Traceback (most recent call last)" in text:
        # from a worker or a spawned process: the text is a whole traceback, the last error counts
        *_, text = re.split(r"\n[\w.]*(?:Error|Exception|Interrupt): ", text)
    text = re.sub(r"\s*\n\s*", " ", text.strip())
    if "DataLoader worker" in text and "--data.num_workers" not in text:
        text += " The real error shows with --data.num_workers 0."
        if "us error" in text and (shared := Path("/dev/shm")).is_dir():
            free = shutil.disk_usage(shared).free >> 20
            text += f" A bus error means that shared memory was full: /dev/shm has {free} MiB free."
    cause = error.__cause__
    if cause is not None and str(cause) and not isinstance(error, UsageError):
        said = in_one_line(cause)
        if said not in text:
            text += f"\n  caused by {type(cause).__name__}: {said}"
    return text


def be_quiet(speaks: bool) -> None:
    """Warnings and notes in one line, from the first process alone; Lightning's own talk not."""
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in FOREIGN_WARNINGS:
        warnings.filterwarnings("ignore", message=message)

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if speaks:
            print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

    warnings.showwarning = show
    notes = logging.getLogger("datamodules")
    if speaks and not notes.handlers:
        notes.addHandler(Notes())
        notes.setLevel(logging.INFO)


class Notes(logging.Handler):
    """Shows what the datamodules have to say about the data they found."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        print(f"note: {' '.join(record.getMessage().split())}", file=sys.stderr)


class Ranks:
    """The processes of one run, which end together.

    Lightning starts the others by running the script again. If one of them fails, it ends the
    first by SIGKILL within 5 seconds; if the first fails, the others may wait for it for half an
    hour. Here the first that fails says why, and all end with its exit code.
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
        """End this process where one that it launches fails."""
        self._trainer = trainer
        if self.is_first and trainer.world_size > 1:
            threading.Thread(target=self._look, daemon=True).start()

    def may_speak(self) -> bool:
        """Whether this is the first process to fail; the others' errors are its consequence."""
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

    def lost(self) -> str:
        """Which launched process ended badly, where one did; the rest is a broken connection."""
        for _ in range(5):
            for rank, process in enumerate(self._launched(), 1):
                if code := process.poll():
                    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
                    return f"process {rank} {how}" + (
                        ", which the kernel sends when memory runs out" if code == -9 else ""
                    )
            if not self._launched():
                break
            time.sleep(0.1)  # the connection may break a moment before the process is gone
        return ""

    def end(self, *, failed: bool) -> None:
        """Wait for the launched processes, or end them where the run failed."""
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

    def _look(self) -> None:
        while not self._ending:
            time.sleep(0.2)
            codes = {process.poll() for process in self._launched()}
            if not codes - {None, 0, INTERRUPTED}:
                continue
            time.sleep(1)  # the first process may have noticed, and be about to end by itself
            if self._ending:
                return
            if self.may_speak():
                print(f"error: {self.lost()}", file=sys.stderr)
            self.end(failed=True)
            sys.stderr.flush()
            os._exit(1)
