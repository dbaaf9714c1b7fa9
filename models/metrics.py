"""Metrics over a whole split, equal on any number of ranks and in every precision.

Training uses a weighted mean over batches. Evaluation stores all rows, gathers them from all ranks
(also from ranks without a batch) and computes every score once, in float64.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat


class WeightedMean(Metric):
    """Sum of values over sum of weights, across batches and ranks.

    Unlike ``torchmetrics.MeanMetric`` it stays float32 in a model converted to bfloat16, where a
    sum stops growing at 256, and it keeps NaN, so that a diverged loss is visible.
    """

    full_state_update = False
    totals: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("totals", torch.zeros(2), dist_reduce_fx="sum")

    def update(self, value_sum: Tensor, weight_sum: Tensor) -> None:
        """Add the sums of a batch, two scalars."""
        added = torch.stack([value_sum.detach().float(), weight_sum.detach().float()])
        self.totals = self.totals + added  # not +=, which would keep the dtype of a converted state

    def compute(self) -> Tensor:
        """Return the mean, a scalar."""
        return self.totals[0] / self.totals[1]


class RowStore(Metric):
    """All rows of a split from all ranks, one tensor per column.

    Args:
        columns: Names; each update passes one (N, ...) tensor per name.
    """

    full_state_update = False

    def __init__(self, *columns: str) -> None:
        super().__init__()
        self.columns = columns
        for column in columns:
            self.add_state(column, [], dist_reduce_fx="cat")

    def begin(self, **empty: Tensor) -> None:
        """Reset, and store 0 rows of the right shape and dtype.

        A rank without a batch can then take part in the gather.
        """
        self.reset()
        self.update(**{column: rows.to(self.device) for column, rows in empty.items()})

    def update(self, **rows: Tensor) -> None:
        """Add a batch."""
        for column in self.columns:
            getattr(self, column).append(rows[column].detach())

    def compute(self) -> Tensor:
        """Return the number of rows, a scalar."""
        return torch.tensor(len(dim_zero_cat(getattr(self, self.columns[0]))))

    def gather(self) -> dict[str, Tensor]:
        """Return all rows, rank after rank.

        Not :meth:`compute`, since torchmetrics squeezes its result for a single row.
        """
        with self.sync_context():
            return {column: dim_zero_cat(getattr(self, column)) for column in self.columns}


def weighted_mean(rows: dict[str, Tensor]) -> float:
    """Return the loss of a split: the sum of ``loss`` (N,) over the sum of ``weight`` (N,)."""
    # on the CPU: Apple's device has no float64
    return float(rows["loss"].cpu().double().sum() / rows["weight"].cpu().double().sum())


def classification_scores(
    probabilities: Tensor, target: Tensor, *, task: Literal["multiclass", "multilabel"]
) -> tuple[dict[str, float], Tensor]:
    """Compute the scores of a split.

    ``accuracy`` is the fraction of correct rows (for multi-label data, of correct labels).
    ``macro_accuracy`` is the mean recall of the classes that occur, scikit-learn's balanced
    accuracy; for multi-label data the mean of the labels' balanced accuracies. ``macro_f1``
    ignores classes that neither occur nor are predicted, ``auroc`` (one-vs-rest) classes that
    occur in all rows or none.

    Args:
        probabilities: (N, K) float.
        target: (N,) int64, or (N, K) of 0 and 1 for multi-label data.
        task: ``"multiclass"`` or ``"multilabel"``.

    Returns:
        The scores that are defined, and the confusion counts, int64 on the CPU: (K, K) with rows:
        true class, columns: predicted class; or (K, 2, 2) for multi-label data.
    """
    num_classes = probabilities.shape[1]
    if task == "multilabel":
        found = (probabilities > 0.5).long().cpu()
        cell = 2 * target.long().cpu() + found + 4 * torch.arange(num_classes)
        confusion = torch.bincount(cell.flatten(), minlength=4 * num_classes).view(-1, 2, 2)
        (tn, fp), (fn, tp) = confusion.permute(1, 2, 0).double()
        recalls = torch.stack([tp / (tp + fn), tn / (tn + fp)])
        positive = target.T.bool()
    else:
        cell = target.cpu() * num_classes + probabilities.argmax(1).cpu()
        confusion = torch.bincount(cell, minlength=num_classes**2).view(num_classes, -1)
        tp = confusion.diag().double()
        fn, fp = confusion.sum(1) - tp, confusion.sum(0) - tp
        tn = confusion.sum() - tp - fn - fp
        recalls = tp / (tp + fn)
        positive = torch.arange(num_classes, device=target.device)[:, None] == target
    correct = tp.sum() if task == "multiclass" else (tp + tn).sum()
    rows = confusion.sum()
    scores = {
        "accuracy": correct / rows,
        "macro_accuracy": recalls.nanmean(0).nanmean(),  # 0 / 0 is NaN for an absent class
        "macro_f1": (2 * tp / (2 * tp + fp + fn)).nanmean(),
        "auroc": _macro_auroc(probabilities.T, positive),
    }
    return {name: float(score) for name, score in scores.items() if not score.isnan()}, confusion


def _macro_auroc(scores: Tensor, positive: Tensor) -> Tensor:
    """Return the mean area under the ROC curve over K classes; scores and labels are (K, N)."""
    areas = [_auroc(row, is_positive) for row, is_positive in zip(scores, positive, strict=True)]
    return torch.tensor(areas, dtype=torch.float64).nanmean()


def _auroc(scores: Tensor, positive: Tensor) -> float:
    """Return the fraction of (positive, negative) pairs in the right order; a tie counts half.

    Counts integers, so that the order of the rows does not change the last digit.
    """
    positives, negatives = scores[positive], scores[~positive].sort().values
    pairs = positives.numel() * negatives.numel()
    if pairs == 0:
        return float("nan")
    below = torch.searchsorted(negatives, positives).sum()
    below_or_tied = torch.searchsorted(negatives, positives, right=True).sum()
    return int(below + below_or_tied) / (2 * pairs)


def regression_scores(predicted: Tensor, target: Tensor) -> dict[str, float]:
    """Compute MAE, RMSE and R2 as scikit-learn does, each the mean over the targets.

    Args:
        predicted: (N, T).
        target: (N, T) in the same units.

    Returns:
        ``mae``, ``rmse`` and, unless a target is constant, ``r2``.
    """
    error = predicted - target
    squared = error.square().sum(0)
    spread = (target - target.mean(0)).square().sum(0)
    scores: dict[str, Any] = {
        "mae": error.abs().mean(),
        "rmse": (squared / len(target)).sqrt().mean(),
    }
    if bool((target.amax(0) > target.amin(0)).all()):
        scores["r2"] = (1 - squared / spread).mean()
    return {name: float(score) for name, score in scores.items()}
