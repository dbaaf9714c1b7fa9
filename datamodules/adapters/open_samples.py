"""Open the input of a sample and convert its target; functions that can be pickled."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor

from datamodules.images.decode.decode import decode_image


def open_image(source: Any) -> Image.Image:
    """Open an image file as RGB."""
    return decode_image(source, mode="RGB")


def as_floats(target: Any) -> Tensor:
    """Convert the target of regression or of multi-label data to float32."""
    return torch.as_tensor(target, dtype=torch.float32)
