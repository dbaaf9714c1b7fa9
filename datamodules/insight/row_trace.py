"""One row of a table, or one text, from what the file says to what the model gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from datamodules.tables.dataset import RowDataset
from datamodules.tables.features import numeric_names
from datamodules.texts.dataset import TextDataset

from .findings import SampleStep
from .split_view import Looked

MOST = 12  # columns or tokens shown


def follow_text(dm: Any, one: Looked, index: int) -> Iterator[SampleStep]:
    """A text as it is written, its tokens, its ids, and its row of a batch.

    Args:
        dm: A text datamodule.
        one: One of its splits.
        index: The text.
    """
    from tokenizers import Tokenizer

    data: TextDataset = one.dataset
    part, row = dm._rows[one.split][0], int(data.rows[index])
    table = dm._tables[part]
    for name, texts in (("text", table.texts), ("second text", table.pairs)):
        if texts is not None:
            text = texts.text(row)
            size = f"{len(text):,} characters, {len(texts[row]):,} bytes"
            yield SampleStep(one.split, name, size, "UTF-8", _short(text))
    ids = data.tokens[row]
    tokenizer = Tokenizer.from_str(dm.fitted["tokenizer"])
    pieces = [tokenizer.decode([int(i)], skip_special_tokens=False) for i in ids[:MOST]]
    more = f" and {len(ids) - MOST:,} more" if len(ids) > MOST else ""
    cut = ", cut at max_length" if dm._tokens(part).cut[row] else ""
    said = " ".join(map(repr, pieces)) + more
    yield SampleStep(one.split, "tokens", f"{len(ids):,} tokens{cut}", "", said)
    said = f"{', '.join(map(str, ids[:MOST].tolist()))}{more}"
    yield SampleStep(one.split, "ids", f"{len(ids):,}", str(ids.dtype), said)
    count = min(int(dm.hparams["batch_size"]), len(data) - index)
    batch: Any = data.get_batch(np.arange(index, index + count))
    inputs = getattr(batch, "inputs", batch)
    width, tokens = inputs.input_ids.shape[1], int(inputs.attention_mask[0].sum())
    said = (
        f"{tokens:,} tokens and {width - tokens:,} of padding, beside the {count - 1} that follow"
    )
    yield SampleStep(one.split, "padded", f"{width:,}", "int64", said)
    if one.target is not None:
        label = int(batch.target[0])
        yield SampleStep(one.split, "target", "a number", "int64", f"{label} ({dm.classes[label]})")


def follow_row(dm: Any, one: Looked, index: int) -> Iterator[SampleStep]:
    """A row as the file has it, and the numbers and codes that a model gets.

    Args:
        dm: A tabular datamodule.
        one: One of its splits.
        index: The row.
    """
    data: RowDataset = one.dataset
    table = dm._parts[one.split].table
    assert data.names is not None
    row = int(data.names._rows[index])
    features = dm.fitted["features"]
    raw = [f"{f['name']}={table.column(f['name']).word(row) or 'missing'}" for f in features]
    size = f"row {row} of {table.name}, {len(raw)} columns"
    yield SampleStep(one.split, "row", size, "", _listed(raw))
    raw = [f"{name}={table.column(name).word(row)}" for name in dm.target]
    yield SampleStep(one.split, "target as written", f"{len(raw)} columns", "", _listed(raw))
    numeric, codes, _ = data.packed.gather(np.array([index]))
    numbers = [f"{n} {v:.3g}" for n, v in zip(numeric_names(features), numeric[0], strict=True)]
    if numbers:
        yield SampleStep(one.split, "numbers", f"{len(numbers)}", "float32", _listed(numbers))
    words = [f for f in features if f["kind"] == "categorical"]
    coded = [f"{f['name']} {code}" for f, code in zip(words, codes[0].tolist(), strict=True)]
    if coded:
        said = _listed(coded) + " (0 missing, 1 unseen in train)"
        yield SampleStep(one.split, "codes", f"{len(coded)}", "int64", said)
    inputs = data[index][0]
    if data.one_hot is not None:
        yield SampleStep(one.split, "one-hot", f"{len(inputs)}", "float32", _spread(inputs))
    target = data[index][1]
    said = _spread(target) if target.ndim else f"{float(target):.4g}"
    if data.packed.target == "class":
        said = f"{int(target)} ({dm.classes[int(target)]})"
    dtype = str(target.dtype).removeprefix("torch.")
    size = " x ".join(map(str, target.shape)) or "a number"
    yield SampleStep(one.split, "target", size, dtype, said)


def _spread(numbers: Any) -> str:
    return f"{float(numbers.min()):.4g} to {float(numbers.max()):.4g}"


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - MOST} more" if len(parts) > MOST else ""
    return ", ".join(_short(part) for part in parts[:MOST]) + more


def _short(text: str, most: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."
