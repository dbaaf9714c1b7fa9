"""Allots groups to parts, so that no group lies on two sides; indices only, no file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Indices = npt.NDArray[np.int64]


def group_codes(values: npt.ArrayLike, what: str) -> Indices:
    """(n,) int64 number of each sample's group.

    Args:
        values: (n,) names or numbers of groups.
        what: Names them in messages.

    Raises:
        ValueError: If a sample has no group.
    """
    found: npt.NDArray[Any] = np.asarray(values)
    if found.ndim != 1:
        raise ValueError(f"{what} must hold one group a sample, got shape {found.shape}")
    lost = missing_rows(found)
    if len(lost):
        raise ValueError(
            f"{what} is missing in {len(lost)} rows, the first is row {lost[0]} (counted from 0); "
            "each row needs its group"
        )
    if found.dtype == object:
        found = found.astype(str)
    codes: Indices = np.unique(found, return_inverse=True)[1].astype(np.int64)
    return codes


def missing_rows(values: npt.NDArray[Any]) -> Indices:
    """Rows that hold None, an empty text or NaN."""
    if values.dtype.kind in "iub":
        return np.empty(0, np.int64)
    if values.dtype.kind in "fM":
        return np.flatnonzero(np.isnan(values) if values.dtype.kind == "f" else np.isnat(values))
    gone = [v is None or v == "" or v != v for v in values.tolist()]
    return np.flatnonzero(gone)


def allot_groups(
    groups: Indices,
    wanted: Sequence[int],
    generator: torch.Generator,
    labels: Indices | None = None,
) -> Indices:
    """Part of each sample, a whole group at a time, near the wanted sizes and class shares.

    Groups come in random order, larger ones first (by powers of two), and each goes where the
    weighted squares of what is missing and too much fall most; with ``labels`` this is counted
    class by class, as scikit-learn's ``StratifiedGroupKFold`` does by spread.

    Args:
        groups: (n,) numbers of groups, from 0 without gaps.
        wanted: Samples of each of P parts; they sum to n.
        generator: Of the order.
        labels: (n,) classes from 0.

    Returns:
        (n,) int64 in 0..P-1.

    Raises:
        ValueError: If there are fewer groups than parts that want samples.
    """
    count = int(groups.max(initial=-1)) + 1
    asked = np.flatnonzero(wanted)
    if count < len(asked):
        raise ValueError(
            f"{count} groups cannot make {len(asked)} parts; lower the number of parts, or leave "
            "a val_split or test_split out"
        )
    classes = np.zeros(len(groups), np.int64) if labels is None else labels
    members = np.zeros((count, int(classes.max(initial=0)) + 1))
    np.add.at(members, (groups, classes), 1)
    sizes = members.sum(1)
    scaled = members / np.sqrt(np.maximum(members.sum(0), 1))
    shares = np.asarray(wanted, np.float64)[asked] / max(1, len(groups))
    missing = shares[:, None] * scaled.sum(0)  # (P, K), goes below 0 where a part is full
    order = torch.randperm(count, generator=generator).numpy()
    order = order[np.argsort(-np.floor(np.log2(sizes[order])), kind="stable")]
    part = np.empty(count, np.int64)
    for group in order:
        row = scaled[group]
        best = int(np.argmin((row @ row - 2 * missing @ row) / shares))
        part[group], missing[best] = best, missing[best] - row
    _fill_empty(part, sizes, len(asked))
    return asked[part[groups]]


def _fill_empty(part: Indices, sizes: npt.NDArray[np.float64], parts: int) -> None:
    """Give a part that got no group the smallest one of the part that has most groups."""
    for empty in set(range(parts)) - set(part.tolist()):
        richest = int(np.bincount(part, minlength=parts).argmax())
        there = np.flatnonzero(part == richest)
        part[there[sizes[there].argmin()]] = empty


def check_apart(groups: dict[str, Sequence[Any]], what: str) -> None:
    """Refuse parts that a source holds already when they share a group.

    Raises:
        ValueError: Names the group and both parts.
    """
    names = list(groups)
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            shared = set(groups[first]) & set(groups[second])
            if shared:
                raise ValueError(
                    f"{first} and {second} share {len(shared)} groups of {what}, such as "
                    f"{min(shared, key=str)!r}; move each group to one side"
                )
