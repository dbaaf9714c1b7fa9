"""Inspect a datamodule: facts, tables, figures, and findings with remedies."""

from __future__ import annotations

from typing import Any

import lightning as L

from datamodules.core.datamodule import DataModule
from datamodules.insight.checks.batch_findings import batch_findings
from datamodules.insight.checks.file_findings import check_files, file_findings, skipped_findings
from datamodules.insight.checks.leakage import shared_findings
from datamodules.insight.checks.split_findings import rank_facts, split_findings
from datamodules.insight.checks.target_findings import target_findings
from datamodules.insight.checks.transform_findings import transform_findings
from datamodules.seeding.random_state import kept_random_state

from .datamodule_view import DataModuleView
from .figures import drawings
from .findings import LEVELS, Report
from .overview_tables import sheets
from .sample_trace import trace
from .split_view import SplitView, view_splits


def inspect(
    dm: L.LightningDataModule,
    *,
    verify: bool = False,
    strict: bool = False,
    module: Any = None,
    samples: bool = True,
    figures: bool = False,
    progress: bool = False,
) -> Report:
    """Inspect the data of any datamodule, without training and without worker processes.

    Samples are compared by content: all rows, texts and pixels in memory; the first 4,000 image
    files of a split by bytes, and up to 32 million of their pixels decoded; the first 256 samples
    of other datasets.

    Args:
        dm: Any LightningDataModule.
        verify: Decode every image file, in threads, and compare all of them by pixels.
        strict: Make ``report.failed()`` count warnings too.
        module: The model; its ``num_classes`` is compared with the labels.
        samples: False makes no sample and reads no image file.
        figures: Draw figures, for ``report.save(path)`` and for notebooks.
        progress: Show a progress bar on the terminal.

    Returns:
        :class:`Report`; ``report.failed()`` is True if there are errors.
    """
    with kept_random_state():
        report, seen = _inspected(
            dm, verify=verify, module=module, samples=samples, progress=progress
        )
        if samples:
            report.sheets = sheets(dm, seen)
        if figures and samples:
            failed: list[str] = []
            report.drawings = drawings(dm, seen, failed)
            report.sections |= {"Figures": failed} if failed else {}
    report.strict = strict
    return report


def _inspected(
    dm: L.LightningDataModule, *, verify: bool, module: Any, samples: bool, progress: bool
) -> tuple[Report, dict[str, SplitView]]:
    report = Report(type(dm).__name__)
    seen, report.findings = view_splits(dm, samples=samples)
    known, model = DataModuleView(dm), DataModuleView(module)
    classes = known.classes
    count = model.num_classes or model.settings.get("num_classes") or known.num_classes
    if count is None and classes is not None:
        count = len(classes)
    facts: dict[str, list[str]] = {"Splits": [], "First batches": []}
    found = report.findings
    paths = [path for one in seen.values() for path in one.paths] if verify and samples else []
    files = check_files(paths, progress=progress)
    found += split_findings(dm, seen, classes, facts["Splits"])
    if samples:
        found += shared_findings(seen, files, facts["Splits"], progress=progress)
        if isinstance(dm, DataModule):
            rank_facts(dm, seen, facts["Splits"])
    found += batch_findings(dm, seen, facts["First batches"], classes)
    found += target_findings(dm, seen, count)
    found += transform_findings(seen, samples=samples)
    if samples:
        report.steps = [step for s in ("train", "val") if s in seen for step in trace(dm, seen[s])]
        facts["Files"] = []
        if verify:
            found += file_findings(seen, files, facts["Files"])
        found += skipped_findings(dm, seen, facts["Files"])
    found.sort(key=lambda finding: LEVELS.index(finding.level))
    report.sections = {title: lines for title, lines in facts.items() if lines}
    return report, seen
