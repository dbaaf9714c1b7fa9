from __future__ import annotations

import pytest

from datamodules import samples
from datamodules.insight.figures import plot


def test_pictures_of_a_batch_stand_under_their_labels(tmp_path):
    dm = samples.digits()
    figure = plot(dm, "val", most=5)
    figure.savefig(tmp_path / "val.png")
    assert (tmp_path / "val.png").stat().st_size > 1000
    labels = dm.preview("val").target[:5].tolist()
    assert [axes.get_title() for axes in figure.axes] == [dm.classes[k] for k in labels]


def test_a_table_is_refused_with_another_way():
    with pytest.raises(ValueError, match="inspect"):
        plot(samples.wine())
