"""Networks for tables with numeric and categorical columns."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class TableEncoder(nn.Module):
    """Concatenate numeric columns with an embedding of each categorical column.

    Args:
        num_numeric: F, may be 0.
        cardinalities: Number of category indices of each of the G categorical columns.
        embedding_size: Size of every embedding; None: about half the cardinality, at most 16.

    Attributes:
        width: Number of output features.
    """

    def __init__(
        self, num_numeric: int, cardinalities: Sequence[int], embedding_size: int | None
    ) -> None:
        super().__init__()
        widths = [embedding_size or min(16, (count + 1) // 2) for count in cardinalities]
        self.embeddings = nn.ModuleList(map(nn.Embedding, cardinalities, widths))
        self.width = num_numeric + sum(widths)

    def forward(self, numeric: Tensor, categorical: Tensor | None = None) -> Tensor:
        """(N, F) float and (N, G) int64 -> (N, width)."""
        if categorical is None:
            return numeric
        embedded = [embed(categorical[:, g]) for g, embed in enumerate(self.embeddings)]
        return torch.cat([numeric, *embedded], dim=1)


class TabularMLP(nn.Module):
    """Embeddings and a multi-layer perceptron.

    Args:
        num_numeric: F.
        num_outputs: Logits or values per row.
        cardinalities: See :class:`TableEncoder`.
        hidden: Width of each hidden layer.
        dropout: Dropout probability of the hidden layers.
        embedding_size: See :class:`TableEncoder`.
    """

    def __init__(
        self,
        num_numeric: int,
        num_outputs: int,
        cardinalities: Sequence[int] = (),
        *,
        hidden: Sequence[int] = (256, 128),
        dropout: float = 0.1,
        embedding_size: int | None = None,
    ) -> None:
        super().__init__()
        self.encoder = TableEncoder(num_numeric, cardinalities, embedding_size)
        layers: list[nn.Module] = []
        width = self.encoder.width
        for size in hidden:
            layers += [nn.Linear(width, size), nn.LayerNorm(size), nn.ReLU(), nn.Dropout(dropout)]
            width = size
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width, num_outputs)

    def forward(self, numeric: Tensor, categorical: Tensor | None = None) -> Tensor:
        """(N, F) float and (N, G) int64 -> (N, num_outputs)."""
        output: Tensor = self.head(self.layers(self.encoder(numeric, categorical)))
        return output
