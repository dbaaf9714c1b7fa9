"""Arguments of the models: those they share, checks of names, conversion for checkpoints."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class TrainingOptions(TypedDict, total=False):
    """Arguments that :class:`models.Classifier` and :class:`models.Regressor` share.

    Attributes:
        net_options: More keyword arguments for a network built by name.
        weights: Name of pretrained weights of a torchvision network, such as ``"DEFAULT"``.
        input_sizes: Sizes the network is built for: ``{"input_shape": [C, H, W]}``,
            ``{"num_numeric": F, "cardinalities": [...]}`` or ``{"vocab_size": V, "pad_id": 0}``;
            by default those of the datamodule.
        optimizer: ``"adamw"`` (default) or ``"sgd"`` with Nesterov momentum.
        lr: Learning rate after the warm-up, default 0.001; decays to 0 along a cosine.
        weight_decay: Default 0.01; not applied to biases and norms.
        momentum: Momentum of SGD, default 0.9.
        warmup_steps: Optimizer steps of the warm-up; below 1, a fraction of all steps (default
            0.05).
        freeze_backbone: Train the last layer only; the others stay in eval mode.
        unfreeze_at_epoch: Epoch from which a frozen backbone is trained too.
        backbone_lr: Learning rate of the backbone; by default ``lr``.
    """

    net_options: dict[str, Any] | None
    weights: str | None
    input_sizes: dict[str, Any] | None
    optimizer: Literal["adamw", "sgd"]
    lr: float
    weight_decay: float
    momentum: float
    warmup_steps: int | float
    freeze_backbone: bool
    unfreeze_at_epoch: int | None
    backbone_lr: float | None


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return ``": did you mean 'x'?"`` for the closest known word, or ``""``."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else ""


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise an error unless ``value`` is one of the choices.

    Raises:
        ValueError: Names the choices and suggests the closest one.
    """
    if value not in choices:
        raise ValueError(
            f"{name} must be one of {', '.join(choices)}, got {value!r}"
            f"{did_you_mean(str(value), choices)}"
        )


def plain(value: Any) -> Any:
    """Convert to nested lists, dicts and Python numbers, for checkpoints and ``weights_only``."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
