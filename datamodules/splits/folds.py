"""k-fold splits: the fold of each sample, stratified and by group; and seeded parts of a split."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt
import torch

from .groups import allot_groups
from .split import fingerprint, share_out

Indices = npt.NDArray[np.int64]


def fold_numbers(
    n: int,
    folds: int,
    *,
    seed: int = 0,
    repeat: int = 0,
    labels: Indices | None = None,
    groups: Indices | None = None,
) -> Indices:
    """Fold of each sample: a pure function of its arguments.

    Fold sizes differ by at most one, and so do a class's samples in them; with ``groups`` as near
    to it as whole groups allow. A class with one sample is in no fold, said in a warning: a model
    that never saw the class could not be judged by it.

    Args:
        n: Number of samples.
        folds: K, at least 2.
        seed: Any integer.
        repeat: Number of the repetition; each deals anew.
        labels: (n,) classes from 0, for stratified folds.
        groups: (n,) numbers of groups from 0; no group lies in two folds.

    Returns:
        (n,) int64 in 0..K-1; -1 for a sample that is always in train.

    Raises:
        ValueError: If there are fewer samples, or groups, than folds.

    Example:
        >>> np.bincount(fold_numbers(10, 3)).tolist()
        [4, 3, 3]
    """
    if n < folds:
        raise ValueError(f"{n} samples cannot make {folds} folds; lower folds")
    # the first draws of neighbouring seeds of one generator are alike
    generator = torch.Generator().manual_seed(int(fingerprint([seed, repeat])[:12], 16))
    if groups is not None:
        wanted = np.full(folds, n // folds) + (np.arange(folds) < n % folds)
        return allot_groups(groups, wanted.tolist(), generator, labels)
    numbers = np.empty(n, np.int64)
    classes = np.zeros(n, np.int64) if labels is None else labels
    sizes = np.bincount(classes)
    dealt = 0
    for members in np.split(np.argsort(classes, kind="stable"), np.cumsum(sizes)[:-1]):
        order = members[torch.randperm(len(members), generator=generator).numpy()]
        if labels is not None and len(members) == 1 and len(sizes) > 1:
            numbers[order] = -1
            continue
        numbers[order] = (dealt + np.arange(len(members))) % folds
        dealt += len(members)
    if single := int((numbers < 0).sum()):
        warnings.warn(
            f"{single} classes have one sample, which stays in train in every fold and is never "
            "predicted; add samples or leave the classes out",
            stacklevel=2,
        )
    return numbers


def limited(rows: Indices, limit: float, *, seed: int, labels: Indices | None = None) -> Indices:
    """A seeded part of a split for a quick trial, with the classes in their shares.

    Args:
        rows: (n,) rows of the split.
        limit: The most samples (int), or their share (float).
        seed: Any integer.
        labels: (n,) classes from 0; as far as there is room each keeps a sample.

    Returns:
        Ascending rows, all of them where ``limit`` is not reached.
    """
    n = len(rows)
    total = max(1, round(n * limit)) if isinstance(limit, float) else int(limit)
    if total >= n:
        return rows
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator).numpy()
    if labels is None:
        return np.sort(rows[order[:total]])
    sizes = np.bincount(labels)
    ties = torch.rand(len(sizes), generator=generator).numpy()
    once = np.minimum(sizes, 1) if total >= len(sizes) else np.zeros_like(sizes)
    rest = sizes - once
    quota = once + share_out(rest, total - int(once.sum()), int(rest.sum()), rest, ties)
    ordered = order[np.argsort(labels[order], kind="stable")]  # by class, shuffled inside
    starts = np.cumsum(sizes) - sizes
    kept = [ordered[start : start + take] for start, take in zip(starts, quota, strict=True)]
    return np.sort(rows[np.concatenate(kept)])


def check_limit(limit: int | float | None) -> None:
    """Refuse a limit that is neither a number of samples nor a share.

    Raises:
        ValueError: Says what was given.
    """
    if limit is None:
        return
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not number or not limit > 0 or (isinstance(limit, float) and limit > 1):
        raise ValueError(
            f"limit must be a number of samples (int) or a share up to 1.0 (float), got {limit!r}"
        )
