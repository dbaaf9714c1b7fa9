"""Write targets as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch


def target_text(
    target: Any,
    classes: Sequence[str] | None,
    scale: Mapping[str, Sequence[float]] | None = None,
) -> str:
    """Return a target as text: class names, or numbers in their own units.

    Args:
        target: A class index, (K,) probabilities or 0/1 flags of classes, or (T,) numbers.
        classes: K names; None if targets are numbers.
        scale: ``{"mean": [...], "std": [...]}`` of scaled regression targets.

    Example:
        >>> target_text(1, ["ash", "oak"]), target_text(torch.tensor([1.0, 1.0]), ["ash", "oak"])
        ('oak', 'ash, oak')
        >>> target_text(torch.tensor([0.75, 0.25]), ["ash", "oak"]), target_text(0.5, None)
        ('ash 75%, oak 25%', '0.5')
    """
    values = torch.as_tensor(target)
    if classes is not None and not values.ndim and not values.is_floating_point():
        index = int(values)
        return str(classes[index]) if 0 <= index < len(classes) else f"class {index}"
    if classes is not None and values.ndim == 1 and len(values) == len(classes):
        positive = torch.nonzero(values > 0).flatten().tolist()
        if bool(((values > 0) & (values < 1)).any()):
            positive.sort(key=lambda k: -float(values[k]))
            return ", ".join(f"{classes[k]} {float(values[k]):.0%}" for k in positive)
        return ", ".join(str(classes[k]) for k in positive) or "no label"
    numbers = values.double().flatten()
    if scale is not None:
        numbers = numbers * torch.tensor(scale["std"]).double() + torch.tensor(scale["mean"])
    return ", ".join(f"{number:.5g}" for number in numbers.tolist())
