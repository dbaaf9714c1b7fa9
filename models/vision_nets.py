"""Build torchvision's classification networks for given images, with or without weights."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .arguments import did_you_mean


@functools.cache
def torchvision_names() -> tuple[str, ...]:
    """Return the names of torchvision's classification networks."""
    # imported late: torchvision takes longer to import than this package
    from torchvision import models

    return tuple(models.list_models(module=models))


def build_torchvision_net(
    name: str,
    *,
    num_outputs: int,
    input_shape: Sequence[int] | None,
    weights: str | None,
    options: dict[str, Any],
) -> nn.Module:
    """Build a torchvision network; replace its last layer and, unless C is 3, its first one.

    Args:
        name: One of :func:`torchvision_names`.
        num_outputs: Logits per image.
        input_shape: (C, H, W) of the images; None: 3 channels of a suitable size.
        weights: Name of pretrained weights, such as ``"DEFAULT"`` or ``"IMAGENET1K_V1"``.
        options: More keyword arguments of torchvision's builder.

    Raises:
        ValueError: If the weights are unknown, or the images are too small for the network.
        RuntimeError: If the weights cannot be downloaded.
    """
    from torchvision import models

    chosen = _find_weights(name, weights)
    size = input_shape[1:] if input_shape is not None else None
    arguments = {**_size_options(name, size, chosen), **options}
    if chosen is None:
        arguments["num_classes"] = num_outputs
        if name in ("googlenet", "inception_v3"):
            # auxiliary outputs would need another loss; transform_input as with pretrained
            # weights, so that checkpoints load into the same network; init_weights is set since
            # torchvision warns that its default will change
            arguments = {
                "aux_logits": False,
                "transform_input": True,
                "init_weights": True,
            } | arguments
    try:
        net: nn.Module = models.get_model(name, weights=chosen, **arguments)
    except OSError as error:
        raise RuntimeError(
            f"could not download the weights {chosen} of {name} ({error}); connect to the network "
            f"or place the file {_weights_file(chosen)!r} in {torch.hub.get_dir()}/checkpoints"
        ) from error
    if chosen is not None:
        _drop_auxiliary_heads(net)
        _replace_last_layer(net, len(chosen.meta["categories"]), num_outputs)
    if input_shape is not None and input_shape[0] != 3:
        _replace_first_layer(net, input_shape[0], pretrained=chosen is not None)
    return net


def _find_weights(name: str, weights: str | None) -> Any:
    from torchvision import models

    if weights is None:
        return None
    enum = models.get_model_weights(name)
    # some weights of vgg16 have no classifier
    known = ["DEFAULT", *(member.name for member in enum if member.meta["categories"])]
    short = weights.rpartition(".")[2]  # ResNet18_Weights.IMAGENET1K_V1 is valid as well
    if short not in known:
        raise ValueError(
            f"{name} has no weights {weights!r}{did_you_mean(short, known)}; "
            f"choose from {', '.join(known)}"
        )
    return enum[short]


def _size_options(name: str, size: Sequence[int] | None, chosen: Any) -> dict[str, Any]:
    """Check that the network can take images of (H, W), and return its size options."""
    from torchvision import models

    if size is None:
        return {}
    meta = (chosen or models.get_model_weights(name).DEFAULT).meta
    smallest = tuple(meta["min_size"])
    found = f"{size[0]}x{size[1]}"
    fixed = name.startswith(
        ("vit_", "maxvit_")
    )  # their position embeddings have the size of the image
    if fixed and chosen is not None and tuple(size) != smallest:
        raise ValueError(
            f"{name} with weights {chosen.name} takes images of {smallest[0]}x{smallest[1]}, "
            f"got {found}; resize the images or choose another net"
        )
    # swin pads its windows: torchvision's min_size is the size it was trained with
    if not fixed and not name.startswith("swin_") and min(size) < min(smallest):
        raise ValueError(
            f"{name} takes images of at least {smallest[0]}x{smallest[1]}, got {found}; "
            "resize the images or choose net='small_resnet'"
        )
    if not fixed or chosen is not None:
        return {}
    if name.startswith("maxvit_"):
        return {"input_size": tuple(size)}
    patch = int(name.rpartition("_")[2])
    if size[0] != size[1] or size[0] % patch:
        raise ValueError(
            f"{name} takes square images with sides divisible by {patch}, got {found}; "
            "resize the images or choose another net"
        )
    return {"image_size": size[0]}


def _weights_file(chosen: Any) -> str:
    return str(chosen.url).rpartition("/")[2] if chosen is not None else ""


def _drop_auxiliary_heads(net: nn.Module) -> None:
    """Remove the auxiliary outputs of GoogLeNet and Inception."""
    for name in ("AuxLogits", "aux1", "aux2"):
        if hasattr(net, name):
            setattr(net, name, None)
            net.aux_logits = False  # type: ignore[assignment]


def _set_module(net: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(net.get_submodule(parent), name, module)


def _replace_last_layer(net: nn.Module, num_categories: int, num_outputs: int) -> None:
    for path, module in reversed(list(net.named_modules())):
        if isinstance(module, nn.Linear) and module.out_features == num_categories:
            _set_module(net, path, nn.Linear(module.in_features, num_outputs))
            return
        if isinstance(module, nn.Conv2d) and module.out_channels == num_categories:
            _set_module(net, path, nn.Conv2d(module.in_channels, num_outputs, kernel_size=1))
            return
    raise AssertionError(f"no layer with {num_categories} outputs in {type(net).__name__}")


def _replace_first_layer(net: nn.Module, channels: int, *, pretrained: bool) -> None:
    path, old = next(
        (path, module) for path, module in net.named_modules() if isinstance(module, nn.Conv2d)
    )
    new = nn.Conv2d(
        channels,
        old.out_channels,
        old.kernel_size,  # type: ignore[arg-type]
        old.stride,  # type: ignore[arg-type]
        old.padding,  # type: ignore[arg-type]
        bias=old.bias is not None,
    )
    if pretrained:
        # repeat the pretrained filters over the channels, scaled to keep their sum: a grey image
        # has the same output as with three equal channels
        cycled = old.weight[:, [channel % 3 for channel in range(channels)]] * 3 / channels
        with torch.no_grad():
            new.weight.copy_(old.weight.sum(1, keepdim=True) if channels == 1 else cycled)
            if old.bias is not None and new.bias is not None:
                new.bias.copy_(old.bias)
    _set_module(net, path, new)
    if getattr(net, "transform_input", False):
        net.transform_input = False  # type: ignore[assignment]  # it reads channels 0 to 2
