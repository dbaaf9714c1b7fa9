"""Findings about data, and the report of an inspection."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from datamodules.figures.canvas import Drawing

    from .error_report import Hardest
    from .html_page import Page
    from .overview_tables import Sheet

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
SIGNS = {"error": "x", "warning": "!", "note": "-"}  # for eyes and terminals without colour


class Finding(NamedTuple):
    """One fault or peculiarity of the data.

    Attributes:
        level: ``"error"`` makes results wrong, ``"warning"`` probably does, ``"note"`` informs.
        code: Stable identifier, such as ``overlap``.
        sentence: What was found.
        remedy: What to do.
    """

    level: Level
    code: str
    sentence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.level} [{self.code}] {self.sentence}; {self.remedy}"


class SampleStep(NamedTuple):
    """The value of one sample after one step from the source to the batch.

    Attributes:
        split: Name of the split.
        step: Such as ``decode``, the class of a transform, or ``normalize``.
        size: Such as ``3 x 32 x 32`` or ``12,345 bytes``.
        dtype: Such as ``uint8``.
        values: Range of the values, or the content if it is short; the error of a failed step.
    """

    split: str
    step: str
    size: str
    dtype: str = ""
    values: str = ""

    def __str__(self) -> str:
        said = ", ".join(part for part in (self.size, self.dtype, self.values) if part)
        return f"{self.step}: {said}"


@dataclass
class Report:
    """The result of an inspection.

    Attributes:
        name: Class of the datamodule.
        sections: Lines of facts by subject.
        findings: Errors first, then warnings, then notes.
        steps: The first sample of train and of val after each step.
        strict: Whether a warning makes the report a failure.
        sheets: Tables of splits, batches and classes.
        drawings: Figures; empty unless requested.
        hardest: Errors of a model; None without one.

    Example:
        >>> report = Report("Photos", findings=[Finding("note", "no-val", "no val", "add one")])
        >>> report.counted(), report.failed()
        ('0 errors, 0 warnings, 1 note', False)
    """

    name: str
    sections: dict[str, list[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    steps: list[SampleStep] = field(default_factory=list)
    strict: bool = False
    sheets: list[Sheet] = field(default_factory=list)
    drawings: list[Drawing] = field(default_factory=list)
    hardest: Hardest | None = None

    def of(self, level: Level) -> list[Finding]:
        """Return the findings of one level."""
        return [finding for finding in self.findings if finding.level == level]

    @property
    def codes(self) -> set[str]:
        """Codes of all findings."""
        return {finding.code for finding in self.findings}

    def failed(self, *, strict: bool | None = None) -> bool:
        """Return whether there is an error; with ``strict`` (None: the report's) also a warning."""
        strict = self.strict if strict is None else strict
        return bool(self.of("error") or (strict and self.of("warning")))

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.counted()}",
            *(f"{SIGNS[f.level]} {f}" for f in self.findings),
        ]
        for title, facts in self.sections.items():
            lines += ["", title, *(f"  {fact}" for fact in facts)]
        for split in dict.fromkeys(step.split for step in self.steps):
            lines += ["", f"One {split} sample, step by step"]
            lines += [f"  {step}" for step in self.steps if step.split == split]
        if self.hardest is not None:
            lines += ["", "Errors of the model", str(self.hardest)]
        return "\n".join(lines)

    def counted(self) -> str:
        """Return the number of findings by level."""
        counts = {level: len(self.of(level)) for level in LEVELS}
        return ", ".join(f"{n} {level}{'' if n == 1 else 's'}" for level, n in counts.items())

    def html(self) -> str:
        """Return the report as one HTML page without network or script."""
        return self._page().html()

    def save(self, path: str | Path) -> list[Path]:
        """Write the page to ``path``, an ``.html`` file or a folder, and PNG figures beside it.

        Returns:
            Paths of the page and of the figures.
        """
        from .html_report import save_report

        return save_report(self, path)

    def _repr_html_(self) -> str:
        return self._page().fragment()

    def _page(self) -> Page:
        from .html_report import page_of  # it knows this class

        return page_of(self)
