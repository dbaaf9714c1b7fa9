from __future__ import annotations

import io

import matplotlib
import numpy as np
import pytest
from PIL import Image

from datamodules.figures.canvas import drawn, fonts, label, new_axes, new_figure, png


def test_a_name_that_no_font_can_draw_is_replaced_by_what_stands_for_it(monkeypatch):
    monkeypatch.setattr("datamodules.figures.canvas._shapes", lambda: frozenset(range(0x2100)))
    assert label("猫", otherwise="class 3") == "class 3"
    assert label("a猫b") == "a\N{REPLACEMENT CHARACTER}b"
    assert label("žába") == "žába"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("two\nlines\tof\x00 it", "two lines of it"),
        ("$x_1$ and $y$", r"\$x_1\$ and \$y\$"),
        ("abcdefghijklmnopqrstuvwxyz", "abcdefghijkl…pqrstuvwxyz"),
        ("", ""),
    ],
)
def test_a_name_is_one_short_line_and_no_formula(name, said):
    assert label(name) == said


def test_every_name_can_be_drawn_without_a_warning():
    figure = new_figure(2)
    axes = new_axes(figure)
    names = ["猫", "кот", "قط", "बिल्ली", "แมว", "😀", r"a\$b", "$\\frac{", "_{^", "a" * 300]
    axes.set_yticks(
        range(len(names)), [label(n, otherwise=f"class {k}") for k, n in enumerate(names)]
    )
    assert Image.open(io.BytesIO(png(figure))).width > 900


def test_the_users_style_is_neither_used_nor_changed():
    @drawn
    def draw():
        figure = new_figure(1)
        axes = new_axes(figure)
        axes.barh([0], [1])
        return figure

    with matplotlib.rc_context({"figure.facecolor": "black", "text.color": "white"}):
        backend, before = matplotlib.get_backend(), dict(matplotlib.rcParams)
        dark = png(draw(), dots=50)
        assert matplotlib.get_backend() == backend
        assert dict(matplotlib.rcParams) == before
    assert dark == png(draw(), dots=50)
    assert np.asarray(Image.open(io.BytesIO(dark)).convert("L"))[0, 0] == 255


def test_a_notebook_shows_a_figure_without_pyplot():
    assert new_figure(1)._repr_png_().startswith(b"\x89PNG")
    assert fonts()[0] == "DejaVu Sans"
