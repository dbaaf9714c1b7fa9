"""Figure of texts: tokens by split, with the bounds of length buckets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from datamodules.seeding.sample_seeds import Indices

from .canvas import Drawing, draw_steps, drawn, legend, new_axes, new_figure


@drawn
def text_lengths(
    lengths: Mapping[str, Indices],
    bounds: Indices,
    batch_size: int,
    truncated: Mapping[str, int] | None = None,
) -> Drawing:
    """Draw a histogram of the tokens per text by split, under the bounds of length buckets.

    Args:
        lengths: (N,) tokens of each text by split; train comes first.
        bounds: Ascending upper bounds of the buckets.
        batch_size: Texts in a batch, for the share of padding.
        truncated: Texts cut at ``max_length`` by split.
    """
    first = next(iter(lengths.values()))
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
    axes.set_xlabel("tokens per text")
    axes.set_ylabel("share in %")
    legend(figure, axes)
    shuffled, bucketed = padding_shares(first, bounds, batch_size)
    cut = {s: n for s, n in (truncated or {}).items() if n and s in lengths}
    text = (
        f"median {np.median(first):.0f}, longest {longest} tokens; padding in train batches "
        f"of {batch_size}: {shuffled:.0%} shuffled, {bucketed:.0%} with length buckets"
    )
    if cut:
        text += "; truncated at max_length: " + ", ".join(f"{n:,} of {s}" for s, n in cut.items())
    return Drawing("text-lengths", "Text lengths", text, figure)


def padding_shares(lengths: Indices, bounds: Indices, size: int) -> tuple[float, float]:
    """Return the share of padding in batches of ``size``, shuffled and by length buckets.

    Args:
        lengths: (N,) tokens.
        bounds: Ascending upper bounds of the buckets.
        size: Samples in a batch.

    Example:
        >>> padding_shares(np.array([1, 3, 1, 3]), np.array([1, 3]), 2)[1]
        0.0
    """
    order = np.random.default_rng(0).permutation(len(lengths))
    bucket = np.searchsorted(bounds, lengths[order])
    bucketed = order[np.argsort(bucket, kind="stable")]
    found = []
    for rows in (order, bucketed):
        starts = np.arange(0, len(rows), size)
        widest = np.maximum.reduceat(lengths[rows], starts)
        filled = widest * np.minimum(size, len(rows) - starts)
        found.append(1 - float(lengths.sum()) / float(filled.sum()))
    return found[0], found[1]
