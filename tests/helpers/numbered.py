"""A dataset for workers that start afresh: with torch alone they start in a third of the time."""

from __future__ import annotations

import sys

import torch
from torch.utils.data import Dataset


class Numbered(Dataset):
    """Input and target are the row's number and whether it is odd."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.tensor([float(self.rows[index])]), int(self.rows[index]) % 2

    def describe(self, index):
        return str(self.rows[index])


class Imported(Numbered):
    """Input is whether Lightning and torchvision are imported where it is read."""

    def __getitem__(self, index):
        heavy = ("lightning", "torchvision")
        return torch.tensor([name in sys.modules for name in heavy]), int(self.rows[index]) % 2
