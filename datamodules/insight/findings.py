"""Findings about data, and the report that holds them."""

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
    """One thing that a person should know.

    Attributes:
        level: ``"error"`` makes results wrong, ``"warning"`` probably does, ``"note"`` informs.
        code: Stable name of the kind of finding, such as ``overlap``.
        sentence: What was expected and what was found.
        remedy: What to do.
    """

    level: Level
    code: str
    sentence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.level} [{self.code}] {self.sentence}; {self.remedy}"


class SampleStep(NamedTuple):
    """What one sample is after one step on its way into a batch.

    Attributes:
        split: Whose first sample is followed.
        step: Such as ``decode``, the class of a transform, or ``finish``.
        size: Such as ``3 x 32 x 32`` or ``12,345 bytes``.
        dtype: Such as ``uint8``.
        values: Their range, or the content itself where that is short; of a step that fails, why.
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
    """What an inspection saw.

    Attributes:
        name: The datamodule's class.
        sections: Lines of facts by subject.
        findings: The worst first.
        steps: The first sample of train and of val after each step.
        strict: Whether a warning makes the report a failure.
        sheets: Tables of the splits, their batches and classes.
        drawings: Figures, where they were asked for.
        hardest: What a model gets wrong, where one was asked.
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
        """Findings of one level."""
        return [finding for finding in self.findings if finding.level == level]

    @property
    def codes(self) -> set[str]:
        """Codes of all findings."""
        return {finding.code for finding in self.findings}

    def failed(self, *, strict: bool | None = None) -> bool:
        """Whether there is an error, or with ``strict`` (None: the report's own) a warning."""
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
            lines += ["", "What the model gets wrong", str(self.hardest)]
        return "\n".join(lines)

    def counted(self) -> str:
        """Such as ``1 error, 0 warnings, 2 notes``."""
        counts = {level: len(self.of(level)) for level in LEVELS}
        return ", ".join(f"{n} {level}{'' if n == 1 else 's'}" for level, n in counts.items())

    def html(self) -> str:
        """The report as one HTML file that needs no other, no network and no script."""
        return self._page().html()

    def save(self, path: str | Path) -> list[Path]:
        """Write ``path`` (a name that ends in ``.html``, or a folder), and PNG figures beside it.

        Returns:
            The page, then the figures.
        """
        from .html_report import save_report

        return save_report(self, path)

    def _repr_html_(self) -> str:
        return self._page().fragment()

    def _page(self) -> Page:
        from .html_report import page_of  # it knows this class

        return page_of(self)
