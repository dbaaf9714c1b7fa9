"""Add restart markers to JPEG files without loss, to decode crops from a part of the file.

``jpegtran -restart`` adds the markers and does not change any coefficient.
"""

from __future__ import annotations

import math
import shutil
import subprocess

import numpy as np

from .jpeg_slices import NotSliceable, Sliced, read_frame

ACROSS = 64  # target width of an interval in pixels; 2 markers take about 4 bytes


def jpegtran() -> str:
    """Return the path of ``jpegtran``.

    Raises:
        RuntimeError: If it is not installed.
    """
    path = shutil.which("jpegtran")
    if path is None:
        raise RuntimeError(
            "lossless slices need jpegtran, which is not installed; install libjpeg-turbo's tools: "
            "'apt install libjpeg-turbo-progs', 'dnf install libjpeg-turbo-utils', "
            "'brew install jpeg-turbo' or 'conda install -c conda-forge libjpeg-turbo', "
            "or pack with --kind resized-raw"
        )
    return path


def recut(content: bytes, *, program: str | None = None) -> Sliced:
    """Add restart markers to a JPEG without changing any coefficient.

    Progressive files become sequential, without loss. Comments, EXIF and profiles are removed: the
    caller checks whether the pixels need them.

    Args:
        content: The file.
        program: Path of jpegtran; None: search for it.

    Raises:
        NotSliceable: If the file is not a plain JPEG.
        RuntimeError: If jpegtran is not installed, or was killed.
    """
    frame = read_frame(content)
    units = -(-frame.width // frame.mcu_width)
    interval = _interval(units, max(2, ACROSS // frame.mcu_width))
    ran = subprocess.run(
        [program or jpegtran(), "-copy", "none", "-optimize", "-restart", f"{interval}B"],
        input=content,
        capture_output=True,
        check=False,
    )
    if ran.returncode < 0:  # as by Ctrl-C: not a property of the file
        raise RuntimeError(f"jpegtran was killed by signal {-ran.returncode}")
    if ran.returncode or ran.stderr:  # a warning means damage: the file is stored unchanged
        lines = ran.stderr.decode("utf-8", "replace").strip().splitlines()
        raise NotSliceable(f"jpegtran: {lines[-1] if lines else f'exit code {ran.returncode}'}")
    data = np.frombuffer(ran.stdout, np.uint8)
    frame = read_frame(data)
    scan = data[frame.scan :]
    marks = np.flatnonzero((scan[:-1] == 0xFF) & (scan[1:] >= 0xD0) & (scan[1:] <= 0xD7))
    starts = np.concatenate([[0], marks + 2, [len(scan)]]) + frame.scan
    per_row = units // interval
    rows = -(-frame.height // frame.mcu_height)
    if frame.restart != interval or len(starts) - 1 != per_row * rows:
        raise NotSliceable("jpegtran wrote other markers than requested")
    return Sliced(data, starts.astype(np.int64), frame, per_row)


def _interval(units: int, goal: int) -> int:
    """Return the units between markers: a divisor of a row's units near ``goal``, or the row.

    Never a single unit: smooth upsampling needs more than two chroma samples in a row.
    """
    fit = [d for d in range(2, units + 1) if units % d == 0 and d <= 4 * goal]
    return min(fit, key=lambda d: abs(math.log(d / goal)), default=units)
