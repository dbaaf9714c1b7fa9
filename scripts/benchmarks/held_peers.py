"""Other ways to make batches of data in memory: pytorch-tabular, Hugging Face's datasets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader

from . import stock
from .rounds import Variant, consume, peer


def tabular(numeric: Tensor, codes: Tensor, target: Tensor, size: int) -> Variant:
    """pytorch-tabular's dataset under torch's loader, as its datamodule builds it."""
    made: list[Any] = []

    def batches() -> Iterable[Any]:
        if not made:
            made.append(_tabular_dataset(numeric, codes, target))
        return DataLoader(made[0], size, shuffle=True)

    return peer(
        "pytorch-tabular",
        "pytorch_tabular",
        lambda: consume(batches(), lambda batch: len(batch["target"])),
    )


def _tabular_dataset(numeric: Tensor, codes: Tensor, target: Tensor) -> Any:
    import pandas as pd
    from pytorch_tabular.tabular_datamodule import TabularDataset

    numbers = [f"x{k}" for k in range(numeric.shape[1])]
    kinds = [f"c{k}" for k in range(codes.shape[1])]
    frame = pd.DataFrame(numeric.numpy(), columns=numbers)
    frame[kinds] = codes.numpy()
    frame["y"] = target.numpy()
    return TabularDataset(frame, "classification", numbers, kinds, ["y"])


def text(ids: Sequence[Sequence[int]], labels: np.ndarray[Any, Any], size: int) -> Variant:
    """Hugging Face's Arrow dataset and collator under torch's loader."""
    made: list[Any] = []

    def batches() -> Iterable[Any]:
        if not made:
            import datasets

            masks = [[1] * len(row) for row in ids]
            columns = {"input_ids": ids, "attention_mask": masks, "label": labels.tolist()}
            made.append(datasets.Dataset.from_dict(columns))
        return DataLoader(made[0], size, shuffle=True, collate_fn=stock.hugging_face_collate())

    return peer(
        "datasets and collator", "datasets", lambda: consume(batches(), lambda b: len(b["labels"]))
    )
