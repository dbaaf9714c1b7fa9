"""Runs a program of its own under a time limit, and sees to it that no child is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def run_program(*command: str | Path, timeout: float = 120, **environment: str) -> str:
    """Run ``python *command`` in a session of its own and return what it printed.

    Raises:
        AssertionError: If it failed, took longer than ``timeout`` seconds, or left a child.
    """
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, **environment},
    )
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
    assert process.returncode == 0, f"exit code {process.returncode}:\n{output[-6000:]}"
    assert not left, f"children left: {left}"
    return output


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
