"""Build networks by name, and a small residual network for images.

A network is called as ``net(image)``, ``net(numeric, categorical)`` or
``net(input_ids, attention_mask)`` and returns (N, num_outputs) logits or values. Its last layer is
called ``head``; all other layers are the backbone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from .arguments import did_you_mean
from .tabular_nets import TabularMLP
from .text_nets import TextBag, TextTransformer
from .vision_nets import build_torchvision_net, torchvision_names

InputKind = Literal["image", "table", "text"]


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut; ``stride=2`` halves height and width."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        # the block starts as the identity, so that training needs no long warm-up
        nn.init.zeros_(self.norm2.weight)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Sequential(
                # ceil_mode: 7x7 becomes 4x4, as in the convolution
                nn.AvgPool2d(stride, ceil_mode=True) if stride != 1 else nn.Identity(),
                nn.Conv2d(in_channels, channels, 1, bias=False),
                nn.BatchNorm2d(channels),
            )

    def forward(self, image: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, channels, H / stride, W / stride)."""
        hidden = F.relu(self.norm1(self.conv1(image)))
        residual: Tensor = self.norm2(self.conv2(hidden))
        return F.relu(residual + self.shortcut(image))


class SmallResNet(nn.Module):
    """A residual network for small images, 8x8 to about 64x64, with any number of channels.

    The first convolution keeps the resolution, and each stage after the first halves it.

    Args:
        in_channels: C of the images.
        num_outputs: Logits per image.
        widths: Channels of each stage.
        blocks: Residual blocks in each stage.
        dropout: Dropout probability before the head.
    """

    def __init__(
        self,
        in_channels: int,
        num_outputs: int,
        *,
        widths: Sequence[int] = (32, 64, 128),
        blocks: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, widths[0], 3, padding=1, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(),
        )
        stages: list[nn.Module] = []
        channels = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                stages.append(ResidualBlock(channels, width, 2 if stage and not block else 1))
                channels = width
        self.stages = nn.Sequential(*stages)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(channels, num_outputs)

    def forward(self, image: Tensor) -> Tensor:
        """(N, C, H, W) float -> (N, num_outputs)."""
        features = self.stages(self.stem(image)).mean(dim=(2, 3))
        logits: Tensor = self.head(self.dropout(features))
        return logits


class NetSpec(NamedTuple):
    """A network of this package: kind of its inputs, its class, and its arguments from sizes."""

    kind: InputKind
    cls: Callable[..., nn.Module]
    sizes: Callable[[dict[str, Any]], dict[str, Any]]


def _image_sizes(sizes: dict[str, Any]) -> dict[str, Any]:
    return {"in_channels": sizes["input_shape"][0]}


def _table_sizes(sizes: dict[str, Any]) -> dict[str, Any]:
    if "num_numeric" in sizes:
        return {key: sizes[key] for key in ("num_numeric", "cardinalities") if key in sizes}
    return {"num_numeric": sizes["input_shape"][0]}


def _text_sizes(sizes: dict[str, Any]) -> dict[str, Any]:
    return {key: sizes[key] for key in ("vocab_size", "pad_id") if key in sizes}


NETS = {
    "small_resnet": NetSpec("image", SmallResNet, _image_sizes),
    "tabular_mlp": NetSpec("table", TabularMLP, _table_sizes),
    "text_bag": NetSpec("text", TextBag, _text_sizes),
    "text_transformer": NetSpec("text", TextTransformer, _text_sizes),
}


def net_names() -> list[str]:
    """Return the names that :func:`build_net` accepts: first this package, then torchvision."""
    return [*NETS, *torchvision_names()]


def input_kind(input_sizes: dict[str, Any]) -> InputKind:
    """Return the kind of inputs with the given sizes.

    Args:
        input_sizes: ``{"input_shape": [C, H, W]}`` (or ``[F]`` for rows of numbers),
            ``{"num_numeric": F, "cardinalities": [...]}`` or ``{"vocab_size": V}``.

    Raises:
        ValueError: If the sizes are none of these.
    """
    if "vocab_size" in input_sizes:
        return "text"
    shape = input_sizes.get("input_shape", ())
    if "num_numeric" in input_sizes or len(shape) == 1:
        return "table"
    if len(shape) == 3:
        return "image"
    raise ValueError(
        "input_sizes must be {'input_shape': [C, H, W]} for images, "
        "{'num_numeric': F, 'cardinalities': [...]} for tables or {'vocab_size': V} for texts, "
        f"got {input_sizes!r}"
    )


def resolve_net(name: str, input_sizes: dict[str, Any] | None) -> str:
    """Check a name, and replace ``"auto"`` by a network that suits the inputs.

    That is ``small_resnet`` for images of up to 64 pixels and ``resnet18`` for larger ones,
    ``tabular_mlp`` for tables and ``text_bag`` for texts.

    >>> resolve_net("auto", {"input_shape": [3, 32, 32]})
    'small_resnet'

    Raises:
        ValueError: If the name is unknown, or ``"auto"`` is used without sizes.
    """
    if name != "auto":
        if name not in NETS and name not in torchvision_names():
            names = net_names()
            raise ValueError(
                f"unknown net {name!r}{did_you_mean(name, ['auto', *names])}; "
                f"choose from auto, {', '.join(names)}"
            )
        return name
    if input_sizes is None:
        raise ValueError(
            "net='auto' needs input_sizes, and neither the datamodule nor the arguments have "
            "them; pass for example input_sizes={'input_shape': [3, 32, 32]}, or name a net"
        )
    kind = input_kind(input_sizes)
    if kind == "image":
        return "small_resnet" if max(input_sizes["input_shape"][1:]) <= 64 else "resnet18"
    return "tabular_mlp" if kind == "table" else "text_bag"


def build_net(
    name: str,
    *,
    num_outputs: int,
    input_sizes: dict[str, Any] | None,
    options: dict[str, Any] | None = None,
    weights: str | None = None,
) -> nn.Module:
    """Build a network for inputs of a given size.

    Args:
        name: One of :func:`net_names` or ``"auto"``.
        num_outputs: Logits or values per row.
        input_sizes: See :func:`input_kind`; optional for torchvision networks (3 channels).
        options: More keyword arguments of the network.
        weights: Name of pretrained weights of a torchvision network, such as ``"DEFAULT"``.

    Raises:
        ValueError: If the name, the weights or an option is unknown, or if the network does not
            fit the inputs.

    Example:
        >>> net = build_net("tabular_mlp", num_outputs=3, input_sizes={"num_numeric": 5})
        >>> net.head.out_features
        3
    """
    name = resolve_net(name, input_sizes)
    options = options or {}
    kind = input_kind(input_sizes) if input_sizes is not None else None
    if name not in NETS:
        if kind not in ("image", None):
            raise ValueError(_wrong_kind(name, "image", kind))
        shape = input_sizes["input_shape"] if input_sizes is not None else None
        return build_torchvision_net(
            name, num_outputs=num_outputs, input_shape=shape, weights=weights, options=options
        )
    if weights is not None:
        raise ValueError(
            f"weights={weights!r} needs a torchvision network such as resnet18, {name!r} has no "
            "pretrained weights; leave weights out or change net"
        )
    spec = NETS[name]
    if input_sizes is None:
        raise ValueError(
            f"net={name!r} needs input_sizes, and neither the datamodule nor the arguments "
            "have them; pass for example input_sizes={'input_shape': [3, 32, 32]}"
        )
    if kind != spec.kind:
        raise ValueError(_wrong_kind(name, spec.kind, kind))
    known = [
        parameter.name
        for parameter in inspect.signature(spec.cls).parameters.values()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    for option in options:
        if option not in known:
            raise ValueError(
                f"net {name!r} has no option {option!r}{did_you_mean(option, known)}; "
                f"its options are {', '.join(known)}"
            )
    return spec.cls(num_outputs=num_outputs, **spec.sizes(input_sizes), **options)


def _wrong_kind(name: str, wanted: InputKind, found: InputKind | None) -> str:
    names = [other for other, spec in NETS.items() if spec.kind == found]
    if found == "image":
        names.append("a torchvision network")
    return f"net {name!r} is for {wanted}s, the data are {found}s; choose {' or '.join(names)}"
