"""The usual torch, torchvision and pandas code for each benchmark, as in their tutorials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CIFAR_MEAN, CIFAR_STD = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]


def transform(*, train: bool) -> Any:
    """Return torchvision's usual transform for ImageNet."""
    train_view = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
    view = train_view if train else [transforms.Resize(256), transforms.CenterCrop(224)]
    return transforms.Compose([*view, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])


def images(root: Path, *, train: bool, batch_size: int, workers: int) -> DataLoader[Any]:
    """Load torchvision's ImageFolder with torch's loader."""
    dataset = datasets.ImageFolder(str(root), transform(train=train))
    return DataLoader(dataset, batch_size, shuffle=train, num_workers=workers)


class Images(Dataset[Any]):
    """Images in memory; each becomes a PIL image first, as in torchvision's CIFAR10."""

    def __init__(self, pixels: np.ndarray[Any, Any], targets: Sequence[int]) -> None:
        self.pixels, self.targets = pixels, targets
        self.steps = transforms.Compose(
            [
                transforms.RandomCrop(32, padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(CIFAR_MEAN, CIFAR_STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.steps(Image.fromarray(self.pixels[index])), self.targets[index]


class Tokens(Dataset[Any]):
    """One list of tokens per item."""

    def __init__(self, ids: Sequence[Sequence[int]], labels: Sequence[int]) -> None:
        self.ids, self.labels = ids, labels

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = list(self.ids[index])
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "label": self.labels[index]}


def shuffled(
    dataset: Dataset[Any], batch_size: int, collate: Callable[[Any], Any] | None = None
) -> DataLoader[Any]:
    """Load with torch's loader, shuffled, without workers."""
    return DataLoader(dataset, batch_size, shuffle=True, collate_fn=collate)


def pad_batch(samples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """Pad token lists with torch's pad_sequence."""
    rows = [torch.tensor(sample["input_ids"]) for sample in samples]
    masks = [torch.tensor(sample["attention_mask"]) for sample in samples]
    return {
        "input_ids": pad_sequence(rows, batch_first=True),
        "attention_mask": pad_sequence(masks, batch_first=True),
        "labels": torch.tensor([sample["label"] for sample in samples]),
    }


def hugging_face_collate() -> Callable[[Any], Any]:
    """Return DataCollatorWithPadding of transformers."""
    from tokenizers import Tokenizer, models
    from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1}, "[UNK]"))
    make: Any = PreTrainedTokenizerFast  # ships no types
    tokenizer = make(tokenizer_object=words, pad_token="[PAD]")
    collate: Callable[[Any], Any] = DataCollatorWithPadding(tokenizer)
    return collate


def fit_table(
    path: Path, numeric: Sequence[str], categorical: Sequence[str], train_rows: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Impute, scale and encode a table with pandas, fitted on the first rows.

    Returns:
        (N, F) float32 and (N, G) int64.
    """
    import pandas as pd

    frame = pd.read_csv(path)
    numbers, train = frame[list(numeric)], frame.iloc[:train_rows]
    known = train[list(numeric)]
    scaled = (numbers.fillna(known.median()) - known.mean()) / known.std()
    codes = [
        pd.Categorical(frame[name], categories=train[name].value_counts().index).codes
        for name in categorical
    ]
    return scaled.to_numpy(np.float32), np.stack(codes, 1).astype(np.int64) + 1
