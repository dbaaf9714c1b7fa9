"""Kinds of sampling by class: P by K, pairs, strata."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from .plans import Facts, Sampling, need_labels
from .seeding import Indices
from .settings import check_name
from .steps import Batches, Plan, check_batch_size, cut_steps


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
        groups = by_class(need_labels(facts, "P-by-K batches"))
        if self.small == "skip":
            groups = [group for group in groups if len(group) >= self.samples]
        if len(groups) < self.classes:
            raise ValueError(
                f"{self.classes} classes a batch were asked for, train has {len(groups)}"
                + (f" with {self.samples} samples" if self.small == "skip" else "")
            )
        p, k = self.classes, self.samples
        steps = max(1, facts.n // (p * k))

        def plan(generator: torch.Generator, world_size: int) -> Batches:
            chosen = np.concatenate(  # in blocks: steps x classes keys would fill the memory
                [
                    torch.rand(min(1024, steps - s), len(groups), generator=generator)
                    .argsort(1)[:, :p]
                    .numpy()
                    for s in range(0, steps, 1024)
                ]
            ).ravel()
            rows = np.empty((steps * p, k), np.int64)
            for c, times in enumerate(np.bincount(chosen, minlength=len(groups))):
                rows[chosen == c] = _groups(groups[c], k, int(times), generator)
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
        labels = need_labels(facts, "pairs")
        groups = by_class(labels)
        size = facts.batch_size // 2
        if not size or facts.batch_size % 2:
            raise ValueError(f"batch_size of pairs must be even, got {facts.batch_size}")
        if self.positive < 1 and len(groups) < 2:
            raise ValueError("pairs of two classes were asked for, train has one class")
        if self.positive > 0 and max(map(len, groups)) < 2:
            raise ValueError("pairs of one class were asked for, no class has two samples")
        order = np.concatenate(groups)
        starts = np.cumsum([0, *map(len, groups)])
        group_of = np.empty(facts.n, np.int64)
        place = np.empty(facts.n, np.int64)
        for g, members in enumerate(groups):
            group_of[members], place[members] = g, np.arange(len(members))
        steps = max(1, facts.n // 2 // size)

        def plan(generator: torch.Generator, world_size: int) -> Batches:
            wanted = np.tile(np.arange(size) < round(self.positive * size), steps)
            anchors = torch.randperm(facts.n, generator=generator).numpy()
            single = np.diff(starts)[group_of[anchors]] < 2  # no partner of its own class
            first = np.empty(steps * size, np.int64)
            pool = np.resize(anchors[~single], int(wanted.sum()))
            first[wanted] = pool
            used = np.zeros(facts.n, bool)
            used[pool] = True
            rest = anchors[~used[anchors]]
            first[~wanted] = np.resize(rest if len(rest) else anchors, int((~wanted).sum()))
            draws = torch.rand(steps * size, dtype=torch.float64, generator=generator).numpy()
            g = group_of[first]
            low, count = starts[g], starts[g + 1] - starts[g]
            # of the same class, but not the same sample; or anywhere outside the class
            same = (place[first] + 1 + (draws * (count - 1)).astype(np.int64)) % count + low
            other = (starts[g + 1] + (draws * (facts.n - count)).astype(np.int64)) % facts.n
            second = order[np.where(wanted, same, other)]
            rows = np.stack([first, second], 1).ravel()
            return Batches(rows, np.arange(0, len(rows) + 1, 2 * size))

        return plan


class Stratified(Sampling):
    """Every batch holds the classes in the data's proportions; each sample once an epoch.

    The counts of a batch are its share of what is left, rounded by largest remainder, so that
    what one batch rounds away the next makes up for.
    """

    def plan(self, facts: Facts) -> Plan:
        """Plan for one train split."""
        groups = by_class(need_labels(facts, "stratified batches"))
        sizes = np.array([len(group) for group in groups])
        starts = np.cumsum(sizes) - sizes

        def plan(generator: torch.Generator, world_size: int) -> Batches:
            frame = cut_steps(
                np.arange(facts.n), facts.batch_size, world_size, drop_last=facts.drop_last
            )
            # repeats that make the ranks even come behind, from the whole
            whole = min(facts.n, len(frame.indices))
            pool = np.concatenate(
                [g[torch.randperm(len(g), generator=generator).numpy()] for g in groups]
            )
            taken = np.zeros(len(groups), np.int64)
            parts: list[Indices] = []
            for b in range(len(frame)):
                end = min(int(frame.offsets[b + 1]), whole)
                count = end - int(taken.sum())
                if count <= 0:
                    break
                exact = sizes * (end / facts.n) - taken
                quota = np.clip(np.floor(exact), 0, sizes - taken).astype(np.int64)
                order = np.argsort(-(exact - quota), kind="stable")
                order = order[(taken + quota < sizes)[order]]
                quota[order[: max(0, count - int(quota.sum()))]] += 1
                while quota.sum() > count:
                    quota[np.argmax(quota - exact)] -= 1
                # the next quota[c] of each class, which lie side by side in the pool
                before = np.cumsum(quota) - quota
                places = np.repeat(starts + taken - before, quota) + np.arange(quota.sum())
                rows = pool[places]
                parts.append(rows[torch.randperm(len(rows), generator=generator).numpy()])
                taken += quota
            if not parts:
                return frame
            indices = np.concatenate(parts)
            return Batches(np.resize(indices, len(frame.indices)), frame.offsets)

        return plan


def by_class(labels: npt.NDArray[np.int64]) -> list[Indices]:
    """Samples of each class that has any."""
    order = np.argsort(labels, kind="stable")
    ends = np.flatnonzero(np.diff(labels[order])) + 1
    return [np.asarray(part) for part in np.split(order, ends)]


def _groups(members: Indices, size: int, count: int, generator: torch.Generator) -> Indices:
    """``count`` rows of ``size`` samples of one class, without a repeat in a row if possible."""
    if len(members) < size:
        orders = [_shuffled(members, generator) for _ in range(count)]
        return np.array([np.resize(order, size) for order in orders]).reshape(count, size)
    each = len(members) // size  # a permutation's rest is left out, else a row could repeat
    rounds = -(-count // each)
    orders = [_shuffled(members, generator)[: each * size] for _ in range(rounds)]
    return np.concatenate(orders).reshape(-1, size)[:count] if rounds else np.empty((0, size), int)


def _shuffled(members: Indices, generator: torch.Generator) -> Indices:
    order: Indices = torch.randperm(len(members), generator=generator).numpy()
    return np.asarray(members[order], np.int64)
