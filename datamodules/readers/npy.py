"""Opens .npy files that may be damaged."""

from __future__ import annotations

import tokenize
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

# what NumPy's parser of headers lets through, beside its own ValueError
DAMAGED = (
    *(ValueError, EOFError, OverflowError, TypeError, SyntaxError, tokenize.TokenError),
    *(MemoryError, RecursionError),
)


def open_array(path: Path) -> npt.NDArray[Any]:
    """Map a .npy file; nothing is read before its size is known to hold what its header says.

    Returns:
        A read-only array on the file, of the shape and dtype that are written there.

    Raises:
        OSError: The system's own, with the path: FileNotFoundError, PermissionError and so on.
        ValueError: If it is no .npy file, damaged, cut off, or holds Python objects.
    """
    try:
        return np.lib.format.open_memmap(path, "r")
    except DAMAGED as error:
        raise ValueError(f"{path.name} is no whole .npy file ({error}); write it again") from error
