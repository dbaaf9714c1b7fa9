"""One sample followed through every step: what it is after reading, each transform, finishing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Subset

from datamodules.adapters.dataset import WrappedDataset
from datamodules.batches.nested import tensors_of
from datamodules.images.dataset import ImageDataset, PixelDataset
from datamodules.images.decode.pillow_state import quiet
from datamodules.images.transforms import to_row
from datamodules.seeding.random_state import kept_random_state, own_generators, seed_all, seed_own
from datamodules.tables.dataset import RowDataset
from datamodules.texts.dataset import TextDataset

from .findings import SampleStep
from .row_trace import follow_row, follow_text
from .split_view import Looked

SEED = 0  # of the followed sample's draws
SHOWN = 60  # characters of a value
Steps = Generator[tuple[str, Any], None, Any]
"""Name of a step and the value after it; returns the last value."""


def follow(dm: Any, one: Looked, *, index: int = 0) -> list[SampleStep]:
    """What one sample of a split is after each step, drawn with a fixed seed.

    Args:
        dm: The datamodule; its ``finish`` is the last step.
        one: The split.
        index: The sample.

    Returns:
        One entry a step. The one that fails says why, and is the last.
    """
    made: list[SampleStep] = []
    if not hasattr(one.dataset, "__getitem__") or not len(one):
        return made
    with kept_random_state():
        seed_all(SEED)
        seed_own(own_generators(one.dataset), SEED)
        try:
            for step, value in _steps(dm, one, index):
                seen = value if isinstance(value, SampleStep) else saw(one.split, step, value)
                made.append(seen)
        except Exception as error:
            said = f"fails: {type(error).__name__}: {error}"
            made.append(SampleStep(one.split, "next step", "", "", said))
            return made
    if one.batch is not None and isinstance(one.inputs, Tensor):
        made.append(saw(one.split, "first batch", one.inputs))
    return made


def _steps(dm: Any, one: Looked, index: int) -> Steps:
    data = one.dataset
    if isinstance(data, ImageDataset):
        row = yield from _image(data, index)
    elif isinstance(data, PixelDataset):
        row = data.pixels[index]
        yield "pixels" + (" with padding" if data.padding else ""), row
        if data.padding or data.flip:
            seeds = np.array([SEED], np.uint64)
            row = data.get_batch(np.array([index]), seeds).inputs[0]
            yield " and ".join(["shift"] * bool(data.padding) + ["flip"] * bool(data.flip)), row
    elif isinstance(data, TextDataset) and hasattr(dm, "_tables"):
        yield from ((step.step, step) for step in follow_text(dm, one, index))
        return
    elif isinstance(data, RowDataset) and hasattr(dm, "_parts"):
        yield from ((step.step, step) for step in follow_row(dm, one, index))
        return
    elif isinstance(data, WrappedDataset):
        row = yield from _wrapped(data, index)
    else:
        row = yield from _stock(data, index)
    normalizer = getattr(dm, "normalizer", None)
    first = next(tensors_of(row), None)
    if normalizer is not None and first is not None and first.dtype == torch.uint8:
        yield "normalize", normalizer(first[None])[0]


def _image(data: ImageDataset, index: int) -> Steps:
    source = data.sources[index]
    if isinstance(source, str):
        yield "file", opened(Path(source))
    elif isinstance(source, bytes):
        yield "packed", f"{len(source):,} bytes"
    if isinstance(source, Tensor):
        source = (source.permute(1, 2, 0) if source.ndim == 3 else source).numpy()
    if isinstance(source, np.ndarray):
        yield "array", source
    image: Any = data._decoded(source, data.describe(index))
    yield "decode", image
    if data.transform._takes is None:  # found out with the first image
        with kept_random_state(), suppress(Exception):  # the steps below fail in their turn
            data.transform(image)
    if data.transform._takes == "tensor":
        image = to_row(image)
        yield "to tensor", image
    row = to_row((yield from _transformed(data.transform.transform, image)))
    yield "sample", row
    return row


def _wrapped(data: WrappedDataset, index: int) -> Steps:
    sample = yield from _stock(data.dataset, int(data.rows[index]))
    item, _ = data.parts.apart(sample)
    if data.parts.load is not None:
        item = data.parts.load(item)
        yield "load", item
    item = yield from _transformed(data.parts.transform, item)
    item = to_row(item) if not isinstance(item, list | tuple) else item
    yield "input", item
    return item


def _stock(data: Any, index: int) -> Steps:
    """A dataset that transforms inside: asked without its transform first, where that can be."""
    while isinstance(data, Subset):
        data, index = data.dataset, int(data.indices[index])
    samples = getattr(data, "samples", None)
    if isinstance(samples, list) and samples and isinstance(samples[0], tuple):
        path = samples[index][0]  # as torchvision's folder datasets keep them
        if isinstance(path, str) and Path(path).is_file():
            yield "file", opened(Path(path))
    transform = getattr(data, "transform", None)
    if callable(transform):
        yield from _apart(data, index, transform)
    sample = data[index]
    yield "dataset", sample
    return sample


def _apart(data: Any, index: int, transform: Callable[[Any], Any]) -> Steps:
    """The steps within ``data[index]``, if taking them one by one makes the same sample."""
    bare = copy.copy(data)
    bare.transform = _same
    inner = getattr(bare, "transforms", None)
    if hasattr(inner, "transform"):  # torchvision's pair of transform and target_transform
        bare.transforms = copy.copy(inner)
        bare.transforms.transform = _same
    whole = None
    with kept_random_state(), suppress(Exception):
        whole = data[index]
    seed_own(own_generators(data), SEED)
    with kept_random_state():
        try:
            raw = bare[index]
            item = raw[0] if isinstance(raw, tuple | list) and raw else raw
            steps = [("read", item), *_transformed(transform, item)] if whole is not None else []
        except Exception:  # it does more than to hand on what was read
            return
        if whole is None:  # which step fails?
            yield "read", item
            yield from _transformed(transform, item)
            return
    seed_own(own_generators(data), SEED)
    made, last = list(tensors_of(whole)), list(tensors_of(steps[-1][1]))
    if made and last and made[0].shape == last[0].shape and torch.equal(made[0], last[0]):
        yield from steps


def _same(value: Any) -> Any:
    return value


def _transformed(transform: Any, value: Any) -> Steps:
    """The value after each step of a transform; returns the last."""
    for step in in_turn(transform):
        value = step(value)
        yield getattr(step, "__name__", type(step).__name__), value
    return value


def in_turn(transform: Any) -> list[Any]:
    """Steps that are run one after the other: what ``Compose`` and ``Sequential`` hold.

    What a ``RandomApply`` or ``RandomChoice`` holds is run by itself alone.
    """
    if transform is None:
        return []
    if isinstance(transform, torch.nn.Sequential):
        return [step for part in transform for step in in_turn(part)]
    held = getattr(transform, "transforms", None)
    if type(transform).__name__ == "Compose" and isinstance(held, list | tuple):
        return [step for part in held for step in in_turn(part)]
    return [transform]


def opened(path: Path) -> str:
    """Size, format and mode of a file, from its header."""
    said = f"{path.name}, {path.stat().st_size:,} bytes"
    try:
        with quiet(), Image.open(path) as image:
            return f"{said}, {image.format} {image.mode} {image.width} x {image.height}"
    except Exception:  # decoding says what is wrong with it
        return said


def saw(split: str, step: str, value: Any) -> SampleStep:
    """Size, dtype and range of a value of any kind."""
    return SampleStep(split, step, *_said(value))


def _said(value: Any) -> tuple[str, str, str]:
    if isinstance(value, Image.Image):
        size = f"{value.height} x {value.width} pixels, {value.mode}"
        return size, str(np.asarray(value).dtype), _range(np.asarray(value))
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return " x ".join(map(str, value.shape)) or "a number", dtype, _range(value)
    if isinstance(value, np.ndarray | np.generic):
        return " x ".join(map(str, value.shape)) or "a number", str(value.dtype), _range(value)
    if isinstance(value, str):
        return value if len(value) <= 3 * SHOWN else value[: 3 * SHOWN] + "...", "", ""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list) and 0 < len(value) <= 8:
        parts = [_said(part) for part in value]
        sizes, dtypes, ranges = (
            "; ".join(p for p in part if p) for part in zip(*parts, strict=True)
        )
        return sizes, dtypes, ranges
    text = repr(value)
    return type(value).__name__, "", text if len(text) <= SHOWN else text[:SHOWN] + "..."


def _range(value: Any) -> str:
    """``low to high`` of numbers; nothing of none."""
    numbers = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if not numbers.size or numbers.dtype.kind not in "biuf":
        return ""
    return f"{float(numbers.min()):.4g} to {float(numbers.max()):.4g}"
