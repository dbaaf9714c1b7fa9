"""``--safe``: a run on few samples with the most conservative data settings."""

from __future__ import annotations

import math
from typing import Any

from datamodules.insight.safe_mode import BATCH, SAMPLES, make_safe
from names import UsageError


def set_safe(data: Any, *, speaks: bool) -> None:
    """Set the datamodule and say what was set.

    Raises:
        UsageError: If it is of another base.
    """
    try:
        line = make_safe(data)
    except ValueError as error:
        raise UsageError(f"--safe: {error}") from error
    if speaks:
        print(f"{line}; {SAMPLES} samples a split; leave --safe out to go back", flush=True)


def safe_flags(objects: Any) -> dict[str, Any]:
    """The Trainer's limits for 100 samples a split, where the user gave none."""
    steps = math.ceil(SAMPLES / BATCH)
    names = (f"limit_{part}_batches" for part in ("train", "val", "test"))
    return {name: steps for name in names if objects.get(name) is None}
