"""Split samples at random, stratified by class if there are labels."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from datamodules.seeding.sample_seeds import Indices


def split_indices(
    n: int,
    *,
    val: float | int = 0.0,
    test: float | int = 0.0,
    seed: int = 0,
    labels: npt.ArrayLike | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, Indices]:
    """Split ``range(n)`` into train, val and test; a pure function of the arguments.

    With ``labels`` each split has the class proportions of all samples, rounded by largest
    remainder, and a class with a single sample stays in train, with a warning. The global random
    state is neither used nor changed.

    Args:
        n: Number of samples.
        val: Fraction (float) or number (int) of validation samples.
        test: Fraction (float) or number (int) of test samples.
        seed: Any integer.
        labels: (n,) integers, the class of each sample, for a stratified split.
        names: Class names for messages, indexed by label.

    Returns:
        ``{"train": ..., "val": ..., "test": ...}``: ascending int64 indices that are disjoint and
        cover ``range(n)``.

    Raises:
        ValueError: If a fraction is negative, or val and test sum to more than all samples.

    Example:
        >>> splits = split_indices(10, val=0.2, test=1, seed=0)
        >>> {name: len(rows) for name, rows in splits.items()}
        {'train': 7, 'val': 2, 'test': 1}
    """
    counts = split_sizes(n, val=val, test=test)
    generator = torch.Generator().manual_seed(seed)
    if labels is None or not n:
        order = torch.randperm(n, generator=generator).numpy()
        ends = np.cumsum([counts["test"], counts["val"]])
        splits = dict(zip(("test", "val", "train"), np.split(order, ends), strict=True))
    else:
        splits = _stratified(np.asarray(labels), counts, generator, names)
    return {name: np.sort(splits[name]) for name in ("train", "val", "test")}


def check_shares(*, val: float | int, test: float | int) -> None:
    """Raise an error for values of ``val_split`` and ``test_split`` that fit no data.

    Raises:
        ValueError: If a value is negative, a fraction is over 1, or the fractions sum to over 1.
    """
    for name, share in (("val", val), ("test", test)):
        number = isinstance(share, int | float) and not isinstance(share, bool)
        if not number or share != share or share < 0:
            raise ValueError(
                f"{name}_split must be a fraction or a number of samples, at least 0, got {share!r}"
            )
        if isinstance(share, float) and share > 1:
            raise ValueError(
                f"{name}_split={share} is a float and so a fraction: it must be at most 1; "
                f"pass {round(share)} for a number of samples"
            )
    if isinstance(val, float) and isinstance(test, float) and val + test > 1 + 1e-9:
        raise ValueError(
            f"fractions must sum to at most 1, got val={val} and test={test}; lower one of them"
        )


def split_sizes(n: int, *, val: float | int, test: float | int) -> dict[str, int]:
    """Return the number of val and test samples out of ``n``.

    Raises:
        ValueError: If a value is impossible, or the two sum to more than ``n``.
    """
    check_shares(val=val, test=test)
    counts = {
        name: round(n * share) if isinstance(share, float) else int(share)
        for name, share in (("val", val), ("test", test))
    }
    # both may round up: 0.5 + 0.5 of 3
    if isinstance(val, float) and isinstance(test, float) and sum(counts.values()) == n + 1:
        counts["test"] -= 1
    if sum(counts.values()) > n:
        raise ValueError(
            f"val_split and test_split take {counts['val']} + {counts['test']} samples, there are "
            f"{n}; lower one of them"
        )
    return counts


def _stratified(
    labels: npt.NDArray[np.generic],
    counts: dict[str, int],
    generator: torch.Generator,
    names: Sequence[str] | None,
) -> dict[str, Indices]:
    classes, codes, sizes = _counted(labels)
    n, single = len(labels), classes[sizes == 1]
    everything = sum(counts.values()) == n
    if len(single) and sum(counts.values()) and not everything:
        listed = ", ".join(repr(names[int(c)]) if names else repr(c.item()) for c in single[:5])
        more = f" and {len(single) - 5} more" if len(single) > 5 else ""
        warnings.warn(
            f"a class with one sample cannot be split and stays in train: {listed}{more}; "
            "add samples or remove the class",
            stacklevel=4,
        )
    # each class keeps a sample in train
    room = sizes if everything else sizes - 1
    quota = {}
    for name in ("test", "val"):
        # ties are broken at random: otherwise the first class would lose in both val and test
        draws = torch.rand(len(classes), generator=generator).numpy()
        quota[name] = apportion(sizes, counts[name], n, room, draws)
        room = room - quota[name]
        given = int(quota[name].sum())
        if given < counts[name] and not len(single):
            warnings.warn(
                f"{name} has {given} instead of {counts[name]} samples, since each class keeps one "
                "in train",
                stacklevel=4,
            )
    splits: dict[str, list[Indices]] = {"train": [], "val": [], "test": []}
    # NumPy sorts short integers by radix, in a tenth of the time
    short = codes.astype(np.min_scalar_type(len(classes)))
    by_class = np.split(np.argsort(short, kind="stable"), np.cumsum(sizes)[:-1])
    for k, members in enumerate(by_class):
        order = members[torch.randperm(len(members), generator=generator).numpy()]
        a, b = quota["test"][k], quota["test"][k] + quota["val"][k]
        for name, rows in (("test", order[:a]), ("val", order[a:b]), ("train", order[b:])):
            splits[name].append(rows)
    return {name: np.concatenate(rows) for name, rows in splits.items()}


def _counted(
    labels: npt.NDArray[np.generic],
) -> tuple[npt.NDArray[np.generic], Indices, Indices]:
    """Return the classes, the index of each label among them, and samples of each class."""
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() > len(labels) + 1000:
        return np.unique(labels, return_inverse=True, return_counts=True)
    whole = labels.astype(np.int64)
    counts = np.bincount(whole)
    present = np.flatnonzero(counts)
    place = np.cumsum(counts > 0) - 1
    return present.astype(labels.dtype), place[whole], counts[present]


def apportion(
    sizes: Indices,
    total: int,
    n: int,
    room: Indices,
    ties: npt.NDArray[np.float32],
) -> Indices:
    """Divide ``total`` between classes by largest remainder.

    Args:
        sizes: (C,) samples of each class; the quotas are proportional to them.
        total: Samples to divide.
        n: Sum of ``sizes``.
        room: (C,) maximum for each class.
        ties: (C,) numbers that order equal remainders.

    Returns:
        (C,) quotas; they sum to ``total``, or to all the room if that is less.
    """
    exact = sizes * (total / max(1, n))
    quota: Indices = np.minimum(np.floor(exact + 1e-9).astype(np.int64), room)
    for k in np.lexsort((ties, -np.round(exact - quota, 9))):
        if quota.sum() == min(total, int(room.sum())):
            break
        quota[k] += quota[k] < room[k]
    for k in range(len(quota)):  # what a full class cannot take goes to the others
        spare = min(total, int(room.sum())) - int(quota.sum())
        quota[k] += min(spare, int(room[k] - quota[k]))
    return quota


def fingerprint(*parts: npt.ArrayLike | str | bytes) -> str:
    """Hash arrays and texts to detect changes of data or splits; equal on every machine.

    Example:
        >>> fingerprint([0, 1, 2]) == fingerprint(np.arange(3))
        True
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, str):
            part = part.encode("utf-8", "surrogateescape")
        if not isinstance(part, bytes):
            part = np.asarray(part).astype("<i8").tobytes()
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()
