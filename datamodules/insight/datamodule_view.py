"""Read what any LightningDataModule tells about its data in public attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import lightning as L
from lightning.pytorch.utilities.model_helpers import is_overridden


@runtime_checkable
class PlansBatches(Protocol):
    """A loader that knows the samples of each batch before it makes them."""

    batch_sampler: Any
    """Yields the indices of each batch; None for a stream."""
    sampler: Any


class DataModuleView:
    """What reports ask of a datamodule; None where it does not tell, or its source fails.

    Args:
        dm: Any datamodule, of this project or not; or a model, for its ``num_classes``.

    Example:
        >>> class Photos(L.LightningDataModule):
        ...     classes = ("ash", "oak")
        >>> view = DataModuleView(Photos())
        >>> view.classes, view.task, view.has_loader("train")
        (['ash', 'oak'], None, False)
    """

    def __init__(self, dm: Any) -> None:
        self.dm = dm

    def _get(self, name: str) -> Any:
        try:
            return getattr(self.dm, name, None)
        except Exception:  # a source that cannot be read is reported elsewhere
            return None

    @property
    def settings(self) -> Mapping[str, Any]:
        """The hyperparameters that it saved."""
        return self._get("hparams") or {}

    @property
    def task(self) -> str | None:
        """``"multiclass"``, ``"multilabel"`` or ``"regression"``."""
        return self._get("task")  # type: ignore[no-any-return]

    @property
    def classes(self) -> list[str] | None:
        """Class names in the order of their index."""
        classes = self._get("classes")
        return None if classes is None else [str(name) for name in classes]

    @property
    def num_classes(self) -> int | None:
        """Number of classes."""
        return self._get("num_classes")  # type: ignore[no-any-return]

    @property
    def target_scale(self) -> Mapping[str, list[float]] | None:
        """``mean`` and ``std`` that regression targets were scaled by."""
        return self._get("target_scale")  # type: ignore[no-any-return]

    @property
    def target_names(self) -> list[str] | None:
        """Names of the target columns of a table with several."""
        names = self._get("target")
        return names if isinstance(names, list) else None

    @property
    def fitted(self) -> Mapping[str, Any]:
        """What was learned from train samples; empty if unknown."""
        return self._get("fitted") or {}

    @property
    def normalizer(self) -> Any:
        """What normalizes a batch of uint8 images."""
        return self._get("normalizer")

    @property
    def sampler(self) -> Any:
        """The sampling strategy of train."""
        return self._get("sampler")

    @property
    def bad_files(self) -> Mapping[str, str]:
        """Reason for each file that was left out; empty if unknown."""
        bad = self._get("bad_files")
        return bad if isinstance(bad, Mapping) else {}

    def has_loader(self, split: str) -> bool:
        """Return whether the datamodule defines the loader of a split."""
        return is_overridden(f"{split}_dataloader", self.dm)

    def loader(self, split: str) -> Any:
        """Return the loader of train, val or test, the first if there are several."""
        dm: L.LightningDataModule = self.dm
        make = {"train": dm.train_dataloader, "val": dm.val_dataloader, "test": dm.test_dataloader}
        loader = make[split]()
        return loader[0] if isinstance(loader, list | tuple) and loader else loader
