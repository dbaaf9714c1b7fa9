"""Figures of targets: samples by class and split, histograms of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from .canvas import STYLES, Drawing, draw_steps, drawn, label, legend, new_axes, new_figure

Counts = npt.NDArray[np.int64]
MOST_BARS, LARGEST, SMALLEST = 12, 8, 4


@drawn
def class_bars(names: Sequence[str], counts: Mapping[str, Counts]) -> Drawing:
    """Draw the share of each class in each split, with its number of samples.

    Of more than 12 classes, the 8 largest and 4 smallest of the first split are drawn; one line
    counts the others.

    Args:
        names: K names.
        counts: (K,) samples by split.
    """
    first = next(iter(counts.values()))
    order = np.argsort(-first, kind="stable")
    others: Counts = order[:0]
    if len(order) > MOST_BARS:
        others = order[LARGEST : len(order) - SMALLEST]
        order = np.concatenate([order[:LARGEST], order[len(order) - SMALLEST :]])
    bar = 0.8 / len(counts)
    figure = new_figure(
        0.9 + max(1.2, (len(order) + bool(len(others))) * max(0.3, 0.16 * len(counts)))
    )
    axes = new_axes(figure)
    # a line of words between the largest and the smallest
    places = np.arange(len(order)) + ((np.arange(len(order)) >= LARGEST) & bool(len(others)))
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
    if len(others):
        text = f"and {len(others)} more with {_range(first[others])} in {next(iter(counts))}"
        axes.text(0, LARGEST, text, va="center", fontsize=8, style="italic")
    axes.set_yticks(places, [label(names[k], otherwise=f"class {k}") for k in order.tolist()])
    axes.set_ylim(places.max() + 0.6, -0.6)
    axes.set_xlim(0, 1.18 * widest)
    axes.set_xlabel("share of the split in %, number at the bar")
    axes.tick_params(axis="y", length=0)
    legend(figure, axes)
    text = "; ".join(
        f"{split}: {int((found > 0).sum())} classes with {_range(found)}"
        for split, found in counts.items()
    )
    return Drawing("class-bars", "Classes by split", text, figure)


@drawn
def target_histogram(values: Mapping[str, npt.NDArray[np.float64]], name: str) -> Drawing:
    """Draw a histogram of a regression target by split.

    Args:
        values: (N,) by split.
        name: Name of the target.
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
    text = "; ".join(
        f"{split}: {np.nanmin(found):.4g} to {np.nanmax(found):.4g}, "
        f"median {np.nanmedian(found):.4g}"
        for split, found in values.items()
    )
    return Drawing(f"target-{name}", f"Target {name}", text, figure)


def _range(counts: Counts) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low:,} samples each" if low == high else f"{low:,} to {high:,} samples"
