"""Open .npy files that may be damaged."""

from __future__ import annotations

import tokenize
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

# raised by NumPy's header parser for damaged files, beside its own ValueError
DAMAGED = (
    *(ValueError, EOFError, OverflowError, TypeError, SyntaxError, tokenize.TokenError),
    *(MemoryError, RecursionError),
)


def open_array(path: Path) -> npt.NDArray[Any]:
    """Map a .npy file into memory after its size was compared with its header.

    Returns:
        A read-only array backed by the file.

    Raises:
        OSError: If the file cannot be opened.
        ValueError: If it is not a .npy file, is truncated or damaged, or contains Python objects.
    """
    try:
        return np.lib.format.open_memmap(path, "r")
    except DAMAGED as error:
        raise ValueError(
            f"{path.name} is not a complete .npy file ({error}); write it again"
        ) from error
