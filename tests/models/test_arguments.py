from __future__ import annotations

import pytest
import torch

from models.arguments import check_choice, did_you_mean, plain


def test_only_a_close_name_is_suggested():
    assert did_you_mean("adam", ["sgd", "adamw"]) == ": did you mean 'adamw'?"
    assert did_you_mean("xyz", ["sgd", "adamw"]) == ""


def test_a_choice_outside_the_list_is_refused():
    check_choice("optimizer", "sgd", ("adamw", "sgd"))
    with pytest.raises(ValueError, match="optimizer must be one of adamw, sgd, got 'sdg'"):
        check_choice("optimizer", "sdg", ("adamw", "sgd"))


def test_saved_values_are_plain():
    found = plain({"a": (1, torch.tensor([2.5])), "b": {"c": torch.tensor(3)}, "d": None})
    assert found == {"a": [1, [2.5]], "b": {"c": 3}, "d": None}
    assert type(found["b"]["c"]) is int
