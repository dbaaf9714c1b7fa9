from __future__ import annotations

import inspect

import pytest

import datamodules
import models
from datamodules.splits.options import SplitOptions

ROOMS = ("sampling", "batches")
PUBLIC = [
    *(getattr(datamodules, n) for n, home in datamodules.HOMES.items() if home.startswith(ROOMS)),
    *(getattr(models, name) for name in models.__all__ if name != "net_names"),
    SplitOptions,
]


@pytest.mark.parametrize("public", PUBLIC, ids=lambda public: public.__name__)
def test_everything_a_user_calls_has_an_example(public):
    assert ">>> " in inspect.getdoc(public)
