"""MixUp and CutMix on whole batches: drawn in the loader, applied after normalization."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .batch import Batch


class MixedBatch(NamedTuple):
    """A batch that is not mixed yet, with the random numbers for :func:`mixed`.

    Attributes:
        inputs: Images (N, C, H, W), uint8 or float.
        target: (N, K) float32, one-hot.
        partner: (N,) int64 index of the sample that each sample is mixed with.
        share: () float32, weight of the sample itself.
        box: (4,) int64: top, left, bottom, right of the partner's region (CutMix); all 0: MixUp.
    """

    inputs: Any
    target: Tensor
    partner: Tensor
    share: Tensor
    box: Tensor


class Mix:
    """MixUp (Zhang et al., ICLR 2018) or CutMix (Yun et al., ICCV 2019) with one draw per batch.

    Args:
        num_classes: K of the one-hot targets.
        mixup: Alpha of the Beta distribution for MixUp; 0: no MixUp.
        cutmix: Alpha for CutMix; 0: no CutMix. With both, each batch uses one of them at random.

    Example:
        >>> batch = Batch(torch.zeros(4, 3, 8, 8), torch.tensor([0, 1, 0, 1]))
        >>> mixed(Mix(2, mixup=0.2).drawn(batch, seed=0)).target.sum(1)
        tensor([1., 1., 1., 1.])
    """

    def __init__(self, num_classes: int = 0, *, mixup: float = 0.0, cutmix: float = 0.0) -> None:
        for name, alpha in (("mixup", mixup), ("cutmix", cutmix)):
            if not isinstance(alpha, int | float) or not 0 <= alpha < math.inf:
                raise ValueError(f"{name} must be a finite number, at least 0, got {alpha!r}")
        self.num_classes, self.mixup, self.cutmix = num_classes, mixup, cutmix

    def drawn(self, batch: Batch, seed: int) -> MixedBatch:
        """Return the batch with random numbers for mixing, a function of ``seed`` alone.

        Args:
            batch: Images (N, C, H, W) with target (N,) int64, or (N, K) float32.
            seed: Below 2^32.
        """
        random = np.random.default_rng(seed)
        inputs, target = batch
        size = np.array(inputs.shape[-2:])
        cut = self.cutmix > 0
        if self.mixup > 0 and cut:
            cut = bool(random.random() < 0.5)
        alpha = self.cutmix if cut else self.mixup
        share = float(random.beta(alpha, alpha))
        partner = torch.from_numpy(random.permutation(len(target)))
        box = torch.zeros(4, dtype=torch.int64)
        if cut:
            centre = (random.random(2) * size).astype(np.int64)
            half = (0.5 * np.sqrt(1 - share) * size).astype(np.int64)
            low, high = np.maximum(centre - half, 0), np.minimum(centre + half, size)
            box = torch.from_numpy(np.concatenate([low, high]))
            share = 1 - float(np.prod(high - low)) / float(np.prod(size))
        if target.ndim == 1:
            target = torch.nn.functional.one_hot(target, self.num_classes)
        return MixedBatch(inputs, target.float(), partner, torch.tensor(share), box)


def mixed(batch: Any) -> Any:
    """Mix a :class:`MixedBatch` of normalized float images; return any other batch unchanged."""
    if not isinstance(batch, MixedBatch):
        return batch
    inputs, target, partner, share, box = batch
    other = inputs[partner]
    if bool(box.any()):
        top, left, bottom, right = box.tolist()
        inputs = inputs.clone()
        inputs[..., top:bottom, left:right] = other[..., top:bottom, left:right]
    elif inputs.is_floating_point():
        inputs = torch.lerp(other, inputs, share.to(inputs.dtype))
    else:
        raise TypeError(f"MixUp needs normalized float images, got {inputs.dtype}")
    return Batch(inputs, torch.lerp(target[partner], target, share))
