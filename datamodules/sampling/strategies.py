"""Sampling strategies: which samples are in which batch of an epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from datamodules.seeding.sample_seeds import Indices
from datamodules.settings.arguments import check_name

from .plan import (
    Batches,
    Plan,
    SequentialPlan,
    ShuffledPlan,
    check_batch_size,
    cut_steps,
    even_sizes,
    offsets_of,
)
from .weighted_draws import choose_weighted, draw_weighted


class Facts(NamedTuple):
    """What a sampling strategy may know about the train split.

    Attributes:
        n: Number of samples.
        batch_size: Maximum samples of a batch.
        drop_last: Drop an incomplete last step.
        labels: (n,) int64 class of each sample; None without one class per sample.
        lengths: (n,) int64 tokens of each sample; None if the source has no lengths.
    """

    n: int
    batch_size: int
    drop_last: bool = False
    labels: Indices | None = None
    lengths: Indices | None = None


class Sampling(ABC):
    """Base class of sampling strategies, passed as ``sampler=`` to any datamodule.

    A strategy has parameters but no data. :meth:`plan` returns the plan of a train split: a
    function that lists the batches that all ranks run in one epoch.

    Example:
        >>> class FirstHalf(Sampling):
        ...     def plan(self, facts):
        ...         return Sequential().plan(facts._replace(n=facts.n // 2))
        >>> FirstHalf().plan(Facts(n=8, batch_size=2))(torch.Generator(), 1).indices
        array([0, 1, 2, 3])
    """

    @abstractmethod
    def plan(self, facts: Facts) -> Plan:
        """Return the plan of a train split.

        Raises:
            ValueError: If the split lacks what the strategy needs, such as labels.
        """


class Shuffle(Sampling):
    """Each sample once per epoch in a new order; see :class:`.ShuffledPlan`."""

    def plan(self, facts: Facts) -> Plan:
        """Return the plan of a train split."""
        return ShuffledPlan(facts.n, facts.batch_size, drop_last=facts.drop_last)


class Sequential(Sampling):
    """Each sample once per epoch in the order of the dataset."""

    def plan(self, facts: Facts) -> Plan:
        """Return the plan of a train split."""
        return SequentialPlan(facts.n, facts.batch_size, drop_last=facts.drop_last)


class Weighted(Sampling):
    """Draw samples with probabilities proportional to weights.

    Works for any number of samples; ``torch.multinomial`` is limited to 2^24. Draws without
    replacement follow Efraimidis and Spirakis (2006).

    Args:
        weights: One weight per sample, or per class with ``per="class"``; None: the inverse
            frequency of the class.
        per: Whether ``weights`` are per sample or per class.
        replacement: Whether a sample may be drawn twice in an epoch.
        num_samples: Draws per epoch over all ranks; None: the number of samples.

    Example:
        >>> plan = Weighted([0.0, 1.0, 3.0], num_samples=4).plan(Facts(n=3, batch_size=4))
        >>> 0 in plan(torch.Generator(), 1).indices
        False
    """

    def __init__(
        self,
        weights: Sequence[float] | None = None,
        *,
        per: Literal["sample", "class"] = "sample",
        replacement: bool = True,
        num_samples: int | None = None,
    ) -> None:
        self.weights = None if weights is None else np.asarray(weights, np.float64)
        if self.weights is not None and not (
            np.isfinite(self.weights).all() and (self.weights >= 0).all() and self.weights.any()
        ):
            raise ValueError("weights must be finite, at least 0, and not all 0")
        if num_samples is not None and num_samples < 1:
            raise ValueError(f"num_samples must be at least 1, got {num_samples}")
        check_name(per, ("sample", "class"), "per")
        self.per, self.replacement, self.num_samples = per, replacement, num_samples

    def plan(self, facts: Facts) -> Plan:
        """Return the plan of a train split."""
        weights = self._sample_weights(facts)
        count = facts.n if self.num_samples is None else self.num_samples
        possible = int(np.count_nonzero(weights))
        if not self.replacement and count > possible:
            raise ValueError(
                f"cannot draw {count} of {possible} samples with weight > 0 without replacement; "
                "lower num_samples or pass replacement=True"
            )
        total = None
        if self.replacement:
            # in place, unless the array is the user's
            total = np.cumsum(weights, out=None if weights is self.weights else weights)

        def plan(generator: torch.Generator, world_size: int) -> Batches:
            if total is not None:
                order = draw_weighted(total, count, generator)
            else:
                order = choose_weighted(weights, count, generator)
            return cut_steps(order, facts.batch_size, world_size, drop_last=facts.drop_last)

        return plan

    def _sample_weights(self, facts: Facts) -> npt.NDArray[np.float64]:
        if self.weights is not None and self.per == "sample":
            if len(self.weights) != facts.n:
                raise ValueError(
                    f"weights has {len(self.weights)} entries, train {facts.n} samples; for "
                    'weights of classes pass per="class"'
                )
            return self.weights
        labels = require_labels(facts, "class weights")
        counts = np.bincount(labels)
        if self.weights is None:
            weights: npt.NDArray[np.float64] = (1 / np.maximum(counts, 1))[labels]
            return weights
        if len(self.weights) < len(counts):
            raise ValueError(
                f"weights has {len(self.weights)} entries, train {len(counts)} classes; pass one "
                "weight per class"
            )
        return self.weights[labels]


class Balanced(Weighted):
    """Draw every class equally often: weights are the inverse frequency of the class.

    Args:
        num_samples: Draws per epoch over all ranks; None: the number of samples.

    Example:
        >>> labels = np.array([0] * 90 + [1] * 10)
        >>> plan = Balanced().plan(Facts(n=100, batch_size=100, labels=labels))
        >>> np.bincount(labels[plan(torch.Generator().manual_seed(0), 1).indices])
        array([53, 47])
    """

    def __init__(self, *, num_samples: int | None = None) -> None:
        super().__init__(None, num_samples=num_samples)


class Views(Sampling):
    """Put several augmented views of each sample side by side, for contrastive learning.

    As SimCLR needs them (Chen et al. 2020); each view has its own random numbers.

    Args:
        views: Views per sample; ``batch_size`` counts all of them.
        of: Sampling strategy that draws the samples; None: :class:`Shuffle`.

    Example:
        >>> plan = Views(2, of=Sequential()).plan(Facts(n=4, batch_size=4))
        >>> plan(torch.Generator(), 1).batch(0)
        array([0, 0, 1, 1])
    """

    def __init__(self, views: int = 2, of: Sampling | None = None) -> None:
        if of is not None and not isinstance(of, Sampling):
            raise ValueError(f"of= must be a sampling strategy such as Balanced(), got {of!r}")
        self.views, self.of = check_batch_size(views, "views"), of or Shuffle()

    def plan(self, facts: Facts) -> Plan:
        """Return the plan of a train split."""
        if facts.batch_size % self.views:
            raise ValueError(
                f"batch_size={facts.batch_size} is not divisible by views={self.views}"
            )
        inner = self.of.plan(facts._replace(batch_size=facts.batch_size // self.views))

        def plan(generator: torch.Generator, world_size: int) -> Batches:
            batches = Batches.of(inner(generator, world_size))
            return Batches(batches.indices.repeat(self.views), batches.offsets * self.views)

        return plan


class GlobalBatches:
    """Divide global batches between the ranks; they do not depend on the number of ranks.

    Args:
        plan: Plan of the global batches.
    """

    def __init__(self, plan: Plan) -> None:
        self.inner = plan

    def __call__(self, generator: torch.Generator, world_size: int) -> Batches:
        """Return one epoch; a global batch smaller than the world size repeats its own samples."""
        batches = Batches.of(self.inner(generator, 1))
        parts = [batches.batch(b) for b in range(len(batches))]
        if world_size > 1:  # at least two samples per rank, if the global batch has two
            parts = [np.resize(p, max(len(p), world_size * min(2, len(p)))) for p in parts]
        sizes = [even_sizes(len(part), world_size) for part in parts]
        return Batches(np.concatenate([np.empty(0, np.int64), *parts]), offsets_of(sizes))


def require_labels(facts: Facts, purpose: str) -> Indices:
    """Return the labels (n,) int64.

    Raises:
        ValueError: If the samples do not have one class each.
    """
    if facts.labels is None:
        raise ValueError(f"{purpose} need one class per sample, which this source does not have")
    return facts.labels
