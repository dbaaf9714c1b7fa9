"""Kinds of sampling, each a class with parameters: which samples meet in which batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from datamodules.seeding.sample_seeds import Indices
from datamodules.settings.arguments import check_name

from .plan import Batches, InOrder, Plan, Shuffled, check_batch_size, cut_steps, shared_out
from .weighted_draws import choose_weighted, draw_weighted


class Facts(NamedTuple):
    """What a kind of sampling may know of the train split.

    Attributes:
        n: Number of samples.
        batch_size: Rows of a batch, at most.
        drop_last: Leave an incomplete last step out.
        labels: (n,) int64, or None where the samples have no single label.
        lengths: (n,) int64, tokens of each sample, or None.
    """

    n: int
    batch_size: int
    drop_last: bool = False
    labels: npt.NDArray[np.int64] | None = None
    lengths: npt.NDArray[np.int64] | None = None


class Sampling(ABC):
    """A kind of sampling, without the data: ``sampler=PByK(8, 4)`` or ``sampler="shuffle"``."""

    @abstractmethod
    def plan(self, facts: Facts) -> Plan:
        """Plan for one train split.

        Raises:
            ValueError: If the split lacks what this kind needs.
        """


class Shuffle(Sampling):
    """Every sample once an epoch in a new order; see :class:`Shuffled`."""

    def plan(self, facts: Facts) -> Plan:
        """Plan for one train split."""
        return Shuffled(facts.n, facts.batch_size, drop_last=facts.drop_last)


class Sequential(Sampling):
    """Every sample once an epoch in the dataset's order."""

    def plan(self, facts: Facts) -> Plan:
        """Plan for one train split."""
        return InOrder(facts.n, facts.batch_size, drop_last=facts.drop_last)


class Weighted(Sampling):
    """Draws in proportion to weights.

    Without replacement by the keys of Efraimidis and Spirakis (2006). Works for any number of
    samples; ``torch.multinomial`` ends at 2^24.

    Args:
        weights: One weight a sample, or one a class with ``per="class"``; None: the inverse of
            the class's frequency.
        per: What ``weights`` belong to.
        replacement: Whether a sample may come twice in an epoch.
        num_samples: Draws an epoch over all ranks; None: as many as there are samples.
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
        """Plan for one train split."""
        weights = self._of_samples(facts)
        count = facts.n if self.num_samples is None else self.num_samples
        possible = int(np.count_nonzero(weights))
        if not self.replacement and count > possible:
            raise ValueError(
                f"{count} draws without replacement from {possible} samples of weight > 0; lower "
                "num_samples or pass replacement=True"
            )
        total = None
        if self.replacement:
            # in place where the weights are not the user's own
            total = np.cumsum(weights, out=None if weights is self.weights else weights)

        def plan(generator: torch.Generator, world_size: int) -> Batches:
            if total is not None:
                order = draw_weighted(total, count, generator)
            else:
                order = choose_weighted(weights, count, generator)
            return cut_steps(order, facts.batch_size, world_size, drop_last=facts.drop_last)

        return plan

    def _of_samples(self, facts: Facts) -> npt.NDArray[np.float64]:
        if self.weights is not None and self.per == "sample":
            if len(self.weights) != facts.n:
                raise ValueError(
                    f"weights has {len(self.weights)} entries, train {facts.n} samples; for one "
                    'weight a class pass per="class"'
                )
            return self.weights
        labels = need_labels(facts, "weights by class")
        counts = np.bincount(labels)
        if self.weights is None:
            weights: npt.NDArray[np.float64] = (1 / np.maximum(counts, 1))[labels]
            return weights
        if len(self.weights) < len(counts):
            raise ValueError(f"{len(self.weights)} class weights, labels go to {len(counts) - 1}")
        return self.weights[labels]


class Balanced(Weighted):
    """Each class with the same expected count: weights of one over the class's frequency."""

    def __init__(self, *, num_samples: int | None = None) -> None:
        super().__init__(None, num_samples=num_samples)


class Views(Sampling):
    """Several draws of the same sample side by side, for contrastive learning (Chen et al. 2020).

    Args:
        views: Draws of each sample; ``batch_size`` counts them all.
        of: The kind of sampling underneath.
    """

    def __init__(self, views: int = 2, of: Sampling | None = None) -> None:
        if of is not None and not isinstance(of, Sampling):
            raise ValueError(f"of= takes a kind of sampling such as Balanced(), got {of!r}")
        self.views, self.of = check_batch_size(views, "views"), of or Shuffle()

    def plan(self, facts: Facts) -> Plan:
        """Plan for one train split."""
        if facts.batch_size % self.views:
            raise ValueError(f"batch_size={facts.batch_size} is no multiple of views={self.views}")
        inner = self.of.plan(facts._replace(batch_size=facts.batch_size // self.views))

        def plan(generator: torch.Generator, world_size: int) -> Batches:
            batches = Batches.of(inner(generator, world_size))
            return Batches(batches.indices.repeat(self.views), batches.offsets * self.views)

        return plan


class GlobalBatches:
    """Plans batches for the whole world first and cuts each by rank.

    The sequence of global batches does not depend on the number of ranks.

    Args:
        plan: A plan whose batches are global.
    """

    def __init__(self, plan: Plan) -> None:
        self.inner = plan

    def __call__(self, generator: torch.Generator, world_size: int) -> Batches:
        """Plan one epoch; a global batch smaller than the world repeats samples of its own."""
        batches = Batches.of(self.inner(generator, 1))
        parts: list[Indices] = []
        sizes: list[Indices] = []
        for b in range(len(batches)):
            batch = batches.batch(b)
            if len(batch):
                least = world_size * min(2, len(batch))
                batch = np.resize(batch, max(len(batch), least)) if world_size > 1 else batch
                parts.append(batch)
                sizes.append(shared_out(len(batch), world_size))
        offsets = np.append(0, np.cumsum(np.concatenate(sizes))) if sizes else np.zeros(1, np.int64)
        return Batches(np.concatenate(parts) if parts else np.empty(0, np.int64), offsets)


def need_labels(facts: Facts, purpose: str) -> npt.NDArray[np.int64]:
    """The labels, or what is missing.

    Raises:
        ValueError: If the split has no single label a sample.
    """
    if facts.labels is None:
        raise ValueError(f"{purpose} need one class a sample, which this source does not have")
    return facts.labels
