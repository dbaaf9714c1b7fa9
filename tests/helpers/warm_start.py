"""Runs programs forked from a process that has already imported Lightning: no 5 s for each start.

For programs whose start itself is not what a test looks at. Each rank has a parent of its own, so
that hashes of strings differ between ranks as they do between any two interpreters.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lightning.fabric.plugins.environments.lightning import find_free_network_port
from processes import members


class Parent:
    """One process that waits for requests; it ends with this one."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("warm_parent.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "MPLBACKEND": "Agg"},  # read when matplotlib is imported
        )
        self.is_ready = False
        atexit.register(self.end)

    def ask(self, **request: Any) -> Any:
        if not self.is_ready:
            self.is_ready = self.process.stdout.readline() == "ready\n"
            assert self.is_ready, "the parent of programs did not start"
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


@functools.cache
def parents() -> tuple[Parent, Parent]:
    """One for each rank; they import at the same time."""
    return Parent(), Parent()


def run_warm(
    *command: str | Path,
    ranks: int = 1,
    timeout: float = 120,
    code: int | None = 0,
    **environment: str,
) -> str:
    """Run a program file on ``ranks`` processes that find each other; what they printed.

    Args:
        command: The file and its arguments.
        ranks: 1 or 2. Two get what Lightning gives the processes that it launches.
        timeout: Seconds after which all are killed.
        code: What each process is to end with. None: one of them fails, and what they leave, such
            as the workers of a process that was killed, is then ended.
        environment: Variables, beside those of this process.

    Raises:
        AssertionError: If it ended otherwise than said, took longer, or left a child.
    """
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_network_port())}
    group |= {"NODE_RANK": "0", "WORLD_SIZE": str(ranks)}
    running, codes = {}, []
    with tempfile.NamedTemporaryFile() as output:
        for rank, parent in enumerate(parents()[:ranks]):
            place = {**group, "LOCAL_RANK": str(rank)} if ranks > 1 else {}
            pid = parent.ask(
                start=[*map(str, command)],
                environment={**os.environ, **environment, **place},
                folder=str(Path.cwd()),
                output=output.name,
            )
            running[pid] = parent
        groups = [*running]
        end = time.monotonic() + timeout  # the parents have long imported what they import
        while running and time.monotonic() < end:
            for pid, parent in [*running.items()]:
                came = parent.ask(ended=pid)
                if came is not None:
                    del running[pid]
                    codes.append(came)
                if came:
                    end = min(end, time.monotonic() + 30)  # the other one hears of it and ends
            time.sleep(0.02)
        late = [*running]
        left = left_of(groups, seconds=0 if code is None else 2)
        for pid, parent in running.items():
            while parent.ask(ended=pid) is None:
                time.sleep(0.02)
        said = Path(output.name).read_text()
    assert not late, f"not finished in time; the others' exit codes {codes}:\n{said[-4000:]}"
    right = any(codes) if code is None else set(codes) == {code}
    assert right, f"exit codes {codes}:\n{said[-6000:]}"
    assert code is None or not left, f"children left: {left}"
    return said


def left_of(groups: list[int], *, seconds: float) -> list[int]:
    """Processes of these groups that do not end by themselves in time; they are killed."""
    end = time.monotonic() + seconds
    while (left := [pid for group in groups for pid in members(group)]) and time.monotonic() < end:
        time.sleep(0.05)
    for group in groups:
        if members(group):
            os.killpg(group, signal.SIGKILL)
    return left
