"""Length buckets under a token budget: like lengths meet, the number of steps never changes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from datamodules.seeding.sample_seeds import Indices
from datamodules.settings.arguments import check_name

from .plan import Batches, Plan
from .strategies import Facts, Sampling, Views

Lengths = npt.NDArray[np.int64]


class LengthBuckets(Sampling):
    """Batches of samples of like length, one bucket a step for all ranks.

    Bounds are fitted once on the train lengths by dynamic programming: the least padding for
    ``buckets`` bounds. An epoch permutes inside each bucket, cuts a step of equal batches for all
    ranks at a time, and carries what is left over up into the next bucket. Bucket sizes do not
    depend on the epoch, so neither does the number of steps, which Lightning reads once.

    Args:
        max_tokens: Padded tokens of a batch, at most; None: ``batch_size`` rows a batch.
        buckets: Number of bounds, at most.
        multiple: Bounds are multiples of it, as tensor cores like them.
        pad_to: ``"longest"`` of the batch, or the ``"bound"`` of the bucket that the longest is in:
            at most ``buckets`` lengths in a whole run, for ``torch.compile`` and CUDA graphs.

    Raises:
        ValueError: For a number below 1 or an unknown ``pad_to``.
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

    def bounds(self, lengths: Lengths) -> Lengths:
        """Ascending upper bounds of the buckets, at most the greatest length.

        Args:
            lengths: (n,) int64, tokens of each train sample.
        """
        bounds = fit_bounds(lengths, self.buckets, self.multiple)
        # the longest may stand below its multiple, and max_length may forbid more
        return np.minimum(bounds, int(lengths.max(initial=1)))

    def plan(self, facts: Facts) -> Plan:
        """Plan for one train split.

        Raises:
            ValueError: If the source has no lengths, or the budget is below the longest sample.
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
        return _Buckets(lengths, bounds, sizes, drop_last=facts.drop_last)


def length_bounds(sampler: object, lengths: Indices) -> Indices:
    """Return the bucket bounds of a sampling strategy, else those of the default buckets."""
    strategy = sampler if isinstance(sampler, LengthBuckets) else LengthBuckets()
    return strategy.bounds(lengths)


def pads_to_bound(sampler: Any) -> LengthBuckets | None:
    """The buckets to whose bounds a kind of sampling asks to pad; None where it does not."""
    kind = sampler.of if isinstance(sampler, Views) else sampler
    return kind if isinstance(kind, LengthBuckets) and kind.pad_to == "bound" else None


class _Buckets:
    def __init__(
        self, lengths: Lengths, bounds: Lengths, sizes: Lengths, *, drop_last: bool
    ) -> None:
        # few and narrow: NumPy sorts them by counting
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
        return _mixed_steps(np.concatenate(parts), np.concatenate(sizes), generator)


def _mixed_steps(rows: Indices, sizes: Indices, generator: torch.Generator) -> Batches:
    """Steps in a new order.

    Args:
        rows: (M,) int64, all steps end to end.
        sizes: (S, W) int64, rows of each step's batches.
        generator: Draws the order.
    """
    mixed = torch.randperm(len(sizes), generator=generator).numpy()
    ends = np.cumsum(sizes.sum(1))
    steps = np.split(rows, ends[:-1])
    offsets = np.append(0, np.cumsum(sizes[mixed]))
    kept = [steps[s] for s in mixed.tolist()]
    return Batches(np.concatenate(kept) if kept else rows[:0], offsets)


def fit_bounds(lengths: Lengths, count: int, multiple: int = 8) -> Lengths:
    """Upper bounds of at most ``count`` buckets with the least padding to the bound.

    Args:
        lengths: (n,) int64, at least 1.
        count: Number of buckets.
        multiple: Bounds are multiples of it; of a larger one where there would be over 1,024.

    Returns:
        Ascending bounds; the last is at least the greatest length.
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
    # padded cost of one bucket from each lower bound (column) to each upper one (row)
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
