"""Findings about data, and the report that holds them."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

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
    """

    name: str
    sections: dict[str, list[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    steps: list[SampleStep] = field(default_factory=list)
    strict: bool = False

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
        return "\n".join(lines)

    def counted(self) -> str:
        """Such as ``1 error, 0 warnings, 2 notes``."""
        counts = {level: len(self.of(level)) for level in LEVELS}
        return ", ".join(f"{n} {level}{'' if n == 1 else 's'}" for level, n in counts.items())

    def _repr_html_(self) -> str:
        said = "".join(
            f"<li class='{f.level}'><b>{f.level}</b> <code>{html.escape(f.code)}</code> "
            f"{html.escape(f.sentence)}; {html.escape(f.remedy)}</li>"
            for f in self.findings
        )
        facts = "".join(
            f"<h2>{html.escape(title)}</h2><ul>"
            + "".join(f"<li>{html.escape(line)}</li>" for line in lines)
            + "</ul>"
            for title, lines in self.sections.items()
        )
        return f"<h1>{html.escape(self.name)}: {self.counted()}</h1><ul>{said}</ul>{facts}"
