"""One look at a datamodule: facts by subject, and findings with what to do."""

from __future__ import annotations

from typing import Any

import lightning as L

from ..core.seeding import kept_random_state
from .batch_findings import batch_findings, said
from .figures import drawings
from .file_findings import file_findings
from .findings import LEVELS, Report
from .looked import Looked, look, tensors
from .overview import sheets
from .split_findings import split_findings
from .target_findings import target_findings
from .transform_findings import steps, transform_findings


def inspect(
    dm: L.LightningDataModule, *, verify: bool = False, module: Any = None, figures: bool = False
) -> Report:
    """Look at the data of any datamodule; trains nothing and starts no worker.

    Contents are compared for all rows, texts and pixels in memory, for the first 4,000 picture
    files of a split, and for the first 256 samples of a dataset of your own.

    Args:
        dm: Ours or any other LightningDataModule.
        verify: Decode every picture file.
        module: The model; its ``num_classes`` is held against the labels.
        figures: Draw the data as well, for ``report.save(path)`` and for notebooks.

    Returns:
        :class:`Report`; ``report.failed(strict=False)`` tells whether there are errors.
    """
    with kept_random_state():
        return _inspected(dm, verify=verify, module=module, figures=figures)


def _inspected(dm: L.LightningDataModule, *, verify: bool, module: Any, figures: bool) -> Report:
    report = Report(type(dm).__name__)
    seen, report.findings = look(dm)
    classes = _given(dm, "classes")
    count = _given(module, "num_classes") or _given(getattr(module, "hparams", None), "num_classes")
    count = count or _given(dm, "num_classes")
    if count is None and classes is not None:
        count = len(classes)
    facts: dict[str, list[str]] = {"Splits": [], "First batches": [], "One sample": []}
    found = report.findings
    found += split_findings(dm, seen, classes, facts["Splits"])
    found += batch_findings(dm, seen, facts["First batches"])
    found += target_findings(dm, seen, count)
    found += transform_findings(seen)
    if "train" in seen:
        facts["One sample"] = followed(seen["train"])
    if verify:
        facts["Files"] = []
        found += file_findings(seen, facts["Files"])
    found.sort(key=lambda finding: LEVELS.index(finding.level))
    report.sections, report.sheets = facts, sheets(dm, seen)
    if figures:
        failed: list[str] = []
        report.drawings = drawings(dm, seen, failed)
        if failed:
            facts["Figures"] = failed
    return report


def followed(one: Looked) -> list[str]:
    """The first sample after each step, as far as the steps are known."""
    names = " -> ".join(type(step).__name__ for step in steps(one.transform())) or "no transform"
    lines = [one.describe(0) if len(one) else "no samples", names]
    if hasattr(one.dataset, "__getitem__") and len(one):
        try:
            sample = one.dataset[0]
        except Exception:  # said where the batch is made
            return lines
        lines += [f"dataset gives {said(t)}" for t in tensors(sample)]
        lines += [f"batch holds {said(t[0])}" for t in tensors(one.inputs) if t.ndim]
    return lines


def _given(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # a datamodule that cannot be read says so elsewhere
        return None
