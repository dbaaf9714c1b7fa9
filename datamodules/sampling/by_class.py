"""Kinds of sampling by class: P by K, pairs, strata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from datamodules.seeding.sample_seeds import Indices
from datamodules.settings.arguments import check_name

from .plan import Batches, Plan, check_batch_size, cut_steps
from .strategies import Facts, Sampling, need_labels


class PByK(Sampling):
    """Each batch holds P classes with K samples each, for metric learning (Hermans et al. 2017).

    A batch has P x K rows, whatever ``batch_size`` says; an epoch has as many batches as the
    samples would fill. The K samples of a class differ.

    Args:
        classes: P.
        samples: K.
        small: A class with fewer than K samples: ``"repeat"`` some of them, or ``"skip"`` it.
    """

    def __init__(
        self, classes: int, samples: int, *, small: Literal["repeat", "skip"] = "repeat"
    ) -> None:
        check_batch_size(classes, "classes")
        check_batch_size(samples, "samples")
        check_name(small, ("repeat", "skip"), "small")
        self.classes, self.samples, self.small = classes, samples, small

    def plan(self, facts: Facts) -> Plan:
        """Plan for one train split."""
        members = by_class(need_labels(facts, "P-by-K batches"))
        if self.small == "skip":
            members = members.of_size(self.samples)
        if len(members.sizes) < self.classes:
            raise ValueError(
                f"{self.classes} classes a batch were asked for, train has {len(members.sizes)}"
                + (f" with {self.samples} samples" if self.small == "skip" else "")
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
    """Pairs side by side, rows 2i and 2i + 1, for siamese nets (Hadsell et al. 2006).

    In each batch a fixed number of pairs are of one class, the others of two. An epoch has half
    as many pairs as samples; the first of a pair comes at most once.

    Args:
        positive: Share of pairs of one class.
    """

    def __init__(self, positive: float = 0.5) -> None:
        if not 0 <= positive <= 1:
            raise ValueError(f"positive must be in [0, 1], got {positive}")
        self.positive = positive

    def plan(self, facts: Facts) -> Plan:
        """Plan for one train split."""
        members = by_class(need_labels(facts, "pairs"))
        starts, sizes, n = members.starts, members.sizes, facts.n
        size = facts.batch_size // 2
        if not size or facts.batch_size % 2:
            raise ValueError(f"batch_size of pairs must be even, got {facts.batch_size}")
        if self.positive < 1 and len(sizes) < 2:
            raise ValueError("pairs of two classes were asked for, train has one class")
        if self.positive > 0 and sizes.max() < 2:
            raise ValueError("pairs of one class were asked for, no class has two samples")
        steps = max(1, n // 2 // size)
        ends = np.cumsum(sizes)

        def plan(generator: torch.Generator, world_size: int) -> Batches:
            # anchors and partners are places in the order by class, where a class is a stretch
            wanted = np.arange(size) < round(self.positive * size)  # pairs of one class
            positives, negatives = int(wanted.sum()) * steps, int((~wanted).sum()) * steps
            anchors = torch.randperm(n, generator=generator).numpy().astype(members.order.dtype)
            paired = anchors
            if sizes.min() < 2:  # a class of one has no partner of its own
                paired = anchors[(sizes > 1)[np.searchsorted(ends, anchors, side="right")]]
            first = np.empty((steps, size), anchors.dtype)
            first[:, wanted] = _some(paired, positives).reshape(steps, -1)
            used = np.zeros(n, bool)
            used[paired[:positives]] = True
            rest = anchors[positives:] if paired is anchors else anchors[~used[anchors]]
            rest = rest if len(rest) else anchors
            first[:, ~wanted] = _some(rest, negatives).reshape(steps, -1)
            del anchors, paired, used, rest  # an epoch of ten million fits in 200 MB
            rows = np.empty((steps, size, 2), np.int64)
            for s in range(0, steps, 4096):  # in blocks, which stay in the cache
                block = first[s : s + 4096]
                draws = torch.rand(block.shape, dtype=torch.float64, generator=generator).numpy()
                g = np.searchsorted(ends, block, side="right")
                low, count = starts[g], sizes[g]
                # of the same class, but not the same sample; or anywhere outside the class
                span = np.where(wanted, count - 1, n - count)
                shift = (draws * span).astype(np.int64)
                same = (block - low + 1 + shift) % count + low
                other = (low + count + shift) % n
                rows[s : s + 4096, :, 0] = members.order[block]
                rows[s : s + 4096, :, 1] = members.order[np.where(wanted, same, other)]
            return Batches(rows.ravel(), np.arange(0, rows.size + 1, 2 * size))

        return plan


class Stratified(Sampling):
    """Every batch holds the classes in the data's proportions; each sample once an epoch.

    The counts of a batch are its share of what is left, rounded by largest remainder, so that
    what one batch rounds away the next makes up for.
    """

    def plan(self, facts: Facts) -> Plan:
        """Plan for one train split."""
        members = by_class(need_labels(facts, "stratified batches"))
        n = facts.n

        def plan(generator: torch.Generator, world_size: int) -> Batches:
            # the cut depends on the number of samples alone
            nothing = np.broadcast_to(np.int64(0), n)
            offsets = cut_steps(
                nothing, facts.batch_size, world_size, drop_last=facts.drop_last
            ).offsets
            whole = min(n, int(offsets[-1]))
            pool = members.shuffled(generator)
            rows = np.empty(int(offsets[-1]), np.int64)
            ends = np.append(offsets[1:][offsets[1:] < whole], whole)
            start = 0
            for firsts, quotas, counts in _quotas(members, ends, n):
                # the next of each class, which lie side by side in the pool
                places = np.repeat(firsts - np.cumsum(quotas) + quotas, quotas)
                places += np.arange(len(places))
                stop = start + len(places)
                rows[start:stop] = _mixed(pool[places], counts, generator)
                start = stop
            # repeats that make the ranks even come behind, from the whole
            rows[whole:] = np.resize(rows[:whole], len(rows) - whole) if whole else 0
            return Batches(rows, offsets)

        return plan


class ByClass(NamedTuple):
    """Samples in the order of their classes.

    Attributes:
        order: (n,) int32, int64 from 2^31 samples on: positions, class after class.
        starts: (C,) int64, where each class that has any begins.
        sizes: (C,) int64, at least 1.
    """

    order: npt.NDArray[np.integer[Any]]
    starts: Indices
    sizes: Indices

    def of(self, c: int) -> npt.NDArray[np.integer[Any]]:
        """Samples of one class."""
        return self.order[self.starts[c] : self.starts[c] + self.sizes[c]]

    def of_size(self, least: int) -> ByClass:
        """Without the classes of fewer samples."""
        kept = self.sizes >= least
        return ByClass(self.order, self.starts[kept], self.sizes[kept])

    def shuffled(self, generator: torch.Generator) -> npt.NDArray[np.integer[Any]]:
        """The order with each class's samples mixed."""
        return np.concatenate([_shuffled(self.of(c), generator) for c in range(len(self.sizes))])


def by_class(labels: npt.NDArray[np.int64]) -> ByClass:
    """Sort samples by class."""
    small = len(labels) and labels.max() < 2**16
    keys = labels.astype(np.uint16) if small else labels  # NumPy sorts 16 bits by radix
    order = np.argsort(keys, kind="stable").astype(np.min_scalar_type(-max(1, len(labels))))
    sizes = np.bincount(keys)
    sizes = sizes[sizes > 0]
    return ByClass(order, np.cumsum(sizes) - sizes, sizes)


def _some(rows: npt.NDArray[np.integer[Any]], count: int) -> npt.NDArray[np.integer[Any]]:
    """The first ``count`` rows, over and over where there are fewer."""
    return rows[:count] if count <= len(rows) else np.resize(rows, count)


def choose_classes(
    steps: int, count: int, classes: int, generator: torch.Generator
) -> npt.NDArray[np.integer[Any]]:
    """(steps * count,) of ``range(classes)``: ``count`` different ones a step, each set alike."""
    chosen = np.empty((steps, count), np.min_scalar_type(classes))
    for s in range(0, steps, 1024):  # in blocks: steps x classes would fill the memory
        block = chosen[s : s + 1024]
        deck = np.tile(np.arange(classes, dtype=chosen.dtype), (len(block), 1))
        step = np.arange(len(block))
        draws = torch.rand(count, len(block), dtype=torch.float64, generator=generator).numpy()
        for i in range(count):  # Fisher and Yates, as far as needed
            j = i + (draws[i] * (classes - i)).astype(np.int64)
            block[:, i] = deck[step, j]
            deck[step, j] = deck[:, i]
    return chosen.ravel()


def _quotas(members: ByClass, ends: Indices, n: int) -> Iterator[tuple[Indices, ...]]:
    """First place and count of each class in each batch that takes of it; the batches' sizes."""
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
                rest = exact - quota
                least = np.partition(rest, -missing)[-missing]
                quota += rest > least
                ties = count - int(quota.sum())
                quota[np.flatnonzero(rest == least)[:ties]] += 1
            for _ in range(-missing):
                quota[np.argmax(quota - exact)] -= 1
            took = np.flatnonzero(quota)
            firsts.append(members.starts[took] + taken[took].astype(np.int64))
            quotas.append(quota[took].astype(np.int64))
            taken += quota
        yield np.concatenate(firsts), np.concatenate(quotas), counts


def _mixed(
    rows: npt.NDArray[np.integer[Any]], counts: Indices, generator: torch.Generator
) -> npt.NDArray[np.integer[Any]]:
    """Rows mixed inside each batch of ``counts`` rows."""
    draws = torch.rand(len(rows), dtype=torch.float64, generator=generator).numpy()
    batch = np.repeat(np.arange(len(counts)), counts)
    return rows[np.argsort(batch + draws)]


def _groups(
    members: npt.NDArray[np.integer[Any]], size: int, count: int, generator: torch.Generator
) -> npt.NDArray[np.integer[Any]]:
    """``count`` rows of ``size`` samples of one class, without a repeat in a row if possible."""
    if len(members) < size:
        orders = [_shuffled(members, generator) for _ in range(count)]
        return np.array([np.resize(order, size) for order in orders]).reshape(count, size)
    each = len(members) // size  # a permutation's rest is left out, else a row could repeat
    rounds = -(-count // each)
    orders = [_shuffled(members, generator)[: each * size] for _ in range(rounds)]
    return np.concatenate(orders).reshape(-1, size)[:count] if rounds else np.empty((0, size), int)


def _shuffled(
    members: npt.NDArray[np.integer[Any]], generator: torch.Generator
) -> npt.NDArray[np.integer[Any]]:
    return np.asarray(members[torch.randperm(len(members), generator=generator).numpy()])
