"""Check the first batch of each split: shapes, dtypes, ranges, padding, unusual values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.batches.batch import TextInputs
from datamodules.batches.nested import tensors_of
from datamodules.insight.datamodule_view import DataModuleView
from datamodules.insight.findings import Finding
from datamodules.insight.split_view import SplitView
from datamodules.tables.dataset import RowDataset
from datamodules.tables.encode import EncodingCounts
from datamodules.texts.dataset import TextDataset


def batch_findings(
    dm: Any, seen: Mapping[str, SplitView], facts: list[str], classes: Sequence[str] | None = None
) -> Iterator[Finding]:
    """Check the first batches; lines of facts are appended to ``facts``."""
    for split, one in seen.items():
        if one.batch is None:
            continue
        whole = sum(t.numel() * t.element_size() for t in tensors_of(one.batch))
        facts.append(f"{split}: {whole / 1e6:.2f} MB per batch")
        facts += [f"{split} input {said(t)}" for t in tensors_of(one.inputs)]
        facts += [f"{split} target {said(t)}" for t in tensors_of(one.target)]
        if (named := labelled(one.target, classes)) is not None:
            facts.append(f"{split} labels begin {named}")
        yield from _values(split, one.inputs)
        if isinstance(one.inputs, TextInputs):
            padding = 1 - float(one.inputs.attention_mask.float().mean())
            facts.append(f"{split}: padding is {padding:.0%} of the batch")
            if padding > 0.5:
                text = f"padding is {padding:.0%} of the first {split} batch"
                remedy = 'pass sampler="length_buckets"'
                yield Finding("note", "padding", text, remedy)
        yield from _images(split, one.inputs)
    yield from _sizes(seen)
    if "train" in seen and isinstance(seen["train"].dataset, RowDataset):
        yield from _columns(dm, seen)
    yield from _texts(seen, facts)


def said(tensor: Tensor) -> str:
    """Return shape, dtype and range of a tensor in one line."""
    shape = " x ".join(map(str, tensor.shape))
    if not tensor.numel():
        return f"({shape}) {tensor.dtype}, empty"
    low, high = float(tensor.min()), float(tensor.max())
    return f"({shape}) {str(tensor.dtype).removeprefix('torch.')}, {low:.4g} to {high:.4g}"


def labelled(target: Any, classes: Sequence[str] | None, most: int = 8) -> str | None:
    """Return the first labels of a batch with their names; None if targets are not classes.

    Example:
        >>> labelled(torch.tensor([1, 0]), ["ash", "birch"])
        '1 birch, 0 ash'
    """
    single = isinstance(target, Tensor) and target.ndim == 1 and target.dtype == torch.int64
    if not classes or not single:
        return None
    known = range(len(classes))
    first = target[:most].tolist()
    return ", ".join(f"{k} {classes[k]}" if k in known else f"{k} without a class" for k in first)


def _values(split: str, inputs: Any) -> Iterator[Finding]:
    for tensor in tensors_of(inputs):
        if tensor.dtype == torch.float64:
            text = f"{split} inputs are float64, models are float32"
            yield Finding("warning", "float64", text, "convert them by .float()")
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            count = int((~torch.isfinite(tensor)).sum())
            text = f"{count} values of the first {split} batch are NaN or infinite"
            yield Finding("error", "non-finite", text, "impute or remove them before training")
    first = next(tensors_of(inputs), None)
    if first is not None and first.ndim and len(first) > 3 and first.is_floating_point():
        same = all(bool((t == t[:1]).all()) for t in tensors_of(inputs))
        if same:
            text = f"all {len(first)} samples of the first {split} batch are equal"
            remedy = "check that the dataset uses its index"
            yield Finding("error", "constant-inputs", text, remedy)


def _images(split: str, inputs: Any) -> Iterator[Finding]:
    if not isinstance(inputs, Tensor) or inputs.ndim != 4 or not inputs.numel():
        return
    if inputs.shape[1] not in (1, 2, 3, 4) and inputs.shape[3] in (1, 3, 4):
        text = f"{split} images are {tuple(inputs.shape)}: channels come last"
        yield Finding("error", "channels-last", text, "permute to (N, C, H, W)")
    if inputs.dtype == torch.uint8:
        text = f"{split} images reach the model as uint8"
        yield Finding("error", "values-raw", text, "convert to float and normalize")
        return
    low, high = float(inputs.min()), float(inputs.max())
    if high > 30:
        text = f"{split} images range from {low:.3g} to {high:.3g}; models expect about -3 to 3"
        yield Finding("error", "values-raw", text, "scale to 0..1 (ToTensor), then Normalize")
    elif low >= 0 and 0 < high <= 1:
        text = f"{split} images range from {low:.3g} to {high:.3g}: they are not normalized"
        yield Finding("warning", "normalize-missing", text, "add Normalize(mean, std) as last step")


def _sizes(seen: Mapping[str, SplitView]) -> Iterator[Finding]:
    train = seen["train"].inputs if "train" in seen else None
    for split in ("val", "test"):
        other = seen[split].inputs if split in seen else None
        if not isinstance(train, Tensor) or not isinstance(other, Tensor):
            continue
        if train.shape[1:] != other.shape[1:]:
            text = f"train samples are {tuple(train.shape[1:])}, {split} {tuple(other.shape[1:])}"
            remedy = "give both transforms the same size"
            yield Finding("warning", "size-differs", text, remedy)
        if train.dtype != other.dtype:
            text = f"train inputs are {train.dtype}, {split} {other.dtype}"
            yield Finding("error", "dtype-differs", text, "end both transforms with the same step")


def _columns(dm: Any, seen: Mapping[str, SplitView]) -> Iterator[Finding]:
    data: RowDataset = seen["train"].dataset
    labels = data.targets
    numeric, codes, target = data.packed.gather(np.arange(len(data)))
    features = DataModuleView(dm).fitted.get("features", ())
    words = [f["name"] for f in features if f.get("kind") == "categorical"]
    if labels is not None:
        classes = torch.from_numpy(labels)
        k = int(classes.max()) + 1
        for place in range(codes.shape[1]):
            column = codes[:, place]
            pairs, values = len(torch.unique(column * k + classes)), len(torch.unique(column))
            if k > 1 and pairs == values and 1 < values <= 2 * k + 2:
                name = words[place] if place < len(words) else f"number {place}"
                text = f"column {name!r} determines the target in all {len(data):,} train rows"
                remedy = f"if it is not known at prediction, pass drop=[{name!r}]"
                yield Finding("warning", "target-leak", text, remedy)
    elif target is not None and numeric.numel() and target.shape[1] == 1 and len(data) > 2:
        both = torch.corrcoef(torch.cat([numeric, target], 1).T.double())[-1, :-1].abs()
        numbers = [f["name"] for f in features if f.get("kind") == "numeric"]
        for place in torch.nonzero(both > 0.99999).flatten().tolist():
            name = numbers[place] if place < len(numbers) else f"number {place}"
            text = f"column {name!r} is proportional to the target"
            yield Finding("warning", "target-leak", text, f"pass drop=[{name!r}]")
    for split in ("val", "test"):
        raw = seen[split].dataset.raw if split in seen else None
        counts = EncodingCounts({}, {}, {}) if raw is None else raw.counts
        for name, count in counts.unseen.items():
            cells = counts.cells[name] / max(1, len(seen[split]))
            level: Any = "warning" if cells > 0.2 else "note"
            text = f"{split} column {name!r} has {count} values that are not in train ({cells:.0%})"
            remedy = "all become category index 1: check the split, or drop a column of identifiers"
            yield Finding(level, "unseen-values", text, remedy)


def _texts(seen: Mapping[str, SplitView], facts: list[str]) -> Iterator[Finding]:
    texts = {s: one.dataset for s, one in seen.items() if isinstance(one.dataset, TextDataset)}
    for split, data in texts.items():
        if count := int(data.truncated().sum()):
            share = count / len(data)
            facts.append(f"{split}: {count:,} texts truncated ({share:.1%})")
            level: Any = "warning" if share > 0.5 else "note"
            text = f"{count:,} of {len(seen[split]):,} {split} texts are truncated"
            yield Finding(level, "truncated", text, "raise max_length")
    for split, data in texts.items():
        if empty := int(data.empty().sum()):
            level = "warning" if empty > 0.01 * len(data) else "note"
            text = f"{empty:,} of {len(data):,} {split} texts are empty"
            yield Finding(level, "empty-texts", text, "remove them or add their text")
