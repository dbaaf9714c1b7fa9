"""Class lists: learnt from train, used by every split."""

from __future__ import annotations

import difflib
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[Any]


class ClassMap:
    """Labels of each split in terms of the names found, and their encoding under a class list.

    Args:
        names: All names found in any split.
        labels: By split, (N,) int64 indices into ``names``, or (N, K) bool for several labels.
    """

    def __init__(self, names: Sequence[str], labels: Mapping[str, Labels]) -> None:
        self.names, self.labels = list(names), dict(labels)
        self._said: set[str] = set()

    def fit(self, given: Sequence[str] | None = None) -> tuple[list[str], list[int]]:
        """Class list, from train or as given, and the train samples of each class.

        Raises:
            ValueError: If a name that no evaluation split holds is empty in train.
        """
        train = self.labels["train"]
        counts = np.bincount(train, minlength=len(self.names)) if train.ndim == 1 else train.sum(0)
        by_name = dict(zip(self.names, map(int, counts), strict=True))
        if given is not None:
            return list(given), [by_name.get(name, 0) for name in given]
        evaluated = {self.names[k] for split in ("val", "test") for k in self._present(split)}
        # a name that val alone holds is val's fault, said when val is encoded
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
        """Rows of a split whose class is known, and their targets.

        Returns:
            Rows (M,) int64 and targets (M,) int64, or (M, K) float32 for several labels.

        Raises:
            ValueError: If the split holds a class that ``classes`` lacks, unless it is dropped.
        """
        labels = self.labels[split]
        index = {name: k for k, name in enumerate(classes)}
        strange = [self.names[k] for k in self._present(split) if self.names[k] not in index]
        said = ", ".join(map(repr, strange[:5])) + (", ..." if len(strange) > 5 else "")
        if strange and unknown == "raise":
            close = _close(strange[0], classes)
            # a rare one of several labels may lie in val by the draw alone: adding does not help
            remedy = "add it to train/" if labels.ndim == 1 else "list it in classes="
            raise ValueError(
                f"the class list lacks {said}, found in train{close}; add it to classes= or pass "
                'unknown_classes="drop"'
                if split == "train"
                else f"train/ and {split}/ disagree: {said} is in {split}/ only{close}; {remedy} "
                'or pass unknown_classes="drop"'
            )
        if labels.ndim == 2:
            multilabel = np.zeros((len(labels), len(classes)), np.float32)
            for k, name in enumerate(self.names):
                if name in index:
                    multilabel[:, index[name]] = labels[:, k]
            if strange:
                self._say(split, f"{split} labels dropped that the class list lacks: {said}")
            return np.arange(len(labels)), multilabel
        to_index = np.array([index.get(name, -1) for name in self.names], np.int64)
        targets = to_index[labels]
        rows = np.flatnonzero(targets >= 0)
        if strange:
            lost = f"{len(labels) - len(rows)} of {len(labels)} {split} samples dropped"
            self._say(split, f"{lost}, since the class list lacks {said}")
        return rows, targets[rows]

    def _say(self, split: str, what: str) -> None:
        if split not in self._said:  # encoded anew for each fitted state, said once
            self._said.add(split)
            warnings.warn(what, stacklevel=4)

    def _present(self, split: str) -> list[int]:
        labels = self.labels.get(split)
        if labels is None or not len(labels):
            return []
        found = np.flatnonzero(np.bincount(labels) if labels.ndim == 1 else labels.any(0))
        return [int(k) for k in found]


def _close(name: str, classes: Sequence[str]) -> str:
    """Hint at a class that is meant, it seems: one that looks the same, or differs by a letter."""
    for like in classes:
        if unicodedata.normalize("NFC", like) == unicodedata.normalize("NFC", name):
            return f" (it looks like {like!a} but is written {name!a})"
    lower = {like.lower(): like for like in classes}
    close = difflib.get_close_matches(name.lower(), lower, 1, 0.8)
    return f" (is it {lower[close[0]]!r}?)" if close else ""


def given_classes(
    classes: Sequence[str] | None, class_to_idx: Mapping[str, int] | None
) -> list[str] | None:
    """The user's class list, or None.

    Raises:
        ValueError: If both are given, a name comes twice, or indices are not 0..K-1.
    """
    if classes is not None and class_to_idx is not None:
        raise ValueError("pass classes or class_to_idx, not both")
    if class_to_idx is not None:
        if sorted(class_to_idx.values()) != list(range(len(class_to_idx))):
            raise ValueError(
                f"class_to_idx must give 0..{len(class_to_idx) - 1} once each, got {class_to_idx}"
            )
        return sorted(class_to_idx, key=class_to_idx.__getitem__)
    if classes is None:
        return None
    if isinstance(classes, str):
        raise ValueError(f"classes must be a list of names, got the text {classes!r}")
    names = [str(name) for name in classes]  # a YAML list of 0, 1, 2 means folders of these names
    if len(set(names)) < len(names):
        raise ValueError(f"classes holds a name twice: {names}")
    return names
