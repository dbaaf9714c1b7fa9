"""Check the targets: dtype, range, shape, constants, imbalance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.adapters.user_samples import known_targets
from datamodules.insight.datamodule_view import DataModuleView
from datamodules.insight.findings import Finding
from datamodules.insight.split_view import SplitView

RARE = 20  # times that the largest class may outnumber the smallest


def target_findings(
    dm: Any, seen: Mapping[str, SplitView], num_classes: int | None
) -> Iterator[Finding]:
    """Check the targets of the first batches, and all labels that the datasets keep."""
    for split, one in seen.items():
        if isinstance(one.target, Tensor):
            yield from _tensor(split, one.target, one.labels() is not None)
        kept = known_targets(one.dataset)
        if kept is None and isinstance(one.target, Tensor):
            kept = one.target.numpy()
        if kept is not None and kept.size and np.issubdtype(kept.dtype, np.number):
            yield from _values(split, kept, num_classes)
    labels = seen["train"].labels() if "train" in seen else None
    if labels is None or not len(labels):
        return
    counts = np.bincount(labels[labels >= 0])
    counts = counts[counts > 0]
    if len(counts) > 1 and counts.max() >= 3 * counts.min():
        ratio = counts.max() / counts.min()
        answered = DataModuleView(dm).sampler not in (None, "shuffle", "sequential")
        level: Any = "warning" if ratio >= RARE and not answered else "note"
        said = f"the largest train class has {ratio:.0f} times the samples of the smallest"
        remedy = 'pass sampler="weighted" or "balanced", and watch recall by class'
        yield Finding(level, "imbalance", said, remedy)


def _tensor(split: str, target: Tensor, classes: bool) -> Iterator[Finding]:
    whole = not target.is_floating_point()
    if whole and target.dtype != torch.int64:
        said = f"{split} targets are {target.dtype}; cross-entropy takes int64"
        yield Finding("error", "target-dtype", said, "convert labels by .long()")
    elif target.dtype == torch.float64:
        said = f"{split} targets are float64, a model's output is float32"
        yield Finding("warning", "target-dtype", said, "convert targets by .float()")
    elif classes and target.ndim == 1 and not whole:
        said = f"{split} labels are integers but arrive as {target.dtype}"
        yield Finding("error", "target-dtype", said, "convert labels by .long()")
    if target.ndim == 2 and target.shape[1] == 1:
        said = f"{split} targets have shape (N, 1); against (N,) they broadcast to (N, N)"
        level: Any = "error" if whole else "warning"
        yield Finding(level, "target-shape", said, "squeeze the second dimension")


def _values(split: str, kept: Any, num_classes: int | None) -> Iterator[Finding]:
    if np.issubdtype(kept.dtype, np.floating) and not np.isfinite(kept).all():
        said = f"{int((~np.isfinite(kept)).sum())} {split} targets are NaN or infinite"
        yield Finding("error", "target-non-finite", said, "remove those samples")
        return
    if np.issubdtype(kept.dtype, np.integer) and kept.ndim == 1:
        low, high = int(kept.min()), int(kept.max())
        if low < 0 or (num_classes is not None and high >= num_classes):
            top = "K - 1" if num_classes is None else num_classes - 1
            said = f"{split} labels range from {low} to {high}, expected 0 to {top}"
            yield Finding("error", "target-range", said, "number the classes from 0")
    if split == "train" and kept.ndim == 1 and len(kept) > 1 and bool((kept == kept[0]).all()):
        said = f"all {len(kept):,} train targets are {kept[0]}"
        yield Finding("error", "constant-target", said, "there is nothing to learn: check labels")
