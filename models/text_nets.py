"""Networks for padded token ids; the output of a row does not depend on the other rows.

Padding may be on either side. The mask may be bool, integer or float; 0 is padding. A row of
padding only has finite logits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# hashes are below this prime, so that hash * factor + id fits an int64 for any vocabulary
_PRIME = 2_147_483_647
_FACTOR = 1_000_003


def token_mask(input_ids: Tensor, attention_mask: Tensor | None, pad_id: int) -> Tensor:
    """Return the mask (N, L) bool, True for a token."""
    return input_ids != pad_id if attention_mask is None else attention_mask != 0


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of (N, L, D) over the tokens, (N, D); zeros for a row without tokens."""
    weight = mask.unsqueeze(2).to(values.dtype)
    return (values * weight).sum(1) / weight.sum(1).clamp(min=1)


class TextBag(nn.Module):
    """Mean of token and n-gram embeddings: fast, and a strong baseline on short texts.

    N-grams are hashed into a table of ``buckets`` embeddings, as in fastText.

    Args:
        vocab_size: V; token ids are below it.
        num_outputs: Logits per text.
        pad_id: Id of padding, used without a mask.
        dim: Size of the embeddings.
        ngrams: Longest n-gram; 1: tokens only.
        buckets: Size of the n-gram table.
        dropout: Dropout probability of the pooled features.
    """

    def __init__(
        self,
        vocab_size: int,
        num_outputs: int,
        pad_id: int = 0,
        *,
        dim: int = 64,
        ngrams: int = 2,
        buckets: int = 16_384,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.pad_id, self.ngrams, self.buckets = pad_id, ngrams, buckets
        self.tokens = nn.Embedding(vocab_size, dim)
        self.grams = nn.Embedding(buckets, dim) if ngrams > 1 else None
        # small embeddings before a norm train well with the learning rate of other networks
        for table in (self.tokens, self.grams):
            if table is not None:
                nn.init.normal_(table.weight, std=0.02)
        self.norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(dim, num_outputs)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(N, L) int64 and (N, L) mask -> (N, num_outputs)."""
        mask = token_mask(input_ids, attention_mask, self.pad_id)
        features, masks = [self.tokens(input_ids)], [mask]
        if self.grams is not None:
            hashes, valid = input_ids, mask
            for shift in range(1, self.ngrams):
                hashes = (hashes[:, :-1] * _FACTOR + input_ids[:, shift:] + shift) % _PRIME
                valid = valid[:, :-1] & mask[:, shift:]
                features.append(self.grams(hashes % self.buckets))
                masks.append(valid)
        pooled = masked_mean(torch.cat(features, dim=1), torch.cat(masks, dim=1))
        logits: Tensor = self.head(self.dropout(self.norm(pooled)))
        return logits


class EncoderBlock(nn.Module):
    """Self-attention and a feed-forward layer, each with a pre-norm and a shortcut."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * dim, dim)
        )
        self.drop = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, rotation: tuple[Tensor, Tensor], keys: Tensor) -> Tensor:
        """(N, L, D), angles of the positions and mask (N, 1, 1, L) bool -> (N, L, D)."""
        batch, length, dim = hidden.shape
        qkv = self.qkv(self.norm1(hidden)).view(batch, length, 3, self.heads, dim // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(
            rotate(query, rotation),
            rotate(key, rotation),
            value,
            attn_mask=keys,
            dropout_p=self.dropout if self.training else 0.0,
        )
        hidden = hidden + self.drop(self.project(attended.transpose(1, 2).flatten(2)))
        output: Tensor = hidden + self.drop(self.feed_forward(self.norm2(hidden)))
        return output


def rotation_angles(positions: Tensor, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines (N, 1, L, size / 2) of rotary positions (N, L)."""
    steps = torch.arange(size // 2, device=positions.device, dtype=torch.float32)
    frequencies = torch.exp(steps * (-math.log(10_000.0) / (size // 2)))
    angles = positions.to(torch.float32)[:, None, :, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(values: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate each pair of features (N, heads, L, size) by the angle of its position."""
    cosine, sine = rotation
    first, second = values.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


class TextTransformer(nn.Module):
    """A small transformer encoder with rotary positions and mean pooling.

    Positions count tokens without padding, so the side of the padding does not matter.

    Args:
        vocab_size: V; token ids are below it.
        num_outputs: Logits per text.
        pad_id: Id of padding, used without a mask.
        dim: Model width, divisible by twice ``heads``.
        depth: Number of encoder blocks.
        heads: Number of attention heads.
        dropout: Dropout probability.
    """

    def __init__(
        self,
        vocab_size: int,
        num_outputs: int,
        pad_id: int = 0,
        *,
        dim: int = 128,
        depth: int = 2,
        heads: int = 4,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if dim % (2 * heads):
            raise ValueError(
                f"dim must be divisible by 2 x heads, got dim={dim} and heads={heads}; "
                f"use for example dim={2 * heads * max(1, dim // (2 * heads))}"
            )
        self.pad_id, self.head_size = pad_id, dim // heads
        self.tokens = nn.Embedding(vocab_size, dim)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(EncoderBlock(dim, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_outputs)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """(N, L) int64 and (N, L) mask -> (N, num_outputs)."""
        mask = token_mask(input_ids, attention_mask, self.pad_id)
        hidden = self.dropout(self.tokens(input_ids))
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        rotation = rotation_angles(positions, self.head_size, hidden.dtype)
        # attention without keys is NaN: a row without tokens attends to its padding, which the
        # mean below ignores
        keys = (mask | ~mask.any(1, keepdim=True))[:, None, None, :]
        for block in self.blocks:
            hidden = block(hidden, rotation, keys)
        logits: Tensor = self.head(masked_mean(self.norm(hidden), mask))
        return logits
