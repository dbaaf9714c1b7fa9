"""Batch samples of similar length, with at most so many tokens per batch."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from datamodules.seeding.sample_seeds import Indices
from datamodules.settings.arguments import check_name

from .plan import Batches, Plan
from .strategies import Facts, Sampling, Views


class LengthBuckets(Sampling):
    """Batches of samples of similar length; all ranks take the same bucket in a step.

    The bucket bounds with the least padding are fitted on the train lengths by dynamic
    programming. In each epoch the buckets are shuffled and divided into steps; the remainder of a
    bucket moves to the next longer one. The number of steps is the same in every epoch, since
    Lightning reads it once.

    Args:
        max_tokens: Maximum tokens of a batch with padding; None: ``batch_size`` samples per batch.
        buckets: Maximum number of buckets.
        multiple: Bounds are multiples of it, which suits tensor cores.
        pad_to: ``"longest"`` sample of the batch, or the ``"bound"`` of its bucket: at most
            ``buckets`` different lengths in a run, for ``torch.compile`` and CUDA graphs.

    Raises:
        ValueError: If a number is below 1 or ``pad_to`` is unknown.

    Example:
        >>> lengths = np.array([9, 2, 8, 1, 2, 7])
        >>> buckets = LengthBuckets(max_tokens=27, buckets=2, multiple=1)
        >>> batches = buckets.plan(Facts(n=6, batch_size=3, lengths=lengths))(torch.Generator(), 1)
        >>> sorted(sorted(lengths[batches.batch(b)].tolist()) for b in range(len(batches)))
        [[1, 2, 2], [7, 8, 9]]
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        *,
        buckets: int = 32,
        multiple: int = 8,
        pad_to: Literal["longest", "bound"] = "longest",
    ) -> None:
        check_name(pad_to, ("longest", "bound"), "pad_to")
        for name, value in (("buckets", buckets), ("multiple", multiple)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {max_tokens}")
        self.max_tokens, self.buckets, self.multiple = max_tokens, buckets, multiple
        self.pad_to = pad_to

    def bounds(self, lengths: Indices) -> Indices:
        """Return the ascending upper bounds of the buckets, at most the maximum length.

        Args:
            lengths: (n,) int64 tokens of each train sample.
        """
        bounds = fit_bounds(lengths, self.buckets, self.multiple)
        # the longest sample may be shorter than its multiple, and max_length a limit
        return np.minimum(bounds, int(lengths.max(initial=1)))

    def plan(self, facts: Facts) -> Plan:
        """Return the plan of a train split.

        Raises:
            ValueError: If the source has no lengths, or ``max_tokens`` is less than the longest
                sample.
        """
        if facts.lengths is None:
            raise ValueError("length buckets need lengths, which this source does not have")
        lengths = np.asarray(facts.lengths, np.int64)
        bounds = self.bounds(lengths)
        longest = int(lengths.max(initial=1))
        if self.max_tokens is not None and self.max_tokens < longest:
            raise ValueError(
                f"max_tokens={self.max_tokens} is less than the longest sample ({longest} tokens); "
                "raise it or lower max_length"
            )
        sizes = np.full(len(bounds), facts.batch_size)
        if self.max_tokens is not None:
            sizes = np.maximum(1, self.max_tokens // bounds)
        return _BucketPlan(lengths, bounds, sizes, drop_last=facts.drop_last)


def pads_to_bound(sampler: Any) -> LengthBuckets | None:
    """Return the :class:`LengthBuckets` of a strategy with ``pad_to="bound"``, or None."""
    strategy = sampler.of if isinstance(sampler, Views) else sampler
    if isinstance(strategy, LengthBuckets) and strategy.pad_to == "bound":
        return strategy
    return None


class _BucketPlan:
    def __init__(
        self, lengths: Indices, bounds: Indices, sizes: Indices, *, drop_last: bool
    ) -> None:
        # uint16: NumPy sorts it by radix
        self.bucket = np.searchsorted(bounds, lengths).astype(np.uint16)
        self.bounds, self.sizes, self.drop_last = bounds, sizes, drop_last

    def __call__(self, generator: torch.Generator, world_size: int) -> Batches:
        order = torch.randperm(len(self.bucket), generator=generator).numpy()
        order = order[np.argsort(self.bucket[order], kind="stable")]
        parts: list[Indices] = []
        sizes: list[Indices] = []  # (steps, ranks) of each part
        carry, start = np.empty(0, np.int64), 0
        for count, size in zip(
            np.bincount(self.bucket, minlength=len(self.bounds)), self.sizes, strict=True
        ):
            members = np.concatenate([carry, order[start : start + count]])
            start += count
            whole = len(members) // (size * world_size)
            parts.append(members[: whole * size * world_size])
            sizes.append(np.full((whole, world_size), size))
            carry = members[whole * size * world_size :]
        if len(carry) and not self.drop_last:
            least = world_size * min(2, int(self.sizes[-1]), len(order))
            parts.append(np.resize(carry, max(len(carry), least)))
            last = [len(rows) for rows in np.array_split(parts[-1], world_size)]
            sizes.append(np.array([last]))
        return _shuffle_steps(np.concatenate(parts), np.concatenate(sizes), generator)


def _shuffle_steps(rows: Indices, sizes: Indices, generator: torch.Generator) -> Batches:
    """Put the steps of an epoch in random order.

    Args:
        rows: (M,) int64, one step after the other.
        sizes: (S, W) int64, size of each batch of each step.
        generator: Draws the order.
    """
    order = torch.randperm(len(sizes), generator=generator).numpy()
    steps = np.split(rows, np.cumsum(sizes.sum(1))[:-1])
    shuffled = [rows[:0], *(steps[s] for s in order.tolist())]
    return Batches(np.concatenate(shuffled), np.append(0, np.cumsum(sizes[order])))


def fit_bounds(lengths: Indices, count: int, multiple: int = 8) -> Indices:
    """Fit the upper bounds of ``count`` buckets with the least padding to the bounds.

    Args:
        lengths: (n,) int64, at least 1.
        count: Maximum number of buckets.
        multiple: Bounds are multiples of it, or of a larger one beyond 1,024 candidates.

    Returns:
        Ascending bounds; the last is at least the maximum length.
    """
    longest = int(lengths.max(initial=1))
    while longest > 1024 * multiple:
        multiple *= 2
    total = np.cumsum(np.bincount(-(-lengths // multiple), minlength=2).astype(np.float64))
    size = len(total)
    value = np.arange(size) * multiple
    best = np.full((count + 1, size), np.inf)
    came_from = np.zeros((count + 1, size), np.int64)
    best[0, 0], best[1] = 0, total * value
    # cost of one bucket: lower bound (column), upper bound (row)
    single = (total[:, None] - total) * value[:, None]
    single[np.triu_indices(size, 1)] = np.inf
    for k in range(2, count + 1):
        cost = best[k - 1] + single
        came_from[k] = cost.argmin(1)
        best[k] = cost[np.arange(size), came_from[k]]
    bounds, j = set(), size - 1
    for k in range(count, 0, -1):
        bounds.add(j * multiple)
        j = int(came_from[k, j])
    return np.array(sorted(bound for bound in bounds if bound > 0), np.int64)
