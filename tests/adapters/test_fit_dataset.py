from __future__ import annotations

import numpy as np
import pytest
import torch

from datamodules.adapters.fit_dataset import fit_classes, fit_inputs

TRAIN = np.array([0, 1, 2])


def test_given_names_are_indexed_by_whole_numbers():
    fitted = fit_classes(np.array([1, 1, 0]), ["ash", "oak"], TRAIN, multilabel=False)
    assert fitted == {"classes": ["ash", "oak"], "class_counts": [1, 2], "known": [0, 1]}


def test_whole_floats_are_classes_and_fractions_are_refused():
    fitted = fit_classes(np.array([2.0, 5.0, 5.0]), None, TRAIN, multilabel=False)
    assert fitted["known"] == [2, 5]
    with pytest.raises(ValueError, match=r"labels such as 0\.5 are not classes"):
        fit_classes(np.array([0.5, 1.0, 1.0]), None, TRAIN, multilabel=False)


def test_a_label_that_is_not_in_train_is_refused():
    with pytest.raises(ValueError, match=r"label 'elm' is not among the classes of train"):
        fit_classes(np.array(["ash", "oak", "oak", "elm"]), None, TRAIN, multilabel=False)


def test_multilabel_columns_are_counted_and_checked():
    labels = np.array([[1, 0], [1, 1], [0, 1], [1, 1]])
    fitted = fit_classes(labels, ["cat", "dog"], TRAIN, multilabel=True)
    assert fitted == {"classes": ["cat", "dog"], "class_counts": [2, 2]}
    with pytest.raises(ValueError, match=r"got labels of shape \(2,\)"):
        fit_classes(np.array([0, 2]), None, TRAIN, multilabel=True)
    with pytest.raises(ValueError, match="1 classes, labels have 2 columns"):
        fit_classes(labels, ["cat"], TRAIN, multilabel=True)


def test_a_grey_image_gets_the_mean_of_imagenets_channels():
    fitted = fit_inputs(torch.zeros(1, 4, 4, dtype=torch.uint8), None, None)
    assert fitted["input_sizes"] == {"input_shape": [1, 4, 4]}
    assert fitted["mean"] == pytest.approx([(0.485 + 0.456 + 0.406) / 3])
    with pytest.raises(ValueError, match="an image has 1 channels, std has 3 values"):
        fit_inputs(torch.zeros(1, 4, 4, dtype=torch.uint8), [0.5], [0.1, 0.2, 0.3])
