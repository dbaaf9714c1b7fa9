"""Create matplotlib figures without pyplot, in one style, with labels that every font can draw."""

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

WIDTH = 4.8  # inches: 10 points stay readable on a screen of 400 pixels
DOTS = 200  # per inch, twice a page's 96
INK = "#222222"
# System fonts of scripts that matplotlib's own font lacks.
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
    """Style of a split, which differs by hatch, line and marker as well as by colour."""

    colour: str
    hatch: str
    line: str
    marker: str


# colours of Okabe and Ito (2008), safe for colour-blind readers
STYLES = {
    "train": SplitStyle("#0072B2", "", "-", "o"),
    "val": SplitStyle("#E69F00", "////", "--", "s"),
    "test": SplitStyle("#009E73", "....", ":", "^"),
    "predict": SplitStyle("#CC79A7", "xxxx", "-.", "D"),
}


class Drawing(NamedTuple):
    """A figure with its description in words.

    Attributes:
        name: File name without ending.
        title: Title of the figure.
        text: The content in words.
        figure: The matplotlib figure.
    """

    name: str
    title: str
    text: str
    figure: Figure

    def png(self) -> bytes:
        """Return the figure as PNG bytes."""
        return png(self.figure)


def drawn(draw: Callable[P, R]) -> Callable[P, R]:
    """Decorate a drawing function to run in matplotlib's default style, not the user's."""

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
    """Return an empty white figure, sizes in inches; a notebook displays it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    # a notebook knows matplotlib's figures only once pyplot was imported
    vars(figure)["_repr_png_"] = partial(png, figure, dots=110)
    return figure


def new_axes(figure: Figure, *place: int) -> Any:
    """Return axes without the top and right spines."""
    axes: Any = figure.add_subplot(*place) if place else figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    # ticks are made when the figure is drawn, under the user's style
    axes.tick_params(colors=INK, labelfontfamily=list(fonts()))
    return axes


def draw_steps(axes: Any, shares: Any, edges: Any, split: str, count: int) -> None:
    """Draw a split's histogram: (B,) shares between (B + 1,) edges; the legend names its size."""
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
    """Add a legend above the axes."""
    handles, labels = axes.get_legend_handles_labels()
    if len(handles):
        columns = 3 if len(labels) < 4 and sum(map(len, labels)) < 45 else 2
        figure.legend(handles, labels, loc="outside upper left", ncols=columns, frameon=False)


def png(figure: Figure, *, dots: int = DOTS) -> bytes:
    """Return a figure as PNG bytes, at ``dots`` per inch."""
    file = io.BytesIO()
    with _plain_style():
        figure.savefig(file, format="png", dpi=dots)
    return file.getvalue()


def label(name: object, *, most: int = 24, otherwise: str | None = None) -> str:
    r"""Return a name for a figure: one short line, no formula, no character without a font.

    Args:
        name: Such as a class name.
        most: Most characters; longer names lose their middle, as ends often differ.
        otherwise: Replaces a name that cannot be drawn, such as ``"class 3"``; None: each character
            that cannot be drawn becomes U+FFFD.

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
    """Return the font families for names, in the order in which they are tried."""
    from matplotlib.font_manager import fontManager

    there = {entry.name for entry in fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in WIDE_FONTS if name in there))


@cache
def _shapes() -> frozenset[int]:
    from matplotlib.font_manager import findfont
    from matplotlib.ft2font import FT2Font

    return frozenset(point for name in fonts() for point in FT2Font(findfont(name)).get_charmap())
