"""Files that cannot be read and are left out of their batches: counted, listed, capped, said."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from datamodules.settings.arguments import check_name


class BadFile(NamedTuple):
    """One file that could not be read.

    Attributes:
        row: Its position in the split's dataset.
        path: Its path.
        reason: The reader's own words.
    """

    row: int
    path: str
    reason: str


class ImageError(ValueError):
    """An image that is damaged, too big, or of a kind that has no one right 8-bit form.

    The text reads ``'path': what is wrong; what to do``. The error survives pickling, and the
    DataLoader, which makes a worker's error again from its text alone.

    Args:
        message: The whole text.
        path: The file's path, or the name that the caller gave.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[type[ImageError], tuple[str, str]]:
        return type(self), (str(self), self.path)


class ReadError(ValueError):
    """A sample of a user's own dataset that cannot be read; the text says which and why."""


# what says something about the machine, not about a sample
MACHINE = {errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM, errno.ENOSPC, errno.ETIMEDOUT}


@contextmanager
def reading(name: Callable[[], str]) -> Iterator[None]:
    """Make a :class:`ReadError` of what a user's own dataset or loading function raises.

    Args:
        name: Gives the sample's name.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) in MACHINE:
            raise
        raise ReadError(f"{name()}: {type(error).__name__}: {error}") from error


class PartBatch(NamedTuple):
    """A batch on its way from a worker that some files are missing from.

    Attributes:
        batch: What the other samples make; of 0 rows where there is none.
        rows: Number of samples in it.
        bad: The files left out.
    """

    batch: Any
    rows: int
    bad: list[BadFile]


class SkippedFiles:
    """What one split had to leave out, on this process.

    A batch of train, val or test of which nothing is left stops the run: a step without rows has
    no loss, and a rank that took one step less would leave the others waiting. A predict batch may
    be of 0 rows.

    Args:
        split: Name of the split.
        source: Its dataset.
        max_errors: More different files than this stop the run.
        targets: (N,) int64; with them a class that loses its last file stops the run.
        classes: Names of the classes.
        noun: What the samples are called.
    """

    def __init__(
        self,
        split: str,
        source: Sized,
        *,
        max_errors: int,
        targets: Tensor | None = None,
        classes: Sequence[str] = (),
        noun: str = "files",
    ) -> None:
        self.noun = noun
        self.split, self.source, self.max_errors = split, source, max_errors
        self.targets, self.classes = targets, list(classes)
        self.found: dict[int, BadFile] = {}
        self._said = 0

    def take(self, batch: Any) -> Any:
        """Note what a batch lacks and hand on the rest of it.

        Raises:
            RuntimeError: If nothing is left of the batch, a class lost its last file, or more than
                ``max_errors`` files cannot be read.
        """
        if not isinstance(batch, PartBatch):
            return batch
        new = [bad for bad in batch.bad if bad.row not in self.found]
        self.found.update({bad.row: bad for bad in new})
        if len(self.found) > self.max_errors:
            raise RuntimeError(
                f"{len(self.found)} {self.split} {self.noun} cannot be read, more than "
                f"max_errors={self.max_errors}: {self._list()}; mend them or raise max_errors"
            )
        for bad in new:
            self._check_class(bad.row)
        if not batch.rows and self.split != "predict":
            listed = "; ".join(bad.reason for bad in batch.bad[:3])
            raise RuntimeError(
                f"none of the {len(batch.bad)} {self.noun} of a {self.split} batch can be read "
                f"({listed}); remove them or take larger batches"
            )
        return batch.batch

    def say(self) -> None:
        """Warn at the end of an epoch of what was found since the last warning."""
        if len(self.found) > self._said:
            self._said = len(self.found)
            warnings.warn(
                f"{len(self.found)} of {len(self.source)} {self.split} {self.noun} cannot be read "
                f"and were left out of their batches: {self._list()}; bad_files lists them all",
                stacklevel=2,
            )

    def _check_class(self, row: int) -> None:
        if self.targets is None or self.targets.ndim != 1:
            return
        label = self.targets[row]
        rows = torch.nonzero(self.targets == label).flatten().tolist()
        if all(other in self.found for other in rows):
            raise RuntimeError(
                f"none of the {len(rows)} {self.split} {self.noun} of class "
                f"{self.classes[int(label)]!r} can be read: {self._list()}; mend them, or take "
                "the class out"
            )

    def _list(self) -> str:
        reasons = [bad.reason for bad in self.found.values()]
        return "; ".join(reasons[:3]) + ("; ..." if len(reasons) > 3 else "")


def unreadable(error: Exception, path: str) -> bool:
    """Whether ``error`` says that the file at ``path`` is damaged, gone or closed to this user.

    What says something about the machine (too many open files, a disk that does not answer) or
    about another file, which a transform may have opened, is no reason to leave a sample out.
    """
    if isinstance(error, ImageError | ReadError):
        return True
    gone = isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError)
    gone = gone or getattr(error, "errno", None) == errno.ELOOP
    return gone and getattr(error, "filename", None) == path


def no_rows(batch: Any) -> Any:
    """The first 0 rows of each tensor of a batch."""
    if isinstance(batch, Tensor):
        return batch[:0]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(no_rows, batch))
    if isinstance(batch, list | tuple):
        return type(batch)(map(no_rows, batch))
    if isinstance(batch, dict):
        return {key: no_rows(value) for key, value in batch.items()}
    return batch


def check_on_error(on_error: str, max_errors: int) -> None:
    """Refuse an unknown way to treat bad files, or an impossible limit.

    Raises:
        ValueError: Says what is known.
    """
    check_name(on_error, ("raise", "skip"), "on_error")
    if max_errors < 0:
        raise ValueError(f"max_errors must be at least 0, got {max_errors}")
