"""Runs programs of their own under a time limit, and sees to it that no child is left.

Those that are started before the first is waited for use a second core.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


class Program:
    """``python *command`` in a session of its own, from ``folder`` on if that is given."""

    def __init__(
        self, *command: str | Path, folder: str | Path | None = None, **environment: str
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, **environment},
        )

    def finished(self, timeout: float = 120, *, code: int = 0) -> str:
        """Wait for the end; what it printed.

        Raises:
            AssertionError: If it ended with another exit code, took longer than ``timeout``
                seconds, or left a child.
        """
        process = self.process
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            raise AssertionError(f"not finished after {timeout} s:\n{output[-4000:]}") from None
        left = members(process.pid)
        for _ in range(20):
            if not left:
                break
            time.sleep(0.1)
            left = members(process.pid)
        if left:
            os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == code, f"exit code {process.returncode}:\n{output[-6000:]}"
        assert not left, f"children left: {left}"
        return output

    def end(self) -> None:
        """Kill what is left of it."""
        if members(self.process.pid):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        self.process.stdout.close()


def run_program(*command: str | Path, timeout: float = 120, **environment: str) -> str:
    """Run ``python *command`` and return what it printed; raises as ``Program.finished``."""
    return Program(*command, **environment).finished(timeout)


def members(group: int) -> list[int]:
    """Live processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found
