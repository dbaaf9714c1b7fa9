"""Refuse options that need a dataset with indices, for iterable datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_unsplit_stream(options: Mapping[str, Any]) -> None:
    """Refuse options that split or limit an iterable dataset.

    Raises:
        ValueError: Names the option.
    """
    if options["val_split"] or options["test_split"]:
        raise ValueError("an iterable dataset cannot be split; pass val= and test=")
    for name in ("split_options", "limit"):
        if options[name]:
            raise ValueError(
                f"an iterable dataset cannot be split or counted: {name} has no effect; "
                "leave it out or pass a map-style dataset"
            )


def check_stream_options(options: Mapping[str, Any], given: Mapping[str, bool]) -> None:
    """Refuse options of order, rows and skipping, which an iterable dataset cannot follow.

    Args:
        options: The datamodule's hyperparameters.
        given: Other such options by name, and whether the user gave them.

    Raises:
        ValueError: Names the options.
    """
    refused = {
        **given,
        "global_batch_size": options["global_batch_size"] is not None,
        "uneven": options["uneven"] != "repeat",
        "worker_type": options["worker_type"] == "thread",
        "with_rows": options["with_rows"],
        "on_error": options["on_error"] != "raise",
    }
    names = [name for name, is_given in refused.items() if is_given]
    if names:
        raise ValueError(
            f"an iterable dataset has an order of its own: {', '.join(names)} cannot be used; "
            "leave it out or pass a map-style dataset"
        )
