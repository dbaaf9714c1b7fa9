"""Convert a polars column to NumPy numbers and strings; the rules of what is a number."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from datamodules.readers.distinct import CELL, DistinctTexts

if TYPE_CHECKING:
    import polars as pl

Style = Literal["plain", "signs", "comma", "date"]
NULL_WORDS = ("NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null")
EXACT = 2**53  # float64 represents every whole number up to here
DAY = 86_400_000_000  # microseconds
# A postal code or phone number, not a quantity: 00501, +49301234567, more digits than float64 has.
CODE = r"^[+-]?0\d|^\+\d{7,}$|^[+-]?\d{16,}$"
SIGN = r"([$€£¥%])"
SIGNS = r"^([+-]?)[$€£¥]\s*|\s*[$€£¥%]$"
GROUPS = r"^[+-]?[1-9]\d{0,2}([,'\s]\d{3})+(\.\d+)?$"
COMMA = r"^[+-]?(\d+|[1-9]\d{0,2}([.'\s]\d{3})+)(,\d+)?([eE][+-]?\d+)?$"
ISO_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$"


class CellRules(NamedTuple):
    """Rules for parsing the cells of a file.

    Attributes:
        null_words: Strings that are missing values; an empty cell always is.
        null_numbers: Numbers that are missing values.
        styles: Number formats, in the order in which they are tried.
        known: Number format by column, as fitted on train.
        strip: Whether blanks around strings belong to the separator.
        typed: Whether the file distinguishes numbers from strings, as Parquet does.
        counted: Whether cells that equal ``null_words`` are reported in a note.
    """

    null_words: tuple[str, ...] = NULL_WORDS
    null_numbers: tuple[float, ...] = ()
    styles: tuple[Style, ...] = ("plain", "signs", "comma", "date")
    known: Mapping[str, Style] = {}
    strip: bool = False
    typed: bool = False
    counted: bool = True


class Column:
    """One column of N cells: numbers, words (strings), or both if only some cells are numbers.

    Args:
        name: Name of the column.
        numbers: (N,) float64, NaN if a cell is missing or not a number; None: no numbers.
        codes: (N,) int32 indices into ``words``, -1 if missing; None: all cells are numbers.
        words: Distinct strings, sorted.
        style: Number format.
        text: Whether the file declares the column as strings.
        exact: (N,) bool, cells whose digits are a name, such as 00501; None: there are none.
        example: A number as written in the file, if its format is not plain.
        refused: Why the column cannot be a feature, such as a list in each cell.
        notes: Notes for the user.

    Example:
        >>> column = Column("size", codes=np.array([1, -1, 0], np.int32), words=["L", "S"])
        >>> column.missing.tolist(), column.word(0)
        ([False, True, False], 'S')
    """

    def __init__(
        self,
        name: str,
        numbers: npt.NDArray[np.float64] | None = None,
        codes: npt.NDArray[np.int32] | None = None,
        words: Sequence[str] = (),
        *,
        style: Style = "plain",
        text: bool = False,
        exact: npt.NDArray[np.bool_] | None = None,
        example: str = "",
        refused: str = "",
        notes: Sequence[str] = (),
    ) -> None:
        self.name, self.numbers, self.codes, self.words = name, numbers, codes, list(words)
        self.style, self.text, self.exact, self.example = style, text, exact, example
        self.refused, self.notes = refused, list(notes)

    def __len__(self) -> int:
        cells = self.codes if self.numbers is None else self.numbers
        return 0 if cells is None else len(cells)

    @cached_property
    def missing(self) -> npt.NDArray[np.bool_]:
        """(N,) bool, missing cells."""
        if self.codes is not None:
            return self.codes < 0
        assert self.numbers is not None
        return np.isnan(self.numbers)

    @cached_property
    def finite(self) -> bool:
        """Whether all cells are finite numbers."""
        return self.numbers is not None and bool(np.isfinite(self.numbers).all())

    def words_in(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return those of ``rows`` whose cell is neither missing nor a number."""
        if self.codes is None:
            return rows[:0]
        is_word = self.codes[rows] >= 0
        if self.numbers is not None:
            is_word &= np.isnan(self.numbers[rows])
        chosen: npt.NDArray[np.int64] = rows[is_word]
        return chosen

    @cached_property
    def as_words(self) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Category indices and words; the word of a number is its shortest form, "1" for 1.0."""
        if self.codes is not None:
            return self.codes, self.words
        assert self.numbers is not None
        imputed = np.where(self.missing, 0.0, self.numbers)
        whole = _as_uint16(imputed)
        if whole is None:
            values, codes = np.unique(self.numbers, return_inverse=True)
            words = [number_word(v) for v in values[~np.isnan(values)].tolist()]
        else:
            occurs = np.bincount(whole[~self.missing], minlength=1) > 0
            words = list(map(str, np.flatnonzero(occurs).tolist()))
            codes = occurs.cumsum()[whole] - 1
        return np.where(self.missing, -1, codes).astype(np.int32), words

    def word(self, row: int) -> str:
        """Return a cell as a string, for messages."""
        if self.codes is not None:
            return self.words[self.codes[row]] if self.codes[row] >= 0 else ""
        assert self.numbers is not None
        return "" if self.missing[row] else number_word(float(self.numbers[row]))


def _as_uint16(numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.uint16] | None:
    """Return whole numbers of 0 to 65535, which need no sorting; None for others."""
    if not len(numbers) or not (numbers.min() >= 0 and numbers.max() <= 65535):
        return None
    whole = numbers.astype(np.uint16)
    return whole if np.array_equal(whole, numbers) else None


def number_word(value: float) -> str:
    """Return the shortest form of a number.

    Example:
        >>> number_word(3.0), number_word(0.1)
        ('3', '0.1')
    """
    whole = value.is_integer() and abs(value) <= EXACT
    return str(int(value)) if whole else repr(value)


def read_column(series: pl.Series, rules: CellRules) -> Column:
    """Convert a polars column of any type to numbers and words.

    Dates and times become days since 1970-01-01 (UTC), durations and times of day become days.
    Whole numbers beyond 2^53 become words, to stay exact.
    """
    import polars as pl

    kind, name = series.dtype, series.name
    if kind in (pl.String, pl.Categorical, pl.Enum):
        return _from_text(series, rules)
    if kind == pl.Boolean:
        flags = series.cast(pl.Int32).fill_null(-1).to_numpy()
        return Column(name, codes=flags, words=["False", "True"], text=True)
    if kind.is_integer() and len(series) and _largest(series) > EXACT:
        note = f"{name}: whole numbers beyond 2^53 are kept exact, as a category"
        return _from_text(series.cast(pl.String), rules._replace(styles=()), note)
    if kind == pl.Null or kind.is_numeric():
        values = series.cast(pl.Float64)
    elif kind in (pl.Date, pl.Datetime, pl.Duration, pl.Time):
        values = _days(series)
    else:
        return Column(name, refused=f"has {kind} cells")
    style: Style = "date" if kind in (pl.Date, pl.Datetime) else "plain"
    return Column(name, _numbers(values, rules), style=style)


def _largest(series: pl.Series) -> int:
    low, high = series.min(), series.max()
    return max(abs(int(low or 0)), abs(int(high or 0)))  # type: ignore[arg-type]


def _numbers(values: pl.Series, rules: CellRules) -> npt.NDArray[np.float64]:
    numbers: npt.NDArray[np.float64] = values.fill_null(float("nan")).to_numpy()
    if rules.null_numbers:
        return np.where(np.isin(numbers, rules.null_numbers), np.nan, numbers)
    return numbers


def _days(series: pl.Series) -> pl.Series:
    import polars as pl

    if series.dtype == pl.Date:
        return series.to_physical().cast(pl.Float64)
    if series.dtype == pl.Duration:
        return series.dt.total_microseconds().cast(pl.Float64) / DAY
    if series.dtype == pl.Time:
        return series.to_physical().cast(pl.Float64) / (DAY * 1000)
    return series.dt.epoch("us").cast(pl.Float64) / DAY


def _from_text(series: pl.Series, rules: CellRules, *notes: str) -> Column:
    import polars as pl

    name, distinct = series.name, DistinctTexts.of(series)
    bare_cell = pl.col("raw").str.strip_chars()
    named_null = bare_cell.is_in(list(rules.null_words)).fill_null(False)
    missing = named_null | (bare_cell == "").fill_null(True)
    present_cell = pl.when(~missing).then(bare_cell)
    # one call: a table of 5,000 columns would spend its time on calls
    texts = (
        distinct.texts.alias("raw")
        .to_frame()
        .select(
            "raw",
            present_cell.alias(CELL),
            named_null.alias("named_null"),
            present_cell.cast(pl.Float64, strict=False).alias("plain"),
            present_cell.str.contains(CODE).fill_null(False).alias("digits"),
        )
    )
    bare, digits = texts[CELL], texts["digits"]
    present = distinct.count(bare)
    if not present:
        return Column(name, np.full(len(series), np.nan), notes=notes)
    style, values = _parse(distinct, bare, texts["plain"], rules, name)
    messages = [*notes]
    exact = None
    if values is not None and style != "date" and digits.any():
        exact = distinct.spread(digits.to_numpy())
        messages.append(f"{name}: leading zeros, + and long digits are kept exact, as a category")
    numbers = None if values is None else distinct.spread(_numbers(values, rules))
    whole = values is not None and distinct.count(values) == present
    if whole and exact is None and not rules.typed:
        example = "" if style == "plain" else str(bare.drop_nulls()[0])
        return Column(name, numbers, style=style, example=example, notes=messages)
    raw = pl.when(pl.col(CELL).is_not_null()).then("raw").alias("raw")
    kept = bare if rules.strip else texts.select(raw).to_series()
    words = kept.drop_nulls().unique().sort()
    order = pl.Series(np.arange(len(words), dtype=np.int32))
    codes = kept.replace_strict(words, order, default=-1, return_dtype=pl.Int32).to_numpy()
    nulls = int(distinct.counts[texts["named_null"].to_numpy()].sum())
    if rules.counted and nulls:
        found = sorted(set(texts.filter("named_null")["raw"].str.strip_chars()))
        messages.append(
            f"{name}: {nulls} cells {', '.join(map(repr, found))} are read as "
            "missing; null_values=[] keeps them as strings"
        )
    kind: dict[str, Any] = {"style": style, "text": rules.typed, "exact": exact}
    return Column(name, numbers, distinct.spread(codes), words.to_list(), notes=messages, **kind)


def _parse(
    distinct: DistinctTexts, bare: pl.Series, plain: pl.Series, rules: CellRules, name: str
) -> tuple[Style, pl.Series | None]:
    """Return the first number format that fits all cells, or the one that fits most, or None."""
    present = distinct.count(bare)
    known = rules.known.get(name)
    styles = rules.styles if known is None else (known, *rules.styles)
    probe = distinct.first(bare, 200)
    best: tuple[Style, pl.Series | None] = (known or "plain", None)
    fitting = 0
    for style in styles:
        # parsing the first cells saves three passes over a column of words
        if style not in ("plain", known):
            tried = _parsed(probe, style)
            if (len(tried) - tried.null_count()) * 2 < len(probe):
                continue
        values = plain if style == "plain" else _parsed(bare, style)
        if (fits := distinct.count(values)) > fitting:
            fitting, best = fits, (style, values)
        if fitting == present:
            break
    return best


def _parsed(bare: pl.Series, style: Style) -> pl.Series:
    import polars as pl

    none = pl.Series(CELL, [None], dtype=pl.Float64).new_from_index(0, len(bare))
    if style == "date":
        if not bare.str.contains(ISO_DATE).all():
            return none
        try:
            return _days(bare.str.to_datetime(strict=False))
        except pl.exceptions.PolarsError:
            return none
    if bare.drop_nulls().str.extract(SIGN).n_unique() > 1:
        return none  # 5 and 5 %, or $5 and 5 EUR, are different quantities
    cell = pl.col(CELL).str.replace_all(SIGNS, "${1}")
    if style == "signs":
        plain = pl.when(cell.str.contains(GROUPS)).then(cell.str.replace_all(r"[,'\s]", ""))
    else:
        point = cell.str.replace_all(r"[.'\s]", "").str.replace(",", ".", literal=True)
        plain = pl.when(cell.str.contains(COMMA)).then(point)
    return bare.to_frame().select(plain.otherwise(cell).cast(pl.Float64, strict=False)).to_series()


def null_rules(null_values: Collection[str] | None) -> dict[str, Any]:
    """Return ``null_words`` and ``null_numbers`` of the rules from the user's list."""
    if null_values is None:
        return {}
    numbers = []
    for value in null_values:
        try:
            numbers.append(float(value))
        except ValueError:
            continue
    return {"null_words": tuple(null_values), "null_numbers": tuple(numbers), "counted": False}
