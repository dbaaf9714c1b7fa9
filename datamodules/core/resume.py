"""Save and restore the state of a datamodule and its position in the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from datamodules.loading.loader import Loader, is_mid_epoch

from .transform_fingerprint import check_transforms, print_transforms

if TYPE_CHECKING:
    from .datamodule import DataModule


class TrainPosition:
    """Saves the position of the train loader and restores it in the next one.

    Attributes:
        loader: The train loader of this run, or None.

    Example:
        >>> TrainPosition().state() is None
        True
    """

    def __init__(self) -> None:
        self.loader: DataLoader[Any] | None = None
        self._transforms: dict[str, str] = {}
        self._restored: Mapping[str, Any] | None = None

    def start(self, loader: DataLoader[Any], transforms: Mapping[str, Any]) -> None:
        """Take a new train loader; it continues from a restored position.

        Args:
            loader: The new train loader.
            transforms: Functions that make its samples and batches, by argument.

        Raises:
            RuntimeError: If the position is in the middle of an epoch and the remaining batches
                would differ.
        """
        self.loader = loader
        # now, not when the state is saved: a transform may change itself during the epoch
        self._transforms = print_transforms(transforms)
        if self._restored is not None and isinstance(loader, Loader):
            if is_mid_epoch(self._restored):
                check_transforms(self._restored.get("transforms"), self._transforms)
            loader.load_state_dict(self._restored)
        self._restored = None

    def state(self) -> dict[str, Any] | None:
        """Return the position as plain types; None before the first train loader."""
        if not isinstance(self.loader, Loader):
            return None
        return {**self.loader.state_dict(), "transforms": dict(self._transforms)}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Set the position from which the next train loader continues."""
        self._restored = state

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "loader": None}  # a loader belongs to its process


def save_state(dm: DataModule) -> dict[str, Any]:
    """Return the state of a datamodule for a checkpoint."""
    state: dict[str, Any] = {"source": type(dm).__qualname__, "fitted": dict(dm.fitted)}
    state["split"] = dm.split_fingerprint() if dm._is_read else None
    if (position := dm._position.state()) is not None:
        state["train_place"] = position
    return state


def load_state(dm: DataModule, state: Mapping[str, Any]) -> None:
    """Restore the state of a datamodule; the position only if a fit is resumed.

    Raises:
        ValueError: If another class saved the state.
        RuntimeError: If a fit is resumed on another split.
    """
    source, own = state.get("source"), type(dm).__qualname__
    if source != own:
        raise ValueError(f"the checkpoint has the state of {source!r}, this is {own!r}")
    resumes = dm._run().function == "fit"
    if resumes and dm._is_read and state.get("split") != dm.split_fingerprint():
        raise RuntimeError(
            "the data or the split changed since the checkpoint was written, so training rows "
            "could be evaluated; resume with the same files, split_seed and fractions, or "
            "start a new run"
        )
    dm.fitted = dict(state.get("fitted", {}))
    dm._use_fitted()
    dm._datasets.clear()
    if resumes:
        dm._position.restore(state.get("train_place"))
