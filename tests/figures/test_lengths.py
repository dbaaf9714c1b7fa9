from __future__ import annotations

import numpy as np

from datamodules import LengthBuckets
from datamodules.figures.lengths import padding_shares, text_lengths


def test_the_bounds_of_the_samplers_own_buckets_are_drawn():
    lengths = {"train": np.array([1, 1, 5, 5, 9, 9]), "val": np.array([2, 7])}
    bounds = LengthBuckets(buckets=3, multiple=1).bounds(lengths["train"])
    drawing = text_lengths(lengths, bounds, 2, {"train": 2, "val": 0})
    (axes,) = drawing.figure.axes
    drawn = axes.collections[0].get_segments()
    assert [float(line[0][0]) for line in drawn] == [1, 5, 9]
    assert "median 5, longest 9 tokens" in drawing.text
    assert drawing.text.endswith("0% with length buckets; truncated at max_length: 2 of train")
    lines = {patch.get_linestyle() for patch in axes.patches}
    assert len(lines) == 2


def test_padding_is_counted_as_batches_are_padded():
    lengths = np.array([1, 3, 1, 3])
    assert padding_shares(lengths, np.array([3]), 4) == (1 - 8 / 12, 1 - 8 / 12)
