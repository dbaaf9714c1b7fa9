"""Errors of a model in a split: confused classes and samples, as text and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .html_page import Card, Page


class Confused(NamedTuple):
    """Samples of one class for which the model predicts another.

    Attributes:
        true: Name of their class.
        answer: Name of the predicted class.
        samples: How many.
        share: Of the true class's samples.
    """

    true: str
    answer: str
    samples: int
    share: float


class HardSample(NamedTuple):
    """A sample with a high loss.

    Attributes:
        row: Position in the split's dataset.
        name: File name, or row or line of a file.
        loss: Its own loss, without class weights or smoothing.
        target: The target as text.
        answer: The prediction as text.
    """

    row: int
    name: str
    loss: float
    target: str
    answer: str


class Hardest:
    """Errors of a model in a split.

    Attributes:
        split: Name of the split.
        looked_at: Samples that were evaluated.
        whole: Samples of the split.
        wrong: Samples whose answer was wrong; None where answers are numbers.
        confused: The most frequent first; for several labels a sample and numbers empty.
        samples: The highest loss first.
    """

    def __init__(
        self,
        split: str,
        *,
        looked_at: int,
        whole: int,
        wrong: int | None,
        confused: Sequence[Confused],
        samples: Sequence[HardSample],
        cards: Sequence[Card],
    ) -> None:
        self.split, self.looked_at, self.whole, self.wrong = split, looked_at, whole, wrong
        self.confused, self.samples, self._cards = list(confused), list(samples), list(cards)

    def __str__(self) -> str:
        lines = [self.counted()]
        lines += [
            f"  {c.samples:,} ({c.share:.0%}) of {c.true} as {c.answer}" for c in self.confused
        ]
        lines += [
            f"  loss {s.loss:.3g}: {s.name}: {s.target}, answer {s.answer}" for s in self.samples
        ]
        return "\n".join(lines)

    def counted(self) -> str:
        """How many samples were evaluated, and how many answers were wrong."""
        part = "" if self.looked_at == self.whole else f" (of {self.whole:,})"
        said = f"{self.looked_at:,} {self.split} samples{part}"
        return said if self.wrong is None else f"{said}, {self.wrong:,} wrong"

    def show(self, page: Page) -> None:
        """Add the tables and samples to a page."""
        page.heading(f"Errors of the model in {self.split}", self.counted())
        if self.confused:
            page.table(
                ["true class", "predicted as", "samples", "share of the true class"],
                [[c.true, c.answer, f"{c.samples:,}", f"{c.share:.0%}"] for c in self.confused],
            )
        if self._cards:
            page.heading("Samples with the highest loss")
            page.cards(self._cards)

    def _repr_html_(self) -> str:
        page = Page(f"Hardest of {self.split}")
        self.show(page)
        return page.fragment()
