"""Fit the class list on train and encode the labels of every split with it."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .arguments import did_you_mean

Labels = npt.NDArray[Any]


class ClassMap:
    """Class names of all splits, encoded with the class list of train.

    Args:
        names: All class names that occur in any split.
        labels: Labels of each split: (N,) int64 indices into ``names``, or (N, K) bool for
            multi-label data.

    Example:
        >>> classes = ClassMap(["ash", "oak"], {"train": np.array([0, 1, 1]), "val": np.array([1])})
        >>> classes.fit()
        (['ash', 'oak'], [1, 2])
        >>> classes.encode("val", ["oak", "ash"])
        (array([0]), array([0]))
    """

    def __init__(self, names: Sequence[str], labels: Mapping[str, Labels]) -> None:
        self.names, self.labels = list(names), dict(labels)
        self._warned: set[str] = set()

    def fit(self, given: Sequence[str] | None = None) -> tuple[list[str], list[int]]:
        """Return the class list, from train or as given, and the train samples of each class.

        Raises:
            ValueError: If a class has no train sample and occurs in no evaluation split either.
        """
        train = self.labels["train"]
        counts = np.bincount(train, minlength=len(self.names)) if train.ndim == 1 else train.sum(0)
        by_name = dict(zip(self.names, map(int, counts), strict=True))
        if given is not None:
            return list(given), [by_name.get(name, 0) for name in given]
        evaluated = {self.names[k] for split in ("val", "test") for k in self._present(split)}
        # a class that only val has is an error of val, raised when val is encoded
        classes = [name for name in self.names if by_name[name] or name not in evaluated]
        empty = [name for name in classes if not by_name[name]]
        if empty:
            raise ValueError(
                f"class {empty[0]!r} has no sample in train; add some, remove the class, or list "
                "the classes with classes="
            )
        return classes, [by_name[name] for name in classes]

    def encode(
        self, split: str, classes: Sequence[str], *, unknown: Literal["raise", "drop"] = "raise"
    ) -> tuple[npt.NDArray[np.int64], Labels]:
        """Return the rows of a split whose class is in ``classes``, and their targets.

        Returns:
            Rows (M,) int64 and targets (M,) int64, or (M, K) float32 for multi-label data.

        Raises:
            ValueError: If the split has a class that is not in ``classes`` and ``unknown`` is
                ``"raise"``.
        """
        labels = self.labels[split]
        index = {name: k for k, name in enumerate(classes)}
        extra = [self.names[k] for k in self._present(split) if self.names[k] not in index]
        listed = ", ".join(map(repr, extra[:5])) + (", ..." if len(extra) > 5 else "")
        if extra and unknown == "raise":
            similar = _similar(extra[0], classes)
            # a rare label of multi-label data may be in val by chance: adding rows does not help
            remedy = "add it to train/" if labels.ndim == 1 else "list it in classes="
            raise ValueError(
                f"the class list lacks {listed}, found in train{similar}; add it to classes= or "
                'pass unknown_classes="drop"'
                if split == "train"
                else f"train/ and {split}/ disagree: {listed} is in {split}/ only{similar}; "
                f'{remedy} or pass unknown_classes="drop"'
            )
        if labels.ndim == 2:
            multilabel = np.zeros((len(labels), len(classes)), np.float32)
            for k, name in enumerate(self.names):
                if name in index:
                    multilabel[:, index[name]] = labels[:, k]
            if extra:
                self._warn(split, f"{split} labels dropped that the class list lacks: {listed}")
            return np.arange(len(labels)), multilabel
        to_index = np.array([index.get(name, -1) for name in self.names], np.int64)
        targets = to_index[labels]
        rows = np.flatnonzero(targets >= 0)
        if extra:
            dropped = f"{len(labels) - len(rows)} of {len(labels)} {split} samples dropped"
            self._warn(split, f"{dropped}, since the class list lacks {listed}")
        return rows, targets[rows]

    def _warn(self, split: str, message: str) -> None:
        if split not in self._warned:  # a split is encoded again for each fitted state
            self._warned.add(split)
            warnings.warn(message, stacklevel=4)

    def _present(self, split: str) -> list[int]:
        labels = self.labels.get(split)
        if labels is None or not len(labels):
            return []
        counts = np.bincount(labels) if labels.ndim == 1 else labels.any(0)
        return [int(k) for k in np.flatnonzero(counts)]


def _similar(name: str, classes: Sequence[str]) -> str:
    """Return a hint at a class that looks the same or differs by a letter, or ``""``."""
    for other in classes:
        if unicodedata.normalize("NFC", other) == unicodedata.normalize("NFC", name):
            return f" (it looks like {other!a} but is written {name!a})"
    hint = did_you_mean(name, classes, cutoff=0.8).strip()
    return f" ({hint})" if hint else ""


def given_classes(
    classes: Sequence[str] | None, class_to_idx: Mapping[str, int] | None
) -> list[str] | None:
    """Return the class list that a user passes, or None.

    Raises:
        ValueError: If both arguments are given, a name is listed twice, or the indices are not
            0..K-1.

    Example:
        >>> given_classes(None, {"oak": 1, "ash": 0})
        ['ash', 'oak']
    """
    if classes is not None and class_to_idx is not None:
        raise ValueError("pass classes or class_to_idx, not both")
    if class_to_idx is not None:
        if sorted(class_to_idx.values()) != list(range(len(class_to_idx))):
            raise ValueError(
                f"class_to_idx must have each of 0..{len(class_to_idx) - 1} once, got "
                f"{class_to_idx}"
            )
        return sorted(class_to_idx, key=class_to_idx.__getitem__)
    if classes is None:
        return None
    if isinstance(classes, str):
        raise ValueError(f"classes must be a list of names, got the text {classes!r}")
    names = [str(name) for name in classes]  # a YAML list of 0, 1, 2 means folders of these names
    if len(set(names)) < len(names):
        raise ValueError(f"classes lists a name twice: {names}")
    return names
