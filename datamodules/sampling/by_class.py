"""Sampling strategies that use classes: P by K, pairs, stratified batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from datamodules.seeding.sample_seeds import Indices
from datamodules.settings.arguments import check_name

from .plan import Batches, Plan, check_batch_size, cut_steps
from .strategies import Facts, Sampling, require_labels


class PByK(Sampling):
    """P classes with K samples each in every batch, for metric learning (Hermans et al. 2017).

    A batch has P x K samples; ``batch_size`` is ignored. An epoch has N // (P x K) batches.

    Args:
        classes: P.
        samples: K different samples of each class.
        small: For a class with fewer than K samples: ``"repeat"`` samples, or ``"skip"`` it.

    Example:
        >>> labels = np.array([0, 0, 0, 1, 1, 1, 2, 2])
        >>> plan = PByK(2, 2).plan(Facts(n=8, batch_size=4, labels=labels))
        >>> labels[plan(torch.Generator().manual_seed(0), 1).batch(0)]
        array([2, 2, 1, 1])
    """

    def __init__(
        self, classes: int, samples: int, *, small: Literal["repeat", "skip"] = "repeat"
    ) -> None:
        check_batch_size(classes, "classes")
        check_batch_size(samples, "samples")
        check_name(small, ("repeat", "skip"), "small")
        self.classes, self.samples, self.small = classes, samples, small

    def plan(self, facts: Facts) -> Plan:
        """Return the plan of a train split."""
        members = group_by_class(require_labels(facts, "P-by-K batches"))
        if self.small == "skip":
            members = members.of_size(self.samples)
        if len(members.sizes) < self.classes:
            raise ValueError(
                f"PByK needs {self.classes} classes per batch, train has {len(members.sizes)}"
                + (f" with {self.samples} samples" if self.small == "skip" else "")
                + "; lower classes"
            )
        p, k = self.classes, self.samples
        steps = max(1, facts.n // (p * k))

        def plan(generator: torch.Generator, world_size: int) -> Batches:
            chosen = choose_classes(steps, p, len(members.sizes), generator)
            places = np.argsort(chosen, kind="stable")  # of the first class, the second, ...
            rows = np.empty((steps * p, k), np.int64)
            start = 0
            for c, times in enumerate(np.bincount(chosen, minlength=len(members.sizes))):
                rows[places[start : start + times]] = _groups(
                    members.of(c), k, int(times), generator
                )
                start += times
            return Batches(rows.ravel(), np.arange(0, steps * p * k + 1, p * k))

        return plan


class Pairs(Sampling):
    """Pairs of samples in rows 2i and 2i + 1, for siamese networks (Hadsell et al. 2006).

    Each batch has the same number of positive pairs (one class) and of negative pairs (two
    classes). An epoch has N // 2 pairs; the first samples of its pairs differ.

    Args:
        positive: Fraction of positive pairs.

    Example:
        >>> labels = np.array([0, 0, 0, 1, 1, 1, 2, 2])
        >>> plan = Pairs(positive=0.5).plan(Facts(n=8, batch_size=4, labels=labels))
        >>> labels[plan(torch.Generator().manual_seed(0), 1).batch(0)].reshape(2, 2)
        array([[1, 1],
               [2, 0]])
    """

    def __init__(self, positive: float = 0.5) -> None:
        if not 0 <= positive <= 1:
            raise ValueError(f"positive must be in [0, 1], got {positive}")
        self.positive = positive

    def plan(self, facts: Facts) -> Plan:
        """Return the plan of a train split."""
        members = group_by_class(require_labels(facts, "pairs"))
        starts, sizes, n = members.starts, members.sizes, facts.n
        size = facts.batch_size // 2
        if not size or facts.batch_size % 2:
            raise ValueError(f"batch_size must be even for pairs, got {facts.batch_size}")
        if self.positive < 1 and len(sizes) < 2:
            raise ValueError("negative pairs need two classes, train has one; pass positive=1")
        if self.positive > 0 and sizes.max() < 2:
            raise ValueError("positive pairs need two samples of a class; pass positive=0")
        steps = max(1, n // 2 // size)
        ends = np.cumsum(sizes)

        def plan(generator: torch.Generator, world_size: int) -> Batches:
            # anchors and partners are positions in the order by class
            positive = np.arange(size) < round(self.positive * size)
            positives, negatives = int(positive.sum()) * steps, int((~positive).sum()) * steps
            anchors = torch.randperm(n, generator=generator).numpy().astype(members.order.dtype)
            paired = anchors
            if sizes.min() < 2:  # a class with one sample has no positive pairs
                paired = anchors[(sizes > 1)[np.searchsorted(ends, anchors, side="right")]]
            first = np.empty((steps, size), anchors.dtype)
            first[:, positive] = _repeat_to(paired, positives).reshape(steps, -1)
            used = np.zeros(n, bool)
            used[paired[:positives]] = True
            rest = anchors[positives:] if paired is anchors else anchors[~used[anchors]]
            rest = rest if len(rest) else anchors
            first[:, ~positive] = _repeat_to(rest, negatives).reshape(steps, -1)
            del anchors, paired, used, rest  # ten million samples take less than 200 MB
            rows = np.empty((steps, size, 2), np.int64)
            for s in range(0, steps, 4096):  # blocks stay in the cache
                block = first[s : s + 4096]
                draws = torch.rand(block.shape, dtype=torch.float64, generator=generator).numpy()
                g = np.searchsorted(ends, block, side="right")
                low, count = starts[g], sizes[g]
                # another sample of the same class, or any sample of another class
                span = np.where(positive, count - 1, n - count)
                shift = (draws * span).astype(np.int64)
                same = (block - low + 1 + shift) % count + low
                other = (low + count + shift) % n
                rows[s : s + 4096, :, 0] = members.order[block]
                rows[s : s + 4096, :, 1] = members.order[np.where(positive, same, other)]
            return Batches(rows.ravel(), np.arange(0, rows.size + 1, 2 * size))

        return plan


class Stratified(Sampling):
    """Every batch has the class proportions of train; each sample once per epoch.

    Counts are rounded by largest remainder, so that the next batch makes up for the rounding.

    Example:
        >>> labels = np.array([0] * 6 + [1] * 3)
        >>> plan = Stratified().plan(Facts(n=9, batch_size=3, labels=labels))
        >>> labels[plan(torch.Generator().manual_seed(0), 1).indices].reshape(3, 3).sum(1)
        array([1, 1, 1])
    """

    def plan(self, facts: Facts) -> Plan:
        """Return the plan of a train split."""
        members = group_by_class(require_labels(facts, "stratified batches"))
        n = facts.n

        def plan(generator: torch.Generator, world_size: int) -> Batches:
            # batch sizes depend on the number of samples only
            no_order = np.broadcast_to(np.int64(0), n)
            offsets = cut_steps(
                no_order, facts.batch_size, world_size, drop_last=facts.drop_last
            ).offsets
            whole = min(n, int(offsets[-1]))
            pool = members.shuffled(generator)
            rows = np.empty(int(offsets[-1]), np.int64)
            ends = np.append(offsets[1:][offsets[1:] < whole], whole)
            start = 0
            for firsts, quotas, counts in _quotas(members, ends, n):
                # the next samples of each class, which are consecutive in the pool
                places = np.repeat(firsts - np.cumsum(quotas) + quotas, quotas)
                places += np.arange(len(places))
                stop = start + len(places)
                rows[start:stop] = _shuffle_batches(pool[places], counts, generator)
                start = stop
            # repeated samples give all ranks the same number of steps
            rows[whole:] = np.resize(rows[:whole], len(rows) - whole) if whole else 0
            return Batches(rows, offsets)

        return plan


class ClassMembers(NamedTuple):
    """Samples sorted by class, for the C classes that have samples.

    Attributes:
        order: (n,) int32, or int64 from 2^31 samples on: positions, class after class.
        starts: (C,) int64 start of each class in ``order``.
        sizes: (C,) int64 samples of each class, at least 1.
    """

    order: npt.NDArray[np.integer[Any]]
    starts: Indices
    sizes: Indices

    def of(self, c: int) -> npt.NDArray[np.integer[Any]]:
        """Return the samples of class ``c``."""
        return self.order[self.starts[c] : self.starts[c] + self.sizes[c]]

    def of_size(self, least: int) -> ClassMembers:
        """Return the classes that have at least ``least`` samples."""
        kept = self.sizes >= least
        return ClassMembers(self.order, self.starts[kept], self.sizes[kept])

    def shuffled(self, generator: torch.Generator) -> npt.NDArray[np.integer[Any]]:
        """Return the order with each class shuffled."""
        return np.concatenate([_shuffled(self.of(c), generator) for c in range(len(self.sizes))])


def group_by_class(labels: Indices) -> ClassMembers:
    """Sort samples by class."""
    small = len(labels) and labels.max() < 2**16
    keys = labels.astype(np.uint16) if small else labels  # NumPy sorts 16 bits by radix
    order = np.argsort(keys, kind="stable").astype(np.min_scalar_type(-max(1, len(labels))))
    sizes = np.bincount(keys)
    sizes = sizes[sizes > 0]
    return ClassMembers(order, np.cumsum(sizes) - sizes, sizes)


def _repeat_to(rows: npt.NDArray[np.integer[Any]], count: int) -> npt.NDArray[np.integer[Any]]:
    """Return the first ``count`` rows; if there are fewer, repeat them."""
    return rows[:count] if count <= len(rows) else np.resize(rows, count)


def choose_classes(
    steps: int, count: int, classes: int, generator: torch.Generator
) -> npt.NDArray[np.integer[Any]]:
    """Draw ``count`` different classes for each step; all sets are equally likely.

    Returns:
        (steps * count,) integers below ``classes``.
    """
    chosen = np.empty((steps, count), np.min_scalar_type(classes))
    for s in range(0, steps, 1024):  # in blocks: steps x classes would take too much memory
        block = chosen[s : s + 1024]
        deck = np.tile(np.arange(classes, dtype=chosen.dtype), (len(block), 1))
        step = np.arange(len(block))
        draws = torch.rand(count, len(block), dtype=torch.float64, generator=generator).numpy()
        for i in range(count):  # Fisher-Yates shuffle, stopped after count
            j = i + (draws[i] * (classes - i)).astype(np.int64)
            block[:, i] = deck[step, j]
            deck[step, j] = deck[:, i]
    return chosen.ravel()


def _quotas(members: ClassMembers, ends: Indices, n: int) -> Iterator[tuple[Indices, ...]]:
    """Yield the samples that each batch takes of each class, in blocks of batches.

    Yields:
        Start in the pool and count, one pair for each batch and class; the sizes of the batches.
    """
    share = members.sizes / n
    taken = np.zeros(len(share))
    for s in range(0, len(ends), 512):
        block = ends[s : s + 512]
        counts = np.diff(block, prepend=ends[s - 1] if s else 0)
        firsts, quotas = [], []
        for end, count in zip(block.tolist(), counts.tolist(), strict=True):
            exact = share * end - taken
            quota = np.maximum(np.floor(exact), 0)
            missing = count - int(quota.sum())
            if missing > 0:
                remainder = exact - quota
                least = np.partition(remainder, -missing)[-missing]
                quota += remainder > least
                ties = count - int(quota.sum())
                quota[np.flatnonzero(remainder == least)[:ties]] += 1
            for _ in range(-missing):
                quota[np.argmax(quota - exact)] -= 1
            took = np.flatnonzero(quota)
            firsts.append(members.starts[took] + taken[took].astype(np.int64))
            quotas.append(quota[took].astype(np.int64))
            taken += quota
        yield np.concatenate(firsts), np.concatenate(quotas), counts


def _shuffle_batches(
    rows: npt.NDArray[np.integer[Any]], counts: Indices, generator: torch.Generator
) -> npt.NDArray[np.integer[Any]]:
    """Shuffle the rows of each batch; ``counts`` are the sizes of the batches."""
    draws = torch.rand(len(rows), dtype=torch.float64, generator=generator).numpy()
    batch = np.repeat(np.arange(len(counts)), counts)
    return rows[np.argsort(batch + draws)]


def _groups(
    members: npt.NDArray[np.integer[Any]], size: int, count: int, generator: torch.Generator
) -> npt.NDArray[np.integer[Any]]:
    """Draw ``count`` groups of ``size`` samples of one class, different ones if it has enough.

    Returns:
        (count, size) integers.
    """
    if len(members) < size:
        orders = [_shuffled(members, generator) for _ in range(count)]
        return np.array([np.resize(order, size) for order in orders]).reshape(count, size)
    each = (
        len(members) // size
    )  # the end of a permutation is dropped: a group could repeat a sample
    rounds = -(-count // each)
    orders = [_shuffled(members, generator)[: each * size] for _ in range(rounds)]
    return np.concatenate(orders).reshape(-1, size)[:count] if rounds else np.empty((0, size), int)


def _shuffled(
    members: npt.NDArray[np.integer[Any]], generator: torch.Generator
) -> npt.NDArray[np.integer[Any]]:
    return np.asarray(members[torch.randperm(len(members), generator=generator).numpy()])
