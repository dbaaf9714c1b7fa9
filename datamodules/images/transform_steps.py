"""The steps of a transform: in the order they run, one by one, and the normalization among them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from PIL import Image
from torch import Tensor

from datamodules.images.decode.pillow_state import quiet
from datamodules.images.transforms import to_row
from datamodules.settings.arguments import name_of


@runtime_checkable
class HoldsTransforms(Protocol):
    """``Compose``, ``RandomApply`` and other transforms made of steps."""

    transforms: Any


@runtime_checkable
class HasMeanAndStd(Protocol):
    """``Normalize`` of torchvision's v1 and v2, or of another project."""

    mean: Any
    std: Any


def steps_in_order(transform: Any) -> list[Any]:
    """Return the steps that run one after the other: those of ``Compose`` and ``Sequential``.

    ``RandomApply`` and ``RandomChoice`` count as one step; they run their own steps themselves.

    Example:
        >>> from torchvision import transforms as T
        >>> [type(s).__name__ for s in steps_in_order(T.Compose([T.Compose([T.ToTensor()])]))]
        ['ToTensor']
    """
    if transform is None:
        return []
    in_order = isinstance(transform, torch.nn.Sequential) or type(transform).__name__ == "Compose"
    parts = _parts(transform) if in_order else None
    if parts is None:
        return [transform]
    return [step for part in parts for step in steps_in_order(part)]


def all_steps(transform: Any) -> list[Any]:
    """Return every step of a transform, those inside ``RandomApply`` and ``RandomChoice`` too."""
    if transform is None:
        return []
    parts = _parts(transform)
    return [transform] if parts is None else [step for part in parts for step in all_steps(part)]


def _parts(transform: Any) -> Sequence[Any] | None:
    """Return the transforms that a transform is made of, or None."""
    if isinstance(transform, torch.nn.Sequential):
        return list(transform)
    parts = transform.transforms if isinstance(transform, HoldsTransforms) else None
    return parts if isinstance(parts, list | tuple) else None


def run_steps(transform: Any, value: Any) -> Generator[tuple[str, Any], None, Any]:
    """Yield the name of each step and the value after it; the last value is returned, too."""
    for step in steps_in_order(transform):
        value = step(value)
        yield name_of(step).rpartition(".")[2], value
    return value


def normalization_of(transform: Any) -> tuple[Tensor, Tensor] | None:
    """Return mean and standard deviation of a transform's last ``Normalize``, or None."""
    for step in reversed(all_steps(transform)):
        if type(step).__name__ == "Normalize" and isinstance(step, HasMeanAndStd):
            mean, std = (torch.as_tensor(v).float().flatten() for v in (step.mean, step.std))
            return mean, std
    return None


def describe_file(path: Path) -> str:
    """Return the size, format and mode of an image file, from its header."""
    size = f"{path.name}, {path.stat().st_size:,} bytes"
    try:
        with quiet(), Image.open(path) as image:
            return f"{size}, {image.format} {image.mode} {image.width} x {image.height}"
    except Exception:  # decoding reports what is wrong with it
        return size


def as_pixels(image: Any) -> Tensor | None:
    """Return an image as (C, H, W) uint8, C = 1, 3 or 4; None if it is anything else."""
    image = to_row(image)
    if isinstance(image, Tensor) and image.ndim == 3 and image.dtype == torch.uint8:
        return image if len(image) in (1, 3, 4) else None
    return None
