"""JPEG files cut anew without loss, so that a crop can be decoded from a part of the file.

``jpegtran -restart`` writes restart markers into a JPEG and leaves every coefficient as it is.
"""

from __future__ import annotations

import math
import shutil
import subprocess

import numpy as np

from .jpeg_slices import NotSliceable, Sliced, read_frame

ACROSS = 64  # pixels an interval is to be wide; 2 markers cost about 4 bytes


def jpegtran() -> str:
    """Path of ``jpegtran``.

    Raises:
        RuntimeError: If it is not installed; says how to get it.
    """
    found = shutil.which("jpegtran")
    if found is None:
        raise RuntimeError(
            "lossless slices need jpegtran, which is not installed; get libjpeg-turbo's tools: "
            "'apt install libjpeg-turbo-progs', 'dnf install libjpeg-turbo-utils', "
            "'brew install jpeg-turbo' or 'conda install -c conda-forge libjpeg-turbo', "
            "or pack with --kind resized-raw"
        )
    return found


def recut(content: bytes, *, program: str | None = None) -> Sliced:
    """Write restart markers into a JPEG; every coefficient stays as it is.

    Progressive files become sequential ones on the way, without loss. Comments, EXIF and profiles
    are left out: whether the pixels need them is for the caller to prove.

    Args:
        content: The file.
        program: Path of jpegtran; None looks for it.

    Raises:
        NotSliceable: If the file is not of the plain kind.
        RuntimeError: If jpegtran is not installed, or was ended from outside.
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
    if ran.returncode < 0:  # as Ctrl-C ends it: nothing is known of the file
        raise RuntimeError(f"jpegtran was ended by signal {-ran.returncode}")
    if ran.returncode or ran.stderr:  # a warning is damage, which stays as it is
        said = ran.stderr.decode("utf-8", "replace").strip().splitlines()
        raise NotSliceable(f"jpegtran: {said[-1] if said else f'exit code {ran.returncode}'}")
    data = np.frombuffer(ran.stdout, np.uint8)
    frame = read_frame(data)
    scan = data[frame.scan :]
    marks = np.flatnonzero((scan[:-1] == 0xFF) & (scan[1:] >= 0xD0) & (scan[1:] <= 0xD7))
    starts = np.concatenate([[0], marks + 2, [len(scan)]]) + frame.scan
    per_row = units // interval
    rows = -(-frame.height // frame.mcu_height)
    if frame.restart != interval or len(starts) - 1 != per_row * rows:
        raise NotSliceable("jpegtran set other markers than asked for")
    return Sliced(data, starts.astype(np.int64), frame, per_row)


def _interval(units: int, goal: int) -> int:
    """Units between markers: a divisor of a row's units near ``goal``, or the whole row.

    Never one unit alone: smooth upsampling needs more than two chroma samples in a row.
    """
    fit = [d for d in range(2, units + 1) if units % d == 0 and d <= 4 * goal]
    return min(fit, key=lambda d: abs(math.log(d / goal)), default=units)
