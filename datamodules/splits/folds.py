"""Assign samples to k folds, and take random subsets of a split."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from datamodules.seeding.sample_seeds import Indices

from .groups import assign_groups
from .split import apportion, fingerprint


def assign_folds(
    n: int,
    folds: int,
    *,
    seed: int = 0,
    repeat: int = 0,
    labels: Indices | None = None,
    groups: Indices | None = None,
) -> Indices:
    """Assign each sample to a fold; a pure function of the arguments.

    Fold sizes differ by at most one, and so do the counts of each class; with ``groups`` as nearly
    as whole groups allow. A class with one sample is in no fold, with a warning: no model could
    learn it and be tested on it.

    Args:
        n: Number of samples.
        folds: K, at least 2.
        seed: Any integer.
        repeat: Repetition of repeated k-fold; each is shuffled differently.
        labels: (n,) classes from 0, for stratified folds.
        groups: (n,) groups from 0; a group is never in two folds.

    Returns:
        (n,) int64 in 0..K-1; -1 for a sample that is always in train.

    Raises:
        ValueError: If there are fewer samples, or groups, than folds.

    Example:
        >>> np.bincount(assign_folds(10, 3)).tolist()
        [4, 3, 3]
    """
    if n < folds:
        raise ValueError(f"{n} samples are too few for {folds} folds; lower folds")
    # hashed: generators with neighbouring seeds start with similar numbers
    generator = torch.Generator().manual_seed(int(fingerprint([seed, repeat])[:12], 16))
    if groups is not None:
        wanted = np.full(folds, n // folds) + (np.arange(folds) < n % folds)
        return assign_groups(groups, wanted.tolist(), generator, labels)
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
            f"{single} classes have one sample, which is in train in every fold and never "
            "predicted; add samples or remove the classes",
            stacklevel=2,
        )
    return numbers


def limit_rows(rows: Indices, limit: float, *, seed: int, labels: Indices | None = None) -> Indices:
    """Take a random subset of a split, for a quick trial; stratified with ``labels``.

    Args:
        rows: (n,) rows of the split.
        limit: Maximum number of samples (int), or fraction (float).
        seed: Any integer.
        labels: (n,) classes from 0; each class keeps a sample if ``limit`` allows it.

    Returns:
        Ascending rows; all of them if there are no more than ``limit``.
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
    others = sizes - once
    quota = once + apportion(others, total - int(once.sum()), int(others.sum()), others, ties)
    ordered = order[np.argsort(labels[order], kind="stable")]  # by class, each shuffled
    starts = np.cumsum(sizes) - sizes
    kept = [ordered[start : start + take] for start, take in zip(starts, quota, strict=True)]
    return np.sort(rows[np.concatenate(kept)])


def check_limit(limit: int | float | None) -> None:
    """Raise an error for a limit that is neither a number of samples nor a fraction.

    Raises:
        ValueError: If it is not an int above 0 or a float in (0, 1].
    """
    if limit is None:
        return
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not number or not limit > 0 or (isinstance(limit, float) and limit > 1):
        raise ValueError(
            f"limit must be a number of samples (int) or a fraction (float), got {limit!r}"
        )
