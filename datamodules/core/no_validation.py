"""The empty list of validation loaders, without Lightning's warning about its length."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from .run import Run


class NoValidation(list[Any]):
    """What ``val_dataloader`` returns without a validation split; Lightning skips validation.

    Lightning warns about a ``NoValidation`` of length 0. :meth:`of` ignores the warning with this
    name, and no other, until :meth:`restore`.

    Delete it when a datamodule can tell Lightning that there is no validation
    (https://github.com/Lightning-AI/pytorch-lightning/issues/17193).

    Example:
        >>> NoValidation().of(Run(None))
        []
    """

    _filter: Any = None

    def of(self, run: Run) -> NoValidation:
        """Add the warning filter if a Trainer runs; return the empty list."""
        if run.trainer is not None and self._filter is None:
            warnings.filterwarnings("ignore", message="Total length of `NoValidation` across ranks")
            self._filter = warnings.filters[0]
        return self

    def restore(self) -> None:
        """Remove the warning filter."""
        if self._filter is not None:
            with suppress(ValueError):  # the filters may have been reset since
                warnings.filters.remove(self._filter)  # type: ignore[attr-defined]
            self._filter = None
