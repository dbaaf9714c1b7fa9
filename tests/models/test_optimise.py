from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from models.optimise import head_of, parameter_groups, warmup_cosine
from models.vision_nets import build_torchvision_net


def test_the_learning_rate_warms_up_linearly_and_decays_along_a_cosine():
    factor = warmup_cosine(warmup_steps=4, total_steps=12)
    assert [factor(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert factor(8) == pytest.approx(0.5)
    assert factor(11) == pytest.approx(0.5 * (1 + math.cos(math.pi * 7 / 8)))
    assert factor(12) == factor(99) == 0.0


def test_a_warm_up_below_1_is_a_fraction_of_all_steps():
    factor = warmup_cosine(warmup_steps=0.25, total_steps=8)
    assert [factor(step) for step in range(3)] == [0.5, 1.0, 1.0]


@pytest.mark.parametrize("total", [float("inf"), -1])
def test_without_a_known_end_the_rate_is_constant_after_the_warm_up(total):
    factor = warmup_cosine(warmup_steps=2, total_steps=total)
    assert [factor(step) for step in (0, 1, 2, 10_000)] == [0.5, 1.0, 1.0, 1.0]
    assert warmup_cosine(warmup_steps=0.1, total_steps=total)(0) == 1.0


def test_a_warm_up_longer_than_the_run_never_divides_by_zero():
    factor = warmup_cosine(warmup_steps=10, total_steps=4)
    assert [factor(step) for step in range(4)] == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_biases_and_norms_have_no_weight_decay_and_the_backbone_its_own_rate():
    backbone = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    head = nn.Linear(2, 2)
    pairs = [(p, True) for p in backbone.parameters()] + [(p, False) for p in head.parameters()]
    groups = parameter_groups(pairs, lr=0.1, backbone_lr=0.01, weight_decay=0.5)
    found = [(g["lr"], g["weight_decay"], len(g["params"])) for g in groups]
    assert found == [(0.01, 0.5, 1), (0.01, 0.0, 3), (0.1, 0.5, 1), (0.1, 0.0, 1)]


class Named(nn.Module):
    def __init__(self, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)


@pytest.mark.parametrize("name", ["head", "heads", "fc", "classifier"])
def test_the_head_is_found_by_its_name(name):
    net = Named(**{name: nn.Linear(2, 2)}, other=nn.Linear(2, 2))
    assert head_of(net) is getattr(net, name)


def test_the_head_of_an_unnamed_net_is_its_last_layer_with_parameters():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2), nn.Softmax(1))
    assert head_of(net) is net[2]


def test_a_network_of_one_layer_has_no_head():
    with pytest.raises(ValueError, match="which Linear lacks; name it 'head'"):
        head_of(nn.Linear(2, 2))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "swin_t", "vit_b_32"])
def test_the_head_of_torchvision_networks_is_the_last_layer(name):
    with torch.device("meta"):
        net = build_torchvision_net(
            name, num_outputs=7, input_shape=(3, 224, 224), weights=None, options={}
        )
    assert [m.out_features for m in head_of(net).modules() if isinstance(m, nn.Linear)][-1] == 7
