"""Report the text files of a folder that are left out because they cannot be read."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping

from .files import BadText


def report_bad_files(
    bad: Mapping[str, BadText],
    split: str,
    *,
    read: int,
    classes: Collection[str] | None,
    max_errors: int,
) -> None:
    """Warn of the files that are left out.

    Args:
        bad: Label and reason of each file.
        split: Name of the split.
        read: Number of files that were read.
        classes: Classes with files that were read; None: not checked.
        max_errors: Most bad files that are left out.

    Raises:
        RuntimeError: If they are too many, or all files of a class.
    """
    if not bad:
        return
    listed = "; ".join(f"{path!r}: {file.reason}" for path, file in list(bad.items())[:3])
    listed += "; ..." * (len(bad) > 3)
    if len(bad) > max_errors:
        raise RuntimeError(
            f"{len(bad)} {split} files cannot be read, more than max_errors={max_errors}: "
            f"{listed}; fix them or raise max_errors"
        )
    lost = [] if classes is None else sorted({file.label for file in bad.values()} - set(classes))
    if lost:
        raise RuntimeError(
            f"no {split} file of class {lost[0]!r} can be read: {listed}; fix them, or remove the "
            "class"
        )
    warnings.warn(
        f"{len(bad)} of {read + len(bad)} {split} files cannot be read and are left out: "
        f"{listed}; bad_files lists them all",
        stacklevel=2,
    )
