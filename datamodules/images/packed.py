"""Images of a pack in the place of files, under the files' names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from datamodules.images.packs.image_pack import ImagePack

from .regions import Boxes


class PackedImages(Sequence[Any]):
    """M images of a pack as sources of an image dataset.

    Args:
        pack: The pack.
        rows: (M,) int64, rows in the pack.
        names: M paths of the files they were made from, for messages.
    """

    def __init__(self, pack: ImagePack, rows: npt.NDArray[np.int64], names: Sequence[str]) -> None:
        self.pack, self.names = pack, names
        self.rows = torch.from_numpy(rows)  # a tensor goes to workers without a copy

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:  # type: ignore[override]
        return self.pack.content(int(self.rows[index]))

    def boxes(self, index: int, *, mode: Literal["RGB", "L"]) -> Boxes:
        """One image, to be read by boxes; see :meth:`ImagePack.image`."""
        return self.pack.image(int(self.rows[index]), mode=mode, name=lambda: self.names[index])
