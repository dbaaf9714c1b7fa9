"""Figures without pyplot: the user's own style and backend left alone, every name readable."""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

WIDTH = 4.8  # inches: 10 points are read on a screen of 400 pixels still
DOTS = 200  # an inch, twice what a page of 96 shows
INK = "#222222"
# Installed by systems that show these scripts; matplotlib's own font holds none of them.
WIDE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Yu Gothic",
    "PingFang SC",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "WenQuanYi Zen Hei",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Nirmala UI",
    "Leelawadee UI",
    "Arial Unicode MS",
)


class SplitStyle(NamedTuple):
    """How a split is told from the others: by hatch, line and marker as well as by colour."""

    colour: str
    hatch: str
    line: str
    marker: str


# colours of Okabe and Ito (2008), which colour-blind readers tell apart
STYLES = {
    "train": SplitStyle("#0072B2", "", "-", "o"),
    "val": SplitStyle("#E69F00", "////", "--", "s"),
    "test": SplitStyle("#009E73", "....", ":", "^"),
    "predict": SplitStyle("#CC79A7", "xxxx", "-.", "D"),
}


class Drawing(NamedTuple):
    """A figure with what a reader who does not see it needs.

    Attributes:
        name: Stem of its file.
        title: What it is of.
        text: The same in words, with its main figures.
        figure: matplotlib's.
    """

    name: str
    title: str
    text: str
    figure: Figure

    def png(self) -> bytes:
        """The figure as a PNG file."""
        return png(self.figure)


def drawn(draw: Callable[P, R]) -> Callable[P, R]:
    """Run a drawing function under matplotlib's default style, whatever the user's is."""

    @wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with _plain_style():
            return draw(*args, **kwargs)

    return inside


@contextmanager
def _plain_style() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # leaves the backend as it is
        matplotlib.rcParams.update({"font.family": list(fonts()), "font.size": 9})
        yield


def new_figure(height: float, *, width: float = WIDTH) -> Figure:
    """An empty figure in inches, on white; a notebook shows it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    # a notebook knows matplotlib's figures only once pyplot was imported
    vars(figure)["_repr_png_"] = partial(png, figure, dots=110)
    return figure


def new_axes(figure: Figure, *place: int) -> Any:
    """Axes without a frame at the top and the right."""
    axes: Any = figure.add_subplot(*place) if place else figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    # ticks are made when the figure is drawn, under the user's style
    axes.tick_params(colors=INK, labelfontfamily=list(fonts()))
    return axes


def draw_steps(axes: Any, shares: Any, edges: Any, split: str, count: int) -> None:
    """A split's histogram: (B,) shares between (B + 1,) edges, named with its size."""
    style = STYLES[split]
    axes.stairs(
        shares,
        edges,
        color=style.colour,
        linestyle=style.line,
        linewidth=1.6,
        fill=split == "train",
        alpha=0.5 if split == "train" else 1,
        label=f"{split} ({count:,})",
    )


def legend(figure: Figure, axes: Any) -> None:
    """A legend above the axes, where no data lie."""
    handles, labels = axes.get_legend_handles_labels()
    if len(handles):
        columns = 3 if len(labels) < 4 and sum(map(len, labels)) < 45 else 2
        figure.legend(handles, labels, loc="outside upper left", ncols=columns, frameon=False)


def png(figure: Figure, *, dots: int = DOTS) -> bytes:
    """A figure as a PNG file, ``dots`` an inch."""
    file = io.BytesIO()
    with _plain_style():
        figure.savefig(file, format="png", dpi=dots)
    return file.getvalue()


def label(name: object, *, most: int = 24, otherwise: str | None = None) -> str:
    r"""A name that can be drawn: one line, short, no formula, no character that no font has.

    Args:
        name: Such as a class's.
        most: Characters; what is longer loses its middle, since ends often tell names apart.
        otherwise: Stands for a name that cannot be drawn, such as ``"class 3"``; None marks each
            character that cannot.

    Example:
        >>> label("a\nb"), label("a very long name of a class", most=11)
        ('a b', 'a ver…class')
    """
    text = " ".join(str(name).split())
    text = "".join(c for c in text if not unicodedata.category(c).startswith("C"))
    shapes = _shapes()
    if any(ord(c) not in shapes for c in text):
        text = otherwise or "".join(
            c if ord(c) in shapes else "\N{REPLACEMENT CHARACTER}" for c in text
        )
    if len(text) > most:
        tail = (most - 1) // 2
        text = (
            f"{text[: most - 1 - tail].rstrip()}…{text[-tail:].lstrip()}" if tail else text[:most]
        )
    return text.replace("$", r"\$")


@cache
def fonts() -> tuple[str, ...]:
    """Families in which names are drawn, the next one where a character is missing."""
    from matplotlib.font_manager import fontManager

    there = {entry.name for entry in fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in WIDE_FONTS if name in there))


@cache
def _shapes() -> frozenset[int]:
    from matplotlib.font_manager import findfont
    from matplotlib.ft2font import FT2Font

    return frozenset(point for name in fonts() for point in FT2Font(findfont(name)).get_charmap())
