"""Seeded splits: (n or labels, shares, seed) to index arrays; no file is opened here."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

Indices = npt.NDArray[np.int64]


def split_indices(
    n: int,
    *,
    val: float | int = 0.0,
    test: float | int = 0.0,
    seed: int = 0,
    labels: npt.ArrayLike | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, Indices]:
    """Cut ``range(n)`` into train, val and test; a pure function of its arguments.

    A float is a fraction of the whole, an int a count. With ``labels`` each part holds the
    classes in their shares of the whole, rounded by largest remainder, and a class with a
    single sample stays in train, said in a warning. The user's random state is neither read nor
    changed.

    Args:
        n: Number of samples.
        val: Share or number of validation samples.
        test: Share or number of test samples.
        seed: Any integer; 0 is a seed like another.
        labels: (n,) integers, the class of each sample, for a stratified split.
        names: Class names for messages, indexed by label.

    Returns:
        ``{"train": ..., "val": ..., "test": ...}``: ascending int64 indices, disjoint, together
        ``range(n)``.

    Raises:
        ValueError: If a share is negative, or the shares sum to more than the whole.

    Example:
        >>> parts = split_indices(10, val=0.2, test=1, seed=0)
        >>> {name: len(part) for name, part in parts.items()}
        {'train': 7, 'val': 2, 'test': 1}
    """
    counts = counts_of(n, val=val, test=test)
    generator = torch.Generator().manual_seed(seed)
    if labels is None or not n:
        order = torch.randperm(n, generator=generator).numpy()
        ends = np.cumsum([counts["test"], counts["val"]])
        parts = dict(zip(("test", "val", "train"), np.split(order, ends), strict=True))
    else:
        parts = _stratified(np.asarray(labels), counts, generator, names)
    return {name: _ascending(parts[name], n) for name in ("train", "val", "test")}


def check_shares(*, val: float | int, test: float | int) -> None:
    """Refuse shares that no data could fulfil.

    Raises:
        ValueError: If a share is negative, a fraction is over 1, or the fractions sum to over 1.
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
                f"write {round(share)} for a number of samples"
            )
    if isinstance(val, float) and isinstance(test, float) and val + test > 1 + 1e-9:
        raise ValueError(
            f"fractions must sum to at most 1, got val={val} and test={test}; lower one of them"
        )


def counts_of(n: int, *, val: float | int, test: float | int) -> dict[str, int]:
    """Number of val and test samples of ``n`` that shares ask for.

    Raises:
        ValueError: If a share is impossible, or they sum to more than the whole.
    """
    check_shares(val=val, test=test)
    counts = {
        name: round(n * share) if isinstance(share, float) else int(share)
        for name, share in (("val", val), ("test", test))
    }
    # two roundings up may ask for one sample more than there is: 0.5 + 0.5 of 3
    if isinstance(val, float) and isinstance(test, float) and sum(counts.values()) == n + 1:
        counts["test"] -= 1
    if sum(counts.values()) > n:
        raise ValueError(
            f"val and test ask for {counts['val']} + {counts['test']} samples, there are {n}; "
            "lower one of them"
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
        said = ", ".join(repr(names[int(c)]) if names else repr(c.item()) for c in single[:5])
        more = f" and {len(single) - 5} more" if len(single) > 5 else ""
        warnings.warn(
            f"a class with one sample cannot be split and stays in train: {said}{more}; "
            "add samples or leave the class out",
            stacklevel=4,
        )
    # one of each class stays in train, or the class could not be learnt
    room = sizes if everything else sizes - 1
    quota = {}
    for name in ("test", "val"):
        # equal remainders are drawn for: always the first class would lose in val and test both
        draws = torch.rand(len(classes), generator=generator).numpy()
        quota[name] = share_out(sizes, counts[name], n, room, draws)
        room = room - quota[name]
        given = int(quota[name].sum())
        if given < counts[name] and not len(single):  # else said above
            warnings.warn(
                f"{name} gets {given} of the {counts[name]} samples asked for, since each class "
                "keeps one in train",
                stacklevel=4,
            )
    parts: dict[str, list[Indices]] = {"train": [], "val": [], "test": []}
    # NumPy sorts short integers by their digits, in a tenth of the time
    short = codes.astype(np.min_scalar_type(len(classes)))
    by_class = np.split(np.argsort(short, kind="stable"), np.cumsum(sizes)[:-1])
    for k, members in enumerate(by_class):
        order = members[torch.randperm(len(members), generator=generator).numpy()]
        a, b = quota["test"][k], quota["test"][k] + quota["val"][k]
        for name, part in (("test", order[:a]), ("val", order[a:b]), ("train", order[b:])):
            parts[name].append(part)
    return {name: np.concatenate(chosen) for name, chosen in parts.items()}


def _ascending(rows: npt.NDArray[np.int64], n: int) -> Indices:
    """Different rows below ``n`` in order: marked, not sorted, a fifth of the time."""
    marked = np.zeros(n, np.bool_)
    marked[rows] = True
    return np.flatnonzero(marked)


def _counted(
    labels: npt.NDArray[np.generic],
) -> tuple[npt.NDArray[np.generic], Indices, npt.NDArray[np.int64]]:
    """Sorted classes, the place of each label among them, and samples of each; without sorting."""
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() > len(labels) + 1000:
        classes, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        return classes, codes, sizes
    whole = labels.astype(np.int64)
    counts = np.bincount(whole)
    there = np.flatnonzero(counts)
    place = np.cumsum(counts > 0) - 1
    return there.astype(labels.dtype), place[whole], counts[there]


def share_out(
    sizes: npt.NDArray[np.int64],
    total: int,
    n: int,
    room: npt.NDArray[np.int64],
    ties: npt.NDArray[np.float32],
) -> npt.NDArray[np.int64]:
    """Share ``total`` out over classes in proportion to ``sizes``, at most ``room`` to each."""
    exact = sizes * (total / max(1, n))
    quota: npt.NDArray[np.int64] = np.minimum(np.floor(exact + 1e-9).astype(np.int64), room)
    for k in np.lexsort((ties, -np.round(exact - quota, 9))):
        if quota.sum() == min(total, int(room.sum())):
            break
        quota[k] += quota[k] < room[k]
    for k in range(len(quota)):  # a class that is full passes its share on
        spare = min(total, int(room.sum())) - int(quota.sum())
        quota[k] += min(spare, int(room[k] - quota[k]))
    return quota


def fingerprint(*parts: npt.ArrayLike | str | bytes) -> str:
    """Digest of arrays and texts, equal on every machine: tells whether a split or data changed.

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
