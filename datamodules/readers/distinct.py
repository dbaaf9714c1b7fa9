"""Different texts of a polars column, so that what a text means is asked once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import polars as pl

CELL = "cell"
# Of so many cells it pays to ask each different text once, where each comes so often on average:
# 500,000 cells of 40 words take 15 ms instead of 167 (2 cores, polars 2.1).
FEW_CELLS, MOSTLY_UNLIKE = 1000, 4
# So many cells show all texts of most columns that have few.
HEAD = 10_000


class DistinctTexts(NamedTuple):
    """Different texts of a column: what a text means is asked once, however often it comes.

    Attributes:
        texts: D texts and nulls, in the order of their first cells.
        counts: (D,) int64, cells that hold each.
        places: (N,) int32, the text of each cell; None: the texts are the cells.
    """

    texts: pl.Series
    counts: npt.NDArray[np.int64]
    places: npt.NDArray[np.int32] | None

    @classmethod
    def of(cls, series: pl.Series) -> DistinctTexts:
        """Texts of N cells; the cells themselves where there are few, or hardly any comes twice."""
        import polars as pl

        series = series.alias(CELL)  # a name such as "^x$" is a pattern to polars
        if len(series) > FEW_CELLS:
            coded = series.dtype == pl.Categorical
            found = _by_code(series) if coded else _by_head(series.cast(pl.String))
            if found is not None:
                return found
        return cls(series.cast(pl.String), np.ones(len(series), np.int64), None)

    def spread(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(N,) the value of each cell, from (D,) those of the texts."""
        return values if self.places is None else values[self.places]

    def count(self, values: pl.Series) -> int:
        """Cells whose text has a value."""
        if self.places is None:
            return len(values) - values.null_count()
        return int(self.counts[values.is_not_null().to_numpy()].sum())

    def first(self, bare: pl.Series, most: int) -> pl.Series:
        """The first cells that hold something."""
        if self.places is None:
            return bare.drop_nulls().head(most)
        held = bare.is_not_null().to_numpy()
        for head in (self.places[: 2 * most], self.places):
            found = head[held[head]][:most]
            if len(found) == most:
                break
        first: pl.Series = bare[found]
        return first


def _by_head(series: pl.Series) -> DistinctTexts | None:
    """Texts of a column of texts; None where hardly any comes twice."""
    import polars as pl

    known, codes = _different(series.head(HEAD)), None
    if len(known) * MOSTLY_UNLIKE <= min(len(series), HEAD):
        codes = series.cast(pl.Enum(known), strict=False)  # null where the head lacks the text
    if codes is None or codes.null_count() > series.null_count():
        known, codes = _different(series), None
    missing = len(known)
    if not 0 < missing * MOSTLY_UNLIKE <= len(series):
        return None
    if codes is None:
        codes = series.cast(pl.Enum(known))
    places = codes.to_physical().cast(pl.Int32).fill_null(missing).to_numpy()
    return DistinctTexts(_and_null(known), np.bincount(places, minlength=missing + 1), places)


def _by_code(series: pl.Series) -> DistinctTexts | None:
    """Texts of a column of codes, which may have gaps and come in any order."""
    import polars as pl

    codes = series.to_physical()
    null = int(codes.max() or 0) + 1  # type: ignore[arg-type]
    cells = (codes.fill_null(null) if codes.null_count() else codes).to_numpy()
    counts = np.bincount(cells, minlength=null + 1)
    held = np.flatnonzero(counts[:null])
    missing = len(held)
    if not 0 < missing * MOSTLY_UNLIKE <= len(series):
        return None
    first = np.full(null + 1, -1)
    for part in (cells[:HEAD], cells):
        first[part[::-1]] = np.arange(len(part))[::-1]  # of several, the last one stays
        if (first[held] >= 0).all():
            break
    held = held[np.argsort(first[held])]
    place = np.full(null + 1, missing, np.int32)
    place[held] = np.arange(missing)
    texts = series.gather(first[held]).cast(pl.String)
    return DistinctTexts(_and_null(texts), counts[[*held, null]], place[cells])


def _and_null(texts: pl.Series) -> pl.Series:
    import polars as pl

    return pl.concat([texts, pl.Series(CELL, [None], dtype=pl.String)])


def _different(series: pl.Series) -> pl.Series:
    """In the order of their first cells, without null."""
    return series.unique(maintain_order=True).drop_nulls()
