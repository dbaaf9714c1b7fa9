"""How many cores this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def default_workers(ranks: int = 1) -> int:
    """Cores this process may use, shared with the other ranks on this machine.

    Args:
        ranks: Processes of this run on this machine, as far as the caller knows;
            ``LOCAL_WORLD_SIZE`` (torchrun) counts where it says more.
    """
    cores = usable_cores()
    if "SLURM_CPUS_PER_TASK" in os.environ:  # Slurm gives each rank cores of its own
        return cores
    return max(1, cores // max(1, ranks, int(os.environ.get("LOCAL_WORLD_SIZE", 1))))


def usable_cores() -> int:
    """Cores by affinity and by the control groups' quotas; at least 1."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min([float(cores), *_quotas()])))


def _quotas() -> Iterator[float]:
    """Cores by each quota that holds for this process: its own group's and those above."""
    try:
        lines = OWN_GROUP.read_text().splitlines()
    except OSError:
        lines = []
    own = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    group = CONTROL_GROUPS / own
    files = [folder / "cpu.max" for folder in (group, *group.parents)]
    for file in [f for f in files if f.is_relative_to(CONTROL_GROUPS)]:
        try:
            quota, period = file.read_text().split()
            yield int(quota) / int(period)
        except (OSError, ValueError):  # no such file, or "max"
            continue
    try:  # the first version of control groups
        quota, period = ((CONTROL_GROUPS / "cpu" / f"cpu.cfs_{n}_us").read_text() for n in V1)
        if int(quota) > 0:
            yield int(quota) / int(period)
    except (OSError, ValueError):
        pass


V1 = ("quota", "period")
