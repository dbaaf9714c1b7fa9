"""Skip samples that cannot be read: count them, list them, and limit their number."""

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
    """A file, or a sample of a dataset, that could not be read.

    Attributes:
        row: Position in the split's dataset.
        path: Path of the file, or name of the sample.
        reason: Message of the error.
    """

    row: int
    path: str
    reason: str


class ImageError(ValueError):
    """An image is damaged, too large, or has no unambiguous conversion to 8 bits.

    The message reads ``'path': what is wrong; what to do``. The error can be pickled, and survives
    the DataLoader, which rebuilds a worker's error from its message alone.

    Args:
        message: The whole message.
        path: Path of the file, or the name that the caller gave.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[type[ImageError], tuple[str, str]]:
        return type(self), (str(self), self.path)


class ReadError(ValueError):
    """A sample of a user's dataset cannot be read; the message has its name and the reason."""


# errors of the machine, not of a sample
MACHINE_ERRORS = {
    errno.EMFILE,
    errno.ENFILE,
    errno.EIO,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.ETIMEDOUT,
}


@contextmanager
def reading(name: Callable[[], str]) -> Iterator[None]:
    """Convert errors of a user's dataset or loading function to :class:`ReadError`.

    Args:
        name: Returns the name of the sample.
    """
    try:
        yield
    except Exception as error:
        machine = isinstance(error, OSError) and error.errno in MACHINE_ERRORS
        if machine or isinstance(error, MemoryError):
            raise
        raise ReadError(f"{name()}: {type(error).__name__}: {error}") from error


class PartBatch(NamedTuple):
    """A batch from a worker that some samples were left out of.

    Attributes:
        batch: Batch of the samples that could be read; 0 rows if there are none.
        rows: Number of samples in it.
        bad: Samples that were left out.
    """

    batch: Any
    rows: int
    bad: list[BadFile]


class SkippedFiles:
    """Record of the samples of one split that this process skipped.

    An empty train, val or test batch stops the run: a step without rows has no loss, and a rank
    that skips the step would leave the others waiting. A predict batch may have 0 rows.

    Args:
        split: Name of the split.
        source: Dataset of the split.
        max_errors: Number of different bad files above which the run stops.
        targets: (N,) int64; if given, the run stops when a class has no readable file left.
        classes: Class names.
        noun: Word for the samples in messages.
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
        self.split, self.source, self.max_errors, self.noun = split, source, max_errors, noun
        self.targets, self.classes = targets, list(classes)
        self.found: dict[int, BadFile] = {}
        self._warned = 0

    def take(self, batch: Any) -> Any:
        """Record the bad samples of a batch and return the batch of the others.

        Raises:
            RuntimeError: If the batch is empty, a class has no readable file, or more than
                ``max_errors`` files cannot be read.
        """
        if not isinstance(batch, PartBatch):
            return batch
        new = [bad for bad in batch.bad if bad.row not in self.found]
        self.found.update({bad.row: bad for bad in new})
        if len(self.found) > self.max_errors:
            raise RuntimeError(
                f"{len(self.found)} {self.split} {self.noun} cannot be read, more than "
                f"max_errors={self.max_errors}: {self._list()}; fix them or raise max_errors"
            )
        for bad in new:
            self._check_class(bad.row)
        if not batch.rows and self.split != "predict":
            listed = "; ".join(bad.reason for bad in batch.bad[:3])
            raise RuntimeError(
                f"none of the {len(batch.bad)} {self.noun} of a {self.split} batch can be read "
                f"({listed}); remove them or use a larger batch_size"
            )
        return batch.batch

    def say(self) -> None:
        """Warn at the end of an epoch if there are bad samples since the last warning."""
        if len(self.found) > self._warned:
            self._warned = len(self.found)
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
                f"{self.classes[int(label)]!r} can be read: {self._list()}; fix them, or "
                "remove the class"
            )

    def _list(self) -> str:
        reasons = [bad.reason for bad in self.found.values()]
        return "; ".join(reasons[:3]) + ("; ..." if len(reasons) > 3 else "")


def unreadable(error: Exception, path: str) -> bool:
    """Return whether an error means that ``path`` is damaged, missing or not permitted.

    Errors of the machine (too many open files, a disk that does not respond) and of other files,
    which a transform may have opened, are no reason to skip a sample.
    """
    if isinstance(error, ImageError | ReadError):
        return True
    if not isinstance(error, OSError) or error.filename != path:
        return False
    refused = isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError)
    return refused or error.errno == errno.ELOOP


def check_on_error(on_error: str, max_errors: int) -> None:
    """Check the two arguments of skipping bad samples.

    Raises:
        ValueError: If ``on_error`` is unknown or ``max_errors`` negative.
    """
    check_name(on_error, ("raise", "skip"), "on_error")
    if max_errors < 0:
        raise ValueError(f"max_errors must be at least 0, got {max_errors}")
