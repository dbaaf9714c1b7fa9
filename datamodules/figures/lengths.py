"""Figure of texts: tokens by split, the length buckets that fit them, and what they would save."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from datamodules.insight.split_view import Looked
from datamodules.sampling.length_buckets import LengthBuckets
from datamodules.seeding.sample_seeds import Indices
from datamodules.texts.dataset import TextDataset

from .canvas import Drawing, draw_steps, drawn, legend, new_axes, new_figure


def token_lengths(seen: Mapping[str, Looked]) -> dict[str, Indices]:
    """(N,) tokens of each text by split; empty where samples are no texts."""
    texts = {s: one.dataset for s, one in seen.items() if isinstance(one.dataset, TextDataset)}
    return {split: data.lengths() for split, data in texts.items() if len(data)}


@drawn
def text_lengths(dm: Any, lengths: Mapping[str, Indices]) -> Drawing:
    """Tokens of the texts by split, over the bounds of the length buckets fitted to train.

    Args:
        dm: Whose data they are; its sampler says which buckets, else the default ones.
        lengths: (N,) by split.
    """
    first = next(iter(lengths.values()))
    asked = getattr(dm, "sampler", None)
    kind = asked if isinstance(asked, LengthBuckets) else LengthBuckets()
    bounds = kind.bounds(first)
    size = int(getattr(dm, "hparams", {}).get("batch_size") or 32)
    longest = max(int(found.max()) for found in lengths.values())
    figure = new_figure(3.0)
    axes = new_axes(figure)
    edges = np.linspace(0, longest + 1, min(60, longest + 1) + 1)
    top = 0.0
    for split, found in lengths.items():
        shares = 100 * np.histogram(found, edges)[0] / len(found)
        top = max(top, float(shares.max()))
        draw_steps(axes, shares, edges, split, len(found))
    axes.vlines(
        bounds, 1.04 * top, 1.14 * top, color="black", linewidth=1,
        label=f"bounds of {len(bounds)} length buckets",
    )  # fmt: skip
    axes.set_ylim(0, 1.16 * top)
    axes.set_xlim(left=0)
    axes.set_xlabel("tokens of a text")
    axes.set_ylabel("share in %")
    legend(figure, axes)
    apart, together = padding_shares(first, bounds, size)
    cut = {s: n for s, n in getattr(dm, "truncated", {}).items() if n and s in lengths}
    said = (
        f"median {np.median(first):.0f}, longest {longest} tokens; of train batches of {size} "
        f"shuffled, {apart:.0%} is padding, with the buckets {together:.0%}"
    )
    if cut:
        said += "; cut at max_length: " + ", ".join(f"{n:,} of {s}" for s, n in cut.items())
    return Drawing("text-lengths", "Lengths of the texts", said, figure)


def padding_shares(lengths: Indices, bounds: Indices, size: int) -> tuple[float, float]:
    """Share of padding in batches of ``size``, shuffled and parted by length buckets.

    Args:
        lengths: (N,) tokens.
        bounds: Ascending upper bounds of the buckets.
        size: Samples a batch.

    Example:
        >>> padding_shares(np.array([1, 3, 1, 3]), np.array([1, 3]), 2)[1]
        0.0
    """
    order = np.random.default_rng(0).permutation(len(lengths))
    bucket = np.searchsorted(bounds, lengths[order])
    parted = order[np.argsort(bucket, kind="stable")]
    found = []
    for rows in (order, parted):
        starts = np.arange(0, len(rows), size)
        widest = np.maximum.reduceat(lengths[rows], starts)
        filled = widest * np.minimum(size, len(rows) - starts)
        found.append(1 - float(lengths.sum()) / float(filled.sum()))
    return found[0], found[1]
