"""Trace one sample: its value after reading, after each transform, after normalization."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from datamodules.adapters.user_samples import trace_sample
from datamodules.batches.inspection_interface import Summary
from datamodules.batches.nested import tensors_of
from datamodules.figures.target_text import target_text
from datamodules.seeding.random_state import kept_random_state, own_generators, seed_all, seed_own

from .datamodule_view import DataModuleView
from .findings import SampleStep
from .split_view import SplitView, class_names

SEED = 0  # of the sample's random numbers
LONGEST = 60  # characters of a value


def trace(dm: Any, view: SplitView, *, index: int = 0) -> list[SampleStep]:
    """Return the value of one sample after each step, made with a fixed seed.

    Args:
        dm: The datamodule; its ``normalizer`` is the last step.
        view: The split.
        index: The sample.

    Returns:
        One entry for each step. A step that fails says why, and is the last.
    """
    steps: list[SampleStep] = []
    if not view.is_map_style or not len(view):
        return steps
    known = DataModuleView(dm)
    batch_size = int(known.settings.get("batch_size") or 1)
    value: Any = None
    with kept_random_state():
        seed_all(SEED)
        seed_own(own_generators(view.dataset), SEED)
        try:
            for name, value in trace_sample(view.dataset, index, SEED, batch_size=batch_size):
                summary = summarize(value)
                if name == "target":
                    summary = _with_class(dm, value, summary)
                steps.append(SampleStep(view.split, name, *summary))
            normalizer = known.normalizer
            first = next(tensors_of(value), None)
            if normalizer is not None and first is not None and first.dtype == torch.uint8:
                normalized = summarize(normalizer(first[None])[0])
                steps.append(SampleStep(view.split, "normalize", *normalized))
        except Exception as error:
            text = f"fails: {type(error).__name__}: {error}"
            return [*steps, SampleStep(view.split, "next step", "", "", text)]
    if view.batch is not None and isinstance(view.inputs, Tensor):
        steps.append(SampleStep(view.split, "first batch", *summarize(view.inputs)))
    return steps


def _with_class(dm: Any, target: Tensor, summary: Summary) -> Summary:
    classes = class_names(dm)
    if classes is None or target.ndim or target.is_floating_point():
        return summary
    return summary._replace(values=f"{int(target)} ({target_text(target, classes)})")


def summarize(value: Any) -> Summary:
    """Return size, dtype and range of a value of any type.

    Example:
        >>> summarize(torch.arange(6).view(2, 3))
        Summary(size='2 x 3', dtype='int64', values='0 to 5')
    """
    if isinstance(value, Summary):
        return value
    if isinstance(value, Image.Image):
        pixels = np.asarray(value)
        size = f"{value.height} x {value.width} pixels, {value.mode}"
        return Summary(size, str(pixels.dtype), _range(pixels))
    if isinstance(value, Tensor | np.ndarray | np.generic):
        size = " x ".join(map(str, value.shape)) or "a number"
        return Summary(size, str(value.dtype).removeprefix("torch."), _range(value))
    if isinstance(value, str):
        return Summary(value if len(value) <= 3 * LONGEST else value[: 3 * LONGEST] + "...")
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list) and 0 < len(value) <= 8:
        fields = zip(*map(summarize, value), strict=True)
        return Summary(*("; ".join(filter(None, part)) for part in fields))
    text = repr(value)
    text = text if len(text) <= LONGEST else text[:LONGEST] + "..."
    return Summary(type(value).__name__, "", text)


def _range(value: Any) -> str:
    """Return ``low to high`` of numbers, one number alone, or nothing."""
    numbers = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if not numbers.size or numbers.dtype.kind not in "biuf":
        return ""
    return f"{float(numbers.min()):.4g} to {float(numbers.max()):.4g}"
