from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from models.losses import balanced_weights, classification_losses, match_shapes

K = 3


def logits_and_target(n=7):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(n, K, generator=generator), torch.randint(0, K, (n,), generator=generator)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 4.0]])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_a_batch_equals_torchs(weights, smoothing):
    logits, target = logits_and_target()
    weight = None if weights is None else torch.tensor(weights)
    losses, counts = classification_losses(
        logits, target, task="multiclass", class_weights=weight, label_smoothing=smoothing
    )
    expected = F.cross_entropy(logits, target, weight=weight, label_smoothing=smoothing)
    torch.testing.assert_close(losses.sum() / counts.sum(), expected)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 4.0]])
def test_one_hot_targets_have_the_loss_of_class_indices(weights):
    logits, target = logits_and_target()
    weight = None if weights is None else torch.tensor(weights)
    hard, soft = (
        classification_losses(logits, t, task="multiclass", class_weights=weight)
        for t in (target, F.one_hot(target, K).float())
    )
    torch.testing.assert_close(hard, soft)


def test_the_multilabel_loss_equals_torchs():
    logits, _ = logits_and_target()
    target = (logits.flip(0) > 0).float()
    weight = torch.tensor([1.0, 3.0, 9.0])
    losses, counts = classification_losses(logits, target, task="multilabel", class_weights=weight)
    expected = F.binary_cross_entropy_with_logits(logits, target, pos_weight=weight)
    torch.testing.assert_close(losses.sum() / counts.sum(), expected)


def test_balanced_weights_by_hand():
    assert balanced_weights([1, 3, 0], num_rows=4, task="multiclass") == [4 / 3, 4 / 9, 4 / 3]
    assert balanced_weights([1, 3, 4], num_rows=4, task="multilabel") == [3.0, 1 / 3, 0.25]


@pytest.mark.parametrize("outputs", [(4,), (4, 1)])
@pytest.mark.parametrize("target", [(4,), (4, 1)])
def test_shapes_may_differ_by_a_last_dimension_of_one(outputs, target):
    assert match_shapes(torch.zeros(outputs), torch.zeros(target)).shape == target


@pytest.mark.parametrize(
    ("outputs", "target"), [((4, 2), (4,)), ((1,), (4,)), ((4,), (4, 2)), ((2, 4), (4, 2))]
)
def test_other_shapes_are_refused_and_never_broadcast(outputs, target):
    with pytest.raises(ValueError, match="must return one value for each target, expected"):
        match_shapes(torch.zeros(outputs), torch.zeros(target))
