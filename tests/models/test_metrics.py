from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics as reference
import torch

from models.metrics import (
    RowStore,
    WeightedMean,
    classification_scores,
    regression_scores,
    weighted_mean,
)


def rows(n, classes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    # rounded, so that many scores tie
    logits = torch.randn(n, classes, generator=generator).mul(2).round().div(2)
    return logits.softmax(1), torch.randint(0, classes, (n,), generator=generator)


@pytest.mark.parametrize("classes", [2, 5])
def test_multiclass_scores_agree_with_scikit_learn(classes):
    probabilities, target = rows(201, classes)
    scores, confusion = classification_scores(probabilities, target, task="multiclass")
    found = probabilities.argmax(1)
    expected = {
        "accuracy": reference.accuracy_score(target, found),
        "macro_accuracy": reference.balanced_accuracy_score(target, found),
        "macro_f1": reference.f1_score(target, found, average="macro"),
        "auroc": np.mean(
            [reference.roc_auc_score(target == k, probabilities[:, k]) for k in range(classes)]
        ),
    }
    assert scores == pytest.approx(expected, abs=1e-9)
    assert confusion.dtype == torch.int64
    assert confusion.tolist() == reference.confusion_matrix(target, found).tolist()


def test_multilabel_scores_agree_with_scikit_learn():
    generator = torch.Generator().manual_seed(1)
    probabilities = torch.rand(101, 4, generator=generator).mul(20).round().div(20)
    target = torch.randint(0, 2, (101, 4), generator=generator)
    scores, confusion = classification_scores(probabilities, target.byte(), task="multilabel")
    found = (probabilities > 0.5).long()
    expected = {
        "accuracy": 1 - reference.hamming_loss(target, found),
        "macro_accuracy": np.mean(
            [reference.balanced_accuracy_score(target[:, k], found[:, k]) for k in range(4)]
        ),
        "macro_f1": reference.f1_score(target, found, average="macro"),
        "auroc": reference.roc_auc_score(target, probabilities, average="macro"),
    }
    assert scores == pytest.approx(expected, abs=1e-9)
    assert confusion.tolist() == reference.multilabel_confusion_matrix(target, found).tolist()


def test_an_absent_class_is_not_in_the_means():
    probabilities = torch.tensor([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1]])
    scores, confusion = classification_scores(
        probabilities, torch.tensor([0, 1, 1]), task="multiclass"
    )
    assert scores == pytest.approx(
        {"accuracy": 2 / 3, "macro_accuracy": 0.75, "macro_f1": 2 / 3, "auroc": 1.0}
    )
    assert confusion.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 0]]


def test_undefined_scores_are_left_out():
    probabilities = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
    scores, _ = classification_scores(probabilities, torch.tensor([0, 0]), task="multiclass")
    # class 1 never occurs but is predicted once, which counts as an F1 of 0
    assert scores == pytest.approx({"accuracy": 0.5, "macro_accuracy": 0.5, "macro_f1": 1 / 3})


def test_the_order_of_the_rows_changes_no_digit():
    probabilities, target = rows(501, 3)
    order = torch.randperm(501, generator=torch.Generator().manual_seed(3))
    scores, confusion = classification_scores(probabilities, target, task="multiclass")
    again, also = classification_scores(probabilities[order], target[order], task="multiclass")
    assert scores == again
    assert torch.equal(confusion, also)


@pytest.mark.parametrize("targets", [1, 3])
def test_regression_agrees_with_scikit_learn(targets):
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(51, targets, generator=generator, dtype=torch.float64)
    predicted = target + torch.randn(51, targets, generator=generator, dtype=torch.float64) / 3
    expected = {
        "mae": reference.mean_absolute_error(target, predicted),
        "rmse": reference.root_mean_squared_error(target, predicted),
        "r2": reference.r2_score(target, predicted),
    }
    assert regression_scores(predicted, target) == pytest.approx(expected, abs=1e-12)


def test_r2_of_a_constant_target_is_left_out():
    target = torch.full((7, 1), 0.1, dtype=torch.float64)
    assert regression_scores(target + 1, target) == pytest.approx({"mae": 1.0, "rmse": 1.0})


def test_a_weighted_mean_is_exact_in_a_model_in_half_precision():
    mean = WeightedMean().to(torch.bfloat16)
    for _ in range(1000):
        mean.update(torch.tensor(1.0), torch.tensor(2.0))
    assert mean.compute().item() == 0.5
    assert mean.totals.tolist() == [1000.0, 2000.0]
    mean.reset()
    mean.update(torch.tensor(3.0), torch.tensor(4.0))
    assert mean.compute().item() == 0.75


def test_a_weighted_mean_keeps_nan():
    mean = WeightedMean()
    mean.update(torch.tensor(1.0), torch.tensor(1.0))
    mean.update(torch.tensor(float("nan")), torch.tensor(1.0))
    assert mean.compute().isnan()


def test_a_row_store_returns_the_rows_in_order():
    store = RowStore("outputs", "target")
    store.begin(outputs=torch.empty(0, 2), target=torch.empty(0, dtype=torch.int64))
    store.update(outputs=torch.ones(1, 2), target=torch.tensor([4]))
    store.update(outputs=torch.zeros(2, 2), target=torch.tensor([5, 6]))
    found = store.gather()
    assert store.compute() == 3
    assert found["outputs"].tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    assert found["target"].tolist() == [4, 5, 6]


def test_a_row_store_without_updates_neither_warns_nor_fails():
    store = RowStore("target")
    store.begin(target=torch.empty(0, 3))
    assert store.gather()["target"].shape == (0, 3)
    assert store.compute() == 0


def test_a_single_row_keeps_its_dimensions():
    store = RowStore("target")
    store.update(target=torch.zeros(1, 1))
    assert store.gather()["target"].shape == (1, 1)


def test_the_loss_of_a_split_is_the_sum_over_the_weights():
    found = weighted_mean({"loss": torch.tensor([1.0, 4.0]), "weight": torch.tensor([0.5, 2.0])})
    assert found == 2.0
