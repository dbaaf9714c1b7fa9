"""Assign whole groups of samples to train, val and test, or to folds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from datamodules.seeding.sample_seeds import Indices


def encode_groups(values: npt.ArrayLike, what: str) -> Indices:
    """Number the groups of samples.

    Args:
        values: (n,) name or number of each sample's group.
        what: Name of the groups in messages.

    Returns:
        (n,) int64 in 0..G-1.

    Raises:
        ValueError: If a sample has no group.
    """
    groups: npt.NDArray[Any] = np.asarray(values)
    if groups.ndim != 1:
        raise ValueError(f"{what} must have one group per sample, got shape {groups.shape}")
    check_no_missing(groups, what, "group")
    if groups.dtype == object:
        groups = groups.astype(str)
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def check_no_missing(values: npt.NDArray[Any], what: str, noun: str) -> None:
    """Raise an error that names the first row without a value.

    Raises:
        ValueError: If a value is missing.
    """
    rows = missing_rows(values)
    if len(rows):
        raise ValueError(
            f"{what} is missing in {len(rows)} rows, the first is row {rows[0]} (counted from 0); "
            f"each row needs its {noun}"
        )


def missing_rows(values: npt.NDArray[Any]) -> Indices:
    """Return the rows whose value is None, an empty text, NaN or NaT."""
    if values.dtype.kind in "iub":
        return np.empty(0, np.int64)
    if values.dtype.kind in "fM":
        return np.flatnonzero(np.isnan(values) if values.dtype.kind == "f" else np.isnat(values))
    return np.flatnonzero([v is None or v == "" or v != v for v in values.tolist()])


def assign_groups(
    groups: Indices,
    wanted: Sequence[int],
    generator: torch.Generator,
    labels: Indices | None = None,
) -> Indices:
    """Assign each whole group to one of P splits, near the given sizes and class proportions.

    Groups are visited in random order, larger ones first (by powers of two), and each goes to the
    split where it most reduces the weighted squared differences from the given sizes; with
    ``labels`` these are counted per class, similar to scikit-learn's ``StratifiedGroupKFold``.

    Args:
        groups: (n,) groups 0..G-1.
        wanted: Samples of each split; they sum to n.
        generator: Draws the order of the groups.
        labels: (n,) classes from 0.

    Returns:
        (n,) int64 in 0..P-1.

    Raises:
        ValueError: If there are fewer groups than splits.
    """
    count = int(groups.max(initial=-1)) + 1
    targets = np.flatnonzero(wanted)
    if count < len(targets):
        raise ValueError(
            f"{count} groups are too few for {len(targets)} splits; lower the number of folds, or "
            "pass val_split=0 or test_split=0"
        )
    classes = np.zeros(len(groups), np.int64) if labels is None else labels
    members = np.zeros((count, int(classes.max(initial=0)) + 1))
    np.add.at(members, (groups, classes), 1)
    sizes = members.sum(1)
    scaled = members / np.sqrt(np.maximum(members.sum(0), 1))
    shares = np.asarray(wanted, np.float64)[targets] / max(1, len(groups))
    missing = shares[:, None] * scaled.sum(0)  # (P, K), negative if a split is full
    order = torch.randperm(count, generator=generator).numpy()
    order = order[np.argsort(-np.floor(np.log2(sizes[order])), kind="stable")]
    split_of = np.empty(count, np.int64)
    for group in order:
        row = scaled[group]
        best = int(np.argmin((row @ row - 2 * missing @ row) / shares))
        split_of[group], missing[best] = best, missing[best] - row
    for empty in set(range(len(targets))) - set(split_of.tolist()):
        # takes the smallest group of the split that has most groups
        largest = int(np.bincount(split_of, minlength=len(targets)).argmax())
        candidates = np.flatnonzero(split_of == largest)
        split_of[candidates[sizes[candidates].argmin()]] = empty
    return targets[split_of[groups]]


def check_disjoint(groups: dict[str, Sequence[Any]], what: str) -> None:
    """Raise an error if splits of the source itself share a group.

    Raises:
        ValueError: Names the group and both splits.
    """
    for first, second in itertools.combinations(groups, 2):
        shared = set(groups[first]) & set(groups[second])
        if shared:
            raise ValueError(
                f"{first} and {second} share {len(shared)} groups of {what}, such as "
                f"{min(shared, key=str)!r}; move each group to one split"
            )
