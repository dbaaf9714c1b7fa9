from __future__ import annotations

import pytest
import torch
from torchvision import transforms as v1
from torchvision.transforms import v2

import datamodules.images.fast.crop_params as crop_params
from datamodules.images.fast.crop_params import resized_crop_box
from datamodules.seeding.thread_rng import own_stream

STEPS = {
    "v1": v1.RandomResizedCrop(9),
    "v2": v2.RandomResizedCrop(9),
    "narrow": v1.RandomResizedCrop(9, scale=(0.9, 1.0), ratio=(0.3, 0.4)),
    "wide": v2.RandomResizedCrop(9, scale=[0.2, 1.5], ratio=[2.0, 5.0]),
    "one": v2.RandomResizedCrop(9, scale=(1, 1), ratio=(1, 1)),
}


def torchvisions(step, height, width):
    image = torch.empty(1, dtype=torch.uint8).expand(3, height, width)
    if isinstance(step, v1.RandomResizedCrop):
        return step.get_params(image, step.scale, step.ratio)
    return crop_params.box_of(step.make_params([image]))


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("shape", [(375, 500), (31, 8), (8, 31), (1, 1), (1, 300), (3000, 4000)])
def test_boxes_and_the_state_after_them_are_torchvisions(step, shape):
    assert crop_params.draws_as_torchvision(type(step))
    for seed in range(30):
        torch.manual_seed(seed)
        expected, state = torchvisions(step, *shape), torch.get_rng_state()
        torch.manual_seed(seed)
        assert resized_crop_box(step, *shape) == tuple(expected)
        assert torch.equal(torch.get_rng_state(), state)


def test_a_thread_draws_from_its_own_stream():
    step = STEPS["v2"]
    torch.manual_seed(4)
    expected = resized_crop_box(step, 60, 90)
    before = torch.get_rng_state()
    with own_stream() as stream:
        stream.generator.manual_seed(4)
        assert resized_crop_box(step, 60, 90) == expected
    assert torch.equal(torch.get_rng_state(), before)


def test_a_torchvision_that_draws_differently_is_called_itself(monkeypatch):
    def other(self, flat_inputs):
        torch.rand(1)
        return {"top": 1, "left": 2, "height": 3, "width": 4}

    step = v2.RandomResizedCrop(9)
    crop_params.draws_as_torchvision.cache_clear()
    monkeypatch.setattr(v2.RandomResizedCrop, "make_params", other)
    try:
        before = torch.get_rng_state()
        assert not crop_params.draws_as_torchvision(type(step))
        assert torch.equal(torch.get_rng_state(), before), "the comparison draws from its own"
        assert resized_crop_box(step, 60, 90) == (1, 2, 3, 4)
    finally:
        crop_params.draws_as_torchvision.cache_clear()
