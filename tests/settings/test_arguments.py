from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from datamodules.settings.arguments import check_name, did_you_mean, given_again, plain, storable


@pytest.mark.parametrize(
    ("name", "hint"),
    [("shufle", "did you mean 'Shuffle'? "), ("SHUFFLE", "did you mean 'Shuffle'? "), ("xyz", "")],
)
def test_the_closest_name_is_suggested_whatever_its_case(name, hint):
    assert did_you_mean(name, ["sequential", "Shuffle"]) == hint


def test_an_unknown_name_is_refused_with_all_known_names():
    check_name("b", ["a", "b"], "letter")
    with pytest.raises(ValueError, match="unknown letter 5; known: a, b"):
        check_name(5, ["a", "b"], "letter")


def test_arguments_are_stored_as_plain_values_and_objects_by_name():
    value = {"root": Path("x"), 1: (np.float32(0.5), None, True), "size": range(3), "load": len}
    assert plain(value) == {"root": "x", "1": [0.5, None, True], "size": "<range>", "load": "<len>"}
    assert plain([0] * 1001) == "<list>", "data is not stored"


def test_an_object_that_was_stored_by_name_must_be_passed_again():
    assert given_again("photos", "root") == "photos"
    assert given_again(len, "load") is len
    with pytest.raises(ValueError, match=r"your own load=<len>, .*; pass load= again"):
        given_again(plain(len), "load")


def test_fitted_values_are_stored_or_named():
    kept = storable({"mean": np.array([0.5]), "classes": ("a",), "x": torch.ones(1)}, "fitted")
    assert kept == {"mean": [0.5], "classes": ["a"], "x": torch.ones(1)}
    with pytest.raises(TypeError, match=r"fitted\['map'\]\[1\] is a set, which a checkpoint"):
        storable({"map": [1, {2}]}, "fitted")
