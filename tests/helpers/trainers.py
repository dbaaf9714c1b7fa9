"""A Trainer that says and keeps nothing, for tests and their programs."""

from __future__ import annotations

from typing import Any

import lightning as L


def quiet_trainer(devices: int = 1, **flags: Any) -> L.Trainer:
    """On the CPU, by DDP where there are several processes; ``flags`` are the Trainer's own."""
    given = {
        "accelerator": "cpu",
        "devices": devices,
        "strategy": "ddp" if devices > 1 else "auto",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return L.Trainer(**given | flags)
