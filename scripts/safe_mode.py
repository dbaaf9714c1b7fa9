"""Set up ``fit.py --safe``: few samples, and the most conservative data settings."""

from __future__ import annotations

import math
from typing import Any

from datamodules.insight.safe_mode import BATCH, SAMPLES, make_safe
from names import UsageError


def set_safe(data: Any, *, verbose: bool) -> None:
    """Change the datamodule's settings and print what was changed.

    Raises:
        UsageError: If it is not a datamodule of this project.
    """
    try:
        line = make_safe(data)
    except ValueError as error:
        raise UsageError(f"--safe: {error}") from error
    if verbose:
        print(f"{line}; {SAMPLES} samples per split; remove --safe for a normal run", flush=True)


def safe_flags(objects: Any) -> dict[str, Any]:
    """Return the Trainer's limits for 100 samples per split, unless the user set them."""
    steps = math.ceil(SAMPLES / BATCH)
    names = (f"limit_{split}_batches" for split in ("train", "val", "test"))
    return {name: steps for name in names if objects.get(name) is None}
