"""Read-only attributes of a datamodule that read its data when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from datamodules.splits.split_samples import Split

if TYPE_CHECKING:
    from .datamodule import DataModule

T = TypeVar("T")


class Fitted(Generic[T]):
    """An attribute that :meth:`DataModule.fit` returned under the same name.

    Args:
        copy: Makes the value that the user gets, such as ``list``.
        doc: Docstring of the attribute.

    Raises:
        AttributeError: On access, if ``fit`` returned no such value.

    Example:
        >>> from datamodules import DataModule
        >>> class Named(DataModule):
        ...     def fit(self):
        ...         return {"classes": ["cat", "dog"]}
        >>> Named().classes
        ['cat', 'dog']
    """

    def __init__(self, copy: Callable[[Any], T], doc: str) -> None:
        self._copy, self.__doc__ = copy, doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, dm: DataModule | None, owner: type) -> T:
        if dm is None:
            return self  # type: ignore[return-value] # for documentation tools
        return self._copy(dm._known(self._name))

    def __set__(self, dm: DataModule, value: Any) -> None:
        raise AttributeError(f"{self._name} cannot be set; return it from fit()")


class SplitDataset:
    """The dataset of one split, or None if there is no such split.

    Args:
        split: Name of the split.
    """

    def __init__(self, split: Split) -> None:
        self._split, self.__doc__ = split, f"The {split} dataset, or None."

    def __get__(self, dm: DataModule | None, owner: type) -> Any:
        return self if dm is None else dm._dataset(self._split)

    def __set__(self, dm: DataModule, value: Any) -> None:
        raise AttributeError(f"{self._split}_dataset cannot be set; return it from dataset(split)")
