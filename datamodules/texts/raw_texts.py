"""The texts of a source as written, for reports and figures."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from datamodules.batches.inspection_interface import Summary, Trace

from .dataset import MOST_SHOWN, FlatRows


class RawTexts(NamedTuple):
    """The texts behind the tokens.

    Attributes:
        texts: UTF-8 bytes of each text.
        pairs: UTF-8 bytes of each second text, or None.
        cut: (N,) bool, whether each text was longer than ``max_length``.
        tokenizer: The tokenizer as JSON.
    """

    texts: FlatRows
    pairs: FlatRows | None
    cut: npt.NDArray[np.bool_]
    tokenizer: str

    def texts_of(self, row: int) -> list[tuple[str, str]]:
        """Return what each text of a row is called, and the text."""
        named = (("text", self.texts), ("second text", self.pairs))
        return [(name, rows.text(row)) for name, rows in named if rows is not None]

    def trace(self, row: int, ids: npt.NDArray[Any]) -> Trace:
        """Yield the texts of a row, and its (L,) ids as text."""
        from tokenizers import Tokenizer

        for name, text in self.texts_of(row):
            size = f"{len(text):,} characters, {len(text.encode()):,} bytes"
            line = " ".join(text.split())
            yield name, Summary(size, "UTF-8", line if len(line) <= 60 else line[:57] + "...")
        tokenizer = Tokenizer.from_str(self.tokenizer)
        shown = [tokenizer.decode([int(i)], skip_special_tokens=False) for i in ids[:MOST_SHOWN]]
        more = f" and {len(ids) - MOST_SHOWN:,} more" if len(ids) > MOST_SHOWN else ""
        cut = ", cut at max_length" if self.cut[row] else ""
        yield "tokens", Summary(f"{len(ids):,} tokens{cut}", "", " ".join(map(repr, shown)) + more)
