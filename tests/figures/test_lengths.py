from __future__ import annotations

import numpy as np

from datamodules import LengthBuckets
from datamodules.figures.lengths import padding_shares, text_lengths


class Buckets:
    sampler = LengthBuckets(buckets=3, multiple=1)
    hparams = {"batch_size": 2}  # noqa: RUF012
    truncated = {"train": 2, "val": 0}  # noqa: RUF012


def test_the_bounds_of_the_samplers_own_buckets_are_drawn():
    lengths = {"train": np.array([1, 1, 5, 5, 9, 9]), "val": np.array([2, 7])}
    drawing = text_lengths(Buckets(), lengths)
    (axes,) = drawing.figure.axes
    bounds = axes.collections[0].get_segments()
    assert [float(line[0][0]) for line in bounds] == [1, 5, 9]
    assert "median 5, longest 9 tokens" in drawing.text
    assert drawing.text.endswith("with the buckets 0%; cut at max_length: 2 of train")
    lines = {patch.get_linestyle() for patch in axes.patches}
    assert len(lines) == 2


def test_padding_is_counted_as_batches_are_padded():
    lengths = np.array([1, 3, 1, 3])
    assert padding_shares(lengths, np.array([3]), 4) == (1 - 8 / 12, 1 - 8 / 12)
