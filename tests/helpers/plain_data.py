"""A loader and a datamodule as a user writes them, from a list of batches."""

from __future__ import annotations

import lightning as L


class Batches:
    """A loader of given batches."""

    def __init__(self, *batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


class Data(L.LightningDataModule):
    """The same batches in each split, and any attributes."""

    def __init__(self, batches, **attributes):
        super().__init__()
        self.batches = Batches(*batches)
        self.__dict__.update(attributes)

    def train_dataloader(self):
        return self.batches

    def val_dataloader(self):
        return self.batches

    def test_dataloader(self):
        return self.batches

    def predict_dataloader(self):
        return Batches(*[batch.inputs for batch in self.batches])
