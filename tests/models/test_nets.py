from __future__ import annotations

import pytest
import torch

from models import build_net, net_names
from models.nets import NETS, SmallResNet, input_kind, resolve_net

IMAGES = {"input_shape": [3, 32, 32]}
TABLE = {"num_numeric": 4, "cardinalities": [3, 5]}
TEXT = {"vocab_size": 50, "pad_id": 0}


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 28, 28), (3, 7, 9), (4, 32, 32)])
def test_small_resnet_accepts_small_images_with_any_channels(shape):
    net = SmallResNet(shape[0], 10)
    assert net(torch.randn(2, *shape)).shape == (2, 10)


def test_small_resnet_halves_the_image_at_each_stage_after_the_first():
    net = SmallResNet(1, 10, widths=(4, 8, 16), blocks=2)
    sizes = []
    for block in net.stages:
        block.register_forward_hook(lambda _m, _i, out: sizes.append(tuple(out.shape[1:])))
    net(torch.randn(1, 1, 8, 8))
    assert sizes == [(4, 8, 8), (4, 8, 8), (8, 4, 4), (8, 4, 4), (16, 2, 2), (16, 2, 2)]


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [
        (IMAGES, "image"),
        (TABLE, "table"),
        ({"input_shape": [7]}, "table"),
        (TEXT, "text"),
    ],
)
def test_sizes_determine_the_kind_of_inputs(sizes, kind):
    assert input_kind(sizes) == kind


def test_unknown_sizes_are_refused():
    with pytest.raises(ValueError, match=r"\[C, H, W\].*got \{'input_shape': \[3, 4\]\}"):
        input_kind({"input_shape": [3, 4]})


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ({"input_shape": [1, 8, 64]}, "small_resnet"),
        ({"input_shape": [3, 65, 32]}, "resnet18"),
        (TABLE, "tabular_mlp"),
        ({"input_shape": [7]}, "tabular_mlp"),
        (TEXT, "text_bag"),
    ],
)
def test_auto_chooses_a_network_for_the_inputs(sizes, name):
    assert resolve_net("auto", sizes) == name


def test_auto_without_sizes_is_refused():
    with pytest.raises(ValueError, match="pass for example input_sizes="):
        resolve_net("auto", None)


def test_an_unknown_network_is_refused_with_the_closest_name():
    with pytest.raises(ValueError, match=r"'resent18': did you mean 'resnet18'.*small_resnet"):
        build_net("resent18", num_outputs=2, input_sizes=IMAGES)


def test_every_network_has_a_head_with_the_number_of_outputs():
    sizes = {"image": IMAGES, "table": TABLE, "text": TEXT}
    for name, spec in NETS.items():
        net = build_net(name, num_outputs=7, input_sizes=sizes[spec.kind])
        assert net.head.out_features == 7, name


def test_names_of_this_package_come_first():
    assert net_names()[: len(NETS)] == list(NETS)
    assert "efficientnet_b0" in net_names()


def test_a_network_for_other_inputs_is_refused():
    with pytest.raises(ValueError, match=r"is for texts, the data are tables.*tabular_mlp"):
        build_net("text_bag", num_outputs=2, input_sizes=TABLE)
    with pytest.raises(ValueError, match="is for images, the data are texts"):
        build_net("resnet18", num_outputs=2, input_sizes=TEXT)


def test_options_are_passed_to_the_network_and_unknown_ones_refused():
    net = build_net("small_resnet", num_outputs=2, input_sizes=IMAGES, options={"widths": (4, 8)})
    assert net.head.in_features == 8
    with pytest.raises(ValueError, match="no option 'width': did you mean 'widths'"):
        build_net("small_resnet", num_outputs=2, input_sizes=IMAGES, options={"width": 4})


def test_only_torchvision_networks_have_pretrained_weights():
    with pytest.raises(ValueError, match="needs a torchvision network"):
        build_net("small_resnet", num_outputs=2, input_sizes=IMAGES, weights="DEFAULT")


def test_a_network_without_sizes_is_refused():
    with pytest.raises(ValueError, match="needs input_sizes"):
        build_net("small_resnet", num_outputs=2, input_sizes=None)
