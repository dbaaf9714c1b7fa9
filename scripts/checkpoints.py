"""What a checkpoint of scripts/fit.py holds: which classes wrote it, and objects made from it."""

from __future__ import annotations

import inspect
from typing import Any

from names import UsageError, import_path, known_names, resolve
from run_folder import WRITTEN_BY, class_path


def find_class(kind: str, checkpoint: dict[str, Any], asked: str | None) -> Any:
    """The class that reads what a checkpoint holds.

    Raises:
        UsageError: If the checkpoint does not say, or names a class that this project lacks.
    """
    if asked is not None:
        return import_path(resolve(kind, asked))
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
        learnt = checkpoint.get("hyper_parameters") or {}
        named = {"num_classes": "Classifier", "num_targets": "Regressor"}
        named = next((name for key, name in named.items() if key in learnt), None)
    for cls in known:
        if named == cls.__name__:
            return cls
    raise UsageError(
        f"the checkpoint does not say which {kind} class wrote it; name it: --{kind} CLASS"
        if named is None
        else f"the checkpoint was written with {named}, which is not of this project, and nothing "
        f"is imported because a file names it; name it yourself: --{kind} {named}"
    )


def is_state(value: Any) -> bool:
    """Whether a part of a checkpoint is the state of one of this project's datamodules."""
    return isinstance(value, dict) and "source" in value and "fitted" in value


def load(cls: Any, path: str, changes: Any) -> Any:
    """An object as the checkpoint has it, with some arguments changed.

    Raises:
        UsageError: If an argument is wrong, or missing and not in the checkpoint.
    """
    try:
        return cls.load_from_checkpoint(path, map_location="cpu", **dict(changes or {}))
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
