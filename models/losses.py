"""Losses per row, so that the loss of a split is exact on any number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

ClassificationTask = Literal["multiclass", "multilabel"]
REGRESSION_LOSSES: dict[str, Callable[..., Tensor]] = {
    "mse": F.mse_loss,
    "mae": F.l1_loss,
    "huber": F.huber_loss,
}


def at_least_float32(values: Tensor) -> Tensor:
    """Convert half precision to float32, in which losses are computed."""
    return values if values.dtype == torch.float64 else values.float()


def classification_losses(
    logits: Tensor,
    target: Tensor,
    *,
    task: ClassificationTask,
    class_weights: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return the loss and the weight of each row.

    The loss of a batch or split is the sum of the losses over the sum of the weights.

    Args:
        logits: (N, K) float.
        target: (N,) int64; (N, K) float of shares that sum to 1 (mixed images), or of 0 and 1
            for ``"multilabel"``.
        task: ``"multiclass"`` for cross-entropy, ``"multilabel"`` for the mean binary
            cross-entropy of the labels.
        class_weights: (K,) float: weight of each class, or for ``"multilabel"`` weight of a
            positive relative to a negative.
        label_smoothing: Share of the target that is divided evenly between the classes.

    Returns:
        Two (N,) tensors of the logits' dtype.
    """
    if task == "multilabel":
        smooth = target.to(logits.dtype) * (1 - label_smoothing) + label_smoothing / 2
        losses = F.binary_cross_entropy_with_logits(
            logits, smooth, pos_weight=class_weights, reduction="none"
        ).mean(1)
        return losses, torch.ones_like(losses)
    soft = target.ndim == 2
    losses = F.cross_entropy(
        logits,
        target.to(logits.dtype) if soft else target,
        weight=class_weights,
        label_smoothing=label_smoothing,
        reduction="none",
    )
    if class_weights is None:
        return losses, torch.ones_like(losses)
    weights = target.to(logits.dtype) @ class_weights if soft else class_weights[target]
    return losses, weights


def balanced_weights(
    class_counts: list[int], *, num_rows: int, task: ClassificationTask
) -> list[float]:
    """Return the class weights with which every class contributes equally to the loss.

    Args:
        class_counts: Training rows of each class.
        num_rows: All training rows.
        task: ``"multiclass"``: ``num_rows / (K * count)``, as in scikit-learn; ``"multilabel"``:
            negatives over positives of each label.
    """
    # the weight of a class without training rows is not used
    counts = [max(1, count) for count in class_counts]
    if task == "multilabel":
        return [max(1, num_rows - count) / count for count in counts]
    return [num_rows / (len(counts) * count) for count in counts]


def match_shapes(outputs: Tensor, target: Tensor) -> Tensor:
    """Reshape outputs to the target's shape, which may differ by a last dimension of 1 only.

    Args:
        outputs: (N,) or (N, T).
        target: (N,) or (N, T).

    Raises:
        ValueError: If they differ otherwise: a loss would broadcast every row to every other.
    """
    if outputs.shape[:1] == target.shape[:1] and outputs.numel() == target.numel():
        return outputs.reshape(target.shape)
    raise ValueError(
        f"the network must return one value for each target, expected {tuple(target.shape)}, got "
        f"{tuple(outputs.shape)}; change its last layer or pass num_targets="
    )
