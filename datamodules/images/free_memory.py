"""How much of the machine's memory is free, and where files in memory can lie."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

SHARED = Path("/dev/shm")
MEMINFO = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def as_size(count: int) -> str:
    """A number of bytes as a person reads it.

    Example:
        >>> as_size(512), as_size(64 << 20), as_size(3_700_000_000)
        ('512 bytes', '64.0 MiB', '3.4 GiB')
    """
    power = min(len(UNITS) - 1, max(0, (count.bit_length() - 1) // 10))
    return f"{count / 1024**power:.1f} {UNITS[power]}" if power else f"{count} bytes"


def memory_folder() -> Path:
    """A folder whose files lie in memory, else the one for temporary files."""
    return SHARED if os.access(SHARED, os.W_OK) else Path(tempfile.gettempdir())


def free_bytes(folder: Path) -> int:
    """What a file in ``folder`` can take without pushing programs out of memory."""
    return min(shutil.disk_usage(folder).free, *_free_memory())


def _free_memory() -> list[int]:
    """Memory that is free or can be freed, by the system and by the control group's limit."""
    found = []
    try:
        lines = dict(line.split(":") for line in MEMINFO.read_text().splitlines() if ":" in line)
        found.append(int(lines["MemAvailable"].split()[0]) << 10)
    except (OSError, KeyError, ValueError):  # macOS says only how much there is
        pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
        found.append(pages * os.sysconf("SC_PAGE_SIZE") // 2 if pages > 0 else 1 << 30)
    try:
        limit = int((GROUP / "memory.max").read_text())
        used = int((GROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        found.append(max(0, limit - used + int(stat.get("inactive_file", 0))))
    except (OSError, ValueError):  # no such file, or "max"
        pass
    return found
