"""Count the CPU cores that this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
V1_FILES = ("cpu.cfs_quota_us", "cpu.cfs_period_us")


def default_workers(ranks: int = 1) -> int:
    """Return this rank's share of the usable cores; at least 1.

    Args:
        ranks: Ranks on this machine that the caller knows of; ``LOCAL_WORLD_SIZE`` (torchrun) is
            used if it is larger.
    """
    cores = usable_cores()
    if "SLURM_CPUS_PER_TASK" in os.environ:  # Slurm gives each rank its own cores
        return cores
    return max(1, cores // max(1, ranks, int(os.environ.get("LOCAL_WORLD_SIZE", 1))))


def usable_cores() -> int:
    """Return the cores allowed by affinity and by control group quotas; at least 1."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min([float(cores), *_quotas()])))


def _quotas() -> Iterator[float]:
    """Yield the cores allowed by each quota of this process's control group and its parents."""
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
    try:  # control groups version 1
        quota, period = ((CONTROL_GROUPS / "cpu" / name).read_text() for name in V1_FILES)
        if int(quota) > 0:
            yield int(quota) / int(period)
    except (OSError, ValueError):
        pass
