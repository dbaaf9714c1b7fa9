"""Figures of targets: classes by split, or the spread of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from datamodules.insight.sample_view import class_names
from datamodules.insight.split_view import Looked, found_labels
from datamodules.tables.dataset import RowDataset

from .canvas import STYLES, Drawing, draw_steps, drawn, label, legend, new_axes, new_figure

Counts = npt.NDArray[np.int64]
MOST_BARS, LARGEST, SMALLEST = 12, 8, 4


def class_counts(dm: Any, seen: Mapping[str, Looked]) -> tuple[list[str], dict[str, Counts]] | None:
    """Class names, and (K,) samples of each class by split; None where labels are not known.

    With several labels a sample, samples that have the label.
    """
    counts: dict[str, Counts] = {}
    for split, one in seen.items():
        found = found_labels(one.dataset)
        if found is None or not found.size or getattr(dm, "task", None) == "regression":
            continue
        if found.ndim == 2 and bool(((found == 0) | (found == 1)).all()):
            counts[split] = (found > 0).sum(0).astype(np.int64)
        elif found.ndim == 1 and np.issubdtype(found.dtype, np.integer) and found.min() >= 0:
            counts[split] = np.bincount(found).astype(np.int64)
    if not counts:
        return None
    names = class_names(dm, next(iter(seen.values()))) or []
    width = max(len(names), *map(len, counts.values()))
    names += [str(k) for k in range(len(names), width)]
    return names, {split: np.pad(c, (0, width - len(c))) for split, c in counts.items()}


@drawn
def class_bars(names: Sequence[str], counts: Mapping[str, Counts]) -> Drawing:
    """Share of each class in each split, with its number of samples.

    Of more than 12 classes, the largest and smallest of the first split are drawn and the rest is
    summed up in a line.

    Args:
        names: K names.
        counts: (K,) samples by split.
    """
    first = next(iter(counts.values()))
    order = np.argsort(-first, kind="stable")
    rest: Counts = order[:0]
    if len(order) > MOST_BARS:
        rest = order[LARGEST : len(order) - SMALLEST]
        order = np.concatenate([order[:LARGEST], order[len(order) - SMALLEST :]])
    bar = 0.8 / len(counts)
    figure = new_figure(
        0.9 + max(1.2, (len(order) + bool(len(rest))) * max(0.3, 0.16 * len(counts)))
    )
    axes = new_axes(figure)
    # a line of words between the largest and the smallest
    places = np.arange(len(order)) + ((np.arange(len(order)) >= LARGEST) & bool(len(rest)))
    widest = 0.0
    for number, (split, found) in enumerate(counts.items()):
        shares = 100 * found[order] / max(1, found.sum())
        widest = max(widest, float(shares.max(initial=0)))
        style = STYLES[split]
        bars = axes.barh(
            places + (number - (len(counts) - 1) / 2) * bar,
            shares,
            0.92 * bar,
            color=style.colour,
            hatch=style.hatch,
            edgecolor="white",
            label=f"{split} ({found.sum():,})",
        )
        axes.bar_label(
            bars, [f"{n:,}" if n else "none" for n in found[order]], padding=2, fontsize=7
        )
    if len(rest):
        said = f"and {len(rest)} more of {_range(first[rest])} in {next(iter(counts))}"
        axes.text(0, LARGEST, said, va="center", fontsize=8, style="italic")
    axes.set_yticks(places, [label(names[k], otherwise=f"class {k}") for k in order.tolist()])
    axes.set_ylim(places.max() + 0.6, -0.6)
    axes.set_xlim(0, 1.18 * widest)
    axes.set_xlabel("share of the split in %, number at the bar")
    axes.tick_params(axis="y", length=0)
    legend(figure, axes)
    said = "; ".join(
        f"{split}: {int((found > 0).sum())} classes of {_range(found)}"
        for split, found in counts.items()
    )
    return Drawing("class-bars", "Classes by split", said, figure)


def numbers_of(dm: Any, seen: Mapping[str, Looked]) -> dict[str, npt.NDArray[np.float64]]:
    """(N, T) targets of a regression by split, in their own units; empty where there are none."""
    found = {}
    scale = getattr(dm, "target_scale", None) if getattr(dm, "task", "") == "regression" else None
    for split, one in seen.items():
        if isinstance(one.dataset, RowDataset) and one.dataset.packed.target == "value":
            values: Any = one.dataset.packed.views().target
        else:
            values = found_labels(one.dataset)
        if values is None or not np.issubdtype(values.dtype, np.floating) or not values.size:
            continue
        values = values.reshape(len(values), -1).astype(np.float64)
        if scale is not None:
            values = values * np.array(scale["std"]) + np.array(scale["mean"])
        found[split] = values
    return found


@drawn
def target_histogram(values: Mapping[str, npt.NDArray[np.float64]], name: str) -> Drawing:
    """The spread of a number that is to be predicted, by split.

    Args:
        values: (N,) by split.
        name: Of the target.
    """
    figure = new_figure(2.6)
    axes = new_axes(figure)
    every = np.concatenate(list(values.values()))
    every = every[np.isfinite(every)]
    few = min(map(len, values.values()))
    edges = np.histogram_bin_edges(every, int(np.clip(2 * np.sqrt(few), 8, 30)))
    for split, found in values.items():
        kept = found[np.isfinite(found)]
        shares = 100 * np.histogram(kept, edges)[0] / max(1, len(kept))
        draw_steps(axes, shares, edges, split, len(found))
    axes.set_xlabel(label(name, most=40))
    axes.set_ylabel("share in %")
    legend(figure, axes)
    said = "; ".join(
        f"{split}: {np.nanmin(found):.4g} to {np.nanmax(found):.4g}, "
        f"median {np.nanmedian(found):.4g}"
        for split, found in values.items()
    )
    return Drawing(f"target-{name}", f"Target {name}", said, figure)


def _range(counts: Counts) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low:,} samples each" if low == high else f"{low:,} to {high:,} samples"
