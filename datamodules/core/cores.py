"""How many cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path


def default_workers() -> int:
    """Cores this process may use, shared with the other ranks on this machine."""
    cores = usable_cores()
    bound = "SLURM_CPUS_PER_TASK" in os.environ  # Slurm gives each rank cores of its own
    return max(1, cores // max(1, 1 if bound else int(os.environ.get("LOCAL_WORLD_SIZE", 1))))


def usable_cores() -> int:
    """Cores by affinity and by the control group's quota; at least 1."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        cores = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass
    return max(1, cores)
