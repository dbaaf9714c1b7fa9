"""Load datamodules and models from checkpoints of scripts/fit.py."""

from __future__ import annotations

import inspect
from typing import Any

from names import UsageError, import_path, known_names, resolve
from run_folder import WRITTEN_BY, class_path


def find_class(kind: str, checkpoint: dict[str, Any], name: str | None) -> Any:
    """Return the class that wrote a checkpoint.

    Args:
        kind: ``"data"`` or ``"model"``.
        checkpoint: Its content.
        name: The user's choice, which overrides the checkpoint's.

    Raises:
        UsageError: If the checkpoint does not name a class of this project.
    """
    if name is not None:
        return import_path(resolve(kind, name))
    known = [import_path(path) for path in known_names(kind).values()]
    known = [value for value in known if inspect.isclass(value)]
    named = (checkpoint.get(WRITTEN_BY) or {}).get(f"{kind}_class")
    for cls in known:
        if named == class_path(cls):
            return cls
    if named is None and kind == "data":
        states = [key for key, value in checkpoint.items() if is_state(value)]
        named = next(iter(states), None)
    if named is None and kind == "model":
        saved = checkpoint.get("hyper_parameters") or {}
        classes = {"num_classes": "Classifier", "num_targets": "Regressor"}
        named = next((cls for key, cls in classes.items() if key in saved), None)
    for cls in known:
        if named == cls.__name__:
            return cls
    raise UsageError(
        f"the checkpoint does not name its {kind} class; pass --{kind} CLASS"
        if named is None
        else f"the checkpoint was written with {named}, which is not a class of this project and "
        f"is not imported because a file names it; pass --{kind} {named}"
    )


def is_state(value: Any) -> bool:
    """Whether an entry of a checkpoint is the state of a datamodule of this project."""
    return isinstance(value, dict) and "source" in value and "fitted" in value


def load(cls: Any, path: str, changes: Any) -> Any:
    """Load an object from a checkpoint, with some arguments changed.

    Raises:
        UsageError: If an argument is wrong, or missing in the checkpoint.
    """
    try:
        return cls.load_from_checkpoint(path, map_location="cpu", **dict(changes or {}))
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
