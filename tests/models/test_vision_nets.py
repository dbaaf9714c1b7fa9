from __future__ import annotations

import types

import pytest
import torch
from torch import nn
from torchvision import models as torchvision_models

from models import vision_nets
from models.vision_nets import build_torchvision_net, torchvision_names


def build(name, shape=(3, 224, 224), weights=None, **options):
    return build_torchvision_net(
        name, num_outputs=5, input_shape=shape, weights=weights, options=options
    )


# the smallest of each family
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("alexnet", (3, 224, 224)),
        ("convnext_tiny", (3, 64, 64)),
        ("densenet121", (3, 64, 64)),
        ("efficientnet_b0", (1, 96, 96)),
        ("googlenet", (3, 96, 96)),
        ("inception_v3", (3, 160, 160)),
        ("maxvit_t", (3, 224, 224)),
        ("mnasnet0_5", (3, 64, 64)),
        ("mobilenet_v2", (4, 64, 64)),
        ("mobilenet_v3_small", (3, 64, 64)),
        ("regnet_y_400mf", (3, 64, 64)),
        ("resnet18", (1, 32, 32)),
        ("shufflenet_v2_x0_5", (3, 64, 64)),
        ("squeezenet1_1", (3, 64, 64)),
        ("swin_t", (3, 64, 96)),
        ("vgg11", (3, 32, 32)),
        ("vit_b_16", (3, 64, 64)),
    ],
)
def test_each_family_has_the_number_of_outputs(name, shape):
    # shapes alone, in no time; RegNet computes its widths with tensors
    with torch.device("cpu" if name.startswith("regnet") else "meta"):
        net = build(name, shape)
    for training in (True, False):
        images = torch.empty(2, *shape, device="meta")
        assert net.to("meta").train(training)(images).shape == (2, 5)


def test_every_family_is_tested():
    families = (
        "alexnet convnext densenet efficientnet googlenet inception maxvit mnasnet mobilenet "
        "regnet resnet resnext shufflenet squeezenet swin vgg vit wide_resnet"
    )
    assert all(name.startswith(tuple(families.split())) for name in torchvision_names())


def test_images_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match="alexnet takes images of at least 63x63, got 32x32"):
        build("alexnet", (3, 32, 32))
    with pytest.raises(ValueError, match="divisible by 16, got 40x40"):
        build("vit_b_16", (3, 40, 40))


def test_unknown_weights_are_refused_with_the_closest_name():
    with pytest.raises(ValueError, match=r"did you mean 'IMAGENET1K_V1'.*DEFAULT"):
        build("resnet18", weights="IMAGENET1K_V9")


@pytest.fixture
def trained(monkeypatch):
    """ResNet18 as if its weights had been downloaded, with some that can be told."""
    torch.manual_seed(0)
    net = torchvision_models.resnet18()

    def get_model(name, weights=None, **arguments):
        assert (name, arguments) == ("resnet18", {})
        assert weights is torchvision_models.ResNet18_Weights.IMAGENET1K_V1
        return net

    monkeypatch.setattr(torchvision_models, "get_model", get_model)
    return {name: value.clone() for name, value in net.state_dict().items()}


@pytest.mark.parametrize("weights", ["DEFAULT", "IMAGENET1K_V1", "ResNet18_Weights.DEFAULT"])
def test_pretrained_weights_stay_and_the_last_layer_is_new(trained, weights):
    net = build("resnet18", weights=weights)
    assert net.fc.weight.shape == (5, 512)
    for name, value in net.state_dict().items():
        if not name.startswith("fc."):
            assert torch.equal(value, trained[name])


def test_one_channel_has_the_output_of_three_equal_channels(trained):
    net = build("resnet18", (1, 32, 32), weights="DEFAULT")
    grey = torch.randn(2, 1, 32, 32)
    expected = nn.functional.conv2d(
        grey.expand(-1, 3, -1, -1), trained["conv1.weight"], stride=2, padding=3
    )
    torch.testing.assert_close(net.conv1(grey), expected, atol=1e-5, rtol=1e-5)


def test_six_channels_repeat_the_filters(trained):
    net = build("resnet18", (6, 32, 32), weights="DEFAULT")
    expected = trained["conv1.weight"].repeat(1, 2, 1, 1) / 2
    torch.testing.assert_close(net.conv1.weight, expected)


def test_a_failed_download_names_the_folder_for_the_file(monkeypatch):
    def get_model(name, weights=None, **arguments):
        raise OSError("no route to host")

    monkeypatch.setattr(torchvision_models, "get_model", get_model)
    with pytest.raises(RuntimeError, match=r"no route to host.*resnet18-.*\.pth.*checkpoints"):
        build("resnet18", weights="DEFAULT")


def test_auxiliary_outputs_of_pretrained_networks_are_removed():
    net = types.SimpleNamespace(aux_logits=True, aux1=nn.Linear(1, 1), aux2=nn.Linear(1, 1))
    vision_nets._drop_auxiliary_heads(net)
    assert (net.aux_logits, net.aux1, net.aux2) == (False, None, None)
